//! The trait of ops with a derivative.

use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::value::ValueId;

/// An op with a derivative. An op that another crate defines implements it too.
pub trait Differentiable: Send + Sync {
    /// Vector-Jacobian product: appends the nodes that compute the gradients of `node`'s operands from those of its results. Returns one
    /// gradient per operand, `None` for an operand without a derivative. `gradients` has one entry per result, `None` for a result without
    /// a gradient. At least one entry is set.
    ///
    /// # Errors
    ///
    /// [`Error::Op`](crate::Error::Op) if the graph is invalid.
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>>;
}
