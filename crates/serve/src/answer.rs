//! Bodies of answers. They count for their memory until the client has read them, and the client must take
//! each part in time.
//!
//! hyper asks a body for its next part as soon as the window of the HTTP/2 stream has space for a byte. A
//! part is therefore short, and its last byte is a separate frame that follows all others. While a part
//! waits, hyper does not poll the body, so the task of the stream keeps the deadline.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::Version;
use hyper::body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::Failure;
use super::memory::Charge;

/// Maximum bytes of a part.
const MAX_PART_BYTES: usize = 64 << 10;

tokio::task_local! {
    /// Deadline of the current task's stream for the part that its client takes.
    static LIMIT: Limit;
}

#[derive(Clone, Debug, Default)]
struct Limit(Arc<Mutex<Option<Instant>>>);

impl Limit {
    /// Sets the deadline of the current task if it serves an HTTP/2 stream. Otherwise the connection's write
    /// limit applies.
    fn set(at: Option<Instant>) {
        let _ = LIMIT.try_with(|limit| *limit.0.lock() = at);
    }
}

/// Runs the streams of HTTP/2 connections. A stream is reset if its client does not take a part of its answer in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor;

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        tokio::spawn(limited(stream));
    }
}

async fn limited<F: Future>(stream: F) {
    let limit = Limit::default();
    let mut stream = pin!(LIMIT.scope(limit.clone(), stream));
    let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
    std::future::poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(at) = *limit.0.lock() else {
            return Poll::Pending;
        };
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(context)
    })
    .await;
}

/// The body of an answer.
struct Answer {
    body: Body,
    /// Bytes of `body` that the connection has not taken.
    rest: Bytes,
    /// True if the last byte of a part is a separate frame.
    splits: bool,
    time: Duration,
    _charge: Charge,
}

/// Sets the charge of an answer to its length, if that is known. This frees the memory that was needed to
/// create it.
///
/// # Errors
///
/// Errors of [`Charge::resize`].
pub(super) fn count(response: &Response, charge: &Charge) -> Result<(), Failure> {
    match response.body().size_hint().exact() {
        Some(bytes) => charge.resize(usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => Ok(()),
    }
}

/// Keeps `charge` until an answer has been read, and limits the time of each part to `time`.
pub(super) fn limit(response: Response, version: Version, charge: Charge, time: Duration) -> Response {
    response.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        Body::new(Answer {
            body,
            rest: Bytes::new(),
            splits: version == Version::HTTP_2,
            time,
            _charge: charge,
        })
    })
}

impl Answer {
    fn part(&mut self) -> Bytes {
        let length = self.rest.len();
        let most = if self.splits && length > 1 {
            length - 1
        } else {
            length
        };
        self.rest.split_to(most.min(MAX_PART_BYTES))
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Limit::set(None);
        while self.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        // A deadline that overflows is no limit.
        Limit::set(Instant::now().checked_add(self.time));
        Poll::Ready(Some(Ok(Frame::data(self.part()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::block_on;
    use crate::memory::Account;
    use crate::metrics::Metrics;

    #[test]
    fn an_answer_counts_until_it_is_read_and_comes_in_parts() {
        block_on(async {
            let account = Account::new(1 << 30, Metrics::new());
            for (version, expected) in [
                (Version::HTTP_11, vec![MAX_PART_BYTES, MAX_PART_BYTES, 1000]),
                (Version::HTTP_2, vec![MAX_PART_BYTES, MAX_PART_BYTES, 999, 1]),
            ] {
                let charge = account.charge(None);
                charge.grow(1 << 20).unwrap();
                let all = 2 * MAX_PART_BYTES + 1000;
                let response = Response::new(Body::from(vec![7_u8; all]));
                count(&response, &charge).unwrap();
                let mut body = limit(response, version, charge, Duration::from_secs(60)).into_body();
                assert_eq!(body.size_hint().exact(), Some(all as u64));
                let mut parts = Vec::new();
                while let Some(frame) = body.frame().await {
                    assert_eq!(account.used(), all);
                    parts.push(frame.unwrap().into_data().unwrap().len());
                }
                assert_eq!(parts, expected);
                drop(body);
                assert_eq!(account.used(), 0);
            }
        });
    }

    /// Polls for a part, and then no more, like a stream without a window.
    #[test]
    fn a_part_that_is_not_taken_ends_its_stream() {
        block_on(async {
            let account = Account::new(1 << 30, Metrics::new());
            let charge = account.charge(None);
            let response = Response::new(Body::from(vec![7_u8; 4 * MAX_PART_BYTES]));
            count(&response, &charge).unwrap();
            assert_eq!(account.used(), 4 * MAX_PART_BYTES);
            let time = Duration::from_millis(20);
            let mut body = limit(response, Version::HTTP_2, charge, time).into_body();
            let stalled = limited(async move {
                body.frame().await.unwrap().unwrap();
                std::future::pending::<()>().await;
            });
            let ended = tokio::time::timeout(Duration::from_secs(60), stalled).await;
            assert!(ended.is_ok());
            assert_eq!(account.used(), 0);
        });
    }
}
