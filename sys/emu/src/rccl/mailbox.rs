//! Messages that a rank received from the others, and errors on the way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipvit_sys::rccl::ncclResult_t;
use serde::{Deserialize, Serialize};

use super::call::Call;

/// Key of a rank's message. Numbers count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Key {
    /// The communicator's collective of this number.
    Collective(u64),
    /// The send of this number from the message's sender to its receiver.
    Sent(u64),
    /// That the receiver of the send of this number has begun to receive; goes the other way.
    Receiving(u64),
}

impl Key {
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Collective(number) | Self::Sent(number) | Self::Receiving(number) => number,
        }
    }
}

/// One rank's part of a call.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) call: Call,
    pub(super) data: Arc<Vec<u8>>,
}

/// Reason for which a communicator failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed {
    pub(super) result: ncclResult_t,
    /// Kept for ever, as `ncclGetLastError` gives it out.
    pub(super) text: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    messages: BTreeMap<(usize, Key), Message>,
    /// The ranks that will send nothing more, and why.
    gone: BTreeMap<usize, String>,
    failed: Option<Failed>,
    aborted: bool,
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, from: usize, key: Key, message: Message) {
        self.state().messages.insert((from, key), message);
    }

    /// The call of the message, if it has arrived.
    pub(super) fn call(&self, from: usize, key: Key) -> Option<Call> {
        let state = self.state();
        state
            .messages
            .get(&(from, key))
            .map(|message| message.call.clone())
    }

    pub(super) fn take(&self, from: usize, key: Key) -> Option<Message> {
        self.state().messages.remove(&(from, key))
    }

    /// Notes that a rank will send nothing more. That is an error once something waits for it.
    pub(super) fn leave(&self, rank: usize, why: String) {
        self.state().gone.entry(rank).or_insert(why);
    }

    /// Returns the reason for which the rank will send nothing more.
    pub(super) fn gone(&self, rank: usize) -> Option<String> {
        self.state().gone.get(&rank).cloned()
    }

    /// The first failure stays. Returns whether this is the first.
    pub(super) fn fail(&self, result: ncclResult_t, text: &str) -> bool {
        let mut state = self.state();
        if state.failed.is_some() || state.aborted {
            return false;
        }
        state.failed = Some(Failed {
            result,
            text: text.replace('\0', " ").leak(),
        });
        true
    }

    pub(super) fn failed(&self) -> Option<Failed> {
        self.state().failed
    }

    pub(super) fn abort(&self) {
        self.state().aborted = true;
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.state().aborted
    }
}
