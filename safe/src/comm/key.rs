//! Key by which the ranks of a run recognise each other.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Key of a run's authentication codes, zero-padded to a block of the hash as HMAC requires.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key(pub(super) [u8; 64]);

impl Key {
    /// Derives the key from the user's secret and the launcher's name of the run. Both may be empty.
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

/// Omits the key, so that it does not get into errors or logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}
