//! How the processes of a run find each other: by TCP at rank 0.
//!
//! Rank 0 listens at `MASTER_ADDR`. The others connect again and again until it is up. Then both sides prove that they belong to the
//! run (`handshake`). A peer that does not prove it is dropped: it causes no error, and no rank waits for it. A rank that meets another
//! run's rank 0 tries the next port.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::connection::{self, Connection, Connections, is_timeout, keep_alive, lost, send};
use super::handshake::{self, Peer};
use super::world::{World, is_loopback};
use crate::error::{Error, Result};

/// Maximum time of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Maximum number of handshakes in progress, beside one for each rank. The oldest is dropped for a new one.
const HANDSHAKES: usize = 256;

/// Stack size of a handshake's thread in bytes.
const STACK: usize = 256 << 10;

/// Maximum length of a message to rank 0 before the connections are handed over, in bytes.
const LONGEST_PART: u32 = 1 << 20;

/// Maximum length of a rank's part of an exchange: MessagePack may take two bytes for one.
const MAX_PART: usize = (LONGEST_PART as usize - 8) / 2;

/// Interval between attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// Interval between polls for new connections.
const POLL: Duration = Duration::from_millis(2);

/// The connections of a run's processes. Made by all of them at once; then they can exchange small messages, such as
/// [`UniqueId`](super::UniqueId)s. For more than that it becomes [`Connections`](Self::into_connections).
///
/// Rank 0 listens at the addresses of `MASTER_ADDR` that its host has, and at all addresses if it has none of them. Each side proves
/// that it has the run's key: the secret `HIPVIT_RENDEZVOUS_SECRET` with the launcher's name of the run. What follows is
/// neither encrypted nor authenticated.
#[derive(Debug)]
pub struct Rendezvous {
    world: World,
    timeout: Duration,
    streams: Streams,
}

#[derive(Debug)]
enum Streams {
    /// Rank 0's, to all others, from rank 1 on.
    Root(Vec<TcpStream>),
    /// To rank 0.
    Leaf(TcpStream),
}

/// Rank 0's answer to each exchange.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Parts(Vec<Vec<u8>>),
    Failed(String),
}

impl Rendezvous {
    /// Waits until all processes of the run have come, `timeout` at most.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`], at every rank that has come: a rank is missing, has come twice, or was told another number of
    /// ranks; rank 0 is not to be reached.
    pub fn new(world: World, timeout: Duration) -> Result<Self> {
        let deadline = Instant::now() + timeout;
        let streams = match world.rank() {
            0 => serve(&world, deadline, timeout).map(Streams::Root),
            _ => reach(&world, deadline, timeout).map(Streams::Leaf),
        };
        let streams = streams.map_err(|reason| world.error(reason))?;
        let mut made = Self {
            world,
            timeout,
            streams,
        };
        made.gather(&[])?;
        Ok(made)
    }

    /// The processes.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns what each rank gave, in the order of the ranks, at every rank. Waits for all of them. Ranks other than 0 may give up to
    /// half a megabyte each.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if a rank has ended, does not come in time, or gives too much.
    pub fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let gathered = match &mut self.streams {
            Streams::Root(others) => gather_at_root(others, own, self.timeout),
            Streams::Leaf(root) => gather_at_leaf(root, own, self.timeout),
        };
        gathered.map_err(|reason| self.world.error(reason))
    }

    /// The connections themselves, for messages of any number and size between rank 0 and the others. All ranks call this at the
    /// same point, after the last [`gather`](Self::gather).
    #[must_use]
    pub fn into_connections(self) -> Connections {
        let link = |stream, peer| Connection::new(stream, self.world.clone(), peer);
        match self.streams {
            Streams::Root(others) => {
                let others = others.into_iter().enumerate();
                Connections::Root(others.map(|(index, other)| link(other, index + 1)).collect())
            }
            Streams::Leaf(root) => Connections::Leaf(link(root, 0)),
        }
    }

    pub(super) fn error(&self, reason: &str) -> Error {
        self.world.error(reason.to_owned())
    }
}

/// Receives a message of an identified rank.
fn receive<T: DeserializeOwned>(stream: &TcpStream, timeout: Duration, longest: u32) -> io::Result<T> {
    connection::receive(stream, Some(timeout), longest)
}

fn gather_at_root(others: &[TcpStream], own: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, String> {
    let deadline = Instant::now() + timeout;
    let mut parts = vec![own.to_vec()];
    for index in 0..others.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        match receive(&others[index], left, LONGEST_PART) {
            Ok(part) => parts.push(part),
            Err(error) => {
                let rank = index + 1;
                let reason = if is_timeout(&error) {
                    format!("rank {rank} has not come within {} s", timeout.as_secs_f64())
                } else {
                    lost(rank, &error)
                };
                tell(others, &reason);
                return Err(reason);
            }
        }
    }
    let answer = Answer::Parts(parts);
    for other in others {
        // A rank that has ended meanwhile is found by the next exchange.
        let _ = send(other, &answer);
    }
    match answer {
        Answer::Parts(parts) => Ok(parts),
        Answer::Failed(reason) => Err(reason),
    }
}

fn gather_at_leaf(root: &TcpStream, own: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, String> {
    if own.len() > MAX_PART {
        return Err(format!("a message of {} bytes exceeds {MAX_PART}", own.len()));
    }
    let lost = |error: io::Error| lost(0, &error);
    send(root, &own).map_err(lost)?;
    // Longer than rank 0 waits, whose answer says who is missing.
    match receive(root, timeout + HANDSHAKE, u32::MAX) {
        Ok(Answer::Parts(parts)) => Ok(parts),
        Ok(Answer::Failed(reason)) => Err(reason),
        Err(error) if is_timeout(&error) => Err(format!(
            "rank 0 has not answered within {} s",
            timeout.as_secs_f64()
        )),
        Err(error) => Err(lost(error)),
    }
}

/// Tells the ranks why the run fails.
fn tell<'a>(streams: impl IntoIterator<Item = &'a TcpStream>, reason: &str) {
    for stream in streams {
        let _ = send(stream, &Answer::Failed(reason.to_owned()));
    }
}

/// Listens at the first port that is free at rank 0's addresses.
fn listen(world: &World) -> Result<Vec<TcpListener>, String> {
    let mut last = String::from("no port");
    for &port in world.ports() {
        match listen_at(world.host(), port) {
            Ok(listeners) => return Ok(listeners),
            Err(error) => {
                last = format!("cannot listen at port {port}: {error}; set MASTER_PORT to a free one");
            }
        }
    }
    Err(last)
}

/// Listens at the addresses of `host` that this host has. If it has none of them, as behind a translated address, listens at all addresses.
fn listen_at(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    let only_here = is_loopback(host);
    let addresses = (host, port).to_socket_addrs();
    // Debian's /etc/hosts gives a host's own name a loopback address, which other hosts cannot reach.
    let is_usable = |address: &SocketAddr| only_here || !address.ip().to_canonical().is_loopback();
    let mut addresses: Vec<_> = addresses.into_iter().flatten().filter(is_usable).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut listeners = Vec::new();
    let mut refused = None;
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        _ if !listeners.is_empty() => {}
        Some(error) if only_here || error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        // Both families, where the host has both.
        _ => {
            listeners
                .push(TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)))?);
        }
    }
    for listener in &listeners {
        listener.set_nonblocking(true)?;
    }
    Ok(listeners)
}

/// Handshakes in progress at rank 0, each on a thread of its own, so that a silent peer delays no rank.
struct Handshakes<'a> {
    world: &'a World,
    limit: usize,
    pending: VecDeque<Weak<TcpStream>>,
    identified: Sender<(Peer, TcpStream)>,
}

impl<'a> Handshakes<'a> {
    fn new(world: &'a World) -> (Self, Receiver<(Peer, TcpStream)>) {
        let (identified, arrivals) = mpsc::channel();
        let handshakes = Self {
            world,
            limit: HANDSHAKES + world.size(),
            pending: VecDeque::new(),
            identified,
        };
        (handshakes, arrivals)
    }

    fn begin(&mut self, stream: TcpStream) {
        if self.pending.len() >= self.limit {
            self.pending.retain(|stream| stream.strong_count() > 0);
        }
        if self.pending.len() >= self.limit
            && let Some(oldest) = self.pending.pop_front().and_then(|stream| stream.upgrade())
        {
            let _ = oldest.shutdown(std::net::Shutdown::Both);
        }
        let stream = Arc::new(stream);
        let pending = Arc::downgrade(&stream);
        let (world, identified) = (self.world.clone(), self.identified.clone());
        let shake = move || -> io::Result<()> {
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(HANDSHAKE))?;
            keep_alive(&stream)?;
            let peer = handshake::identify(&stream, &world, Instant::now() + HANDSHAKE)?;
            stream.set_write_timeout(None)?;
            // Not if it was dropped for a new one.
            if let Some(stream) = Arc::into_inner(stream) {
                let _ = identified.send((peer, stream));
            }
            Ok(())
        };
        if thread::Builder::new().stack_size(STACK).spawn(shake).is_ok() {
            self.pending.push_back(pending);
        }
    }
}

/// Waits for all other ranks, and returns their connections from rank 1 on.
fn serve(world: &World, deadline: Instant, timeout: Duration) -> Result<Vec<TcpStream>, String> {
    let listeners = listen(world)?;
    let (mut handshakes, arrivals) = Handshakes::new(world);
    let mut others: Vec<Option<TcpStream>> = (1..world.size()).map(|_| None).collect();
    let mut missing = others.len();
    while missing > 0 {
        for listener in &listeners {
            // Not all of a flood of connections at once, so that ranks that have come are seen.
            for _ in 0..HANDSHAKES {
                match listener.accept() {
                    Ok((stream, _)) => handshakes.begin(stream),
                    Err(_) => break,
                }
            }
        }
        for (peer, stream) in arrivals.try_iter() {
            // A peer that has left meanwhile counts as come: it comes again, or the first exchange finds it.
            let _ = handshake::welcome(&stream, world, &peer);
            let wrong = if peer.size == world.size() {
                match peer.rank.checked_sub(1).and_then(|index| others.get(index)) {
                    Some(None) => None,
                    Some(Some(before)) if has_left(before) => None,
                    Some(Some(_)) => Some(format!("rank {} has come twice", peer.rank)),
                    None if peer.rank == 0 => Some("rank 0 has come twice".to_owned()),
                    None => Some(format!("there is no rank {}", peer.rank)),
                }
            } else {
                Some(format!(
                    "rank {} was told of {} ranks, rank 0 of {}",
                    peer.rank,
                    peer.size,
                    world.size()
                ))
            };
            if let Some(wrong) = wrong {
                tell(others.iter().flatten().chain([&stream]), &wrong);
                return Err(wrong);
            }
            if others[peer.rank - 1].replace(stream).is_none() {
                missing -= 1;
            }
        }
        if missing > 0 && Instant::now() > deadline {
            let missing = others.iter().enumerate().filter(|(_, other)| other.is_none());
            let missing: Vec<_> = missing.map(|(index, _)| (index + 1).to_string()).collect();
            let reason = format!(
                "rank {} has not come within {} s",
                missing.join(", "),
                timeout.as_secs_f64()
            );
            tell(others.iter().flatten(), &reason);
            return Err(reason);
        }
        if missing > 0 {
            thread::sleep(POLL);
        }
    }
    Ok(others.into_iter().flatten().collect())
}

/// True if the other side has closed the connection and sent nothing before, as a rank does that was welcomed too late.
fn has_left(stream: &TcpStream) -> bool {
    let peek = || {
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        peeked
    };
    match peek() {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Connects to rank 0, once it is up.
fn reach(world: &World, deadline: Instant, timeout: Duration) -> Result<TcpStream, String> {
    let mut last = String::from("no attempt was made");
    while Instant::now() < deadline {
        for &port in world.ports() {
            match greet(world, port) {
                Ok(stream) => return Ok(stream),
                // Nobody listens yet: what was learnt about another port says more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => last = format!("port {port}: {error}"),
            }
        }
        thread::sleep(RETRY);
    }
    Err(format!(
        "rank 0 was not reached within {} s ({last}); is it running, and are MASTER_ADDR and MASTER_PORT its own?",
        timeout.as_secs_f64()
    ))
}

/// Connects to the rank 0 of the run, if it listens at this port.
fn greet(world: &World, port: u16) -> io::Result<TcpStream> {
    let mut refused = None;
    for address in (world.host(), port).to_socket_addrs()? {
        let stream = TcpStream::connect_timeout(&address, HANDSHAKE).and_then(|stream| {
            stream.set_nodelay(true)?;
            keep_alive(&stream)?;
            handshake::introduce(&stream, world, Instant::now() + HANDSHAKE)?;
            Ok(stream)
        });
        match stream {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

#[cfg(test)]
mod tests;
