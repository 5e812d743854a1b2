//! Units of compilation of the kernels.

use std::fmt;

/// A unit of compilation: a kernel file, or one variant of it. Its dtype is that of the [`Kernels`](super::Kernels).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    pub(super) file: &'static str,
    /// A macro and its value, for a compiler at run time. Code compiled ahead of time has all variants.
    pub(super) define: Option<(&'static str, u32)>,
}

impl Unit {
    /// Returns the unit of a whole kernel file.
    pub fn of(file: &'static str) -> Self {
        Self { file, define: None }
    }

    /// Returns the variant that this macro selects.
    pub(super) fn with(self, name: &'static str, value: u32) -> Self {
        Self {
            define: Some((name, value)),
            ..self
        }
    }
}

/// Formats the file's name and the variant's number: `attention_64`, `attention_64_bias`, `attention_64_rope`, `attention_64_stats`.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        match self.define {
            None => Ok(()),
            Some(("HIPVIT_BIAS_HEAD_DIM", value)) => write!(f, "_{value}_bias"),
            Some(("HIPVIT_STATS_HEAD_DIM", value)) => write!(f, "_{value}_stats"),
            Some(("HIPVIT_ROPE_HEAD_DIM", value)) => write!(f, "_{value}_rope"),
            Some((_, value)) => write!(f, "_{value}"),
        }
    }
}
