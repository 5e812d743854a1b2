//! Connections between all processes of a run, over TCP.
//!
//! Each connection has two threads: one sends what is queued, one receives at once. So no rank waits for the receiver of a message, and a
//! lost rank is noticed while this rank computes.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::connection::{is_timeout, keep_alive, lost};
use super::handshake;
use super::rendezvous::Rendezvous;
use super::world::World;
use crate::error::{Error, Result};

/// Maximum time of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Interval between polls for new connections.
const POLL: Duration = Duration::from_millis(2);

/// Time that a rank waits at its end for the others to receive what it has sent.
const GRACE: Duration = Duration::from_secs(10);

/// Maximum bytes of the reason of a failure.
const MAX_REASON: usize = 64 << 10;

/// First bytes of each frame, followed by the kind and the length.
const MAGIC: [u8; 7] = *b"hipmesh";

const MESSAGE: u8 = 0;
const FAILURE: u8 = 1;

/// A received frame, or the reason why there are no more.
type Arrival = std::result::Result<Vec<u8>, String>;

/// Connections from this process to every other process of a run, for messages of any size.
///
/// Messages between two ranks arrive in order. Sending never waits for the receiver. Dropping the mesh waits until the others have received
/// the messages, for at most ten seconds.
#[derive(Debug)]
pub struct Mesh {
    world: World,
    timeout: Duration,
    /// Connection to each rank. `None` for this rank.
    peers: Vec<Option<Peer>>,
}

/// A connection, and its threads.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    outgoing: Option<Sender<(u8, Vec<u8>)>>,
    incoming: Mutex<Receiver<Arrival>>,
    is_lost: Arc<AtomicBool>,
    sends: Option<JoinHandle<()>>,
    receives: Option<JoinHandle<()>>,
}

impl Mesh {
    /// Connects all processes of a rendezvous with each other. All must call this at the same point. `timeout` limits the time in which
    /// they connect, and in which [`receive`](Self::receive) waits.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if a rank is lost, or cannot be reached by another one.
    pub fn join(mut rendezvous: Rendezvous, timeout: Duration) -> Result<Self> {
        let world = rendezvous.world().clone();
        let error = |reason: String| world.error(reason);
        let deadline = Instant::now() + timeout;
        let listener = rendezvous.local_address().and_then(listen);
        // Report an error here to all ranks, which would otherwise wait for the address.
        let address = match &listener {
            Ok((_, address)) => address.to_string(),
            Err(_) => String::new(),
        };
        let addresses = rendezvous.gather(address.as_bytes())?;
        let (listener, address) =
            listener.map_err(|reason| error(format!("cannot listen for other ranks: {reason}")))?;
        let mut streams: Vec<Option<TcpStream>> = rendezvous.into_streams();
        let (own, size) = (world.rank(), world.size());
        // Rank 0 is connected to all ranks already.
        let expected = if own == 0 { 0 } else { size - 1 - own };
        let accepted = thread::scope(|scope| {
            let accepts = scope.spawn(|| accept(&world, (&listener, address), expected, deadline));
            for (rank, address) in addresses.iter().enumerate().take(own).skip(1) {
                let connected = connect(&world, rank, address, deadline);
                streams[rank] = Some(connected.map_err(error)?);
            }
            let accepted = accepts.join();
            accepted
                .unwrap_or_else(|_| Err("the thread that waits for other ranks has panicked".to_owned()))
                .map_err(error)
        })?;
        for (rank, stream) in accepted {
            streams[rank] = Some(stream);
        }
        let peers = streams.into_iter().enumerate().map(|(rank, stream)| {
            let peer = stream.map(|stream| Peer::new(stream, rank, timeout));
            peer.transpose()
                .map_err(|reason| error(format!("cannot serve rank {rank}: {reason}")))
        });
        Ok(Self {
            peers: peers.collect::<Result<_>>()?,
            timeout,
            world: world.clone(),
        })
    }

    /// Returns the processes.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Queues a message to another rank. If that rank is lost, only receiving from it fails.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there is no other rank `rank`.
    pub fn send(&self, rank: usize, message: Vec<u8>) -> Result<()> {
        self.peer(rank)?.queue(MESSAGE, message);
        Ok(())
    }

    /// Returns the next message of another rank.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] with the rank that is lost, sends nothing in time, or has [failed](Self::fail). [`Error::Argument`] if there is
    /// no other rank `rank`.
    pub fn receive(&self, rank: usize) -> Result<Vec<u8>> {
        let arrival = self.peer(rank)?.incoming.lock().recv_timeout(self.timeout);
        let reason = match arrival {
            Ok(Ok(message)) => return Ok(message),
            Ok(Err(reason)) => reason,
            Err(RecvTimeoutError::Timeout) => {
                format!(
                    "rank {rank} has sent nothing for {} s",
                    self.timeout.as_secs_f64()
                )
            }
            Err(RecvTimeoutError::Disconnected) => format!("rank {rank} is lost"),
        };
        Err(self.world.error(reason))
    }

    /// Tells all other ranks why this one ends. Their next [`receive`](Self::receive) from this rank fails with this reason.
    pub fn fail(&self, reason: &str) {
        let end = reason.floor_char_boundary(MAX_REASON);
        for peer in self.peers.iter().flatten() {
            peer.queue(FAILURE, reason.as_bytes()[..end].to_vec());
        }
    }

    /// Returns true if another rank has ended, is unreachable or has failed. Its last messages may not be received yet.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        let mut peers = self.peers.iter().flatten();
        peers.any(|peer| peer.is_lost.load(Ordering::Acquire))
    }

    fn peer(&self, rank: usize) -> Result<&Peer> {
        let peer = self.peers.get(rank).and_then(Option::as_ref);
        peer.ok_or_else(|| Error::argument("rank", format!("{rank} is not another rank of the run")))
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        let deadline = Instant::now() + GRACE;
        for peer in self.peers.iter_mut().flatten() {
            // The thread ends after the last message, and tells the other side.
            peer.outgoing = None;
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.end(deadline);
        }
    }
}

impl Peer {
    fn new(stream: TcpStream, rank: usize, timeout: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(timeout))?;
        let (outgoing, queue) = mpsc::channel();
        let (arrivals, incoming) = mpsc::channel();
        let [sender, receiver] = [stream.try_clone()?, stream.try_clone()?];
        let is_lost = Arc::<AtomicBool>::default();
        let lost = is_lost.clone();
        let named = |name: &str| thread::Builder::new().name(format!("rank {rank}: {name}"));
        Ok(Self {
            sends: Some(named("send").spawn(move || send_all(&sender, &queue))?),
            receives: Some(named("receive").spawn(move || {
                receive_all(&receiver, rank, &arrivals);
                lost.store(true, Ordering::Release);
            })?),
            is_lost,
            stream,
            outgoing: Some(outgoing),
            incoming: Mutex::new(incoming),
        })
    }

    fn queue(&self, kind: u8, message: Vec<u8>) {
        if let Some(outgoing) = &self.outgoing {
            // The thread has ended if the rank is lost, which the next receive reports.
            let _ = outgoing.send((kind, message));
        }
    }

    /// Waits until the threads have ended, at most until the deadline.
    fn end(&mut self, deadline: Instant) {
        for thread in [self.sends.take(), self.receives.take()].into_iter().flatten() {
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(POLL);
            }
            if !thread.is_finished() {
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            let _ = thread.join();
        }
    }
}

/// Sends the queued messages.
fn send_all(mut stream: &TcpStream, queue: &Receiver<(u8, Vec<u8>)>) {
    for (kind, message) in queue {
        let mut header = [0; 16];
        header[..7].copy_from_slice(&MAGIC);
        header[7] = kind;
        header[8..].copy_from_slice(&(message.len() as u64).to_le_bytes());
        if stream
            .write_all(&header)
            .and_then(|()| stream.write_all(&message))
            .is_err()
        {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// Receives messages until the other side ends.
fn receive_all(stream: &TcpStream, rank: usize, arrivals: &Sender<Arrival>) {
    loop {
        let arrival = match receive_frame(stream) {
            Ok((MESSAGE, message)) => Ok(message),
            Ok((_, reason)) => Err(String::from_utf8_lossy(&reason).into_owned()),
            Err(reason) => Err(lost(rank, &reason)),
        };
        let is_end = arrival.is_err();
        if arrivals.send(arrival).is_err() || is_end {
            return;
        }
    }
}

fn receive_frame(mut stream: &TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let (magic, length) = header.split_at(8);
    if magic[..7] != MAGIC {
        return Err(io::Error::other("speaks another protocol"));
    }
    let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
    // Grows with the received bytes, not with the announced ones.
    let mut message = Vec::new();
    if length <= 1 << 28 {
        message.reserve_exact(length as usize);
    }
    stream.take(length).read_to_end(&mut message)?;
    if message.len() as u64 == length {
        Ok((magic[7], message))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Listens at a free port of this address.
fn listen(address: IpAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((address, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Accepts connections until `expected` ranks of the run have connected.
fn accept(
    world: &World,
    (listener, address): (&TcpListener, SocketAddr),
    expected: usize,
    deadline: Instant,
) -> std::result::Result<Vec<(usize, TcpStream)>, String> {
    let mut accepted: Vec<(usize, TcpStream)> = Vec::with_capacity(expected);
    while accepted.len() < expected {
        match listener.accept() {
            Ok((stream, _)) => {
                // Strangers are dropped.
                if let Ok(rank) = welcome(&stream, world, address) {
                    let is_expected = rank > world.rank() && rank < world.size();
                    if is_expected && accepted.iter().all(|(known, _)| *known != rank) {
                        accepted.push((rank, stream));
                    }
                }
            }
            Err(error) if is_timeout(&error) => thread::sleep(POLL),
            Err(error) => return Err(format!("cannot accept other ranks: {error}")),
        }
        if Instant::now() > deadline {
            let missing = (world.rank() + 1..world.size())
                .filter(|rank| accepted.iter().all(|(known, _)| known != rank))
                .map(|rank| rank.to_string());
            let missing = missing.collect::<Vec<_>>().join(", ");
            return Err(format!("rank {missing} has not connected in time"));
        }
    }
    Ok(accepted)
}

/// Returns the rank that has connected, after both sides have proved that they belong to the run.
fn welcome(stream: &TcpStream, world: &World, address: SocketAddr) -> io::Result<usize> {
    let deadline = Instant::now() + HANDSHAKE;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(HANDSHAKE))?;
    keep_alive(stream)?;
    let peer = handshake::identify(stream, world, address, deadline)?;
    handshake::welcome(stream, world, &peer, deadline)?;
    Ok(peer.rank)
}

/// Connects to another rank at the address that it has sent.
fn connect(
    world: &World,
    rank: usize,
    address: &[u8],
    deadline: Instant,
) -> std::result::Result<TcpStream, String> {
    let text = String::from_utf8_lossy(address);
    let Ok(address) = text.parse::<SocketAddr>() else {
        return Err(format!(
            "rank {rank} cannot listen for other ranks; its own output says why"
        ));
    };
    loop {
        let connected = TcpStream::connect_timeout(&address, HANDSHAKE).and_then(|stream| {
            stream.set_nodelay(true)?;
            keep_alive(&stream)?;
            handshake::introduce(&stream, world, Instant::now() + HANDSHAKE)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => {
                return Err(format!("rank {rank} cannot be reached at {address}: {error}"));
            }
            Err(_) => thread::sleep(POLL),
        }
    }
}

#[cfg(test)]
mod tests;
