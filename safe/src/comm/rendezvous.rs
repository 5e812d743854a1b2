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
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// Rank `rank` of `size` at a port that is free now.
    fn world(rank: usize, size: usize, port: u16, run: &str) -> World {
        let find = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some(size.to_string()),
            "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
            "MASTER_PORT" => Some(port.to_string()),
            // No test meets another one at a neighbouring port.
            "TORCHELASTIC_RUN_ID" => Some(format!("{run}{port}")),
            _ => None,
        };
        World::from_variables(find).unwrap().unwrap()
    }

    fn free_port() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    /// Runs these ranks, each on a thread; what each gathered, or its error.
    fn run(worlds: Vec<World>, timeout: Duration) -> Vec<Result<Vec<Vec<u8>>, String>> {
        let threads: Vec<_> = worlds
            .into_iter()
            .map(|world| {
                thread::spawn(move || {
                    let own = [world.rank() as u8; 3];
                    let mut rendezvous = Rendezvous::new(world, timeout)?;
                    rendezvous.gather(&own)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined
            .map(|result| result.map_err(|error| error.to_string()))
            .collect()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn all_ranks_get_what_each_gave() {
        let port = free_port();
        // Rank 0 comes last: the others try again.
        let worlds = [3, 2, 1, 0].map(|rank| world(rank, 4, port, "a")).into();
        let expected: Vec<Vec<u8>> = (0..4).map(|rank| vec![rank; 3]).collect();
        for gathered in run(worlds, LONG) {
            assert_eq!(gathered, Ok(expected.clone()));
        }
    }

    #[test]
    fn connections_go_from_rank_0_to_each_other_rank() {
        let port = free_port();
        let threads = [0, 1, 2].map(|rank| {
            thread::spawn(move || {
                let mut rendezvous = Rendezvous::new(world(rank, 3, port, "a"), LONG).unwrap();
                rendezvous.gather(&[1]).unwrap();
                match rendezvous.into_connections() {
                    Connections::Leaf(mut root) => {
                        root.send(&(rank, vec![0.5f32; 1000])).unwrap();
                        vec![(root.peer(), root.receive::<usize>(LONG).unwrap())]
                    }
                    Connections::Root(others) => {
                        let answer = |mut other: Connection| {
                            let (rank, values): (usize, Vec<f32>) = other.receive(LONG).unwrap();
                            assert_eq!(values, [0.5; 1000]);
                            other.send(&(10 * rank)).unwrap();
                            (other.peer(), rank)
                        };
                        others.into_iter().map(answer).collect()
                    }
                }
            })
        });
        let results = threads.map(|thread| thread.join().unwrap());
        assert_eq!(results, [vec![(1, 1), (2, 2)], vec![(0, 10)], vec![(0, 20)]]);
    }

    #[test]
    fn two_runs_with_one_port_do_not_disturb_each_other() {
        let port = free_port();
        let worlds = |run: &'static str| [0, 1].map(|rank| world(rank, 2, port, run));
        let worlds = [worlds("a"), worlds("b")].concat();
        for gathered in run(worlds, LONG) {
            assert_eq!(gathered.map(|parts| parts.len()), Ok(2));
        }
    }

    #[test]
    fn stray_connections_are_ignored() {
        let port = free_port();
        let root = thread::spawn(move || run(vec![world(0, 2, port, "a")], LONG).remove(0));
        let strays: Vec<TcpStream> = ["", "GET / HTTP/1.1\r\n\r\n"]
            .iter()
            .map(|text| {
                loop {
                    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                        stream.write_all(text.as_bytes()).unwrap();
                        break stream;
                    }
                    thread::sleep(RETRY);
                }
            })
            .collect();
        let other = run(vec![world(1, 2, port, "a")], LONG).remove(0);
        assert_eq!(other.map(|parts| parts.len()), Ok(2));
        assert_eq!(root.join().unwrap().map(|parts| parts.len()), Ok(2));
        drop(strays);
    }

    #[test]
    fn a_missing_rank_is_named_at_all_ranks() {
        let port = free_port();
        let worlds = [0, 2].map(|rank| world(rank, 4, port, "a")).into();
        for (index, failed) in run(worlds, Duration::from_secs(1)).into_iter().enumerate() {
            let rank = 2 * index;
            assert_eq!(
                failed,
                Err(format!(
                    "rank {rank} of 4: rendezvous at 127.0.0.1:{port}: rank 1, 3 has not come within 1 s"
                ))
            );
        }
    }

    #[test]
    fn without_rank_0_the_others_say_so() {
        let port = free_port();
        let failed = run(vec![world(1, 2, port, "a")], Duration::from_millis(200)).remove(0);
        let text = failed.unwrap_err();
        assert!(text.contains("rank 0 was not reached within 0.2 s"), "{text}");
    }

    #[test]
    fn a_rank_that_comes_twice_is_an_error_of_all_ranks() {
        let port = free_port();
        let worlds = [0, 1, 1].map(|rank| world(rank, 3, port, "a")).into();
        for failed in run(worlds, LONG) {
            let text = failed.unwrap_err();
            assert!(text.ends_with("rank 1 has come twice"), "{text}");
        }
    }

    #[test]
    fn different_numbers_of_ranks_are_an_error_of_all_ranks() {
        let port = free_port();
        let worlds = vec![world(0, 2, port, "a"), world(1, 3, port, "a")];
        for failed in run(worlds, LONG) {
            let text = failed.unwrap_err();
            assert!(
                text.ends_with("rank 1 was told of 3 ranks, rank 0 of 2"),
                "{text}"
            );
        }
    }

    /// Lets strangers act at rank 0's port before rank 1 comes. Returns what rank 0 gathered.
    fn among_strangers(act: impl FnOnce(u16)) -> Result<Vec<Vec<u8>>, String> {
        let port = free_port();
        let root = thread::spawn(move || run(vec![world(0, 2, port, "a")], LONG).remove(0));
        drop(connected(port));
        act(port);
        let other = run(vec![world(1, 2, port, "a")], LONG).remove(0);
        assert_eq!(other.map(|parts| parts.len()), Ok(2));
        root.join().unwrap()
    }

    fn connected(port: u16) -> TcpStream {
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => return stream,
                Err(_) => thread::sleep(RETRY),
            }
        }
    }

    /// Reads until rank 0 closes the connection.
    fn answer(mut stream: TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    }

    #[test]
    fn a_stranger_neither_ends_the_run_nor_takes_a_rank_nor_learns_of_it() {
        let gathered = among_strangers(|port| {
            // The hello of a rank, of another protocol's version, and with another number of ranks.
            for hello in [
                ("", 1, 2),
                ("a", 1, 2),
                ("", 7, 2),
                ("", 1, 3),
                ("", usize::MAX, 0),
            ] {
                let stream = connected(port);
                send(&stream, &hello).unwrap();
                let answer = answer(stream);
                assert!(answer.len() < 200, "{answer:?}");
                assert!(!answer.windows(5).any(|part| part == b"Parts"));
            }
            // The right form with a false code.
            for (rank, size) in [(1, 2), (1, 3), (0, 2), (7, 2)] {
                let stream = connected(port);
                send(&stream, &(rank, size, [7_u8; 32], [7_u8; 32])).unwrap();
                assert!(answer(stream).ends_with(b"Refused"));
            }
            // Ranks of another run.
            for size in [2, 3] {
                let failed = run(vec![world(1, size, port, "other")], Duration::from_millis(200));
                let text = failed[0].clone().unwrap_err();
                assert!(text.contains("rank 0 of another run"), "{text}");
            }
        });
        assert_eq!(gathered, Ok(vec![vec![0; 3], vec![1; 3]]));
    }

    #[test]
    fn what_a_stranger_announces_is_not_waited_for() {
        let gathered = among_strangers(|port| {
            let mut streams: Vec<_> = (0..20).map(|_| connected(port)).collect();
            for stream in &mut streams {
                stream.write_all(b"hipsafe1\xff\xff\xff\xff").unwrap();
            }
            for stream in streams {
                answer(stream);
            }
        });
        assert!(gathered.is_ok());
    }

    #[test]
    fn silent_strangers_make_way_for_ranks() {
        let mut held = Vec::new();
        let started = Instant::now();
        let gathered = among_strangers(|port| {
            held.extend((0..HANDSHAKES + 50).map(|_| connected(port)));
        });
        assert!(gathered.is_ok());
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_handshake_ends_however_slowly_bytes_come() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let drips = thread::spawn(move || {
            // Ends when the other side has closed the connection.
            while stranger.write_all(b"h").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let deadline = Instant::now() + Duration::from_millis(100);
        let error = handshake::identify(&stream, &world(0, 2, 1, "a"), deadline).unwrap_err();
        assert!(
            is_timeout(&error) || error.to_string().contains("protocol"),
            "{error}"
        );
        drop(stream);
        drips.join().unwrap();
    }

    #[test]
    fn a_false_rank_0_learns_no_more_than_a_hello() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let leaf = thread::spawn(move || {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            handshake::introduce(&stream, &world(1, 2, port, "a"), Instant::now() + LONG)
        });
        let (stream, _) = listener.accept().unwrap();
        // Another run's, which takes any code.
        let other = world(0, 2, port, "b");
        let error = handshake::identify(&stream, &other, Instant::now() + LONG).unwrap_err();
        assert_eq!(error.to_string(), "belongs to another run");
        let error = leaf.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("rank 0 of another run"), "{error}");
    }

    #[test]
    fn a_rank_is_told_apart_from_one_with_another_secret() {
        let port = free_port();
        let with_secret = |rank: usize, secret: &'static str| {
            let find = move |name: &str| match name {
                "RANK" => Some(rank.to_string()),
                "WORLD_SIZE" => Some("2".to_owned()),
                "MASTER_PORT" => Some(port.to_string()),
                "TORCHELASTIC_RUN_ID" => Some(format!("secret{port}")),
                "HIPVIT_RENDEZVOUS_SECRET" => Some(secret.to_owned()),
                _ => None,
            };
            World::from_variables(find).unwrap().unwrap()
        };
        let root = thread::spawn({
            let root = with_secret(0, "0123456789abcdef");
            move || run(vec![root], LONG).remove(0)
        });
        let failed = run(
            vec![with_secret(1, "0123456789abcdeF")],
            Duration::from_millis(200),
        )
        .remove(0);
        assert!(failed.unwrap_err().contains("HIPVIT_RENDEZVOUS_SECRET"));
        let other = run(vec![with_secret(1, "0123456789abcdef")], LONG).remove(0);
        assert!(other.is_ok() && root.join().unwrap().is_ok());
    }

    #[test]
    fn a_long_message_to_rank_0_is_refused() {
        let port = free_port();
        let ranks = [0, 1].map(|rank| {
            thread::spawn(move || {
                let mut rendezvous = Rendezvous::new(world(rank, 2, port, "a"), LONG).unwrap();
                // Rank 0's own message may be long: the others trust it.
                let own = vec![200; if rank == 0 { 3 << 20 } else { MAX_PART }];
                let gathered = rendezvous.gather(&own).unwrap();
                assert_eq!(
                    gathered.iter().map(Vec::len).collect::<Vec<_>>(),
                    [3 << 20, MAX_PART]
                );
                rendezvous
                    .gather(&vec![0; MAX_PART + 1])
                    .map_err(|error| error.to_string())
            })
        });
        let [root, leaf] = ranks.map(|rank| rank.join().unwrap());
        assert!(leaf.unwrap_err().contains("exceeds"));
        assert!(root.unwrap_err().contains("rank 1 has ended"));
    }

    #[test]
    fn rank_0_listens_where_the_others_look_for_it() {
        let bound = |host: &str| {
            let listeners = listen_at(host, free_port()).unwrap();
            let addresses = listeners
                .iter()
                .map(|listener| listener.local_addr().unwrap().ip());
            addresses.collect::<Vec<_>>()
        };
        assert_eq!(bound("127.0.0.1"), [std::net::Ipv4Addr::LOCALHOST]);
        assert_eq!(bound("127.0.0.2"), [std::net::Ipv4Addr::new(127, 0, 0, 2)]);
        assert!(bound("localhost").iter().all(std::net::IpAddr::is_loopback));
        // Not an address of this host (TEST-NET-1), and a name that is not known here.
        for host in ["192.0.2.1", "name.invalid"] {
            let addresses = bound(host);
            assert!(
                addresses.len() == 1 && addresses[0].is_unspecified(),
                "{addresses:?}"
            );
        }
    }
}
