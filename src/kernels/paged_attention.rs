//! `paged_attention`: attention of single queries over keys and values in pages.

use std::borrow::Cow;

use hipvit_graph::op::PagedAttention;

use super::bindings::{
    PAGED_ATTENTION_CHANNELS, PAGED_ATTENTION_FEW, PAGED_ATTENTION_FEW_HEADS, PAGED_ATTENTION_LANES,
    PAGED_ATTENTION_SPAN, PAGED_ATTENTION_THREADS, PAGED_ATTENTION_WHOLE, PagedAttentionArgs,
};
use super::lower::{Call, Lower, Lowering, one, shape_of};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::graph::plan::{Plan, Step};

/// Maximum blocks of a launch whose blocks share the keys of a head. It bounds the memory of their sums.
const MAX_SHARING_BLOCKS: usize = 1024;

impl Lower for PagedAttention {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("paged_attention"))
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        match splits(self, plan, step) {
            (_, 1) => 0,
            (heads, splits) => heads * splits * (self.head_dim + 2) * size_of::<f32>(),
        }
    }

    fn counter_bytes(&self, plan: &Plan, step: &Step) -> usize {
        match splits(self, plan, step) {
            (_, 1) => 0,
            (heads, _) => heads * size_of::<u32>(),
        }
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        one(arguments(self, step)?)
    }
}

/// Returns the arguments for a step whose first operands are those of [`PagedAttention`].
pub(super) fn arguments(op: &PagedAttention, step: &Lowering<'_>) -> Result<PagedAttentionArgs, KernelError> {
    let (places, pages) = (step.shape_of(1)?[0], step.shape_of(2)?[1]);
    let (heads, splits) = splits(op, step.plan, step.step);
    Ok(PagedAttentionArgs {
        q: step.address(0)?,
        cache: step.address(1)?,
        table: step.integers(2)?,
        lengths: step.integers(3)?,
        out: step.out,
        parts: step.addresses.scratch,
        arrivals: step.addresses.counters,
        rows: extent(step.shape[0])?,
        heads: extent(op.heads)?,
        kv_heads: extent(op.kv_heads)?,
        head_dim: extent(op.head_dim)?,
        places: extent(places)?,
        page: extent(op.page)?,
        pages: extent(pages)?,
        lanes: 1,
        scale: op.scale,
        columns: extent(step.shape_of(0)?[1])?,
        splits: extent(splits)?,
        // All blocks run at the same time.
        few: u32::from(heads <= PAGED_ATTENTION_FEW_HEADS as usize),
    })
}

/// Returns the heads of all rows, and the maximum blocks per head.
fn splits(op: &PagedAttention, plan: &Plan, step: &Step) -> (usize, usize) {
    let table = step.inputs.get(2).map_or(&[][..], |&table| shape_of(plan, table));
    let &[rows, pages] = table else { return (0, 1) };
    let heads = rows * op.heads;
    let keys = pages * op.page;
    if keys <= PAGED_ATTENTION_WHOLE as usize || heads > PAGED_ATTENTION_FEW_HEADS as usize {
        return (heads, 1);
    }
    let of_keys = keys.div_ceil(PAGED_ATTENTION_SPAN as usize);
    (heads, of_keys.min(MAX_SHARING_BLOCKS / heads.max(1)))
}

impl PagedAttentionArgs {
    /// Limits the blocks per head, so that a launch has at most one block per compute unit. Rounding depends on the number of blocks.
    pub fn split(self, compute_units: u32) -> Self {
        let wanted = u64::from(compute_units) / self.heads_of_rows().max(1);
        Self {
            splits: u64::from(self.splits).min(wanted).max(1) as u32,
            ..self
        }
    }

    /// Returns the arguments for one block of the same size per head, so that rounding does not depend on the number of rows.
    pub fn whole(self) -> Self {
        Self {
            splits: 1,
            few: 0,
            ..self
        }
    }

    fn heads_of_rows(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.heads)
    }

    pub(super) fn are_few(&self) -> bool {
        self.few != 0
    }
}

// SAFETY: see hip/paged_attention.hip. `splits` blocks per head of a row, which write their own parts; pages and lengths are clamped to the
// extents. `plan` checks what the kernel assumes of these.
unsafe impl KernelArguments for PagedAttentionArgs {
    const FILE: &'static str = "paged_attention";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.are_few() {
            "paged_attention_few"
        } else {
            "paged_attention"
        }
        .into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let extents = [
            self.rows,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.page,
            self.pages,
            self.splits,
        ];
        if extents.contains(&0) {
            return Err("attends to no keys".into());
        }
        let columns = u64::from(self.columns);
        let fits = columns >= u64::from(self.heads) * u64::from(self.head_dim)
            && self.heads.is_multiple_of(self.kv_heads)
            && self.head_dim <= PAGED_ATTENTION_CHANNELS
            && (self.splits == 1 || self.are_few())
            && self.places >= self.page
            && self.places.is_multiple_of(self.page)
            && self
                .pages
                .checked_mul(self.page)
                .is_some_and(|tokens| i32::try_from(tokens).is_ok());
        if !fits {
            return Err(KernelError::unsupported(
                "has heads or pages that the kernel does not compute",
            ));
        }
        let vecs = u64::from(self.head_dim).div_ceil(target.vec128());
        // A power of two that is at most the constant.
        self.lanes = (vecs.next_power_of_two() as u32).min(PAGED_ATTENTION_LANES);
        let blocks = self.heads_of_rows().saturating_mul(self.splits.into());
        let threads = if self.are_few() {
            PAGED_ATTENTION_FEW
        } else {
            PAGED_ATTENTION_THREADS
        };
        target.blocks(blocks, threads)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let cache = bytes(element, &[self.places, 2, self.kv_heads, self.head_dim]);
        let queries = bytes(element, &[self.rows, self.columns]);
        visit(Access::read("q", self.q, queries));
        visit(Access::read("cache", self.cache, cache));
        visit(Access::read(
            "table",
            self.table,
            bytes(4, &[self.rows, self.pages]),
        ));
        visit(Access::read("lengths", self.lengths, bytes(4, &[self.rows])));
        let results = bytes(element, &[self.rows, self.heads, self.head_dim]);
        visit(Access::write("out", self.out, results));
        if self.splits > 1 {
            let parts = [self.rows, self.heads, self.splits, self.head_dim + 2];
            visit(Access::write("parts", self.parts, bytes(4, &parts)));
            let arrivals = bytes(4, &[self.rows, self.heads]);
            visit(Access::write("arrivals", self.arrivals, arrivals));
        }
    }
}
