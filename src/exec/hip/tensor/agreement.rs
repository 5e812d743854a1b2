//! Votes of the ranks on actions that either all take or none.

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::link::{Links, Message};
use super::spin::{SPIN_BUDGET, spin};
use crate::exec::hip::rank::Agree;

/// Votes of the ranks, in rounds.
#[derive(Debug)]
pub(super) struct Agreement {
    ranks: usize,
    /// Connections. Rank 0's process counts the votes of all processes.
    links: Links,
    votes: Mutex<Votes>,
    changed: Condvar,
}

#[derive(Debug)]
struct Votes {
    /// Number of votes in this round.
    count: usize,
    /// True if all votes of this round are yes.
    all: bool,
    round: u64,
    /// Result of the last round.
    last: bool,
    /// Set once a rank has failed, after which no vote waits.
    ended: bool,
}

impl Agreement {
    pub(super) fn new(ranks: usize, links: Links) -> Self {
        Self {
            ranks,
            links,
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

    /// Counts the vote of a rank of another process.
    pub(super) fn vote(&self, mine: bool) {
        self.count(&mut self.votes.lock(), mine);
    }

    /// Counts a vote. The last vote of a round decides it.
    fn count(&self, votes: &mut MutexGuard<'_, Votes>, mine: bool) {
        votes.count += 1;
        votes.all &= mine;
        if votes.count == self.ranks {
            let all = std::mem::replace(&mut votes.all, true);
            votes.count = 0;
            self.conclude(votes, all);
            MutexGuard::unlocked(votes, || self.links.tell(&Message::Decided(all)));
        }
    }

    /// Takes the result counted by rank 0's process.
    pub(super) fn decide(&self, all: bool) {
        self.conclude(&mut self.votes.lock(), all);
    }

    fn conclude(&self, votes: &mut Votes, all: bool) {
        votes.last = all;
        votes.round += 1;
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        self.votes.lock().ended = true;
        self.changed.notify_all();
    }
}

impl Agree for Agreement {
    fn agree(&self, mine: bool) -> bool {
        let mut votes = self.votes.lock();
        if votes.ended {
            return false;
        }
        let round = votes.round;
        match &self.links {
            Links::Leader(leader) => MutexGuard::unlocked(&mut votes, || leader.send(&Message::Vote(mine))),
            _ => self.count(&mut votes, mine),
        }
        if votes.round == round {
            // Spin first, since the other ranks vote at about the same time.
            let look = || {
                let votes = self.votes.lock();
                (votes.round != round || votes.ended).then_some(())
            };
            MutexGuard::unlocked(&mut votes, || spin(SPIN_BUDGET, look));
        }
        while votes.round == round && !votes.ended {
            self.changed.wait(&mut votes);
        }
        votes.round != round && votes.last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::super::link::Incoming;
    use super::super::link::tests::links;
    use super::*;

    #[test]
    fn ranks_agree_only_if_all_do() {
        let agreement = Agreement::new(3, Links::Here);
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

    /// Rank 0's process counts the votes that the other processes send.
    #[test]
    fn processes_agree_only_if_all_do() {
        let votes = [
            [true, true, true],
            [true, false, true],
            [false, true, true],
            [true, true, true],
        ];
        let rank = |(rank, (links, incoming)): (usize, (Links, Vec<Incoming>))| {
            let agreement = Arc::new(Agreement::new(3, links));
            for mut incoming in incoming {
                let agreement = agreement.clone();
                thread::spawn(move || {
                    while let Ok(message) = incoming.next() {
                        match message {
                            Message::Vote(mine) => agreement.vote(mine),
                            Message::Decided(all) => agreement.decide(all),
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            thread::spawn(move || votes.map(|round| agreement.agree(round[rank])))
        };
        let threads: Vec<_> = links(3).into_iter().enumerate().map(rank).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), [true, false, false, true]);
        }
    }

    #[test]
    fn a_failed_rank_is_not_waited_for() {
        let agreement = Agreement::new(2, Links::Here);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| agreement.agree(true));
            agreement.end();
            assert!(!waiting.join().unwrap());
        });
        assert!(!agreement.agree(true));
    }
}
