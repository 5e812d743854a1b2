//! Errors of ONNX files: what is wrong with which file, node or tensor.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Reasons why an ONNX model cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model's file, or a file with its external data, cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not a valid ONNX model.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Cause, with the node or tensor at fault.
        reason: String,
    },
    /// Extents of inputs have names but no numbers. [`Options::extents`](crate::Options::extents) takes them.
    #[error(
        "{}: the inputs' extents {} are not fixed. Give each a number (one of them can stay open as the batch)",
        path.display(), names.join(", ")
    )]
    Extents {
        /// The file.
        path: PathBuf,
        /// Names of the extents.
        names: Vec<String>,
    },
    /// Nodes of the model are not supported or not valid.
    #[error("{}: {}", path.display(), Problems(problems))]
    Problems {
        /// The file.
        path: PathBuf,
        /// All problems of the file, in the order of the nodes.
        problems: Vec<Problem>,
    },
}

/// A node that cannot become part of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the node, or of its first output if it has no name.
    pub node: String,
    /// The node's operator, with its domain unless that is ONNX's own.
    pub op: String,
    /// Version of the operator set.
    pub opset: i64,
    /// Module of the source model that the node is from, such as `blocks.3.attn`.
    pub module: Option<String>,
    /// Cause.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node `{}` ({}, opset {}", self.node, self.op, self.opset)?;
        if let Some(module) = &self.module {
            write!(f, ", module {module}")?;
        }
        write!(f, "): {}", self.reason)
    }
}

/// Lists problems, one per line if there are several.
struct Problems<'a>(&'a [Problem]);

/// Number of problems that the text of an error lists.
const LISTED: usize = 50;

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [problem] => problem.fmt(f),
            problems => {
                write!(f, "{} nodes cannot be loaded:", problems.len())?;
                for problem in problems.iter().take(LISTED) {
                    write!(f, "\n  {problem}")?;
                }
                match problems.len().saturating_sub(LISTED) {
                    0 => Ok(()),
                    more => write!(f, "\n  … and {more} more"),
                }
            }
        }
    }
}

/// Reason why one node cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The node or its operands are not supported or not valid.
    Reason(String),
    /// An operand is the result of a node that was refused before.
    Operand,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reason(reason) => f.write_str(reason),
            Self::Operand => f.write_str("an operand could not be computed"),
        }
    }
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(reason: T) -> Self {
        Self::Reason(reason.into())
    }
}

/// Ends a converter with a formatted reason.
macro_rules! refuse {
    ($($argument:tt)*) => {
        return Err($crate::error::Refusal::Reason(format!($($argument)*)))
    };
}
pub(crate) use refuse;
