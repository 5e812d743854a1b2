//! `paged_attention`: attention of single queries over keys and values in pages.

use hipvit_graph::op::PagedAttention;

use super::bindings::{
    PAGED_ATTENTION_CHANNELS, PAGED_ATTENTION_LANES, PAGED_ATTENTION_THREADS, PagedAttentionArgs,
};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for PagedAttention {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("paged_attention"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (places, pages) = (step.shape_of(1)?[0], step.shape_of(2)?[1]);
        one(PagedAttentionArgs {
            q: step.address(0)?,
            cache: step.address(1)?,
            table: step.integers(2)?,
            lengths: step.integers(3)?,
            out: step.out,
            rows: extent(step.shape[0])?,
            heads: extent(self.heads)?,
            kv_heads: extent(self.kv_heads)?,
            head_dim: extent(self.head_dim)?,
            places: extent(places)?,
            page: extent(self.page)?,
            pages: extent(pages)?,
            lanes: 1,
            scale: self.scale,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/paged_attention.hip. A block per head of a row; pages and lengths are clamped to the extents. `plan` checks what the kernel
// assumes of these.
unsafe impl KernelArguments for PagedAttentionArgs {
    const FILE: &'static str = "paged_attention";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let extents = [
            self.rows,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.page,
            self.pages,
        ];
        if extents.contains(&0) {
            return Err("attends to no keys".into());
        }
        let fits = self.heads.is_multiple_of(self.kv_heads)
            && self.head_dim <= PAGED_ATTENTION_CHANNELS
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
        let heads = u64::from(self.rows).saturating_mul(self.heads.into());
        target.blocks(heads, PAGED_ATTENTION_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let cache = bytes(element, &[self.places, 2, self.kv_heads, self.head_dim]);
        let queries = bytes(element, &[self.rows, self.heads, self.head_dim]);
        visit(Access::read("q", self.q, queries));
        visit(Access::read("cache", self.cache, cache));
        visit(Access::read(
            "table",
            self.table,
            bytes(4, &[self.rows, self.pages]),
        ));
        visit(Access::read("lengths", self.lengths, bytes(4, &[self.rows])));
        visit(Access::write("out", self.out, queries));
    }
}
