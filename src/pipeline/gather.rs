//! Gathering of sources into batches: full batches, or the available sources once the oldest has waited long enough.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use super::Source;
use crate::error::{Error, Result};

/// Iterator over batches of sources.
pub(super) enum Gather {
    /// Full batches. Waits for each source.
    Full(Box<dyn Iterator<Item = Source> + Send>),
    /// Batches that need not be full.
    Timed(Timed),
}

/// Batches with a maximum delay. Another thread iterates over the sources.
pub(super) struct Timed {
    arrived: Receiver<Arrived>,
    /// Maximum time that a source waits for others.
    max_delay: Duration,
    ended: bool,
}

enum Arrived {
    Source(Instant, Source),
    /// The sources have ended, or the receiver was dropped.
    End,
    Panicked(Box<dyn Any + Send>),
}

/// Handle that ends gathering while it waits for a source.
pub(super) struct Stop(SyncSender<Arrived>);

impl Stop {
    pub(super) fn stop(&self) {
        // If the channel is full or has no receiver, no thread waits either.
        let _ = self.0.try_send(Arrived::End);
    }
}

impl Gather {
    /// Collects `sources` on a separate thread, since a thread that waits for a source cannot check deadlines. The thread ends after the
    /// current source if the receiver was dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Resource`] if the thread cannot be started.
    pub(super) fn timed(
        sources: impl Iterator<Item = Source> + Send + 'static,
        batch: usize,
        max_delay: Duration,
    ) -> Result<(Self, Stop)> {
        let (sender, arrived) = mpsc::sync_channel(batch);
        let stop = Stop(sender.clone());
        let take = move || {
            let taken = catch_unwind(AssertUnwindSafe(|| {
                for source in sources {
                    if sender.send(Arrived::Source(Instant::now(), source)).is_err() {
                        return;
                    }
                }
            }));
            let _ = sender.send(match taken {
                Ok(()) => Arrived::End,
                Err(panic) => Arrived::Panicked(panic),
            });
        };
        let thread = thread::Builder::new().name("hipvit-sources".into());
        thread.spawn(take).map_err(|e| Error::resource("threads", e))?;
        let timed = Timed {
            arrived,
            max_delay,
            ended: false,
        };
        Ok((Self::Timed(timed), stop))
    }

    /// Returns the next batch of at most `most` sources. Empty after the last.
    pub(super) fn next(&mut self, most: usize) -> Vec<Source> {
        match self {
            Self::Full(sources) => sources.take(most).collect(),
            Self::Timed(timed) => timed.next(most),
        }
    }

    /// Returns true if a batch may be larger than earlier ones.
    pub(super) fn grows(&self) -> bool {
        matches!(self, Self::Timed(_))
    }
}

impl Timed {
    fn next(&mut self, most: usize) -> Vec<Source> {
        let mut batch = Vec::new();
        let mut deadline = None;
        while batch.len() < most && !self.ended {
            let arrived = match deadline {
                None => self.arrived.recv().map_err(|_| RecvTimeoutError::Disconnected),
                // After the deadline, still take the sources that have arrived.
                Some(deadline) => self.arrived.recv_timeout(remaining(deadline)),
            };
            match arrived {
                Ok(Arrived::Source(at, source)) => {
                    // A delay beyond the range of the clock means no deadline.
                    deadline.get_or_insert_with(|| at.checked_add(self.max_delay));
                    batch.push(source);
                }
                Ok(Arrived::Panicked(panic)) => resume_unwind(panic),
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Arrived::End) | Err(RecvTimeoutError::Disconnected) => self.ended = true,
            }
        }
        batch
    }
}

/// Returns the time until `deadline`.
fn remaining(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| {
        deadline.saturating_duration_since(Instant::now())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(batch: &[Source]) -> Vec<String> {
        batch.iter().map(Source::name).collect()
    }

    #[test]
    fn a_batch_waits_for_no_source_beyond_its_deadline() {
        let (send, receive) = mpsc::channel::<&str>();
        let sources = receive.into_iter().map(Source::from);
        let (mut gather, _stop) = Gather::timed(sources, 3, Duration::from_millis(1)).unwrap();
        send.send("a").unwrap();
        // No other source arrives before this returns.
        assert_eq!(names(&gather.next(3)), ["a"]);
        for name in ["b", "c", "d"] {
            send.send(name).unwrap();
        }
        drop(send);
        let mut rest = Vec::new();
        while let batch @ [_, ..] = &gather.next(3)[..] {
            rest.extend(names(batch));
        }
        assert_eq!(rest, ["b", "c", "d"]);
    }

    #[test]
    fn without_a_deadline_in_reach_batches_are_full() {
        let sources = ["a", "b", "c", "d", "e"].map(Source::from).into_iter();
        let (mut gather, _stop) = Gather::timed(sources, 2, Duration::MAX).unwrap();
        let sizes: Vec<usize> = (0..4).map(|_| gather.next(2).len()).collect();
        assert_eq!(sizes, [2, 2, 1, 0]);
    }

    #[test]
    fn stopping_ends_a_wait() {
        let (_send, receive) = mpsc::channel::<&str>();
        let sources = receive.into_iter().map(Source::from);
        let (mut gather, stop) = Gather::timed(sources, 2, Duration::ZERO).unwrap();
        stop.stop();
        assert!(gather.next(2).is_empty());
    }

    #[test]
    #[should_panic(expected = "no more")]
    fn a_panic_of_the_sources_is_passed_on() {
        let sources = std::iter::from_fn(|| -> Option<Source> { panic!("no more") });
        let (mut gather, _stop) = Gather::timed(sources, 2, Duration::ZERO).unwrap();
        gather.next(2);
    }
}
