//! Rendezvous of the processes of a run, over TCP at rank 0.
//!
//! Rank 0 listens at `MASTER_ADDR`. The others try to connect until it is up. A connection is kept once both sides have proved that they
//! belong to the run (`handshake`). A peer without proof is dropped: it causes no error, and no rank waits for it. A rank that meets
//! another run's rank 0, or a relay, tries the next port. A rank that leaves early leaves its place open.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
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

/// Maximum number of handshakes in progress, in addition to one per rank. A new one replaces the oldest.
const HANDSHAKES: usize = 256;

/// Stack size of a handshake's thread in bytes.
const STACK: usize = 256 << 10;

/// Maximum bytes of a message to rank 0 before the connections are handed over.
const MAX_MESSAGE_BYTES: u32 = 1 << 20;

/// Maximum bytes of a rank's part of an exchange. MessagePack may take two bytes for one.
const MAX_PART: usize = (MAX_MESSAGE_BYTES as usize - 8) / 2;

/// Failure if rank 0 sends an unexpected message.
const OUT_OF_TURN: &str = "rank 0 has sent a message out of turn";

/// Interval between attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// Interval between polls for new connections.
const POLL: Duration = Duration::from_millis(2);

/// Connections between the processes of a run. All processes create it at the same time. Then they can exchange small messages, such as
/// [`UniqueId`](super::UniqueId)s. For more traffic, convert it to [`Connections`](Self::into_connections).
///
/// Rank 0 listens at the addresses of `MASTER_ADDR` that its host has, or at all addresses if it has none of them. Each side proves that it
/// has the run's key: the secret `HIPVIT_RENDEZVOUS_SECRET` with the launcher's name of the run. Later messages are neither encrypted nor
/// authenticated.
#[derive(Debug)]
pub struct Rendezvous {
    world: World,
    timeout: Duration,
    streams: Streams,
}

#[derive(Debug)]
enum Streams {
    /// Connections of rank 0 to ranks 1 and up.
    Root(Vec<TcpStream>),
    /// Connection to rank 0.
    Leaf(TcpStream),
}

/// Rank 0's answer to each exchange.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// All ranks have arrived, and their places are fixed from now on.
    Agreed,
    Parts(Vec<Vec<u8>>),
    Failed(String),
}

impl Rendezvous {
    /// Waits until all processes of the run have arrived, for at most `timeout`.
    ///
    /// Until then a rank that loses its connection reconnects, and its newest connection counts.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`], at every rank that has arrived, if a rank is missing or has another number of ranks. Also if rank 0 cannot be
    /// reached, and at a process whose rank another process has taken.
    pub fn new(world: World, timeout: Duration) -> Result<Self> {
        let deadline = Instant::now() + timeout;
        let streams = match world.rank() {
            0 => serve(&world, deadline, timeout).map(Streams::Root),
            _ => join(&world, deadline, timeout).map(Streams::Leaf),
        };
        let streams = streams.map_err(|reason| world.error(reason))?;
        Ok(Self {
            world,
            timeout,
            streams,
        })
    }

    /// Returns the processes.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Exchanges bytes. Returns what each rank sent, in the order of the ranks, at every rank. Waits for all ranks. Ranks other than 0 may
    /// send up to half a megabyte each.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if a rank has ended, does not arrive in time, or sends too much.
    pub fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let gathered = match &mut self.streams {
            Streams::Root(others) => gather_at_root(others, own, self.timeout),
            Streams::Leaf(root) => gather_at_leaf(root, own, self.timeout),
        };
        gathered.map_err(|reason| self.world.error(reason))
    }

    /// Converts to connections, for messages of any number and size between rank 0 and the others. All ranks must call this at the same
    /// point, after the last [`gather`](Self::gather).
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

    /// Returns the address by which this process reaches rank 0. Other hosts of the run reach this process there.
    pub(super) fn local_address(&self) -> io::Result<IpAddr> {
        let stream = match &self.streams {
            Streams::Root(others) => others.first(),
            Streams::Leaf(root) => Some(root),
        };
        match stream {
            Some(stream) => Ok(stream.local_addr()?.ip()),
            None => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        }
    }

    /// Returns the connection to each rank, where there is one. Only rank 0 has more than one.
    pub(super) fn into_streams(self) -> Vec<Option<TcpStream>> {
        let mut streams: Vec<Option<TcpStream>> = (0..self.world.size()).map(|_| None).collect();
        match self.streams {
            Streams::Root(others) => {
                for (place, stream) in streams[1..].iter_mut().zip(others) {
                    *place = Some(stream);
                }
            }
            Streams::Leaf(root) => streams[0] = Some(root),
        }
        streams
    }

    pub(super) fn error(&self, reason: &str) -> Error {
        self.world.error(reason.to_owned())
    }
}

/// Receives a message from an identified rank.
fn receive<T: DeserializeOwned>(stream: &TcpStream, timeout: Duration, longest: u32) -> io::Result<T> {
    connection::receive(stream, Some(timeout), longest)
}

fn gather_at_root(others: &[TcpStream], own: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, String> {
    let deadline = Instant::now() + timeout;
    let mut parts = vec![own.to_vec()];
    for index in 0..others.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        match receive(&others[index], left, MAX_MESSAGE_BYTES) {
            Ok(part) => parts.push(part),
            Err(error) => {
                let rank = index + 1;
                let reason = if is_timeout(&error) {
                    format!("rank {rank} did not come within {} s", timeout.as_secs_f64())
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
        // The next exchange detects a rank that has ended in the meantime.
        let _ = send(other, &answer);
    }
    match answer {
        Answer::Parts(parts) => Ok(parts),
        Answer::Failed(reason) => Err(reason),
        Answer::Agreed => Err(OUT_OF_TURN.to_owned()),
    }
}

fn gather_at_leaf(root: &TcpStream, own: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, String> {
    if own.len() > MAX_PART {
        return Err(format!("a message of {} bytes exceeds {MAX_PART}", own.len()));
    }
    let lost = |error: io::Error| lost(0, &error);
    send(root, &own).map_err(lost)?;
    // Wait longer than rank 0, whose answer names the missing ranks.
    match receive(root, timeout + HANDSHAKE, u32::MAX) {
        Ok(Answer::Parts(parts)) => Ok(parts),
        Ok(Answer::Failed(reason)) => Err(reason),
        Ok(Answer::Agreed) => Err(OUT_OF_TURN.to_owned()),
        Err(error) if is_timeout(&error) => Err(silent(timeout)),
        Err(error) => Err(lost(error)),
    }
}

fn silent(timeout: Duration) -> String {
    format!("rank 0 did not answer within {} s", timeout.as_secs_f64())
}

/// Sends the ranks the reason why the run fails.
fn tell<'a>(streams: impl IntoIterator<Item = &'a TcpStream>, reason: &str) {
    for stream in streams {
        let _ = send(stream, &Answer::Failed(reason.to_owned()));
    }
}

/// Listens at the first free port of rank 0's addresses.
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

/// Listens at the addresses of `host` that this host has. Listens at all addresses if it has none of them, as with address translation.
fn listen_at(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    let only_here = is_loopback(host);
    let addresses = (host, port).to_socket_addrs();
    // Debian's /etc/hosts maps the host's name to a loopback address, which other hosts cannot reach.
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
        // Both families, if the host has both.
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

/// Handshakes in progress at rank 0, each on its own thread, so that a silent peer delays no rank.
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

    /// Starts the handshake of a connection to the listener at `listener`.
    fn begin(&mut self, stream: TcpStream, listener: SocketAddr) {
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
            let peer = handshake::identify(&stream, &world, listener, Instant::now() + HANDSHAKE)?;
            handshake::welcome(&stream, &world, &peer, Instant::now() + HANDSHAKE)?;
            stream.set_write_timeout(None)?;
            // Skip it if a new one replaced it.
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

/// Other ranks that have arrived so far.
struct Places<'a> {
    world: &'a World,
    /// Connections to ranks 1 and up, non-blocking.
    streams: Vec<Option<TcpStream>>,
    missing: usize,
    /// Ranks whose connection was replaced while it was open.
    replaced: BTreeSet<usize>,
}

impl<'a> Places<'a> {
    fn new(world: &'a World) -> Self {
        let streams: Vec<_> = (1..world.size()).map(|_| None).collect();
        Self {
            world,
            missing: streams.len(),
            streams,
            replaced: BTreeSet::new(),
        }
    }

    /// Assigns a place to an identified peer. Closes an older connection that has the place.
    ///
    /// # Errors
    ///
    /// The reason why the run fails, if the peer has another configuration of the run.
    fn take(&mut self, peer: Peer, stream: TcpStream) -> Result<(), String> {
        let (rank, size) = (peer.rank, self.world.size());
        let place = rank.checked_sub(1).and_then(|index| self.streams.get_mut(index));
        let wrong = match place {
            _ if peer.size != size => {
                format!("rank {rank} expects {} ranks, rank 0 expects {size}", peer.size)
            }
            Some(place) => {
                // A connection that cannot be polled counts as closed.
                if stream.set_nonblocking(true).is_err() {
                    return Ok(());
                }
                match place.replace(stream) {
                    None => self.missing -= 1,
                    Some(older) => {
                        if is_open(&older) {
                            self.replaced.insert(rank);
                        }
                        tell([&older], &format!("rank {rank} has come twice"));
                    }
                }
                return Ok(());
            }
            None if rank == 0 => "rank 0 has come twice".to_owned(),
            None => format!("there is no rank {rank}"),
        };
        tell(self.streams.iter().flatten().chain([&stream]), &wrong);
        Err(wrong)
    }

    /// Frees the places of ranks that have left. Returns true if all ranks are present.
    fn are_taken(&mut self) -> bool {
        for place in &mut self.streams {
            if place.as_ref().is_some_and(|stream| !is_open(stream)) {
                *place = None;
                self.missing += 1;
            }
        }
        self.missing == 0
    }

    /// Tells all ranks that they are complete, and returns their connections.
    fn agree(self) -> Result<Vec<TcpStream>, String> {
        let streams: Vec<_> = self.streams.into_iter().flatten().collect();
        for (index, stream) in streams.iter().enumerate() {
            stream
                .set_nonblocking(false)
                .map_err(|error| lost(index + 1, &error))?;
            // The first exchange detects a rank that has ended in the meantime.
            let _ = send(stream, &Answer::Agreed);
        }
        Ok(streams)
    }

    /// Sends the list of missing ranks to the present ranks, and returns it.
    fn fail(&self, timeout: Duration) -> String {
        let missing = self.streams.iter().enumerate();
        let missing = missing.filter(|(_, place)| place.is_none());
        let missing: Vec<_> = missing.map(|(index, _)| (index + 1).to_string()).collect();
        let mut reason = format!(
            "rank {} did not come within {} s",
            missing.join(", "),
            timeout.as_secs_f64()
        );
        if !self.replaced.is_empty() {
            let replaced: Vec<_> = self.replaced.iter().map(usize::to_string).collect();
            reason += &format!("; rank {} has come twice", replaced.join(", "));
        }
        tell(self.streams.iter().flatten(), &reason);
        reason
    }
}

/// Returns true if the other side of a non-blocking connection is open. A rank sends nothing before all are complete.
fn is_open(stream: &TcpStream) -> bool {
    let read = stream.peek(&mut [0]);
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Waits for all other ranks. Returns their connections, from rank 1 on.
fn serve(world: &World, deadline: Instant, timeout: Duration) -> Result<Vec<TcpStream>, String> {
    let mut listeners = Vec::new();
    for listener in listen(world)? {
        let address = listener.local_addr();
        let address = address.map_err(|error| format!("cannot tell where rank 0 listens: {error}"))?;
        listeners.push((listener, address));
    }
    let (mut handshakes, arrivals) = Handshakes::new(world);
    let mut places = Places::new(world);
    loop {
        for (listener, address) in &listeners {
            // Limit a flood of connections, so that ranks that have arrived are handled.
            for _ in 0..HANDSHAKES {
                match listener.accept() {
                    Ok((stream, _)) => handshakes.begin(stream, *address),
                    Err(_) => break,
                }
            }
        }
        for (peer, stream) in arrivals.try_iter() {
            places.take(peer, stream)?;
        }
        if places.missing == 0 && places.are_taken() {
            return places.agree();
        }
        if Instant::now() > deadline && !places.are_taken() {
            return Err(places.fail(timeout));
        }
        thread::sleep(POLL);
    }
}

/// Connects to rank 0, and waits until all ranks have arrived. Reconnects if the connection is lost before that.
fn join(world: &World, deadline: Instant, timeout: Duration) -> Result<TcpStream, String> {
    let mut before = String::new();
    loop {
        let root = reach(world, deadline, timeout).map_err(|reason| format!("{before}{reason}"))?;
        // Wait longer than rank 0, whose answer names the missing ranks.
        match receive(&root, timeout + HANDSHAKE, MAX_MESSAGE_BYTES) {
            Ok(Answer::Agreed) => return Ok(root),
            Ok(Answer::Failed(reason)) => return Err(reason),
            Ok(Answer::Parts(_)) => return Err(OUT_OF_TURN.to_owned()),
            Err(error) if is_timeout(&error) => return Err(silent(timeout)),
            Err(error) => before = format!("{}; ", lost(0, &error)),
        }
        thread::sleep(RETRY);
    }
}

/// Connects to rank 0 once it listens.
fn reach(world: &World, deadline: Instant, timeout: Duration) -> Result<TcpStream, String> {
    let mut last = String::from("no attempt was made");
    while Instant::now() < deadline {
        for &port in world.ports() {
            match greet(world, port) {
                Ok(stream) => return Ok(stream),
                // No process listens yet. The result of another port is more informative.
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

/// Connects to rank 0 of the run, if it listens at this port.
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
