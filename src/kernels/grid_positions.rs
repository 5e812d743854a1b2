//! `grid_positions`: adds the position table, resampled to each image's grid of patches, to the tokens.

use hipvit_graph::op::GridPositions;

use super::Unit;
use super::bindings::{GridPositionsArgs, PatchGrids};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

impl GridPositionsArgs {
    /// Creates the arguments for `x` and `out` `[images, tokens, channels]`, and `table` `[side, side, channels]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, table, out]: [DeviceAddress; 3],
        grids: PatchGrids,
        [images, tokens, channels]: [usize; 3],
        side: usize,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            table,
            out,
            grids,
            images: extent(images)?,
            tokens: extent(tokens)?,
            side: extent(side)?,
            channels: extent(channels)?,
        })
    }
}

// SAFETY: see hip/grid_positions.hip. Threads beyond the last token return, and grids are limited to the tokens.
unsafe impl KernelArguments for GridPositionsArgs {
    const FILE: &'static str = "grid_positions";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.tokens == 0 || self.side == 0 {
            return Err("has images without tokens, or a table without positions".into());
        }
        let tokens = u64::from(self.images) * u64::from(self.tokens);
        target.elementwise(tokens, self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = |extents: &[u32]| bytes(element, extents);
        let all = bytes(&[self.images, self.tokens, self.channels]);
        visit(Access::read("x", self.x, all));
        visit(Access::read(
            "table",
            self.table,
            bytes(&[self.side, self.side, self.channels]),
        ));
        self.grids.visit(self.images, visit);
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for GridPositions {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("grid_positions"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (&[images, tokens, channels], &[side, ..]) = (step.shape, step.shape_of(1)?) else {
            return Err("takes tokens and a table".into());
        };
        let addresses = [step.address(0)?, step.address(1)?, step.out];
        let extents = [images, tokens, channels];
        one(GridPositionsArgs::new(addresses, step.grids(2)?, extents, side)?)
    }
}
