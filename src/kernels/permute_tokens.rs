//! `permute_tokens`: puts the tokens of each image's grid in another order.

use hipvit_graph::op::{PermuteTokens, TokenOrder};

use super::bindings::{GridOrder, PermuteTokensArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl GridOrder {
    fn new(order: &TokenOrder, grid: [usize; 2]) -> Result<Self, KernelError> {
        let pair = |values: [usize; 2]| Ok::<_, KernelError>([extent(values[0])?, extent(values[1])?]);
        Ok(Self {
            window: pair(order.window)?,
            shift: pair(order.shift)?,
            rolled: pair(order.rolled)?,
            across: extent(order.window_grid(grid)[1])?,
            tokens: extent(order.padded(grid).iter().product())?,
            transposed: order.merged.into(),
        })
    }
}

impl Lower for PermuteTokens {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("permute_tokens"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (images, channels) = self.from.extents(self.grid, step.shape_of(0)?)?;
        one(PermuteTokensArgs {
            x: step.address(0)?,
            out: step.out,
            images: extent(images)?,
            channels: extent(channels)?,
            grid: [extent(self.grid[0])?, extent(self.grid[1])?],
            from: GridOrder::new(&self.from, self.grid)?,
            to: GridOrder::new(&self.to, self.grid)?,
        })
    }
}

// SAFETY: see hip/permute_tokens.hip. Threads beyond the last token return. A cell of the grid is a token of both orders, which
// `PermuteTokens::shapes` checked.
unsafe impl KernelArguments for PermuteTokensArgs {
    const FILE: &'static str = "permute_tokens";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let tokens = u64::from(self.images).saturating_mul(self.to.tokens.into());
        target.elementwise(tokens, self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = |tokens: u32| bytes(element, &[self.images, tokens, self.channels]);
        visit(Access::read("x", self.x, bytes(self.from.tokens)));
        visit(Access::write("out", self.out, bytes(self.to.tokens)));
    }
}
