//! `paged_attention`: attention of single queries over keys and values in pages.

use std::borrow::Cow;

use hipvit_graph::op::PagedAttention;

use super::bindings::{
    PAGED_ATTENTION_CHANNELS, PAGED_ATTENTION_FEW, PAGED_ATTENTION_FEW_BLOCKS, PAGED_ATTENTION_LANES,
    PAGED_ATTENTION_THREADS, PagedAttentionArgs,
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
            columns: extent(step.shape_of(0)?[1])?,
        })
    }
}

impl PagedAttentionArgs {
    fn blocks(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.heads)
    }

    /// Returns true if all blocks run at the same time.
    fn are_few(&self) -> bool {
        self.blocks() <= PAGED_ATTENTION_FEW_BLOCKS.into()
    }
}

// SAFETY: see hip/paged_attention.hip. A block per head of a row; pages and lengths are clamped to the extents. `plan` checks what the kernel
// assumes of these.
unsafe impl KernelArguments for PagedAttentionArgs {
    const FILE: &'static str = "paged_attention";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let few = self.are_few();
        Ok(if few {
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
        ];
        if extents.contains(&0) {
            return Err("attends to no keys".into());
        }
        let columns = u64::from(self.columns);
        let fits = columns >= u64::from(self.heads) * u64::from(self.head_dim)
            && self.heads.is_multiple_of(self.kv_heads)
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
        let threads = if self.are_few() {
            PAGED_ATTENTION_FEW
        } else {
            PAGED_ATTENTION_THREADS
        };
        target.blocks(self.blocks(), threads)
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
    }
}
