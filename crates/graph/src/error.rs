//! The error of graphs: the node or argument at fault, and the reason.

use crate::op::{Op, OpError};

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An invalid graph or argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph is invalid at this node or value.
    #[error("node `{node}`: {reason}")]
    Graph {
        /// Name of the node or value.
        node: String,
        /// Cause.
        reason: String,
    },
    /// A node has operands that its op does not accept.
    #[error("node `{node}`: {source}")]
    Op {
        /// Name of the node.
        node: String,
        /// The op with its attributes.
        op: String,
        /// Cause.
        source: OpError,
    },
    /// An argument is out of range or does not fit the graph.
    #[error("{what}: {reason}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// Cause.
        reason: String,
    },
}

impl Error {
    /// Returns an error of the node or value `node`.
    pub fn graph(node: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Graph {
            node: node.into(),
            reason: reason.to_string(),
        }
    }

    /// Returns an error of the node `node`, whose op rejects its operands.
    pub fn op(node: impl Into<String>, op: &Op, source: OpError) -> Self {
        Self::Op {
            node: node.into(),
            op: op.to_string(),
            source,
        }
    }

    /// Returns an error of the argument `what`.
    pub fn argument(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Argument {
            what,
            reason: reason.to_string(),
        }
    }
}
