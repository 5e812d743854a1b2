//! Messages between the processes of a divided model.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::failure::Failure;
use crate::error::{Error, Result};
use crate::exec::executor::Submission;
use crate::hip::{self, Connection, Connections};

/// Interval between the heartbeats of a process.
const ALIVE: Duration = Duration::from_secs(10);

/// Time without a message after which a process is lost.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Message {
    /// From rank 0: submit a run.
    Submit {
        batch: usize,
        how: Submission,
        input: Input,
    },
    /// From rank 0: wait for the oldest run.
    Finish,
    /// From rank 0: the result of a vote.
    Decided(bool),
    /// From rank 0: no more messages follow.
    End,
    /// To rank 0: the vote of a rank.
    Vote(bool),
    /// To rank 0: the oldest run has finished.
    Done,
    /// To rank 0: the oldest run was not started, since a GPU has no memory for it.
    Refused(NoMemory),
    /// A rank has failed.
    Failed(Failure),
    /// Heartbeat of a process.
    Alive,
}

/// Whole images in the plan's order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Input(pub(super) Arc<Vec<u8>>);

impl Serialize for Input {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        let bytes = deserializer.deserialize_bytes(Bytes).map_err(D::Error::custom)?;
        Ok(Self(Arc::new(bytes)))
    }
}

/// Reason why a run is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum NoMemory {
    /// This rank's GPU has no memory: [`hip::Error::OutOfMemory`].
    Own { bytes: usize, held: usize, live: usize },
    /// Another rank's GPU has no memory.
    Other(String),
}

impl NoMemory {
    pub(super) fn of(error: &Error) -> Self {
        match *error {
            Error::Hip(hip::Error::OutOfMemory {
                bytes, held, live, ..
            }) => Self::Own { bytes, held, live },
            ref error => Self::Other(error.to_string()),
        }
    }

    /// Returns the error of the rank on this GPU.
    pub(super) fn on(self, gpu: &str) -> Error {
        match self {
            Self::Own { bytes, held, live } => Error::Hip(hip::Error::OutOfMemory {
                device: gpu.to_owned(),
                bytes,
                held,
                live,
            }),
            Self::Other(reason) => Error::resource("memory", reason),
        }
    }
}

/// Sending end of a connection to another process.
#[derive(Debug)]
pub(super) struct Link {
    sender: Mutex<Connection>,
    /// Closes both directions, without the sender's lock.
    closer: Connection,
}

/// Receiving end of a connection to another process.
#[derive(Debug)]
pub(super) struct Incoming(Connection);

impl Link {
    fn new(connection: Connection) -> Result<(Arc<Self>, Incoming)> {
        let incoming = Incoming(connection.try_clone()?);
        let link = Self {
            closer: connection.try_clone()?,
            sender: Mutex::new(connection),
        };
        Ok((Arc::new(link), incoming))
    }

    /// Sends a message. Closes the connection if this fails, so that the receiving thread reports the process as lost.
    pub(super) fn send(&self, message: &Message) {
        if self.sender.lock().send(message).is_err() {
            self.close();
        }
    }

    /// Closes both directions.
    pub(super) fn close(&self) {
        self.closer.close();
    }
}

/// The reason why another process is lost.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Lost(String);

impl Incoming {
    /// Waits for the next message.
    ///
    /// # Errors
    ///
    /// [`Lost`] if the other process is lost.
    pub(super) fn next(&mut self) -> Result<Message, Lost> {
        self.0.receive(SILENCE).map_err(|error| {
            Lost(match error {
                hip::Error::Rendezvous { reason, .. } => {
                    format!("its process has ended or is unreachable: {reason}")
                }
                error => error.to_string(),
            })
        })
    }

    /// Closes both directions.
    pub(super) fn close(&self) {
        self.0.close();
    }
}

/// Connections to the processes of the model's other ranks.
#[derive(Clone, Debug)]
pub(super) enum Links {
    /// No connection: all ranks are in this process.
    Here,
    /// Rank 0's connections to ranks 1 and up.
    Followers(Vec<Arc<Link>>),
    /// Another rank's connection to rank 0.
    Leader(Arc<Link>),
}

impl Links {
    /// Returns the links of a rank, and its receiving ends.
    pub(super) fn new(connections: Connections) -> Result<(Self, Vec<Incoming>)> {
        Ok(match connections {
            Connections::Root(others) => {
                let others = others.into_iter().map(Link::new);
                let (links, incoming) = others.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                (Self::Followers(links), incoming)
            }
            Connections::Leaf(root) => {
                let (link, incoming) = Link::new(root)?;
                (Self::Leader(link), vec![incoming])
            }
        })
    }

    /// Sends a message to all of them.
    pub(super) fn tell(&self, message: &Message) {
        match self {
            Self::Here => {}
            Self::Followers(links) => links.iter().for_each(|link| link.send(message)),
            Self::Leader(link) => link.send(message),
        }
    }
}

/// Sends heartbeats to the other processes until dropped.
#[derive(Debug)]
pub(super) struct Heartbeat {
    _until_dropped: Sender<()>,
}

impl Heartbeat {
    pub(super) fn new(links: Links) -> Result<Self> {
        let (until_dropped, dropped) = channel::<()>();
        let beat = move || {
            while dropped.recv_timeout(ALIVE) == Err(RecvTimeoutError::Timeout) {
                links.tell(&Message::Alive);
            }
        };
        let thread = thread::Builder::new().name("hipvit-heartbeat".into());
        thread
            .spawn(beat)
            .map_err(|error| Error::resource("threads", error))?;
        Ok(Self {
            _until_dropped: until_dropped,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::hip::{Rendezvous, World};

    /// Returns the links of all ranks, and their receiving ends.
    pub(in crate::exec::hip::tensor) fn links(ranks: usize) -> Vec<(Links, Vec<Incoming>)> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        drop(listener);
        let connect = |rank: usize| {
            let port = port.clone();
            let find = move |name: &str| match name {
                "RANK" => Some(rank.to_string()),
                "WORLD_SIZE" => Some(ranks.to_string()),
                "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
                "MASTER_PORT" | "TORCHELASTIC_RUN_ID" => Some(port.clone()),
                _ => None,
            };
            let world = World::from_variables(find).unwrap().unwrap();
            thread::spawn(move || {
                let rendezvous = Rendezvous::new(world, Duration::from_secs(60)).unwrap();
                Links::new(rendezvous.into_connections()).unwrap()
            })
        };
        let threads: Vec<_> = (0..ranks).map(connect).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let how = Submission {
            timed: true,
            ..Submission::default()
        };
        // More than a socket buffers.
        let pixels: Vec<u8> = (0..9_000_000u32).map(|n| (n % 251) as u8).collect();
        let full = Error::Hip(hip::Error::OutOfMemory {
            device: "GPU 1".to_owned(),
            bytes: 3,
            held: 2,
            live: 1,
        });
        let other = Error::resource("memory", "another GPU has none");
        let messages = [
            Message::Submit {
                batch: 64,
                how,
                input: Input(Arc::new(pixels)),
            },
            Message::Finish,
            Message::Decided(true),
            Message::Vote(false),
            Message::Done,
            Message::Refused(NoMemory::of(&full)),
            Message::Refused(NoMemory::of(&other)),
            Message::Alive,
            Message::End,
        ];
        let mut ranks = links(3);
        let (leader, _kept) = ranks.remove(0);
        thread::scope(|scope| {
            scope.spawn(|| messages.iter().for_each(|message| leader.tell(message)));
            for (_, incoming) in &mut ranks {
                scope.spawn(|| {
                    for message in &messages {
                        // Not `assert_eq`, which would print all pixels on failure.
                        assert!(incoming[0].next().as_ref() == Ok(message));
                    }
                });
            }
        });
        assert_eq!(NoMemory::of(&full).on("GPU 1").to_string(), full.to_string());
        assert!(
            NoMemory::of(&other)
                .on("GPU 1")
                .to_string()
                .contains("another GPU has none")
        );
    }

    #[test]
    fn a_closed_link_is_a_lost_process_at_both_ends() {
        let mut ranks = links(2);
        let (follower, mut from_leader) = ranks.remove(1);
        let (leader, mut from_follower) = ranks.remove(0);
        let Links::Leader(link) = &follower else {
            panic!("{follower:?}")
        };
        // Messages sent before the end arrive.
        follower.tell(&Message::Done);
        link.close();
        assert_eq!(from_follower[0].next(), Ok(Message::Done));
        for lost in [&mut from_follower[0], &mut from_leader[0]] {
            let reason = lost.next().unwrap_err().to_string();
            assert!(
                reason.starts_with("its process has ended or is unreachable: rank "),
                "{reason}"
            );
        }
        // Sending to a lost process does not block.
        for _ in 0..3 {
            leader.tell(&Message::Finish);
            follower.tell(&Message::Done);
        }
    }
}
