//! Joins threads that may hang.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval between checks whether threads have ended.
const END_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Joins threads until `deadline`. Returns true if all have ended; the others stay in `threads`.
pub(super) fn join_until(threads: &mut Vec<JoinHandle<()>>, deadline: Instant) -> bool {
    loop {
        let (ended, running): (Vec<_>, Vec<_>) = threads.drain(..).partition(JoinHandle::is_finished);
        for thread in ended {
            // A panic has been reported, and the thread's resources are free.
            let _ = thread.join();
        }
        *threads = running;
        if threads.is_empty() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(END_POLL_INTERVAL);
    }
}
