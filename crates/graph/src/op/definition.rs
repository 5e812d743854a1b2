//! What an op's file says of the op.

use std::fmt;

use super::{OpError, PixelLayout, Shape};
use crate::array::{Array, Real};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::{Graph, Node, ValueId};

/// Everything that is true of an op, whatever computes it. Implemented by the struct of the op's attributes.
///
/// `operands` are the shapes of a node's operands. Methods other than [`shapes`](Self::shapes) are only called with shapes that it accepts.
pub trait Definition: Clone + fmt::Debug + PartialEq {
    /// Name, as `hipvit inspect` prints it and `hipvit validate --op` takes it.
    const NAME: &'static str;

    /// Returns the name. Differs from [`NAME`](Self::NAME) only for ops that are registered at run time.
    fn op_name(&self) -> &'static str {
        Self::NAME
    }

    /// Writes the attributes behind the name.
    fn fmt_attributes(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Shapes of the results.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op does not accept operands of these shapes.
    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError>;

    /// Element type of result `index` in a plan whose activations are of type `dtype`.
    fn result_dtype(&self, _index: usize, dtype: DType) -> DType {
        dtype
    }

    /// Floating-point operations: an addition, a multiplication or a transcendental function counts as one.
    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64;

    /// Elements of operand `index` that the op reads.
    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        operands[index].iter().product()
    }

    /// Operand whose memory the first result may take over: each element of the result depends only on that operand's element at the same
    /// index, or on its row or pair, which is read before it is written.
    fn may_alias(&self) -> Option<usize> {
        None
    }

    /// Part of the operands that a part of result `index` depends on.
    fn locality(&self, index: usize) -> Locality;

    /// Operands of which one token of the result needs that token alone, and all of the other operands. `None` if one token needs all of
    /// every operand.
    fn tokenwise(&self) -> Option<Vec<usize>> {
        None
    }

    /// How the op is divided among ranks of which each has a share of each of `blocks` equal parts of the result's channels. `None` if it
    /// cannot be.
    fn division(&self, _blocks: usize) -> Option<Division> {
        None
    }

    /// The op of each of `ranks` ranks that divide its channels.
    #[must_use]
    fn of_rank(&self, _ranks: usize) -> Self {
        self.clone()
    }

    /// How ranks that divide the op's channels divide the constant operand `index`.
    fn operand_share(&self, _index: usize, _shape: &[usize]) -> OperandShare {
        OperandShare::Channels
    }

    /// Computes the results into `results`, which are zeros of the right shapes. Plain loops: executors are checked against them, and constant
    /// folding computes with them.
    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]);

    /// Computes the results.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op does not accept the operands.
    fn eval<T: Real>(&self, operands: &[&Array<T>]) -> Result<Vec<Array<T>>, OpError> {
        let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
        let mut results: Vec<Array<T>> = self.shapes(&shapes)?.into_iter().map(Array::zeros).collect();
        self.compute(operands, &mut results);
        Ok(results)
    }

    /// Computes the results of every rank of a tensor-parallel model, each of which has operands of its own.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op does not accept the operands.
    fn eval_ranks<T: Real>(&self, ranks: &[Vec<&Array<T>>]) -> Result<Vec<Vec<Array<T>>>, OpError> {
        ranks.iter().map(|operands| self.eval(operands)).collect()
    }

    /// Vector-Jacobian product: appends the nodes that compute the gradients of `node`'s operands from those of its results, and returns one
    /// gradient per operand. `gradients` has an entry per result, `None` for a result without a gradient; at least one is there.
    /// `None` is returned for an operand that has no derivative.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the op has no derivative.
    fn vjp(
        &self,
        _graph: &mut Graph,
        node: &Node,
        _gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        let reason = format!(
            "{} has no derivative. Differentiate the graph before it is optimised",
            self.op_name()
        );
        Err(Error::graph(&node.name, reason))
    }

    /// Adds the cases that `hipvit validate` checks the op by.
    fn cases(_cases: &mut Cases) {}

    /// Tolerance of result `index` on these operands, which are numbers of `dtype` (pixels excepted), relative to the largest magnitude of the
    /// result. 0 if the op moves elements and computes nothing.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64;
}

/// The part of the operands that a part of an op's result depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locality {
    /// Row i depends on row i of the operands, which start over at their ends, and on all of these parameters.
    Rows {
        /// Operands that every row depends on.
        parameters: std::ops::Range<usize>,
    },
    /// An image depends on that image of the operands that have as many, and on all of the others.
    Images,
    /// A row depends on one patch of the image, and on all of the other operands.
    Patches {
        /// Height and width of a patch, in pixels.
        patch: [usize; 2],
        /// Order of the image's elements.
        layout: PixelLayout,
    },
    /// A query depends on itself, on its image's keys and values, and on its rows of a bias.
    Queries,
    /// Every part depends on everything.
    Whole,
}

/// How an op is divided among ranks that have some of its channels each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Operands whose channels are divided, with the number of equal parts of each, of each of which a rank has its share.
    pub operands: Vec<(usize, usize)>,
    /// Constant operands that have to be divided with them.
    pub constants: Vec<usize>,
    /// Channels that stay together, if not all units are equal.
    pub unit: Option<usize>,
}

impl Division {
    /// Divides the channels of operand 0 into `blocks` parts, as those of the result.
    pub fn of_channels(blocks: usize) -> Self {
        Self {
            operands: vec![(0, blocks)],
            constants: Vec::new(),
            unit: None,
        }
    }
}

/// How ranks divide a constant operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandShare {
    /// By the last extent.
    Channels,
    /// By the first extent, one row for each head.
    Heads,
    /// Every rank has all of it.
    Whole,
}
