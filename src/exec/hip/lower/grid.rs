//! What depends on the grid of patches that each image has: position embeddings, and which tokens there are.

use super::{Call, Lowering, one};
use crate::graph::plan::Operand;
use crate::kernels::{GridMaskArgs, GridPositionsArgs, PatchGrids};

impl Lowering<'_> {
    pub(super) fn grid_positions(&self) -> Result<Vec<Call>, String> {
        let (&[images, tokens, channels], &[side, ..]) = (self.shape, self.shape_of(1)?) else {
            return Err("takes tokens and a table".into());
        };
        let addresses = [self.address(0)?, self.address(1)?, self.out];
        one(GridPositionsArgs::new(
            addresses,
            self.grids(2)?,
            [images, tokens, channels],
            side,
        )?)
    }

    pub(super) fn grid_mask(&self) -> Result<Vec<Call>, String> {
        let &[images, tokens] = self.shape else {
            return Err("is not of images and tokens".into());
        };
        one(GridMaskArgs::new(self.grids(0)?, self.out, [images, tokens])?)
    }

    fn grids(&self, index: usize) -> Result<PatchGrids, String> {
        match (self.operand(index)?, self.shape_of(index)?) {
            (Operand::Input, &[_, height, width, _]) => {
                Ok(PatchGrids::of_images(self.addresses.input, [height, width]))
            }
            _ => Err("takes the image that is given, not one that is computed".into()),
        }
    }
}
