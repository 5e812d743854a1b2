//! Spinning for events that take microseconds. A run passes from thread to thread several times, and waking a thread takes tens of
//! microseconds each time.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time that a thread spins for another thread's concurrent action before it blocks.
pub(super) const SPIN_BUDGET: Duration = Duration::from_micros(200);

/// Calls `look` until it returns a value, for at most `limit`. Yields the core to other threads between the calls.
pub(super) fn spin<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let found = look();
        if found.is_some() || begin.elapsed() >= limit {
            return found;
        }
        thread::yield_now();
    }
}

/// Receives a message that usually arrives within [`SPIN_BUDGET`]. `None` once all senders are dropped.
pub(super) fn receive<T>(receiver: &Receiver<T>) -> Option<T> {
    let look = || match receiver.try_recv() {
        Ok(received) => Some(Some(received)),
        Err(TryRecvError::Disconnected) => Some(None),
        Err(TryRecvError::Empty) => None,
    };
    spin(SPIN_BUDGET, look).unwrap_or_else(|| receiver.recv().ok())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_comes_late_is_received_too() {
        let (sender, receiver) = channel();
        let sending = thread::spawn(move || {
            sender.send(1).unwrap();
            thread::sleep(5 * SPIN_BUDGET);
            sender.send(2).unwrap();
        });
        assert_eq!([receive(&receiver), receive(&receiver)], [Some(1), Some(2)]);
        sending.join().unwrap();
        assert_eq!(receive(&receiver), None);
    }

    #[test]
    fn what_does_not_come_is_given_up() {
        assert_eq!(spin(SPIN_BUDGET, || None::<()>), None);
        // Calls `look` at least once.
        assert_eq!(spin(Duration::ZERO, || Some(3)), Some(3));
    }
}
