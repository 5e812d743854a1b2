//! Units of compilation of the kernels.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A unit of compilation: a kernel file, one variant of it, or a generated program. Its dtype is that of the [`Kernels`](super::Kernels).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    pub(super) file: &'static str,
    /// A macro and its value, for a compiler at run time. Code of files that was compiled ahead of time has all variants, code of
    /// generated programs has none.
    pub(super) define: Option<(&'static str, u32)>,
    /// Source of a generated program, which no file has.
    pub(super) source: Option<Source>,
}

/// Source of a generated program. It is hashed once, since each launch looks up its unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    hash: u64,
    text: Arc<str>,
}

impl From<String> for Source {
    fn from(text: String) -> Self {
        Self {
            hash: fnv1a(FNV_OFFSET, text.as_bytes()),
            text: text.into(),
        }
    }
}

impl Source {
    /// Returns the hash of the text, which is the same in each process.
    pub(super) fn hash_of_text(&self) -> u64 {
        self.hash
    }
}

/// FNV-1a's hash of no bytes.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns FNV-1a's hash of what has the hash `hash`, followed by `bytes`.
pub(super) fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Deref for Source {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl Unit {
    /// Returns the unit of a whole kernel file.
    pub fn of(file: &'static str) -> Self {
        Self {
            file,
            define: None,
            source: None,
        }
    }

    /// Returns the unit of a generated program. `name` says what it computes.
    pub(super) fn generated(name: &'static str, source: String) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::of(name)
        }
    }

    /// Returns true if the unit is a variant of a generated program.
    pub(super) fn is_generated_variant(&self) -> bool {
        self.source.is_some() && self.define.is_some()
    }

    /// Returns the variant that this macro selects.
    pub(super) fn with(self, name: &'static str, value: u32) -> Self {
        Self {
            define: Some((name, value)),
            ..self
        }
    }
}

impl AsRef<Self> for Unit {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Formats the file's name and the variant's number: `attention_64`, `attention_64_bias`, `attention_64_rope`, `attention_64_stats`. A
/// generated program: `attention_pattern (generated)`, and a variant `attention_pattern (generated, HIPVIT_TILE=67371040)`.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        match self.define {
            None if self.source.is_some() => f.write_str(" (generated)"),
            None => Ok(()),
            Some((name, value)) if self.source.is_some() => write!(f, " (generated, {name}={value})"),
            Some(("HIPVIT_BIAS_HEAD_DIM", value)) => write!(f, "_{value}_bias"),
            Some(("HIPVIT_STATS_HEAD_DIM", value)) => write!(f, "_{value}_stats"),
            Some(("HIPVIT_ROPE_HEAD_DIM", value)) => write!(f, "_{value}_rope"),
            Some((_, value)) => write!(f, "_{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored measurements name a pattern by this hash.
    #[test]
    fn hashes_are_those_of_fnv1a() {
        assert_eq!(fnv1a(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(fnv1a(FNV_OFFSET, b"foo"), b"bar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_variant_of_a_generated_program_is_another_unit() {
        let program = Unit::generated("attention_pattern", "text".into());
        let variant = program.clone().with("HIPVIT_TILE", 5);
        assert!(variant.is_generated_variant() && !program.is_generated_variant());
        assert!(
            !Unit::of("attention")
                .with("HIPVIT_HEAD_DIM", 64)
                .is_generated_variant()
        );
        assert_eq!(program.to_string(), "attention_pattern (generated)");
        assert_eq!(
            variant.to_string(),
            "attention_pattern (generated, HIPVIT_TILE=5)"
        );
    }
}
