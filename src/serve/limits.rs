//! What bounds the memory and the time that clients can take: a body is read whole, within a size, a time and the memory for the
//! bodies of all requests, before anything looks at it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::{Failure, Kind};
use super::metrics::Metrics;
use crate::image::Limits;

/// Limits on what clients may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Maximum bytes of a request's body.
    pub body: usize,
    /// Maximum bytes of all bodies in memory.
    pub all_bodies: usize,
    /// Maximum number of connections.
    pub connections: usize,
    /// The time in which a client must send the head of a request, and in which a connection must bring the first authorised one.
    pub header_time: Duration,
    /// The time after which a connection without an open request is closed.
    pub idle_time: Duration,
    /// The time in which a client must send the body of a request, and in which it must go on reading an answer.
    pub body_time: Duration,
    /// The time after which a request is given up, if the client does not ask for a shorter one.
    pub request_time: Duration,
    /// Maximum size of an image.
    pub image: Limits,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            all_bodies: 1 << 30,
            connections: 1024,
            header_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            body_time: Duration::from_secs(30),
            request_time: Duration::from_secs(30),
            image: Limits {
                // 64 megapixels: 200 MB for each thread that decodes.
                max_pixels: 1 << 26,
                ..Limits::default()
            },
        }
    }
}

/// The unit in which memory for bodies is counted.
const KIB: usize = 1024;

/// The memory for the bodies of all requests.
#[derive(Clone, Debug)]
pub(super) struct BodyMemory {
    free: Arc<Semaphore>,
    limits: ServerLimits,
    metrics: Arc<Metrics>,
}

/// Memory that a body takes until this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    permit: Option<OwnedSemaphorePermit>,
    kib: usize,
    metrics: Arc<Metrics>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.metrics.body_bytes.dec_by((self.kib * KIB) as i64);
    }
}

impl BodyMemory {
    pub(super) fn new(limits: ServerLimits, metrics: Arc<Metrics>) -> Self {
        let kib = (limits.all_bodies / KIB).min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(kib)),
            limits,
            metrics,
        }
    }

    /// Memory for a body of `bytes`, added to what it has.
    fn take(&self, taken: &mut Taken, bytes: usize) -> Result<(), Failure> {
        let wanted = bytes.div_ceil(KIB);
        let more = wanted.saturating_sub(taken.kib);
        if more == 0 {
            return Ok(());
        }
        let permits = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(permit) = self.free.clone().try_acquire_many_owned(permits) else {
            let failure = "the server has no memory for the request's body now";
            return Err(Failure::new(Kind::Overloaded(Duration::from_secs(1)), failure));
        };
        match &mut taken.permit {
            Some(before) => before.merge(permit),
            none => *none = Some(permit),
        }
        taken.kib = wanted;
        self.metrics.body_bytes.inc_by((more * KIB) as i64);
        Ok(())
    }

    fn nothing(&self) -> Taken {
        Taken {
            permit: None,
            kib: 0,
            metrics: self.metrics.clone(),
        }
    }

    pub(super) fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    fn too_large(most: usize) -> Failure {
        Failure::new(
            Kind::TooLarge,
            format!("the body exceeds the limit of {most} bytes"),
        )
    }

    pub(super) fn too_slow(&self) -> Failure {
        let reason = format!("the body took more than {:?}", self.limits.body_time);
        Failure::new(Kind::SlowClient, reason)
    }

    /// Memory for a body of `bytes`, and for so much of the server's own beside it.
    pub(super) fn reserve(&self, bytes: usize, own: usize) -> Result<Taken, Failure> {
        if bytes > self.limits.body {
            return Err(Self::too_large(self.limits.body));
        }
        let mut taken = self.nothing();
        self.take(&mut taken, bytes + own)?;
        Ok(taken)
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.limits.all_bodies / KIB - self.free.available_permits()
    }

    /// Reads a body of at most `most` bytes, whose length the client says is `length`.
    pub(super) async fn read(
        &self,
        body: Body,
        length: Option<u64>,
        most: usize,
    ) -> Result<(Bytes, Taken), Failure> {
        let mut taken = self.nothing();
        let length = match length.map(usize::try_from) {
            None => None,
            Some(Ok(length)) if length <= most => Some(length),
            Some(_) => return Err(Self::too_large(most)),
        };
        if let Some(length) = length {
            self.take(&mut taken, length)?;
        }
        let read = async {
            let mut body = body;
            let mut all = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| Failure::invalid(format!("the body cannot be read: {e}")))?;
                let Ok(data) = frame.into_data() else { continue };
                if all.len() + data.len() > most {
                    return Err(Self::too_large(most));
                }
                self.take(&mut taken, all.len() + data.len())?;
                if all.is_empty() {
                    // Once, so that a long body is not copied again and again as it grows.
                    all.reserve(length.unwrap_or(data.len()));
                }
                all.extend_from_slice(&data);
            }
            Ok(all.freeze())
        };
        match tokio::time::timeout(self.limits.body_time, read).await {
            Ok(bytes) => Ok((bytes?, taken)),
            Err(_) => Err(self.too_slow()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body_util::Full;
    use hyper::body::Frame;

    use super::*;

    fn memory(body: usize, all_bodies: usize) -> BodyMemory {
        let limits = ServerLimits {
            body,
            all_bodies,
            ..ServerLimits::default()
        };
        BodyMemory::new(limits, Metrics::new())
    }

    fn body(bytes: usize) -> Body {
        Body::new(Full::new(Bytes::from(vec![7; bytes])))
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }

    /// Sends nothing and does not end.
    struct Silent;

    impl hyper::body::Body for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_body_within_its_limit_is_read() {
        block_on(async {
            let memory = memory(5000, 100 * KIB);
            for length in [Some(5000), None] {
                let (bytes, taken) = memory.read(body(5000), length, 5000).await.unwrap();
                assert_eq!(bytes.len(), 5000);
                assert_eq!(taken.kib, 5);
            }
            // It was given back.
            assert_eq!(memory.free.available_permits(), 100);
            assert_eq!(memory.metrics.body_bytes.get(), 0);
        });
    }

    #[test]
    fn a_body_beyond_its_limit_is_not() {
        block_on(async {
            let memory = memory(5000, 100 * KIB);
            for (length, bytes) in [
                (Some(5001), 0),
                (Some(u64::MAX), 0),
                (None, 5001),
                (Some(10), 5001),
            ] {
                let failure = memory.read(body(bytes), length, 5000).await.unwrap_err();
                assert_eq!(failure.kind(), Kind::TooLarge, "{length:?}");
            }
            assert_eq!(memory.free.available_permits(), 100);
        });
    }

    #[test]
    fn without_memory_for_it_the_request_is_shed() {
        block_on(async {
            let memory = memory(64 * KIB, 100 * KIB);
            let first = memory.read(body(64 * KIB), None, 64 * KIB).await.unwrap();
            let failure = memory.read(body(37 * KIB), None, 64 * KIB).await.unwrap_err();
            assert!(matches!(failure.kind(), Kind::Overloaded(_)), "{failure}");
            memory.read(body(36 * KIB), None, 64 * KIB).await.unwrap();
            drop(first);
            memory.read(body(37 * KIB), None, 64 * KIB).await.unwrap();
        });
    }

    #[test]
    fn a_body_that_never_ends_times_out() {
        block_on(async {
            let mut memory = memory(5000, 100 * KIB);
            memory.limits.body_time = Duration::from_millis(1);
            let failure = memory.read(Body::new(Silent), None, 5000).await.unwrap_err();
            assert_eq!(failure.kind(), Kind::SlowClient);
        });
    }
}
