//! Waiting for what comes within microseconds. A run is handed from thread to thread several times, and to wake one takes tens of
//! microseconds each time.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread looks for what another does at the same time, before it sleeps.
pub(super) const SOON: Duration = Duration::from_micros(200);

/// Looks for as long as `limit` until `look` finds something. Other threads may use the core meanwhile.
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

/// As [`Receiver::recv`], for what often comes [soon](SOON).
pub(super) fn receive<T>(receiver: &Receiver<T>) -> Option<T> {
    let look = || match receiver.try_recv() {
        Ok(received) => Some(Some(received)),
        Err(TryRecvError::Disconnected) => Some(None),
        Err(TryRecvError::Empty) => None,
    };
    spin(SOON, look).unwrap_or_else(|| receiver.recv().ok())
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
            thread::sleep(5 * SOON);
            sender.send(2).unwrap();
        });
        assert_eq!([receive(&receiver), receive(&receiver)], [Some(1), Some(2)]);
        sending.join().unwrap();
        assert_eq!(receive(&receiver), None);
    }

    #[test]
    fn what_does_not_come_is_given_up() {
        assert_eq!(spin(SOON, || None::<()>), None);
        // It looks once at least.
        assert_eq!(spin(Duration::ZERO, || Some(3)), Some(3));
    }
}
