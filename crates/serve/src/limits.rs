//! Limits of the memory and the time that clients can take. A body is read completely before it is parsed,
//! within a size, a time, and the memory of its client.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::failure::{Failure, Kind};
use super::memory::{Account, Buffer, Charge};
use super::metrics::Metrics;
use super::options::ServerLimits;

/// Bytes of all calls without a token.
const OPEN_MEMORY: usize = 4 << 20;

/// Limits of a server with the accounts of its memory.
#[derive(Clone, Debug)]
pub(super) struct BodyMemory {
    limits: ServerLimits,
    account: Account,
    open_account: Account,
}

impl BodyMemory {
    pub(super) fn new(limits: ServerLimits, metrics: Arc<Metrics>) -> Self {
        Self {
            limits,
            account: Account::new(limits.all_bodies, metrics.clone()),
            open_account: Account::new(OPEN_MEMORY, metrics),
        }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the account of calls without a token. They work even if clients have used up the other
    /// account.
    pub(super) fn open_account(&self) -> &Account {
        &self.open_account
    }

    pub(super) fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    pub(super) fn too_large(most: usize) -> Failure {
        Failure::new(
            Kind::TooLarge,
            format!("the body exceeds the limit of {most} bytes"),
        )
    }

    pub(super) fn too_slow(&self) -> Failure {
        let reason = format!("the body took more than {:?}", self.limits.body_time);
        Failure::new(Kind::SlowClient, reason)
    }

    /// Reads a body of at most `most` bytes. `length` is the announced length. Memory is charged on arrival.
    pub(super) async fn read(
        &self,
        mut body: Body,
        length: Option<u64>,
        most: usize,
        charge: &Charge,
    ) -> Result<Bytes, Failure> {
        let length = match length.map(usize::try_from) {
            None => None,
            Some(Ok(length)) if length <= most => Some(length),
            Some(_) => return Err(Self::too_large(most)),
        };
        let read = async {
            let mut all = Buffer::new(charge.clone());
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| Failure::invalid(format!("the body cannot be read: {e}")))?;
                let Ok(data) = frame.into_data() else { continue };
                if all.len() + data.len() > most {
                    return Err(Self::too_large(most));
                }
                all.push(&data, length)?;
            }
            Ok(all.finish())
        };
        match tokio::time::timeout(self.limits.body_time, read).await {
            Ok(bytes) => bytes,
            Err(_) => Err(self.too_slow()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use http_body_util::Full;
    use hyper::body::Frame;

    use super::*;
    use crate::block_on;

    const KIB: usize = 1024;

    fn bodies(body: usize, all_bodies: usize) -> BodyMemory {
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

    /// A body that sends nothing and does not end.
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
            let bodies = bodies(5000, 100 * KIB);
            for length in [Some(5000), None] {
                let charge = bodies.account().charge(None);
                let bytes = bodies.read(body(5000), length, 5000, &charge).await.unwrap();
                drop(charge);
                assert_eq!((bytes.len(), bodies.account().used()), (5000, 5000));
                // An image that is a slice of the body keeps its memory.
                let part = bytes.slice(10..20);
                drop(bytes);
                assert_eq!(bodies.account().used(), 5000);
                drop(part);
                assert_eq!(bodies.account().used(), 0);
            }
        });
    }

    #[test]
    fn a_body_beyond_its_limit_is_not() {
        block_on(async {
            let bodies = bodies(5000, 100 * KIB);
            for (length, bytes) in [
                (Some(5001), 0),
                (Some(u64::MAX), 0),
                (None, 5001),
                (Some(10), 5001),
            ] {
                let charge = bodies.account().charge(None);
                let failure = bodies.read(body(bytes), length, 5000, &charge).await.unwrap_err();
                assert_eq!(failure.kind(), Kind::TooLarge, "{length:?}");
            }
            assert_eq!(bodies.account().used(), 0);
        });
    }

    #[test]
    fn a_body_that_is_announced_and_does_not_come_takes_no_memory() {
        block_on(async {
            let mut bodies = bodies(64 * KIB, 64 * KIB);
            bodies.limits.body_time = Duration::from_millis(50);
            let account = bodies.account();
            let charge = account.charge(None);
            let failure = bodies
                .read(Body::new(Silent), Some(64 << 10), 64 * KIB, &charge)
                .await;
            assert_eq!(failure.unwrap_err().kind(), Kind::SlowClient);
            assert_eq!(account.used(), 0);
            // Received bytes count, and the share of the client is the maximum.
            let held = account.charge(None);
            let _first = bodies.read(body(20 * KIB), None, 64 * KIB, &held).await.unwrap();
            let charge = account.charge(None);
            let shed = bodies.read(body(20 * KIB), None, 64 * KIB, &charge).await;
            assert!(matches!(shed.unwrap_err().kind(), Kind::Overloaded(_)));
        });
    }

    #[test]
    fn a_body_that_never_ends_times_out() {
        block_on(async {
            let mut bodies = bodies(5000, 100 * KIB);
            bodies.limits.body_time = Duration::from_millis(1);
            let charge = bodies.account().charge(None);
            let failure = bodies
                .read(Body::new(Silent), None, 5000, &charge)
                .await
                .unwrap_err();
            assert_eq!(failure.kind(), Kind::SlowClient);
        });
    }
}
