//! `reduce`: sums, means, extrema, products and norms along axes.

use hipvit_graph::op::{Op, Reduce, ReduceKind};

use super::bindings::{REDUCE_COLUMNS, REDUCE_SLICES, ROW_THREADS, ReduceArgs, Reduction};
use super::lower::{Call, Lower, Lowering, shape_of};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::graph::plan::{Plan, Step};
use crate::graph::{Graph, Node};
use std::borrow::Cow;

/// Returns the unit that moves axes together, if an op of the graph reduces axes that are apart.
pub(crate) fn reduce_units(graph: &Graph) -> impl Iterator<Item = Unit> {
    // Whatever the extents between them, which may be the batch.
    let is_apart = |node: &Node| match &node.op {
        Op::Reduce(reduce) => reduce.axes.windows(2).any(|pair| pair[1] != pair[0] + 1),
        _ => false,
    };
    let any = graph.nodes().iter().any(is_apart);
    any.then(|| Unit::of("strided_copy")).into_iter()
}

impl ReduceArgs {
    /// Creates the arguments for `x` `[outer, length, inner]`, whose middle axis is reduced.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, out]: [DeviceAddress; 2],
        [outer, length, inner]: [usize; 3],
        kind: ReduceKind,
    ) -> Result<Self, KernelError> {
        let kind = match kind {
            ReduceKind::Sum => Reduction::Sum,
            ReduceKind::Mean => Reduction::Mean,
            ReduceKind::Max => Reduction::Max,
            ReduceKind::Min => Reduction::Min,
            ReduceKind::Prod => Reduction::Product,
            ReduceKind::L1 => Reduction::L1,
            ReduceKind::L2 => Reduction::L2,
            ReduceKind::SumSquare => Reduction::SumSquare,
            ReduceKind::LogSumExp => Reduction::LogSumExp,
        };
        Ok(Self {
            x,
            out,
            outer: extent(outer)?,
            length: extent(length)?,
            inner: extent(inner)?,
            kind: kind as u32,
            whole_block: 0,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/reduce.hip. Waves and blocks beyond the last row return, and threads beyond the last column access no memory.
unsafe impl KernelArguments for ReduceArgs {
    const FILE: &'static str = "reduce";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.inner == 1 {
            "reduce_rows"
        } else {
            "reduce_columns"
        }
        .into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.outer, self.length, self.inner].contains(&0) {
            return Err("reduces no elements".into());
        }
        if self.inner == 1 {
            let outer = self.outer.into();
            let (launch, whole_block) = target.rows(outer, self.length, ROW_THREADS, target.row_of_wave())?;
            self.whole_block = whole_block;
            return Ok(launch);
        }
        let across = u64::from(self.inner.div_ceil(REDUCE_COLUMNS));
        target.blocks(
            across.saturating_mul(self.outer.into()),
            REDUCE_COLUMNS * REDUCE_SLICES,
        )
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let x = bytes(element, &[self.outer, self.length, self.inner]);
        visit(Access::read("x", self.x, x));
        visit(Access::write(
            "out",
            self.out,
            bytes(element, &[self.outer, self.inner]),
        ));
    }
}

impl Lower for Reduce {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("reduce"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let shape = step.shape_of(0)?;
        let x = step.address(0)?;
        if let Some(extents) = self.middle(shape) {
            return Ok(vec![ReduceArgs::new([x, step.out], extents, self.kind)?.into()]);
        }
        // Axes that are apart are moved together first.
        let (view, length) = self.view(shape);
        let scratch = step.addresses.scratch;
        let elements: usize = shape.iter().product();
        let rows = [elements / length.max(1), length, 1];
        Ok(vec![
            step.copied_view(&view, elements, [x, scratch])?,
            ReduceArgs::new([scratch, step.out], rows, self.kind)?.into(),
        ])
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        match step.inputs.first().map(|&x| shape_of(plan, x)) {
            Some(shape) if self.middle(shape).is_none() => {
                shape.iter().product::<usize>() * plan.dtype().size()
            }
            _ => 0,
        }
    }
}
