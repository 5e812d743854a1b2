//! Authentication: before any other message, rank 0 and another rank prove to each other that they have the run's key.
//!
//! 1. Rank 0 sends a [`Challenge`]: a random number.
//! 2. The other rank sends a [`Hello`]: its rank, the number of ranks, the address that it connected to, a random number, and a code over
//!    these.
//! 3. Rank 0 answers [`Answer::Welcome`] with its own code over the same values, or [`Answer::Refused`].
//! 4. The other rank sends a [`Confirmation`], a third code. Only now it counts as present.
//!
//! The codes are HMAC-SHA256. The random numbers make a recorded exchange useless. Rank 0 refuses a peer that connected to an address or
//! port at which rank 0 does not listen, because another process relays the exchange.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::connection::{receive_before, send};
use super::key::Key;
use super::world::World;

/// Maximum bytes of a message from a peer that is not identified.
const MAX_MESSAGE_BYTES: u32 = 1 << 10;

/// Labels that keep one side's code from being replayed as the other side's.
const ROOT: &[u8] = b"hip-safe rendezvous 2, rank 0";
const LEAF: &[u8] = b"hip-safe rendezvous 2, other rank";
const CONFIRMATION: &[u8] = b"hip-safe rendezvous 2, confirmation";

type Number = [u8; 32];

#[derive(Debug, Serialize, Deserialize)]
struct Challenge(Number);

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    rank: usize,
    size: usize,
    place: Place,
    number: Number,
    code: Number,
}

#[derive(Debug, Serialize, Deserialize)]
struct Confirmation(Number);

/// Address of rank 0 from the view of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// IPv6 address, or IPv4 address mapped to one.
    host: [u8; 16],
    /// Number of ports after `MASTER_PORT`, which port translation does not change.
    step: u16,
}

impl Place {
    fn new(address: SocketAddr, world: &World) -> Self {
        let host = match address.ip() {
            IpAddr::V4(host) => host.to_ipv6_mapped(),
            IpAddr::V6(host) => host,
        };
        Self {
            host: host.octets(),
            step: address.port().wrapping_sub(world.port()),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Welcome(Number),
    Refused,
}

/// A rank that has the run's key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) rank: usize,
    /// Number of ranks in the peer's configuration.
    pub(super) size: usize,
    place: Place,
    challenge: Number,
    number: Number,
}

/// Receives the hello on a connection to the listener at `listener`. Refuses a peer without the run's key, or one that connected to a
/// different port. Refuses one that connected to a different address, unless rank 0 listens at all addresses.
///
/// # Errors
///
/// [`io::Error`] if the peer sends nothing before `deadline`, speaks another protocol, lacks the key, or is relayed.
pub(super) fn identify(
    stream: &TcpStream,
    world: &World,
    listener: SocketAddr,
    deadline: Instant,
) -> io::Result<Peer> {
    let challenge = random()?;
    send(stream, &Challenge(challenge))?;
    let hello: Hello = receive_before(stream, deadline, MAX_MESSAGE_BYTES)?;
    let peer = Peer {
        rank: hello.rank,
        size: hello.size,
        place: hello.place,
        challenge,
        number: hello.number,
    };
    let own = Place::new(stream.local_addr()?, world);
    let refused = if !peer.has_sent(&hello.code, world, LEAF) {
        "belongs to another run"
    } else if peer.place.step != own.step {
        "has connected to another port"
    } else if peer.place.host != own.host && !listener.ip().is_unspecified() {
        "has connected to another address"
    } else {
        return Ok(peer);
    };
    send(stream, &Answer::Refused)?;
    Err(io::Error::other(refused))
}

/// Confirms to an identified peer that it reached rank 0 of its run, and waits for its confirmation.
///
/// # Errors
///
/// [`io::Error`] if the peer does not confirm before `deadline`.
pub(super) fn welcome(stream: &TcpStream, world: &World, peer: &Peer, deadline: Instant) -> io::Result<()> {
    send(stream, &Answer::Welcome(peer.code(world, ROOT)))?;
    let Confirmation(code) = receive_before(stream, deadline, MAX_MESSAGE_BYTES)?;
    if !peer.has_sent(&code, world, CONFIRMATION) {
        return Err(io::Error::other("does not confirm"));
    }
    Ok(())
}

/// Introduces this rank to the process that listens at rank 0's address.
///
/// # Errors
///
/// [`io::Error`] if the other side sends nothing before `deadline`, speaks another protocol, or lacks the run's key.
pub(super) fn introduce(stream: &TcpStream, world: &World, deadline: Instant) -> io::Result<()> {
    let own = greet(stream, world, deadline)?;
    let welcomed = match receive_before(stream, deadline, MAX_MESSAGE_BYTES)? {
        Answer::Welcome(code) => own.has_sent(&code, world, ROOT),
        Answer::Refused => false,
    };
    if !welcomed {
        let reason =
            "rank 0 of another run, one with another HIPVIT_RENDEZVOUS_SECRET, or a relay listens there";
        return Err(io::Error::other(reason));
    }
    send(stream, &Confirmation(own.code(world, CONFIRMATION)))
}

/// Answers the challenge of the process that listens at rank 0's address.
pub(super) fn greet(stream: &TcpStream, world: &World, deadline: Instant) -> io::Result<Peer> {
    let Challenge(challenge) = receive_before(stream, deadline, MAX_MESSAGE_BYTES)?;
    let own = Peer {
        rank: world.rank(),
        size: world.size(),
        place: Place::new(stream.peer_addr()?, world),
        challenge,
        number: random()?,
    };
    let hello = Hello {
        rank: own.rank,
        size: own.size,
        place: own.place,
        number: own.number,
        code: own.code(world, LEAF),
    };
    send(stream, &hello)?;
    Ok(own)
}

impl Peer {
    /// Returns the code of the side with this label.
    fn code(&self, world: &World, label: &[u8]) -> Number {
        self.hash(world.key(), label).finalize().into_bytes().into()
    }

    /// Returns true if `code` is that of the side with this label.
    fn has_sent(&self, code: &Number, world: &World, label: &[u8]) -> bool {
        self.hash(world.key(), label).verify_slice(code).is_ok()
    }

    fn hash(&self, key: &Key, label: &[u8]) -> Hmac<Sha256> {
        let mut code = Hmac::<Sha256>::new(&key.0.into());
        code.update(label);
        code.update(&self.challenge);
        code.update(&self.number);
        code.update(&(self.rank as u64).to_le_bytes());
        code.update(&(self.size as u64).to_le_bytes());
        code.update(&self.place.host);
        code.update(&self.place.step.to_le_bytes());
        code
    }
}

/// Returns a number from the system's random generator.
fn random() -> io::Result<Number> {
    let mut number = Number::default();
    getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(number)
}
