//! The trait that each op's file implements.

use std::fmt;

use super::{AnyOp, Gradients, GraphBuilder, NodeValues, OpError, PixelLayout, Shape};
use crate::array::{Array, Real};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::value::ValueId;

/// All device-independent facts about an op. Implemented by the struct of the op's attributes.
///
/// `operands` are the shapes of a node's operands. Methods other than [`shapes`](Self::shapes) are only called with shapes that it accepts.
pub trait Definition: Clone + fmt::Debug + PartialEq {
    /// Name, as `hipvit inspect` prints it and `hipvit validate --op` takes it.
    const NAME: &'static str;

    /// Returns the name. Differs from [`NAME`](Self::NAME) only for ops that are registered at run time.
    fn op_name(&self) -> &'static str {
        Self::NAME
    }

    /// Formats the attributes after the name.
    fn fmt_attributes(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Shapes of the results.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op rejects operands of these shapes.
    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError>;

    /// Dtype of result `index` in a plan with activations of `dtype`.
    fn result_dtype(&self, _index: usize, dtype: DType) -> DType {
        dtype
    }

    /// Dtype of operand `index` in a plan with activations of `dtype`. F32 for operands that are never rounded, such as the targets of a
    /// loss. Integers and weights in 8 bits keep their own dtype.
    fn operand_dtype(&self, _index: usize, dtype: DType) -> DType {
        dtype
    }

    /// Operand whose dtype the first result has, for ops that move elements of any dtype. [`result_dtype`](Self::result_dtype) does not
    /// apply to these. `None` for ops that compute.
    fn keeps_dtype_of(&self) -> Option<usize> {
        None
    }

    /// Floating-point operations: an addition, a multiplication or a transcendental function counts as one.
    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64;

    /// Elements of operand `index` that the op reads.
    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        operands[index].iter().product()
    }

    /// Operand whose memory the first result may overwrite. Each element of the result may depend on that operand's element at the same
    /// index, or on its row or pair if that is read before it is written. The shapes may differ if the index is that of row-major memory.
    fn may_alias(&self) -> Option<usize> {
        None
    }

    /// Returns true if the first result is the first operand with some rows replaced. If that operand is a state that
    /// the result updates, executors write to the state itself, and the result needs no memory.
    fn replaces_rows(&self) -> bool {
        false
    }

    /// Part of the operands that a part of result `index` depends on.
    fn locality(&self, index: usize) -> Locality;

    /// Operands that are read token by token: a token of the result needs only the same token of them, and all of the other operands.
    /// `None` if it needs all of every operand.
    fn tokenwise(&self) -> Option<Vec<usize>> {
        None
    }

    /// Division of the op among ranks. Each rank has a share of each of `blocks` equal parts of the result's channels. `None` if the op
    /// cannot be divided.
    fn division(&self, _blocks: usize) -> Option<Division> {
        None
    }

    /// Returns the op of a rank if `ranks` ranks divide its channels.
    #[must_use]
    fn of_rank(&self, _ranks: usize) -> Self {
        self.clone()
    }

    /// Returns how ranks that divide the op's channels divide the constant operand `index`.
    fn operand_share(&self, _index: usize, _shape: &[usize]) -> OperandShare {
        OperandShare::Channels
    }

    /// Computes the results into `results`, zeros of the right shapes. Use plain loops: executors are checked against them, and constant
    /// folding uses them.
    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]);

    /// Computes the results.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op rejects the operands.
    fn eval<T: Real>(&self, operands: &[&Array<T>]) -> Result<Vec<Array<T>>, OpError> {
        let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
        let mut results: Vec<Array<T>> = self.shapes(&shapes)?.into_iter().map(Array::zeros).collect();
        self.compute(operands, &mut results);
        Ok(results)
    }

    /// Computes the results of every rank of a tensor-parallel model. Each rank has its own operands.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op rejects the operands.
    fn eval_ranks<T: Real>(&self, ranks: &[Vec<&Array<T>>]) -> Result<Vec<Vec<Array<T>>>, OpError> {
        ranks.iter().map(|operands| self.eval(operands)).collect()
    }

    /// Adds the cases of `hipvit validate` for this op.
    fn cases(_cases: &mut Cases<Self>) {}

    /// Tolerance of result `index`, relative to its largest magnitude. The operands are in `dtype` (except for pixels). Return 0 if the op
    /// only moves elements.
    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64;

    /// Vector-Jacobian product: appends the nodes that compute the gradients of a node's operands from those of its results. Returns one
    /// gradient per operand. `gradients` has one entry per result, at least one of which is set.
    ///
    /// # Errors
    ///
    /// [`OpError::Derivative`] if the op has no derivative, as by default.
    fn vjp(
        &self,
        _builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        _gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let op = self.op_name();
        let reason = format!("{op} has no derivative. Differentiate the graph before it is optimised");
        Err(OpError::Derivative(reason))
    }
}

impl<T: Definition + 'static> AnyOp for T {}

/// Part of the operands that a part of a result depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locality {
    /// Row i depends on row i of the operands and on all of the parameters. Operands with fewer rows repeat.
    Rows {
        /// Operands that every row depends on.
        parameters: std::ops::Range<usize>,
    },
    /// An image depends on the same image of the operands with as many images, and on all of the others.
    Images,
    /// A row depends on one patch of the image, and on all of the other operands.
    Patches {
        /// Height and width of a patch, in pixels.
        patch: [usize; 2],
        /// Layout of the pixels.
        layout: PixelLayout,
    },
    /// A query depends on itself, on the keys and values of its image, and on its rows of a bias.
    Queries,
    /// Every part depends on everything.
    Whole,
}

/// Division of an op among ranks with a part of its channels each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Operands with divided channels, each with its number of equal parts. A rank has a share of each part.
    pub operands: Vec<(usize, usize)>,
    /// Constant operands that are divided too.
    pub constants: Vec<usize>,
    /// Number of channels that must stay together. `None` if any division is possible.
    pub unit: Option<usize>,
}

impl Division {
    /// Divides the channels of operand 0 into `blocks` parts, like those of the result.
    pub fn of_channels(blocks: usize) -> Self {
        Self {
            operands: vec![(0, blocks)],
            constants: Vec::new(),
            unit: None,
        }
    }
}

/// Division of a constant operand among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandShare {
    /// Divided along the last extent.
    Channels,
    /// Divided along the first extent, with one row per head.
    Heads,
    /// Not divided: every rank has all of it.
    Whole,
}
