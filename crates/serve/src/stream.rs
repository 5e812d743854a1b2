//! Messages of a gRPC body. A message counts for its memory from its first byte until it is answered, and
//! must arrive within the time limit of a body. A silent stream costs nothing.

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;

use super::failure::{Failure, Kind};
use super::limits::BodyMemory;
use super::memory::{Buffer, Charge};

/// Length of a message's header in bytes: a flag for compression, and four bytes of length.
const HEADER: usize = 5;

/// Reads the length of a message from its header.
///
/// # Errors
///
/// [`Kind::TooLarge`] if the message exceeds `most` bytes, [`Kind::Unsupported`] if it is compressed.
fn length(header: [u8; HEADER], most: usize) -> Result<usize, Failure> {
    let [compressed, length @ ..] = header;
    if compressed != 0 {
        let reason = "compressed messages are not supported: send them without compression";
        return Err(Failure::new(Kind::Unsupported, reason));
    }
    match usize::try_from(u32::from_be_bytes(length)) {
        Ok(length) if length <= most => Ok(length),
        _ => Err(BodyMemory::too_large(most)),
    }
}

/// Returns the one message of a body.
///
/// # Errors
///
/// [`Failure`] if the body has less or more than one message, and the errors of [`length`].
pub(super) fn only_message(mut body: Bytes, most: usize) -> Result<Bytes, Failure> {
    let wrong = |what: &str| Failure::invalid(format!("the call needs one message, and its body {what}"));
    let header = *body.first_chunk().ok_or_else(|| wrong("has none"))?;
    let length = length(header, most)?;
    body.advance(HEADER);
    match body.len() {
        sent if sent == length => Ok(body),
        sent if sent < length => Err(wrong("ends within it")),
        _ => Err(wrong("has more")),
    }
}

/// Puts the header of gRPC before a message.
pub(super) fn frame(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(HEADER + length);
    frame.push(0);
    // A message of 4 GiB exceeds every limit.
    frame.extend((length as u32).to_be_bytes());
    // Writing to a vector does not fail.
    let _ = message.encode(&mut frame);
    frame.into()
}

/// Messages of a body, one after the other.
#[derive(Debug)]
pub(super) struct Messages {
    body: Body,
    /// Received bytes of the next messages.
    rest: Bytes,
    limits: BodyMemory,
}

impl Messages {
    pub(super) fn new(body: Body, limits: BodyMemory) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            limits,
        }
    }

    /// Waits for bytes. Returns false at the end of the body.
    async fn has_more(&mut self) -> Result<bool, Failure> {
        while self.rest.is_empty() {
            let Some(frame) = self.body.frame().await else {
                return Ok(false);
            };
            let frame = frame.map_err(|e| Failure::invalid(format!("the stream cannot be read: {e}")))?;
            if let Ok(data) = frame.into_data() {
                self.rest = data;
            }
        }
        Ok(true)
    }

    /// Waits for the next message, whose bytes `charge` takes. Returns `None` at the end of the body.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the message is too large, too slow, incomplete or compressed, or there is no memory for it.
    pub(super) async fn next(&mut self, charge: &Charge) -> Result<Option<Bytes>, Failure> {
        // A client may be silent between messages.
        if !self.has_more().await? {
            return Ok(None);
        }
        let time = self.limits.limits().body_time;
        match tokio::time::timeout(time, self.read(charge)).await {
            Ok(message) => message.map(Some),
            Err(_) => Err(self.limits.too_slow()),
        }
    }

    async fn read(&mut self, charge: &Charge) -> Result<Bytes, Failure> {
        let mut header = [0; HEADER];
        for byte in &mut header {
            if !self.has_more().await? {
                return Err(Failure::invalid("the stream ends within a message"));
            }
            *byte = self.rest.get_u8();
        }
        let length = length(header, self.limits.limits().body)?;
        let mut message = Buffer::new(charge.clone());
        while message.len() < length {
            if !self.has_more().await? {
                return Err(Failure::invalid("the stream ends within a message"));
            }
            let part = self.rest.split_to(self.rest.len().min(length - message.len()));
            message.push(&part, Some(length))?;
        }
        Ok(message.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::StreamBody as Frames;
    use hyper::body::Frame;
    use tonic::Status;
    use tonic::codegen::tokio_stream::{self, StreamExt as _};

    use super::*;
    use crate::block_on;
    use crate::metrics::Metrics;
    use crate::options::ServerLimits;

    fn memory(body_time: Duration) -> BodyMemory {
        let limits = ServerLimits {
            body: 5000,
            all_bodies: 20 << 10,
            body_time,
            ..ServerLimits::default()
        };
        BodyMemory::new(limits, Metrics::new())
    }

    fn message(length: u32) -> Vec<u8> {
        let mut message = vec![0];
        message.extend(length.to_be_bytes());
        message.resize(HEADER + length as usize, 7);
        message
    }

    /// A body that sends these bytes in pieces of `size`, and then nothing more.
    fn messages(bytes: &[u8], size: usize, memory: &BodyMemory) -> Messages {
        let pieces: Vec<_> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        let frames = tokio_stream::iter(pieces).map(|piece| Ok::<_, Status>(Frame::data(piece)));
        let frames = frames.chain(tokio_stream::pending());
        Messages::new(Body::new(Frames::new(frames)), memory.clone())
    }

    #[test]
    fn messages_count_until_they_are_answered() {
        let bytes = [message(0), message(3000), message(2000)].concat();
        for size in [1, 2, 7, 3005, bytes.len()] {
            block_on(async {
                let memory = memory(Duration::from_secs(60));
                let mut messages = messages(&bytes, size, &memory);
                for length in [0, 3000, 2000] {
                    let charge = memory.account().charge(None);
                    let message = messages.next(&charge).await.unwrap().unwrap();
                    assert_eq!(message, vec![7; length]);
                    assert_eq!(memory.account().used(), length, "{size}");
                }
                assert_eq!(memory.account().used(), 0);
            });
        }
    }

    #[test]
    fn a_message_without_memory_or_beyond_the_limit_is_refused() {
        block_on(async {
            let memory = memory(Duration::from_secs(60));
            let charge = || memory.account().charge(None);
            let kind = async |bytes: &[u8]| {
                let charge = charge();
                let failure = messages(bytes, 5000, &memory).next(&charge).await.unwrap_err();
                failure.kind()
            };
            // Refused at its header.
            assert_eq!(kind(&message(5001)[..HEADER]).await, Kind::TooLarge);
            assert_eq!(kind(&[1, 0, 0, 0, 0]).await, Kind::Unsupported);
            let held = charge();
            held.grow(9 << 10).unwrap();
            assert!(matches!(kind(&message(4990)).await, Kind::Overloaded(_)));
            // A message that is only announced takes no memory.
            drop(held);
            assert_eq!(memory.account().used(), 0);
        });
        let most = 100;
        assert_eq!(only_message(message(3).into(), most).unwrap(), vec![7; 3]);
        for wrong in [
            vec![0; 3],
            message(3)[..7].to_vec(),
            [message(3), message(0)].concat(),
        ] {
            let failure = only_message(wrong.into(), most).unwrap_err();
            assert!(
                failure.message().starts_with("the call needs one message"),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_message_must_come_in_time_and_a_silent_stream_may_wait() {
        let time = Duration::from_millis(20);
        // The second message has begun, within its header and after it.
        for more in [1, 4, HEADER, HEADER + 1] {
            let bytes = [&message(10)[..], &message(10)[..more]].concat();
            block_on(async {
                let memory = memory(time);
                let charge = memory.account().charge(None);
                let mut messages = messages(&bytes, 7, &memory);
                messages.next(&charge).await.unwrap().unwrap();
                let failure = messages.next(&charge).await.unwrap_err();
                assert_eq!(failure.kind(), Kind::SlowClient);
            });
        }
        block_on(async {
            let memory = memory(time);
            let charge = memory.account().charge(None);
            let mut messages = messages(&message(10), 100, &memory);
            messages.next(&charge).await.unwrap().unwrap();
            assert!(
                tokio::time::timeout(4 * time, messages.next(&charge))
                    .await
                    .is_err()
            );
        });
    }
}
