//! Rendezvous of the ranks that share a unique id.
//!
//! `ncclGetUniqueId` opens a TCP listener, the *root*, whose address is in the identifier. Every rank sends its identity to the
//! root. When all have come, the root sends each the addresses of the others, and ranks of different processes connect to each
//! other. Ranks of one process use each other's mailboxes. A connection that does not know the identifier's secret is dropped.
//!
//! TCP also connects processes of one machine, instead of shared memory. One implementation then serves hosts, containers and network
//! namespaces. Compared with the emulation of kernels, the copies through the loopback interface cost nothing.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

use hipvit_sys::rccl::{ncclResult_t, ncclUniqueId};
use serde::{Deserialize, Serialize};

use super::communicator::{Communicator, Peer};
use super::connection::{Connection, receive, send};
use super::error::Error;
use super::mailbox::Mailbox;
use crate::hip::machine::Device;

/// Time limit for a connection to identify itself.
const HELLO: Duration = Duration::from_secs(5);

/// The interval at which listeners are polled.
const POLL: Duration = Duration::from_millis(2);

/// Contents of an identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Id {
    secret: String,
    root: SocketAddr,
}

const MARK: &str = "hip-emu-1";

impl Id {
    fn encode(&self) -> ncclUniqueId {
        let mut id = ncclUniqueId { internal: [0; 128] };
        let text = format!("{MARK} {} {}", self.secret, self.root);
        for (to, from) in id.internal.iter_mut().zip(text.bytes()) {
            *to = from as c_char;
        }
        id
    }

    fn decode(id: &ncclUniqueId) -> Option<Self> {
        let bytes: Vec<u8> = id
            .internal
            .iter()
            .map(|&c| c as u8)
            .take_while(|&c| c != 0)
            .collect();
        let text = String::from_utf8(bytes).ok()?;
        let mut words = text.split(' ');
        let (MARK, secret, root) = (words.next()?, words.next()?, words.next()?) else {
            return None;
        };
        Some(Self {
            secret: secret.to_owned(),
            root: root.parse().ok()?,
        })
    }
}

/// Message of a rank to the root.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hello {
    secret: String,
    rank: usize,
    ranks: usize,
    place: Place,
}

/// Address of a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    /// The process, told from all others of all hosts.
    process: String,
    device: u32,
    /// Address at which it listens for other ranks.
    address: SocketAddr,
    /// Name of the place in messages.
    name: String,
}

/// The root's answer: the places of all ranks, or why there is no communicator.
type Answer = Result<Vec<Place>, String>;

/// Message of a rank to another.
#[derive(Debug, Serialize, Deserialize)]
struct Introduction {
    secret: String,
    rank: usize,
}

/// A secret of 128 random bits.
fn secret() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| system(&format!("random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn system(text: &str) -> Error {
    Error::new(ncclResult_t::ncclSystemError, text)
}

/// This process, told from all others.
fn this_process() -> Result<&'static str, Error> {
    static PROCESS: OnceLock<String> = OnceLock::new();
    let own = secret()?;
    Ok(PROCESS.get_or_init(|| own))
}

/// Returns the address by which other hosts reach this one: that of the interface in `NCCL_SOCKET_IFNAME`. Without the variable,
/// that of the first interface other than loopback, or else of loopback.
fn own_address() -> Result<IpAddr, Error> {
    let interfaces =
        if_addrs::get_if_addrs().map_err(|error| system(&format!("network interfaces: {error}")))?;
    let named = env::var("NCCL_SOCKET_IFNAME")
        .ok()
        .filter(|name| !name.is_empty());
    if let Some(named) = named {
        // As RCCL reads it: prefixes, or after `=` whole names.
        let (whole, names) = match named.strip_prefix('=') {
            Some(names) => (true, names),
            None => (false, &*named),
        };
        let fits = |name: &str| {
            names.split(',').any(|wanted| {
                if whole {
                    name == wanted
                } else {
                    name.starts_with(wanted)
                }
            })
        };
        let found = interfaces.iter().find(|interface| fits(&interface.name));
        return match found {
            Some(interface) => Ok(interface.ip()),
            None => Err(system(&format!(
                "NCCL_SOCKET_IFNAME={named}: there is no such network interface"
            ))),
        };
    }
    let reachable = |ip: &IpAddr| ip.is_ipv4() && !ip.is_loopback();
    let found = interfaces.iter().map(if_addrs::Interface::ip).find(reachable);
    Ok(found.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

fn listen(ip: IpAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let opened = TcpListener::bind((ip, 0)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    opened.map_err(|error| system(&format!("listening on {ip}: {error}")))
}

/// A new identifier, whose root waits for its ranks.
pub(super) fn unique_id(timeout: Duration) -> Result<ncclUniqueId, Error> {
    let (listener, root) = listen(own_address()?)?;
    let id = Id {
        secret: secret()?,
        root,
    };
    let encoded = id.encode();
    let named = thread::Builder::new().name("RCCL root".into());
    let started = named.spawn(move || serve(&listener, &id.secret, timeout));
    started.map_err(|error| system(&format!("a thread: {error}")))?;
    Ok(encoded)
}

/// Connections to a listener, and their first message of type `T`.
struct Arrivals<T> {
    found: Receiver<(T, TcpStream)>,
    sender: Sender<(T, TcpStream)>,
}

impl<T: for<'a> Deserialize<'a> + Send + 'static> Arrivals<T> {
    fn new() -> Self {
        let (sender, found) = channel();
        Self { found, sender }
    }

    /// The next one, if there is one. Each connection is read on a thread of its own, so that a silent one stops no other.
    fn next(&self, listener: &TcpListener) -> Option<(T, TcpStream)> {
        while let Ok((mut stream, _)) = listener.accept() {
            let sender = self.sender.clone();
            let said = move || -> io::Result<()> {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(HELLO))?;
                let (said, _) = receive(&mut stream)?;
                stream.set_read_timeout(None)?;
                let _ = sender.send((said, stream));
                Ok(())
            };
            // What is no rank is not answered.
            let _ = thread::Builder::new().spawn(said);
        }
        self.found.try_recv().ok()
    }
}

/// The root: waits for all ranks, and answers them. The time runs from the first on.
fn serve(listener: &TcpListener, secret: &str, timeout: Duration) {
    let arrivals = Arrivals::<Hello>::new();
    let mut ranks: BTreeMap<usize, (Hello, TcpStream)> = BTreeMap::new();
    let mut since = None;
    let answer: Answer = loop {
        let Some((hello, mut stream)) = arrivals.next(listener) else {
            if let Some((begun, count)) = since
                && Instant::now().duration_since(begun) > timeout
            {
                break Err(missing(&ranks, count, timeout));
            }
            thread::sleep(POLL);
            continue;
        };
        if hello.secret != secret {
            continue;
        }
        let (_, count) = *since.get_or_insert((Instant::now(), hello.ranks));
        let name = &hello.place.name;
        let wrong = if hello.ranks != count {
            Some(format!(
                "rank {} ({name}) takes part in {} ranks, others in {count}",
                hello.rank, hello.ranks
            ))
        } else {
            ranks.get(&hello.rank).map(|(other, _)| {
                let other = &other.place.name;
                format!("rank {} has come twice: {other} and {name}", hello.rank)
            })
        };
        if let Some(wrong) = wrong {
            let _ = send(&mut stream, &Answer::Err(wrong.clone()), &[]);
            break Err(wrong);
        }
        ranks.insert(hello.rank, (hello, stream));
        if ranks.len() == count {
            break Ok(ranks.values().map(|(hello, _)| hello.place.clone()).collect());
        }
    };
    for (_, stream) in ranks.values_mut() {
        let _ = send(stream, &answer, &[]);
    }
}

fn missing(found: &BTreeMap<usize, (Hello, TcpStream)>, count: usize, timeout: Duration) -> String {
    let missing: Vec<String> = (0..count)
        .filter(|rank| !found.contains_key(rank))
        .map(|rank| rank.to_string())
        .collect();
    format!(
        "of {count} ranks {} did not come within {} s of the first",
        missing.join(", "),
        timeout.as_secs_f64()
    )
}

/// The mailboxes of this process's ranks, by secret and rank.
static MAILBOXES: Mutex<BTreeMap<(String, usize), Weak<Mailbox>>> = Mutex::new(BTreeMap::new());

fn mailboxes() -> std::sync::MutexGuard<'static, BTreeMap<(String, usize), Weak<Mailbox>>> {
    MAILBOXES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Becomes a rank; waits for the others.
pub(super) fn join(
    device: &'static Device,
    id: &ncclUniqueId,
    rank: usize,
    ranks: usize,
    timeout: Duration,
) -> Result<Communicator, Error> {
    let id = Id::decode(id).ok_or_else(|| Error::argument("the unique id was not made by this library"))?;
    let unreachable = |error: io::Error| system(&format!("the root of the unique id, {}: {error}", id.root));
    let mailbox: Arc<Mailbox> = Arc::default();
    {
        let mut mailboxes = mailboxes();
        mailboxes.retain(|_, mailbox| mailbox.strong_count() > 0);
        let own = (id.secret.clone(), rank);
        mailboxes.entry(own).or_insert_with(|| Arc::downgrade(&mailbox));
    }

    let mut root = TcpStream::connect_timeout(&id.root, timeout).map_err(unreachable)?;
    // The address by which the root is reached is one that the other ranks reach.
    let (listener, address) = listen(root.local_addr().map_err(unreachable)?.ip())?;
    let host = hostname();
    let place = Place {
        process: this_process()?.to_owned(),
        device: device.ordinal,
        address,
        name: format!("process {} on {host}", process::id()),
    };
    let hello = Hello {
        secret: id.secret.clone(),
        rank,
        ranks,
        place,
    };
    send(&mut root, &hello, &[]).map_err(unreachable)?;
    // Beyond the root's own limit.
    root.set_read_timeout(Some(timeout + 2 * HELLO))
        .map_err(unreachable)?;
    let (answer, _) = receive::<Answer>(&mut root).map_err(unreachable)?;
    let places = answer.map_err(|text| Error::new(ncclResult_t::ncclRemoteError, text))?;
    check_devices(&places)?;

    let mut connections = connect(&id, &places, rank, &listener, timeout)?;
    let peers = places
        .iter()
        .enumerate()
        .map(|(other, place)| match connections.remove(&other) {
            _ if other == rank => Ok(Peer::Local(mailbox.clone())),
            Some(stream) => {
                let name = format!("rank {other} ({})", place.name);
                let opened = Connection::open(stream, other, name, mailbox.clone());
                opened
                    .map(Peer::Remote)
                    .map_err(|error| system(&format!("rank {other}: {error}")))
            }
            None => {
                let found = mailboxes()
                    .get(&(id.secret.clone(), other))
                    .and_then(Weak::upgrade);
                found.map(Peer::Local).ok_or_else(|| {
                    Error::new(ncclResult_t::ncclRemoteError, format!("rank {other} has gone"))
                })
            }
        });
    let peers = peers.collect::<Result<Vec<_>, Error>>()?;
    Ok(Communicator::new(device, rank, peers, mailbox, timeout))
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// No two ranks may be on one device.
fn check_devices(places: &[Place]) -> Result<(), Error> {
    for (rank, place) in places.iter().enumerate() {
        let same = |other: &Place| (&other.process, other.device) == (&place.process, place.device);
        if let Some(other) = places[..rank].iter().position(same) {
            return Err(Error::new(
                ncclResult_t::ncclInvalidUsage,
                format!("ranks {other} and {rank} are both on device {}", place.device),
            ));
        }
    }
    Ok(())
}

/// The connections to the ranks of other processes: this one opens those to lower ranks, and accepts the others.
fn connect(
    id: &Id,
    places: &[Place],
    rank: usize,
    listener: &TcpListener,
    timeout: Duration,
) -> Result<BTreeMap<usize, TcpStream>, Error> {
    let deadline = Instant::now() + timeout;
    let mut connections = BTreeMap::new();
    let others = places.iter().enumerate();
    let others = others.filter(|(_, place)| place.process != places[rank].process);
    let (lower, higher): (Vec<_>, Vec<_>) = others.partition(|(other, _)| *other < rank);
    for (other, place) in lower {
        let opened = TcpStream::connect_timeout(&place.address, timeout).and_then(|mut stream| {
            let introduction = Introduction {
                secret: id.secret.clone(),
                rank,
            };
            send(&mut stream, &introduction, &[])?;
            Ok(stream)
        });
        let failed = |error| {
            system(&format!(
                "rank {other} ({}, {}): {error}",
                place.name, place.address
            ))
        };
        connections.insert(other, opened.map_err(failed)?);
    }
    let arrivals = Arrivals::<Introduction>::new();
    while let Some((missing, place)) = higher.iter().find(|(other, _)| !connections.contains_key(other)) {
        match arrivals.next(listener) {
            Some((introduction, stream)) => {
                let known = higher.iter().any(|(other, _)| *other == introduction.rank);
                if known && introduction.secret == id.secret {
                    connections.insert(introduction.rank, stream);
                }
            }
            None if Instant::now() > deadline => {
                return Err(system(&format!(
                    "rank {missing} ({}) did not connect",
                    place.name
                )));
            }
            None => thread::sleep(POLL),
        }
    }
    Ok(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_holds_the_roots_address() {
        for root in ["127.0.0.1:1", "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535"] {
            let id = Id {
                secret: secret().ok().expect("random numbers"),
                root: root.parse().expect("an address"),
            };
            assert_eq!(Id::decode(&id.encode()), Some(id));
        }
        assert_eq!(Id::decode(&ncclUniqueId { internal: [0; 128] }), None);
    }
}
