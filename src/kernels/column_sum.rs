//! `column_sum`: sums of the rows of a matrix, in one step or by way of the sums of chunks of rows.

use std::borrow::Cow;

use hipvit_graph::op::{Op, SumToSize};

use super::Unit;
use super::bindings::{
    COLUMN_SUM_SLICES, COLUMN_SUM_VECS, COLUMN_TOTAL_SLICES, COLUMN_TOTAL_VECS, ColumnSumArgs,
    ColumnSumStage, VEC128_BYTES,
};
use super::call::CopyRows;
use super::launch::check_channels;
use super::lower::{Call, Lower, Lowering, one, shape_of};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};
use crate::graph::Graph;
use crate::graph::plan::{Plan, Step};

/// Minimum rows of a chunk. Each thread sums 16.
const CHUNK_ROWS: usize = 16 * COLUMN_SUM_SLICES as usize;
/// Maximum number of chunks, which bounds the memory of their sums.
const MAX_CHUNKS: usize = 1024;

/// Returns the rows of a chunk. Depends on the rows only, so that the order of the sum does.
pub(super) fn chunk(rows: usize) -> usize {
    rows.div_ceil(MAX_CHUNKS).max(CHUNK_ROWS)
}

/// Returns the number of chunks of `rows` rows.
pub(super) fn chunks(rows: usize) -> usize {
    rows.div_ceil(chunk(rows)).max(1)
}

/// Returns the launch of blocks that sum chunks of `rows × columns` elements of the kernel's dtype.
pub(super) fn launch(target: &Target, [rows, columns]: [u32; 2], chunk: u32) -> Result<Launch, KernelError> {
    check_channels(columns)?;
    let groups = u64::from(columns).div_ceil(u64::from(COLUMN_SUM_VECS) * target.vec128());
    let chunks = u64::from(rows).div_ceil(chunk.into()).max(1);
    target.blocks(chunks.saturating_mul(groups), COLUMN_SUM_VECS * COLUMN_SUM_SLICES)
}

/// Returns the bytes of the sums of chunks. 0 if the sum takes one step.
pub(super) fn partial_bytes([rows, columns]: [usize; 2]) -> usize {
    match rows.div_ceil(chunk(rows)) {
        0 | 1 => 0,
        chunks => chunks * columns * size_of::<f32>(),
    }
}

/// Returns the unit of the sums that other kernels leave in parts, if an op of the graph has such sums.
pub(crate) fn column_sum_units(graph: &Graph) -> impl Iterator<Item = Unit> {
    let has_parts = |op: &Op| match op {
        Op::ActivationBackward(op) => op.sums,
        Op::LayerNormBackward(op) => op.parameters || op.sums,
        Op::RmsNormBackward(op) => op.parameters,
        _ => false,
    };
    let any = graph.nodes().iter().any(|node| has_parts(&node.op));
    any.then(|| Unit::of("column_sum")).into_iter()
}

impl ColumnSumArgs {
    /// Returns the calls that sum the rows of `x` `[rows, columns]` to `out` `[columns]`. `partial` has [`partial_bytes`].
    pub(super) fn calls(
        [x, partial, out]: [DeviceAddress; 3],
        [rows, columns]: [usize; 2],
    ) -> Result<Vec<Call>, KernelError> {
        let chunk = chunk(rows);
        let chunks = rows.div_ceil(chunk);
        if chunks <= 1 {
            return one(Self::new([x, out], [rows, columns], rows, ColumnSumStage::Whole)?);
        }
        let of_chunks = Self::new([x, partial], [rows, columns], chunk, ColumnSumStage::Partial)?;
        Ok(vec![
            of_chunks.into(),
            Self::total([partial, out], [chunks, columns])?.into(),
        ])
    }

    /// Creates the arguments for f32 `x` `[rows, columns]`, whose rows are summed to `out` `[columns]` in the kernel's dtype.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(super) fn total(addresses: [DeviceAddress; 2], extents: [usize; 2]) -> Result<Self, KernelError> {
        Self::new(addresses, extents, extents[0], ColumnSumStage::Total)
    }

    fn new(
        [x, out]: [DeviceAddress; 2],
        [rows, columns]: [usize; 2],
        chunk: usize,
        stage: ColumnSumStage,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            out,
            rows: extent(rows)?,
            columns: extent(columns)?,
            chunk: extent(chunk)?.max(1),
            stage: stage as u32,
        })
    }

    fn is(&self, stage: ColumnSumStage) -> bool {
        self.stage == stage as u32
    }
}

// SAFETY: see hip/column_sum.hip. A block takes a group of columns of a chunk, and exactly as many blocks are launched.
unsafe impl KernelArguments for ColumnSumArgs {
    const FILE: &'static str = "column_sum";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let entry = if self.is(ColumnSumStage::Partial) {
            "column_sum_partial"
        } else if self.is(ColumnSumStage::Total) {
            "column_sum_total"
        } else {
            "column_sum"
        };
        Ok(entry.into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if !self.is(ColumnSumStage::Total) {
            return launch(target, [self.rows, self.columns], self.chunk);
        }
        check_channels(self.columns)?;
        let width = COLUMN_TOTAL_VECS * VEC128_BYTES / size_of::<f32>() as u32;
        let groups = self.columns.div_ceil(width);
        target.blocks(groups.into(), COLUMN_TOTAL_VECS * COLUMN_TOTAL_SLICES)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let size = |is_float| if is_float { size_of::<f32>() } else { element };
        let chunks = self.rows.div_ceil(self.chunk).max(1);
        let x = bytes(size(self.is(ColumnSumStage::Total)), &[self.rows, self.columns]);
        let out = bytes(size(self.is(ColumnSumStage::Partial)), &[chunks, self.columns]);
        visit(Access::read("x", self.x, x));
        visit(Access::write("out", self.out, out));
    }
}

/// Returns pieces and elements of a piece.
fn extents(op: &SumToSize, x: &[usize]) -> [usize; 2] {
    let columns = op.shape.iter().product::<usize>().max(1);
    [x.iter().product::<usize>() / columns, columns]
}

impl Lower for SumToSize {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("column_sum"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [rows, columns] = extents(self, step.shape_of(0)?);
        if rows == 1 {
            let bytes = columns * step.element();
            return Ok(vec![Call::CopyRows(CopyRows {
                from: step.address(0)?,
                from_stride: bytes,
                to: step.out,
                to_stride: bytes,
                bytes,
                rows: 1,
            })]);
        }
        let addresses = [step.address(0)?, step.addresses.scratch, step.out];
        ColumnSumArgs::calls(addresses, [rows, columns])
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let x = step.inputs.first().map_or(&[][..], |&x| shape_of(plan, x));
        partial_bytes(extents(self, x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KernelCall;

    #[test]
    fn many_rows_are_summed_in_chunks() {
        let [x, partial, out] = [1, 2, 3].map(|n| DeviceAddress::from_raw(n << 20));
        let calls = |extents| ColumnSumArgs::calls([x, partial, out], extents).unwrap();
        let arguments = |call: &Call| match call {
            Call::Kernel(KernelCall::ColumnSum(arguments)) => *arguments,
            call => panic!("{call:?}"),
        };
        assert_eq!((calls([256, 5]).len(), partial_bytes([256, 5])), (1, 0));
        assert_eq!(arguments(&calls([256, 5])[0]).entry().unwrap(), "column_sum");
        for (rows, chunks) in [(257, 2), (50_432, 197), (1 << 20, 1024), ((1 << 20) + 1, 1024)] {
            let two = calls([rows, 5]);
            let [first, second] = [0, 1].map(|index| arguments(&two[index]));
            assert_eq!(first.entry().unwrap(), "column_sum_partial");
            assert_eq!(second.entry().unwrap(), "column_sum_total");
            assert_eq!((first.rows as usize).div_ceil(first.chunk as usize), chunks);
            assert_eq!((second.rows, second.chunk), (chunks as u32, chunks as u32));
            assert_eq!(partial_bytes([rows, 5]), chunks * 5 * 4);
            let mut written = Vec::new();
            first.accesses(2, &mut |access| written.push((access.field, access.bytes)));
            second.accesses(2, &mut |access| written.push((access.field, access.bytes)));
            let bytes = chunks * 5 * 4;
            assert_eq!(
                written,
                [("x", rows * 5 * 2), ("out", bytes), ("x", bytes), ("out", 5 * 2)]
            );
        }
    }
}
