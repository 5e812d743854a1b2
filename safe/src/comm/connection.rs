//! Connections between rank 0 and the other ranks. A message is a frame of magic bytes, length, and MessagePack.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::world::World;
use crate::error::{Error, Result};

/// First bytes of every message.
const MAGIC: [u8; 8] = *b"hipsafe1";

/// Connections of a rank, from [`Rendezvous::into_connections`](super::Rendezvous::into_connections).
#[derive(Debug)]
pub enum Connections {
    /// Connections of rank 0 to ranks 1 and up.
    Root(Vec<Connection>),
    /// Connection of another rank to rank 0.
    Leaf(Connection),
}

/// A connection between rank 0 and another rank. It transfers messages in order in both directions. [`send`](Self::send) blocks if the
/// other side does not receive, so that neither side runs far ahead. Dropping the last clone closes the connection.
///
/// ```no_run
/// # fn main() -> hip_safe::Result<()> {
/// use std::time::Duration;
///
/// use hip_safe::{Connections, Rendezvous, World};
///
/// let Some(world) = World::from_env()? else { return Ok(()) };
/// let rank = world.rank();
/// match Rendezvous::new(world, Duration::from_secs(300))?.into_connections() {
///     Connections::Leaf(mut root) => root.send(&vec![0.5f32; rank])?,
///     Connections::Root(mut others) => {
///         for other in &mut others {
///             let values: Vec<f32> = other.receive(Duration::from_secs(300))?;
///             println!("{} values from rank {}", values.len(), other.peer());
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    world: World,
    peer: usize,
}

impl Connection {
    /// Creates the connection of this process of `world` to rank `peer`.
    pub(super) fn new(stream: TcpStream, world: World, peer: usize) -> Self {
        Self { stream, world, peer }
    }

    /// Returns the rank of the other side.
    #[must_use]
    pub fn peer(&self) -> usize {
        self.peer
    }

    /// Clones the connection, for a thread that receives while another one sends. Two receiving threads would each get parts of messages.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if the process has no free file descriptor.
    pub fn try_clone(&self) -> Result<Self> {
        let stream = self.stream.try_clone();
        let stream =
            stream.map_err(|reason| self.world.error(format!("cannot clone the connection: {reason}")))?;
        Ok(Self::new(stream, self.world.clone(), self.peer))
    }

    /// Sends `message`, of less than 4 GiB.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if the other side has ended or is unreachable, or if the message is too long.
    pub fn send(&mut self, message: &impl Serialize) -> Result<()> {
        send(&self.stream, message).map_err(|reason| self.lost(&reason))
    }

    /// Receives the next message. Waits at most `timeout`, or without limit for `None`. On Linux, a host that disappears is detected after
    /// about 35 s.
    ///
    /// # Errors
    ///
    /// [`Error::Rendezvous`] if the other side has ended, is unreachable, sends nothing in time, or sends anything but a `T`.
    pub fn receive<T: DeserializeOwned>(&mut self, timeout: impl Into<Option<Duration>>) -> Result<T> {
        let timeout = timeout.into();
        receive(&self.stream, timeout, u32::MAX).map_err(|reason| match timeout {
            Some(timeout) if is_timeout(&reason) => self.world.error(format!(
                "rank {} has sent nothing for {} s",
                self.peer,
                timeout.as_secs_f64()
            )),
            _ => self.lost(&reason),
        })
    }

    /// Closes the connection and its clones. Threads that wait for it get an error, on both sides.
    pub fn close(&self) {
        // A lost connection is already closed.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn lost(&self, reason: &io::Error) -> Error {
        self.world.error(lost(self.peer, reason))
    }
}

/// Returns the error text for a rank whose connection fails.
pub(super) fn lost(rank: usize, reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::UnexpectedEof => format!("rank {rank} has ended: its connection was closed"),
        _ => format!("rank {rank} has ended or is unreachable ({reason})"),
    }
}

pub(super) fn send(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut frame = [&MAGIC[..], &[0; 4]].concat();
    rmp_serde::encode::write(&mut frame, message).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len() - 12).map_err(|_| io::Error::other("a message of 4 GiB"))?;
    frame[8..12].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)
}

/// Receives the next message, of at most `longest` bytes. Each part of it may take `timeout`.
pub(super) fn receive<T: DeserializeOwned>(
    stream: &TcpStream,
    timeout: Option<Duration>,
    longest: u32,
) -> io::Result<T> {
    stream.set_read_timeout(timeout.map(|timeout| timeout.max(Duration::from_millis(1))))?;
    receive_from(stream, longest)
}

/// Receives the next message, of at most `longest` bytes. All of it must arrive before `deadline`.
pub(super) fn receive_before<T: DeserializeOwned>(
    stream: &TcpStream,
    deadline: Instant,
    longest: u32,
) -> io::Result<T> {
    receive_from(Until { stream, deadline }, longest)
}

/// Reads a stream until a deadline, however slowly the bytes arrive.
struct Until<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes)
    }
}

fn receive_from<T: DeserializeOwned>(mut stream: impl Read, longest: u32) -> io::Result<T> {
    let (mut magic, mut length) = ([0; 8], [0; 4]);
    stream.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(io::Error::other("speaks another protocol"));
    }
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > longest {
        let reason = format!("announces a message of {length} bytes, which exceeds {longest}");
        return Err(io::Error::other(reason));
    }
    // Grows with the received bytes, not with the announced ones.
    let mut body = Vec::new();
    stream.take(length.into()).read_to_end(&mut body)?;
    if body.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    rmp_serde::from_slice(&body).map_err(io::Error::other)
}

/// Returns true if the other side took too long and nothing else failed.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Enables probes of a silent connection, so that it fails if the other host is gone: after 15 s idle, four probes 5 s apart.
#[cfg(target_os = "linux")]
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 15),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
    ];
    for (level, option, value) in options {
        let value: libc::c_int = value;
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the descriptor belongs to an open socket, and the value is a C int that lives through the call.
        let set =
            unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), size) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// On other systems, only time-outs detect that a host is gone.
#[cfg(not(target_os = "linux"))]
pub(super) fn keep_alive(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Returns both ends of a connection between rank 0 and rank 1.
    fn pair() -> [Connection; 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let leaf = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (root, _) = listener.accept().unwrap();
        let end = |stream, rank: usize| {
            let find = |name: &str| match name {
                "RANK" => Some(rank.to_string()),
                "WORLD_SIZE" => Some("2".to_owned()),
                _ => None,
            };
            keep_alive(&stream).unwrap();
            Connection::new(stream, World::from_variables(find).unwrap().unwrap(), 1 - rank)
        };
        [end(root, 0), end(leaf, 1)]
    }

    fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn messages_arrive_in_order_in_both_directions() {
        let [mut root, mut leaf] = pair();
        for n in 0..3u32 {
            leaf.send(&(n, "text", [n as f32; 3])).unwrap();
        }
        root.send(&Some(7u8)).unwrap();
        for n in 0..3u32 {
            let message: (u32, String, [f32; 3]) = root.receive(LONG).unwrap();
            assert_eq!(message, (n, "text".to_owned(), [n as f32; 3]));
        }
        assert_eq!(leaf.receive::<Option<u8>>(None).unwrap(), Some(7));
    }

    #[test]
    fn who_sends_waits_for_who_receives() {
        let [mut root, mut leaf] = pair();
        let block = vec![1u8; 1 << 20];
        let (sent, counter) = std::sync::mpsc::channel();
        let sender = thread::spawn(move || {
            for n in 0..64 {
                leaf.send(&block).unwrap();
                sent.send(n).unwrap();
            }
        });
        // No socket buffers 64 messages of twice this size (each byte may take two).
        thread::sleep(Duration::from_millis(300));
        assert!(counter.try_iter().count() < 64);
        for _ in 0..64 {
            assert_eq!(root.receive::<Vec<u8>>(LONG).unwrap().len(), 1 << 20);
        }
        sender.join().unwrap();
    }

    #[test]
    fn a_lost_rank_is_named_and_so_is_one_that_is_silent() {
        let [mut root, leaf] = pair();
        let silent = text(root.receive::<u8>(Duration::from_millis(50)));
        assert!(silent.ends_with("rank 1 has sent nothing for 0.05 s"), "{silent}");
        drop(leaf);
        let lost = text(root.receive::<u8>(LONG));
        assert!(lost.starts_with("rank 0 of 2: "), "{lost}");
        assert!(
            lost.ends_with("rank 1 has ended: its connection was closed"),
            "{lost}"
        );
    }

    #[test]
    fn a_message_that_breaks_off_is_a_lost_rank() {
        let [mut root, mut leaf] = pair();
        leaf.stream.write_all(&MAGIC).unwrap();
        leaf.stream.write_all(&[9, 0, 0, 0, 1, 2]).unwrap();
        drop(leaf);
        let lost = text(root.receive::<Vec<u8>>(LONG));
        assert!(lost.ends_with("its connection was closed"), "{lost}");
    }

    #[test]
    fn closing_ends_the_wait_of_a_clone() {
        let [root, leaf] = pair();
        let mut clone = leaf.try_clone().unwrap();
        let waits = thread::spawn(move || text(clone.receive::<u8>(None)));
        leaf.close();
        assert!(waits.join().unwrap().contains("rank 0 has ended"));
        drop(root);
    }
}
