//! Turns of sessions on GPUs that wait for each other.
//!
//! With tensor parallelism, a GPU waits within a run for what the others have submitted of the same run. Two
//! interleaved runs could deadlock: one GPU waits in the first run and another in the second, each ahead of
//! the work that the other needs. RCCL requires one order on all GPUs. So sessions on the same GPUs run in
//! turns. Batches of one session may be in flight together, because its ranks run them in one order.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

/// Turns of sessions on the same GPUs.
#[derive(Default)]
pub(crate) struct Turns {
    sessions: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of tickets drawn.
    drawn: u64,
    /// Number of tickets served.
    served: u64,
    /// Session whose batches run.
    session: u64,
    running: usize,
}

/// Turn of a batch, until it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Returns the number of a new session.
    pub(super) fn join(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until a batch of `session` may run. Batches run in the order of the calls, when no batch of
    /// another session runs.
    pub(super) fn take(&self, session: u64) -> Turn<'_> {
        let mut state = self.state.lock();
        let number = state.drawn;
        state.drawn += 1;
        while number != state.served || (state.running > 0 && state.session != session) {
            self.changed.wait(&mut state);
        }
        state.served += 1;
        state.session = session;
        state.running += 1;
        drop(state);
        // The next batch may belong to the same session.
        self.changed.notify_all();
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.changed.notify_all();
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn batches_of_one_session_run_together_and_those_of_others_by_turns() {
        let turns = Turns::default();
        let [one, two] = [turns.join(), turns.join()];
        let drawn = |count| {
            while turns.state.lock().drawn < count {
                thread::yield_now();
            }
        };
        let (begun, order) = channel();
        let first = [turns.take(one), turns.take(one)];
        thread::scope(|scope| {
            // Later batches of the first session wait for the second session's, though a batch of the first
            // one runs.
            for (index, session) in [two, one, one].into_iter().enumerate() {
                let (turns, begun) = (&turns, begun.clone());
                scope.spawn(move || {
                    let turn = turns.take(session);
                    begun.send((session, turns.state.lock().running)).unwrap();
                    drop(turn);
                });
                drawn(3 + index as u64);
            }
            for turn in first {
                assert!(order.try_recv().is_err());
                drop(turn);
            }
        });
        let order: Vec<(u64, usize)> = order.try_iter().collect();
        assert_eq!((order.len(), order[0]), (3, (two, 1)));
        assert!(order[1..].iter().all(|&(session, _)| session == one), "{order:?}");
    }
}
