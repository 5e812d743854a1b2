//! Ranks that do the same only if all can.

use parking_lot::{Condvar, Mutex};

/// Ranks that do the same only if all can.
#[derive(Debug)]
pub(in crate::exec) struct Agreement {
    ranks: usize,
    votes: Mutex<Votes>,
    changed: Condvar,
}

#[derive(Debug)]
struct Votes {
    /// How many have said something in this round.
    count: usize,
    /// Whether all of them said yes.
    all: bool,
    round: u64,
    /// What the last round came to.
    last: bool,
    /// A rank has failed: nobody waits any more.
    ended: bool,
}

impl Agreement {
    pub(super) fn new(ranks: usize) -> Self {
        Self {
            ranks,
            votes: Mutex::new(Votes {
                count: 0,
                all: true,
                round: 0,
                last: true,
                ended: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits until all ranks have called it as often: whether all gave `true`. `false` once a rank has failed.
    pub(in crate::exec) fn agree(&self, mine: bool) -> bool {
        let mut votes = self.votes.lock();
        if votes.ended {
            return false;
        }
        let round = votes.round;
        self.count(&mut votes, mine);
        while votes.round == round && !votes.ended {
            self.changed.wait(&mut votes);
        }
        votes.round != round && votes.last
    }

    /// Counts what a rank has said; the last one of a round decides it.
    fn count(&self, votes: &mut Votes, mine: bool) {
        votes.count += 1;
        votes.all &= mine;
        if votes.count == self.ranks {
            votes.last = votes.all;
            (votes.count, votes.all) = (0, true);
            votes.round += 1;
            self.changed.notify_all();
        }
    }

    pub(super) fn end(&self) {
        self.votes.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn ranks_agree_only_if_all_do() {
        let agreement = Agreement::new(3);
        let votes = [
            [true, true, true],
            [true, false, true],
            [false, false, false],
            [true, true, true],
        ];
        let results: Vec<Vec<bool>> = thread::scope(|scope| {
            let rank = |rank: usize| {
                let agreement = &agreement;
                scope.spawn(move || votes.iter().map(|round| agreement.agree(round[rank])).collect())
            };
            let threads: Vec<_> = (0..3).map(rank).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for result in results {
            assert_eq!(result, [true, false, false, true]);
        }
    }

    #[test]
    fn a_failed_rank_is_not_waited_for() {
        let agreement = Agreement::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| agreement.agree(true));
            agreement.end();
            assert!(!waiting.join().unwrap());
        });
        assert!(!agreement.agree(true));
    }
}
