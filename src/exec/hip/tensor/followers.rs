//! Connections between the process of rank 0 and those that follow it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::action::Action;
use super::group::Group;
use super::link::{Heartbeat, Incoming, Input, Link, Message};
use super::run::Run;
use crate::error::{Error, Result};

/// State that an executor has of the other processes.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) readers: Vec<JoinHandle<()>>,
    pub(super) _heartbeat: Heartbeat,
    /// Signals that there is nothing more to follow.
    pub(super) over: Option<Mutex<Receiver<()>>>,
}

/// Rank 0's view of a rank in another process.
pub(super) struct Follower {
    pub(super) rank: usize,
    pub(super) gpu: String,
    pub(super) link: Arc<Link>,
    /// Runs that the rank was told to wait for and has not reported yet.
    pub(super) awaited: Mutex<VecDeque<Arc<Run>>>,
}

impl Follower {
    /// Sends an action to the rank. [`Action::Finish`] refers to `oldest`.
    pub(super) fn tell(&self, action: &Action, oldest: Option<&Arc<Run>>) {
        let message = match action {
            Action::Submit(run) => Message::Submit {
                batch: run.batch,
                how: run.how,
                // Without an input the run fails here and is not started there.
                input: Input(run.input.lock().clone().unwrap_or_default()),
            },
            Action::Finish => {
                self.awaited.lock().extend(oldest.cloned());
                Message::Finish
            }
        };
        self.link.send(&message);
    }

    /// Handles the report that the oldest run finished or was refused.
    fn done(&self, refused: Option<Error>) {
        if let Some(run) = self.awaited.lock().pop_front() {
            run.done(refused);
        }
    }

    /// Handles the rank's messages until its connection ends.
    pub(super) fn listen(&self, group: &Group, mut incoming: Incoming) {
        let lost = loop {
            match incoming.next() {
                Ok(Message::Vote(mine)) => group.agreement.vote(mine),
                Ok(Message::Done) => self.done(None),
                Ok(Message::Refused(none)) => self.done(Some(none.on(&self.gpu))),
                Ok(Message::Failed(failure)) => group.fail(failure),
                Ok(Message::Alive) => {}
                Ok(message) => break format!("its process has sent {message:?}"),
                Err(lost) => break lost.to_string(),
            }
        };
        // Stops the threads that still send to the rank.
        self.link.close();
        group.lost(self.rank, lost);
    }
}

/// Handles rank 0's messages until there is nothing more to follow.
pub(super) fn listen_to_leader(group: &Group, actions: &Sender<Action>, mut incoming: Incoming) {
    let lost = loop {
        let action = match incoming.next() {
            Ok(Message::Submit { batch, how, input }) => {
                Action::Submit(Arc::new(Run::new(batch, input.0, how)))
            }
            Ok(Message::Finish) => Action::Finish,
            Ok(Message::Decided(all)) => {
                group.agreement.decide(all);
                continue;
            }
            Ok(Message::Failed(failure)) => {
                group.fail(failure);
                continue;
            }
            Ok(Message::Alive) => continue,
            Ok(Message::End) => {
                group.end();
                // Rank 0 waits for the connection to close.
                return incoming.close();
            }
            Ok(message) => break format!("its process has sent {message:?}"),
            Err(lost) => break lost.to_string(),
        };
        // The thread ends after this action. If it has panicked, that is a failure.
        let _ = actions.send(action);
    };
    incoming.close();
    group.lost(0, lost);
}

/// Starts a thread that handles messages from another process.
pub(super) fn reader(read: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name("hipvit-link".into());
    thread
        .spawn(read)
        .map_err(|error| Error::resource("threads", error))
}
