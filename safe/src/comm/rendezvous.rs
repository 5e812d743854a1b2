//! How the processes of a run find each other: by TCP at rank 0.
//!
//! Rank 0 listens; the others connect, again and again until it is up, say which run and rank they are, and keep the connection. What
//! does not speak this protocol, or is of another run, is dropped, and a rank that meets another run's server tries the next port.

use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::connection::{self, Connection, Connections, is_timeout, keep_alive, lost, send};
use super::world::World;
use crate::error::{Error, Result};

/// How long a new connection, or a server, may take to say what it is.
const HELLO: Duration = Duration::from_secs(2);

/// The longest message of one that has not said it yet.
const LONGEST_HELLO: u32 = 64 << 10;

/// Between two attempts.
const RETRY: Duration = Duration::from_millis(20);

/// The connections of a run's processes. Made by all of them at once; then they can exchange small messages, such as
/// [`UniqueId`](super::UniqueId)s. For more than that it becomes [`Connections`](Self::into_connections).
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

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    run: String,
    rank: usize,
    size: usize,
}

/// What rank 0 answers, once to say that it is the right one, and then for each exchange.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Known,
    AnotherRun,
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
            0 => serve(&world, deadline, timeout),
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

    /// What each rank gave, in the order of the ranks, at every rank. Waits for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if a rank has ended, or does not come in time.
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

/// The first message of a connection, which may be anybody's.
fn receive_hello<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    connection::receive(stream, Some(HELLO), LONGEST_HELLO)
}

/// A message of a rank.
fn receive<T: DeserializeOwned>(stream: &mut TcpStream, timeout: Duration) -> io::Result<T> {
    connection::receive(stream, Some(timeout), u32::MAX)
}

fn gather_at_root(others: &mut [TcpStream], own: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, String> {
    let deadline = Instant::now() + timeout;
    let mut parts = vec![own.to_vec()];
    for index in 0..others.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        match receive(&mut others[index], left) {
            Ok(part) => parts.push(part),
            Err(error) => {
                let rank = index + 1;
                let reason = match is_timeout(&error) {
                    true => format!("rank {rank} has not come within {} s", timeout.as_secs_f64()),
                    false => lost(rank, &error),
                };
                tell(others.iter_mut(), &reason);
                return Err(reason);
            }
        }
    }
    let answer = Answer::Parts(parts);
    for (index, other) in others.iter_mut().enumerate() {
        // One that has ended meanwhile is found by the next exchange.
        let _ = send(other, &answer).map_err(|_| index);
    }
    match answer {
        Answer::Parts(parts) => Ok(parts),
        _ => Ok(Vec::new()),
    }
}

fn gather_at_leaf(root: &mut TcpStream, own: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, String> {
    let lost = |error: io::Error| lost(0, &error);
    send(root, &own).map_err(lost)?;
    // Longer than rank 0 waits, whose answer says who is missing.
    match receive(root, timeout + HELLO) {
        Ok(Answer::Parts(parts)) => Ok(parts),
        Ok(Answer::Failed(reason)) => Err(reason),
        Ok(other) => Err(format!("rank 0 has answered {other:?}")),
        Err(error) if is_timeout(&error) => Err(format!(
            "rank 0 has not answered within {} s",
            timeout.as_secs_f64()
        )),
        Err(error) => Err(lost(error)),
    }
}

fn tell<'a>(streams: impl Iterator<Item = &'a mut TcpStream>, reason: &str) {
    for stream in streams {
        let _ = send(stream, &Answer::Failed(reason.to_owned()));
    }
}

/// The first of the ports that is free.
fn listen(world: &World) -> Result<TcpListener, String> {
    let mut last = String::from("no port");
    for &port in world.ports() {
        // Both families, where the host has both.
        let opened = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
        match opened {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                last = format!("cannot listen at port {port}: {error}; set MASTER_PORT to a free one");
            }
        }
    }
    Err(last)
}

fn serve(world: &World, deadline: Instant, timeout: Duration) -> Result<Streams, String> {
    let listener = listen(world)?;
    listener
        .set_nonblocking(true)
        .map_err(|error| error.to_string())?;
    let (found, arrivals) = mpsc::channel::<(Hello, TcpStream)>();
    let mut others: Vec<Option<TcpStream>> = (1..world.size()).map(|_| None).collect();
    while others.iter().any(Option::is_none) {
        while let Ok((mut stream, _)) = listener.accept() {
            let found = found.clone();
            // On a thread of its own, so that a silent connection stops no rank.
            let said = move || -> io::Result<()> {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                let hello = receive_hello(&mut stream)?;
                let _ = found.send((hello, stream));
                Ok(())
            };
            let _ = thread::Builder::new().spawn(said);
        }
        let Ok((hello, mut stream)) = arrivals.try_recv() else {
            if Instant::now() > deadline {
                let missing = others.iter().enumerate().filter(|(_, other)| other.is_none());
                let missing: Vec<_> = missing.map(|(index, _)| (index + 1).to_string()).collect();
                let reason = format!(
                    "rank {} has not come within {} s",
                    missing.join(", "),
                    timeout.as_secs_f64()
                );
                tell(others.iter_mut().flatten(), &reason);
                return Err(reason);
            }
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        if hello.run != world.run() {
            let _ = send(&mut stream, &Answer::AnotherRun);
            continue;
        }
        let _ = send(&mut stream, &Answer::Known);
        let wrong = if hello.size != world.size() {
            Some(format!(
                "rank {} was told of {} ranks, rank 0 of {}",
                hello.rank,
                hello.size,
                world.size()
            ))
        } else {
            match hello.rank.checked_sub(1).and_then(|index| others.get(index)) {
                Some(None) => None,
                Some(Some(_)) => Some(format!("rank {} has come twice", hello.rank)),
                None if hello.rank == 0 => Some("rank 0 has come twice".to_owned()),
                None => Some(format!("there is no rank {}", hello.rank)),
            }
        };
        if let Some(wrong) = wrong {
            tell(others.iter_mut().flatten().chain([&mut stream]), &wrong);
            return Err(wrong);
        }
        others[hello.rank - 1] = Some(stream);
    }
    Ok(Streams::Root(others.into_iter().flatten().collect()))
}

/// The connection to rank 0, once it is up.
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

fn greet(world: &World, port: u16) -> io::Result<TcpStream> {
    let mut refused = None;
    for address in (world.host(), port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, HELLO) {
            Err(error) => refused = Some(error),
            Ok(mut stream) => {
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                let hello = Hello {
                    run: world.run().to_owned(),
                    rank: world.rank(),
                    size: world.size(),
                };
                send(&mut stream, &hello)?;
                return match receive_hello(&mut stream)? {
                    Answer::Known => Ok(stream),
                    _ => Err(io::Error::other("another run's rank 0")),
                };
            }
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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
}
