//! SHA-256 of code and weights for certificates.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest, Sha256};

use hipvit::error::Result;
use hipvit::graph::Graph;
use hipvit::hip::Code;
use hipvit::tensor::Tensor;

/// A loaded code object, compiled ahead of time or by hipRTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CodeDigest {
    /// Kernel file with its variant, and the dtype.
    pub kernel: String,
    /// Size in bytes.
    pub bytes: usize,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// Code objects by kernel, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Loaded(BTreeMap<String, CodeDigest>);

impl Loaded {
    pub(super) fn add(&mut self, code: Result<Vec<(String, Code)>>) -> Result<()> {
        for (kernel, code) in code? {
            self.0.entry(kernel).or_insert_with_key(|kernel| {
                let bytes = code.as_bytes();
                CodeDigest {
                    kernel: kernel.clone(),
                    bytes: bytes.len(),
                    sha256: hexadecimal(Sha256::digest(bytes)),
                }
            });
        }
        Ok(())
    }

    pub(super) fn list(&self) -> Vec<CodeDigest> {
        self.0.values().cloned().collect()
    }
}

/// Returns the hash of a model's weights. It covers name, shape and f32 values of each, in the order of the
/// graph.
pub(super) fn weights(graph: &Graph) -> String {
    let mut hash = Sha256::new();
    let constants = graph.values().iter().filter_map(|value| {
        let tensor: &Tensor = value.constant.as_ref()?;
        Some((&value.name, tensor))
    });
    for (name, tensor) in constants {
        hash.update(format!("{name} {:?} ", tensor.shape()));
        hash.update(bytemuck::cast_slice::<f32, u8>(&tensor.to_f32()));
    }
    hexadecimal(hash.finalize())
}

/// Returns the hash of pixels.
pub(super) fn pixels(bytes: &[u8]) -> String {
    hexadecimal(Sha256::digest(bytes))
}

fn hexadecimal(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::with_capacity(64);
    for byte in bytes.as_ref() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example is from FIPS 180-4.
    #[test]
    fn a_known_message_has_its_hash() {
        let hash = pixels(b"abc");
        assert_eq!(
            hash,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
