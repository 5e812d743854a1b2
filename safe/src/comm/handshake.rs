//! How rank 0 and another rank prove to each other that they have the run's key, before either sends anything else.
//!
//! 1. Rank 0 sends a [`Challenge`]: a random number.
//! 2. The other rank sends a [`Hello`]: its rank, the number of ranks, a random number, and a code over all of these.
//! 3. Rank 0 answers [`Answer::Welcome`] with a code of its own over the same values, or [`Answer::Refused`].
//!
//! The codes are HMAC-SHA256. The random numbers make a recorded exchange useless for the next one.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::time::Instant;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::connection::{receive_before, send};
use super::world::World;

/// Maximum length of a message of a peer that is not known yet.
const LONGEST: u32 = 1 << 10;

/// The labels keep one side's code from being sent back as the other side's.
const ROOT: &[u8] = b"hip-safe rendezvous 1, rank 0";
const LEAF: &[u8] = b"hip-safe rendezvous 1, other rank";

type Number = [u8; 32];

/// Key of a run's authentication codes, with zeros up to a block of the hash as HMAC takes it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key([u8; 64]);

impl Key {
    /// Derives the key from the user's secret and the launcher's name of the run, each of which may be empty.
    pub(super) fn new(secret: &str, run: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"hip-safe rendezvous key 1");
        for part in [secret, run] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut key = [0; 64];
        key[..32].copy_from_slice(&hash.finalize());
        Self(key)
    }
}

/// Does not print the key, so that no error or log has it.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Challenge(Number);

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    rank: usize,
    size: usize,
    number: Number,
    code: Number,
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
    /// Number of ranks that the peer was told.
    pub(super) size: usize,
    challenge: Number,
    number: Number,
}

/// Receives the hello of a connection at rank 0. A peer without the run's key is refused.
///
/// # Errors
///
/// [`io::Error`] if the peer sends nothing before `deadline`, speaks another protocol, or lacks the key.
pub(super) fn identify(stream: &TcpStream, world: &World, deadline: Instant) -> io::Result<Peer> {
    let challenge = random()?;
    send(stream, &Challenge(challenge))?;
    let hello: Hello = receive_before(stream, deadline, LONGEST)?;
    let peer = Peer {
        rank: hello.rank,
        size: hello.size,
        challenge,
        number: hello.number,
    };
    if peer.code(world.key(), LEAF).verify_slice(&hello.code).is_err() {
        send(stream, &Answer::Refused)?;
        return Err(io::Error::other("belongs to another run"));
    }
    Ok(peer)
}

/// Tells an identified peer that it has reached the rank 0 of its run.
pub(super) fn welcome(stream: &TcpStream, world: &World, peer: &Peer) -> io::Result<()> {
    let code = peer.code(world.key(), ROOT).finalize().into_bytes();
    send(stream, &Answer::Welcome(code.into()))
}

/// Introduces this rank to what listens at rank 0's address.
///
/// # Errors
///
/// [`io::Error`] if the other side sends nothing before `deadline`, speaks another protocol, or lacks the run's key.
pub(super) fn introduce(stream: &TcpStream, world: &World, deadline: Instant) -> io::Result<()> {
    let Challenge(challenge) = receive_before(stream, deadline, LONGEST)?;
    let own = Peer {
        rank: world.rank(),
        size: world.size(),
        challenge,
        number: random()?,
    };
    let hello = Hello {
        rank: own.rank,
        size: own.size,
        number: own.number,
        code: own.code(world.key(), LEAF).finalize().into_bytes().into(),
    };
    send(stream, &hello)?;
    let welcomed = match receive_before(stream, deadline, LONGEST)? {
        Answer::Welcome(code) => own.code(world.key(), ROOT).verify_slice(&code).is_ok(),
        Answer::Refused => false,
    };
    if !welcomed {
        let reason = "rank 0 of another run, or one with another HIPVIT_RENDEZVOUS_SECRET, listens there";
        return Err(io::Error::other(reason));
    }
    Ok(())
}

impl Peer {
    /// Starts the code that the side with this label sends.
    fn code(&self, key: &Key, label: &[u8]) -> Hmac<Sha256> {
        let mut code = Hmac::<Sha256>::new(&key.0.into());
        code.update(label);
        code.update(&self.challenge);
        code.update(&self.number);
        code.update(&(self.rank as u64).to_le_bytes());
        code.update(&(self.size as u64).to_le_bytes());
        code
    }
}

/// Returns a number from the system's random generator.
fn random() -> io::Result<Number> {
    let mut number = Number::default();
    getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(number)
}
