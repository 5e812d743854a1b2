//! Units of compilation of the kernels.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A unit of compilation: a kernel file, one variant of it, or a generated program. Its dtype is that of the [`Kernels`](super::Kernels).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    pub(super) file: &'static str,
    /// A macro and its value, for a compiler at run time. Code compiled ahead of time has all variants.
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
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self {
            hash: hasher.finish(),
            text: text.into(),
        }
    }
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

/// Formats the file's name and the variant's number: `attention_64`, `attention_64_bias`, `attention_64_rope`, `attention_64_stats`.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        match self.define {
            None if self.source.is_some() => f.write_str(" (generated)"),
            None => Ok(()),
            Some(("HIPVIT_BIAS_HEAD_DIM", value)) => write!(f, "_{value}_bias"),
            Some(("HIPVIT_STATS_HEAD_DIM", value)) => write!(f, "_{value}_stats"),
            Some(("HIPVIT_ROPE_HEAD_DIM", value)) => write!(f, "_{value}_rope"),
            Some((_, value)) => write!(f, "_{value}"),
        }
    }
}
