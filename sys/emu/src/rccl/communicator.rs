//! A rank: its counters, its links to the others, and what its streams do for a call.
//!
//! A call is three operations of the stream. One reads the rank's part and gives it to the others' mailboxes; one waits until the
//! others' parts are there; one writes the result. Sends wait for their receives, as large ones do on GPUs, so that a program
//! that relies on buffering is detected. A rank that failed keeps waiting, as RCCL's kernels do, until it is aborted.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gcnrun::Memory;
use hipvit_sys::rccl::ncclResult_t;

use super::call::{Call, Kind, Operation};
use super::connection::Connection;
use super::mailbox::{Key, Mailbox, Message};
use crate::faults::{self, Failure};
use crate::hip::Joint;
use crate::hip::machine::Device;

/// A way to a rank.
#[derive(Debug)]
pub(super) enum Peer {
    /// In this process, or the rank itself.
    Local(Arc<Mailbox>),
    Remote(Connection),
}

impl Peer {
    fn put(&self, from: usize, key: Key, message: Message) {
        match self {
            Self::Local(mailbox) => mailbox.put(from, key, message),
            Self::Remote(connection) => connection.put(key, message),
        }
    }

    /// Makes the rank fail, for the sender's reason.
    fn fail(&self, text: &str) {
        match self {
            Self::Local(mailbox) => {
                mailbox.fail(ncclResult_t::ncclRemoteError, text);
            }
            Self::Remote(connection) => connection.fail(text),
        }
    }

    fn leave(&self, rank: usize, text: &str) {
        match self {
            Self::Local(mailbox) => mailbox.leave(rank, text.to_owned()),
            Self::Remote(connection) => connection.leave(text),
        }
    }

    fn is_flushed(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote(connection) => connection.is_flushed(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Communicator {
    pub(super) device: &'static Device,
    pub(super) rank: usize,
    peers: Vec<Peer>,
    mailbox: Arc<Mailbox>,
    /// Time limit for the other ranks.
    timeout: Duration,
    collectives: AtomicU64,
    sends: Vec<AtomicU64>,
    receives: Vec<AtomicU64>,
}

/// One operation of a submission.
#[derive(Debug)]
struct Part {
    operation: Operation,
    /// Keys of this rank's messages, and of the others'.
    out: Key,
    in_: Key,
}

/// One submission: the calls of a group on one stream.
struct Exchange {
    communicator: Arc<Communicator>,
    parts: Vec<Part>,
    /// Never sends, and waits for ever.
    hangs: bool,
    since: OnceLock<Instant>,
    checked: AtomicBool,
}

impl Communicator {
    pub(super) fn new(
        device: &'static Device,
        rank: usize,
        peers: Vec<Peer>,
        mailbox: Arc<Mailbox>,
        timeout: Duration,
    ) -> Self {
        let counters = || peers.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            device,
            rank,
            collectives: AtomicU64::new(0),
            sends: counters(),
            receives: counters(),
            peers,
            mailbox,
            timeout,
        }
    }

    /// The ranks of one process, one on each of these devices.
    pub(super) fn all(devices: &[&'static Device], timeout: Duration) -> Vec<Self> {
        let mailboxes: Vec<Arc<Mailbox>> = devices.iter().map(|_| Arc::default()).collect();
        let rank = |(rank, device): (usize, &&'static Device)| {
            let peers = mailboxes.iter().cloned().map(Peer::Local).collect();
            Self::new(device, rank, peers, mailboxes[rank].clone(), timeout)
        };
        devices.iter().enumerate().map(rank).collect()
    }

    pub(super) fn ranks(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Starts a submission of these calls. `hangs`: an injected fault.
    pub(super) fn start(self: &Arc<Self>, operations: &[Operation], hangs: bool) -> Joint {
        let next = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed) + 1;
        let part = |operation: &Operation| {
            let (out, in_) = match (operation.call.kind, operation.peer) {
                (Kind::Send, Some(peer)) => {
                    let number = next(&self.sends[peer]);
                    (Key::Sent(number), Key::Receiving(number))
                }
                (_, Some(peer)) => {
                    let number = next(&self.receives[peer]);
                    (Key::Receiving(number), Key::Sent(number))
                }
                _ => {
                    let key = Key::Collective(next(&self.collectives));
                    (key, key)
                }
            };
            Part {
                operation: operation.clone(),
                out,
                in_,
            }
        };
        let exchange = Arc::new(Exchange {
            communicator: self.clone(),
            parts: operations.iter().map(part).collect(),
            hangs,
            since: OnceLock::new(),
            checked: AtomicBool::new(false),
        });
        let (send, wait, receive) = (exchange.clone(), exchange.clone(), exchange);
        Joint {
            before: Arc::new(move |memory| send.send(memory)),
            until: Arc::new(move || wait.is_over()),
            after: Arc::new(move |memory| receive.receive(memory)),
        }
    }

    /// Records a failure, and reports the first.
    fn fail(&self, result: ncclResult_t, text: &str) {
        if self.mailbox.fail(result, text) {
            faults::publish(&format!(
                "hip-emu: device {}: rank {} of {}: {text}",
                self.device.ordinal,
                self.rank,
                self.ranks()
            ));
        }
    }

    /// Tells the other ranks of a failure of this one.
    fn fail_others(&self, text: &str) {
        for (rank, peer) in self.peers.iter().enumerate() {
            if rank != self.rank {
                peer.fail(text);
            }
        }
    }

    /// The rank's device was lost: all ranks fail.
    pub(super) fn lose(&self) {
        let text = format!(
            "the GPU of rank {} (device {}) is lost",
            self.rank, self.device.ordinal
        );
        self.fail(ncclResult_t::ncclUnhandledCudaError, &text);
        self.fail_others(&text);
    }

    /// Ends everything under way, and makes the other ranks fail.
    pub(super) fn abort(&self) {
        self.mailbox.abort();
        let own = self.mailbox.failed().map(|failed| failed.text);
        self.fail_others(&match own {
            Some(text) => text.to_owned(),
            None => format!("rank {} was aborted", self.rank),
        });
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let text = format!("rank {} has destroyed its communicator", self.rank);
        for (rank, peer) in self.peers.iter().enumerate() {
            if rank != self.rank {
                peer.leave(self.rank, &text);
            }
        }
    }
}

impl Exchange {
    fn send(&self, memory: &Memory) -> Result<(), Failure> {
        let _ = self.since.set(Instant::now());
        let communicator = &self.communicator;
        if self.hangs || communicator.mailbox.is_aborted() {
            return Ok(());
        }
        let (rank, ranks) = (communicator.rank, communicator.ranks());
        for part in &self.parts {
            let operation = &part.operation;
            let parts = operation.read(memory, rank, ranks)?;
            // Ranks that get the same bytes share them.
            let mut last: Option<Arc<Vec<u8>>> = None;
            for (to, bytes) in operation.participants(ranks).zip(parts) {
                let data = match last.take() {
                    Some(data) if *data == bytes => data,
                    _ => Arc::new(bytes),
                };
                last = Some(data.clone());
                let call = operation.call.clone();
                communicator.peers[to].put(rank, part.out, Message { call, data });
            }
        }
        Ok(())
    }

    /// True if the stream may continue: all parts have arrived and fit, or the rank was aborted or lost its device.
    fn is_over(&self) -> bool {
        let communicator = &self.communicator;
        let mailbox = &communicator.mailbox;
        if mailbox.is_aborted() || communicator.device.alive().is_err() {
            return true;
        }
        if self.hangs || mailbox.failed().is_some() {
            return false;
        }
        let mut missing: Vec<(usize, &Part)> = Vec::new();
        for part in &self.parts {
            let call = &part.operation.call;
            for from in part.operation.participants(communicator.ranks()) {
                match mailbox.call(from, part.in_) {
                    None => missing.push((from, part)),
                    Some(other) if call.fits(&other) => {}
                    Some(other) => {
                        self.mismatch(part, from, &other);
                        return false;
                    }
                }
            }
        }
        if missing.is_empty() {
            self.checked.store(true, Ordering::Release);
            // The program may end once its stream has: what others wait for must be on its way.
            return communicator.peers.iter().all(Peer::is_flushed);
        }
        let gone = missing.iter().find_map(|(from, part)| {
            let why = mailbox.gone(*from)?;
            // Its message may have come between the two looks.
            mailbox.call(*from, part.in_).is_none().then_some((why, *part))
        });
        if let Some((why, part)) = gone {
            communicator.fail(
                ncclResult_t::ncclRemoteError,
                &format!("{why}, and {} waits for it", part.operation.call),
            );
        } else if self
            .since
            .get()
            .is_some_and(|since| since.elapsed() > communicator.timeout)
        {
            self.time_out(&missing);
        }
        false
    }

    fn mismatch(&self, part: &Part, from: usize, other: &Call) {
        let communicator = &self.communicator;
        let which = match part.in_ {
            Key::Collective(number) => format!("collective {number} of the communicator"),
            Key::Sent(number) | Key::Receiving(number) => {
                format!("transfer {number} between ranks {} and {from}", communicator.rank)
            }
        };
        communicator.fail(
            ncclResult_t::ncclInvalidUsage,
            &format!(
                "{which} differs: rank {} has called {}, rank {from} {other}",
                communicator.rank, part.operation.call
            ),
        );
    }

    fn time_out(&self, missing: &[(usize, &Part)]) {
        let communicator = &self.communicator;
        let mut text = format!(
            "after {} s rank {} still waits",
            communicator.timeout.as_secs_f64(),
            communicator.rank
        );
        for part in &self.parts {
            let of_part = missing.iter().filter(|(_, other)| std::ptr::eq(*other, part));
            let ranks: Vec<String> = of_part.map(|(from, _)| from.to_string()).collect();
            if !ranks.is_empty() {
                let number = part.in_.number();
                let _ = write!(
                    text,
                    " in {}, number {number}, for rank {};",
                    part.operation.call,
                    ranks.join(", ")
                );
            }
        }
        communicator.fail(ncclResult_t::ncclRemoteError, text.trim_end_matches(';'));
    }

    fn receive(&self, memory: &Memory) -> Result<(), Failure> {
        let communicator = &self.communicator;
        let mailbox = &communicator.mailbox;
        if mailbox.is_aborted() || !self.checked.load(Ordering::Acquire) {
            return Ok(());
        }
        for part in &self.parts {
            let participants = part.operation.participants(communicator.ranks());
            let messages: Vec<Message> = participants
                .filter_map(|from| mailbox.take(from, part.in_))
                .collect();
            let data: Vec<&[u8]> = messages.iter().map(|message| &message.data[..]).collect();
            part.operation.write(memory, communicator.rank, &data)?;
        }
        Ok(())
    }
}
