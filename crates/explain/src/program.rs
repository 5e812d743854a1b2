//! Runs a graph forward with everything that a backward pass needs kept. f64 for exactness, f32 where one image takes many
//! runs; GEMMs are `matrixmultiply`'s, spread over the threads.

use ndarray::linalg::general_mat_mul;
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, NdFloat, ShapeBuilder};

use super::{attention, forward};
use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, ValueId};
use hipvit::ops::{GridMask, GridPositions, Op};

/// The element types that a program computes in.
pub(crate) trait Real: NdFloat + Default {
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as Self
    }

    fn wide(self) -> f64 {
        self.into()
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }

    fn wide(self) -> f64 {
        self
    }
}

/// A graph with its constants in the type that it computes in.
pub(crate) struct Program<T> {
    graph: Graph,
    constants: Vec<Option<Vec<T>>>,
}

/// What the backward pass of a node needs beside operands and result.
pub(super) enum Saved<T> {
    Nothing,
    /// A linear layer's result before its activation.
    BeforeActivation(Vec<T>),
    /// Attention's probabilities, `[B, heads, queries, keys]`.
    Probabilities(Vec<T>),
}

/// One forward pass.
pub(crate) struct Run<'p, T> {
    program: &'p Program<T>,
    shapes: Vec<Vec<usize>>,
    values: Vec<Option<Vec<T>>>,
    saved: Vec<Saved<T>>,
}

impl<T: Real> Program<T> {
    /// # Errors
    ///
    /// [`Error::Graph`] for a constant whose elements were released, and for one rank's part of a model.
    pub(crate) fn new(graph: &Graph) -> Result<Self> {
        for node in graph.nodes() {
            if let Op::AllReduce(_) = node.op {
                let reason = format!(
                    "{} sums over ranks: explain the whole model instead",
                    node.op.name()
                );
                return Err(Error::graph(&node.name, reason));
            }
            if let Op::GridPositions(GridPositions) | Op::GridMask(GridMask) = node.op {
                let reason = "models for images of any aspect ratio are not explained";
                return Err(Error::graph(&node.name, reason));
            }
        }
        let constant = |value: &hipvit::graph::Value| match (&value.constant, value.is_constant()) {
            (Some(tensor), _) => {
                let values = tensor.to_f32();
                Ok(Some(values.iter().map(|&v| T::of(v.into())).collect()))
            }
            (None, false) => Ok(None),
            (None, true) => Err(Error::graph(&value.name, "is a constant that was released")),
        };
        let constants = graph.values().iter().map(constant).collect::<Result<_>>()?;
        let mut graph = graph.clone();
        graph.release_constants();
        Ok(Self { graph, constants })
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `input` is not whole images, [`Error::Graph`] if a node's operands do not fit it.
    pub(crate) fn run(&self, batch: usize, input: Vec<T>) -> Result<Run<'_, T>> {
        let shapes = self.graph.shapes(batch)?;
        let expected: usize = shapes[self.graph.input().index()].iter().product();
        if batch == 0 || input.len() != expected {
            let reason = format!("has {} elements, expected {expected}", input.len());
            return Err(Error::argument("input", reason));
        }
        let mut run = Run {
            program: self,
            values: vec![None; shapes.len()],
            shapes,
            saved: Vec::with_capacity(self.graph.nodes().len()),
        };
        run.values[self.graph.input().index()] = Some(input);
        for node in self.graph.nodes() {
            let (value, saved) = match &node.op {
                Op::Attention(spec) => attention::forward(&run, node, spec),
                _ => forward::forward(&run, node),
            };
            run.values[node.output().index()] = Some(value);
            run.saved.push(saved);
        }
        Ok(run)
    }
}

impl<T: Real> Run<'_, T> {
    pub(crate) fn graph(&self) -> &Graph {
        &self.program.graph
    }

    /// A value of this run. The graph's nodes are in order, so that operands are there; what is not is empty.
    pub(crate) fn value(&self, id: ValueId) -> &[T] {
        let computed = self.values[id.index()].as_deref();
        computed
            .or(self.program.constants[id.index()].as_deref())
            .unwrap_or_default()
    }

    pub(crate) fn shape(&self, id: ValueId) -> &[usize] {
        &self.shapes[id.index()]
    }

    /// Operand `index` of `node`.
    pub(super) fn operand(&self, node: &Node, index: usize) -> &[T] {
        node.inputs.get(index).map_or(&[], |&id| self.value(id))
    }

    pub(super) fn operand_shape(&self, node: &Node, index: usize) -> &[usize] {
        node.inputs.get(index).map_or(&[], |&id| self.shape(id))
    }

    pub(super) fn saved(&self, node: usize) -> &Saved<T> {
        &self.saved[node]
    }

    /// The probabilities of an attention node, `[B, heads, queries, keys]`.
    pub(crate) fn probabilities(&self, node: usize) -> Option<&[T]> {
        match &self.saved[node] {
            Saved::Probabilities(values) => Some(values),
            _ => None,
        }
    }
}

/// Rows of `columns` elements. The caller's slices are whole rows.
pub(super) fn rows<T>(values: &[T], columns: usize) -> ArrayView2<'_, T> {
    strided(values, values.len() / columns.max(1), columns, columns)
}

/// `rows` rows of `columns` elements, `stride` apart. Empty if there are too few elements, which the shapes rule out.
pub(super) fn strided<T>(values: &[T], rows: usize, columns: usize, stride: usize) -> ArrayView2<'_, T> {
    let view = ArrayView2::from_shape((rows, columns).strides((stride, 1)), values);
    view.unwrap_or_else(|_| ArrayView2::from(&[] as &[[T; 0]; 0]))
}

/// The same for writing, without a distance between rows.
pub(super) fn rows_mut<T>(values: &mut [T], columns: usize) -> ArrayViewMut2<'_, T> {
    let rows = values.len() / columns.max(1);
    let view = ArrayViewMut2::from_shape((rows, columns), values);
    view.unwrap_or_else(|_| ArrayViewMut2::from(&mut [] as &mut [[T; 0]; 0]))
}

/// `c = a · b + c`, on all threads where it is worth it.
pub(super) fn gemm<T: Real>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, mut c: ArrayViewMut2<'_, T>) {
    /// Multiplications below which starting threads costs more than it saves.
    const SMALL: usize = 1 << 18;
    let (m, n) = c.dim();
    let threads = rayon::current_num_threads();
    if threads == 1 || m * n * a.ncols() < SMALL {
        return general_mat_mul(T::one(), &a, &b, T::one(), &mut c);
    }
    let axis = Axis(usize::from(n > m));
    let chunk = c.len_of(axis).div_ceil(threads).max(16);
    match axis {
        Axis(0) => c
            .axis_chunks_iter_mut(axis, chunk)
            .into_par_iter()
            .zip(a.axis_chunks_iter(axis, chunk))
            .for_each(|(mut c, a)| general_mat_mul(T::one(), &a, &b, T::one(), &mut c)),
        _ => c
            .axis_chunks_iter_mut(axis, chunk)
            .into_par_iter()
            .zip(b.axis_chunks_iter(axis, chunk))
            .for_each(|(mut c, b)| general_mat_mul(T::one(), &a, &b, T::one(), &mut c)),
    }
}
