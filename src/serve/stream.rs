//! The body of a gRPC stream, whose messages are requests: a message counts for its memory from when its length is known until it is
//! answered, and must come within the time that a body has. A stream that says nothing costs nothing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use parking_lot::Mutex;
use tokio::time::Sleep;
use tonic::Status;

use super::failure::Failure;
use super::limits::{BodyMemory, Taken};

/// What stands before a message: whether it is compressed, and its length in four bytes.
const HEADER: usize = 5;

/// The memory of the messages that have begun to come, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages(Arc<Mutex<VecDeque<Taken>>>);

impl Messages {
    /// The memory of the message that has been read, to be kept until it is answered.
    pub(super) fn next(&self) -> Option<Taken> {
        self.0.lock().pop_front()
    }
}

/// A body that takes memory for its messages as they come.
#[derive(Debug)]
pub(super) struct StreamBody {
    body: Body,
    memory: BodyMemory,
    messages: Messages,
    header: Vec<u8>,
    /// Bytes of the current message that have not come.
    missing: usize,
    /// How long the current message was waited for. Time in which nothing was read, because the server ran the message before, is
    /// not the client's.
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl StreamBody {
    pub(super) fn new(body: Body, memory: BodyMemory) -> Self {
        Self {
            body,
            memory,
            messages: Messages::default(),
            header: Vec::with_capacity(HEADER),
            missing: 0,
            waited: Duration::ZERO,
            waiting: None,
        }
    }

    pub(super) fn messages(&self) -> Messages {
        self.messages.clone()
    }

    fn is_between_messages(&self) -> bool {
        self.missing == 0 && self.header.is_empty()
    }

    fn received(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        while !data.is_empty() {
            if self.is_between_messages() {
                self.waited = Duration::ZERO;
            }
            let wanted = match self.missing {
                0 => HEADER - self.header.len(),
                missing => missing,
            };
            let (part, rest) = data.split_at(wanted.min(data.len()));
            data = rest;
            if self.missing > 0 {
                self.missing -= part.len();
                continue;
            }
            self.header.extend_from_slice(part);
            if let &[_, a, b, c, d] = self.header.as_slice() {
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                let taken = self.memory.reserve(length, HEADER)?;
                self.messages.0.lock().push_back(taken);
                self.missing = length;
                self.header.clear();
            }
        }
        Ok(())
    }

    /// Whether the client has taken too long for the message that has begun.
    fn poll_limit(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        if self.is_between_messages() {
            return Poll::Pending;
        }
        let left = self.memory.limits().body_time.saturating_sub(self.waited);
        let wait = || (Instant::now(), Box::pin(tokio::time::sleep(left)));
        let (_, sleep) = self.waiting.get_or_insert_with(wait);
        sleep.as_mut().poll(context).map(|()| self.memory.too_slow())
    }
}

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let received = frame.data_ref().map_or(Ok(()), |data| self.received(data));
                Poll::Ready(Some(received.map(|()| frame).map_err(Status::from)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Status::from_error(Box::new(error))))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.poll_limit(context).map(|failure| Some(Err(failure.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody as Frames};
    use tonic::Code;
    use tonic::codegen::tokio_stream::{self, StreamExt as _};

    use super::*;
    use crate::serve::limits::ServerLimits;
    use crate::serve::metrics::Metrics;

    fn memory(body_time: Duration) -> BodyMemory {
        let limits = ServerLimits {
            body: 5000,
            all_bodies: 10 << 10,
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

    /// A body that has these bytes in pieces of `size`, and then says nothing more.
    fn body(bytes: &[u8], size: usize, memory: &BodyMemory) -> StreamBody {
        let pieces: Vec<_> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        let frames = tokio_stream::iter(pieces).map(|piece| Ok::<_, Status>(Frame::data(piece)));
        let frames = frames.chain(tokio_stream::pending());
        StreamBody::new(Body::new(Frames::new(frames)), memory.clone())
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_message_counts_from_its_header_until_it_is_answered() {
        let bytes = [message(0), message(3000), message(2000)].concat();
        for size in [1, 2, 7, 3005, bytes.len()] {
            block_on(async {
                let memory = memory(Duration::from_secs(60));
                let mut body = body(&bytes, size, &memory);
                let messages = body.messages();
                assert_eq!(memory.taken(), 0);
                let mut received = 0;
                while received < bytes.len() {
                    received += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
                    // In KiB: the whole of each message whose header has come.
                    let expected = [(5, 1), (10, 3), (3015, 2)]
                        .iter()
                        .filter(|(from, _)| received >= *from);
                    assert_eq!(
                        memory.taken(),
                        expected.map(|(_, kib)| kib).sum::<usize>(),
                        "{size} {received}"
                    );
                }
                for left in [5, 2, 0] {
                    drop(messages.next().unwrap());
                    assert_eq!(memory.taken(), left);
                }
                assert!(messages.next().is_none());
            });
        }
    }

    #[test]
    fn a_message_without_memory_or_beyond_the_limit_is_refused_at_its_header() {
        block_on(async {
            let memory = memory(Duration::from_secs(60));
            let mut large = body(&message(5001)[..HEADER], HEADER, &memory);
            let status = large.frame().await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
            let mut first = body(&message(4990), 5000, &memory);
            first.frame().await.unwrap().unwrap();
            let mut second = body(&message(4990), 5000, &memory);
            second.frame().await.unwrap().unwrap();
            let mut third = body(&message(1000), 5000, &memory);
            let status = third.frame().await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            // Those of a stream that ends are free again.
            drop((first, second));
            assert_eq!(memory.taken(), 0);
        });
    }

    #[test]
    fn a_message_must_come_in_time_and_a_silent_stream_may_wait() {
        let time = Duration::from_millis(20);
        // The second one has begun, in its header and behind it.
        for more in [1, 4, HEADER, HEADER + 1] {
            let bytes = [&message(10)[..], &message(10)[..more]].concat();
            block_on(async {
                let mut body = body(&bytes, 7, &memory(time));
                let mut frames = 0;
                let status = loop {
                    match body.frame().await.unwrap() {
                        Ok(_) => frames += 1,
                        Err(status) => break status,
                    }
                };
                assert_eq!(
                    (frames, status.code()),
                    (bytes.len().div_ceil(7), Code::DeadlineExceeded)
                );
            });
        }
        block_on(async {
            let mut body = body(&message(10), 100, &memory(time));
            body.frame().await.unwrap().unwrap();
            assert!(tokio::time::timeout(4 * time, body.frame()).await.is_err());
        });
    }
}
