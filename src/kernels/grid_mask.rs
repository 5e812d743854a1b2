//! `grid_mask`: mask of the tokens that are patches of an image, not padding.

use hipvit_graph::op::GridMask;

use super::Unit;
use super::bindings::{ELEMENTWISE_THREADS, GridMaskArgs, PATCH_GRID_BYTES, PatchGrids};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};
use crate::graph::plan::Operand;
use crate::patch_grid;

impl PatchGrids {
    /// Returns the grids of images of this height and width at `pixels`.
    pub(crate) fn of_images(pixels: DeviceAddress, [height, width]: [usize; 2]) -> Self {
        Self {
            pixels,
            image: (height * width * 3) as u64,
            first: patch_grid::first([height, width]) as u64,
        }
    }

    /// Visits the bytes up to the end of the last image's grid.
    pub(super) fn visit(&self, images: u32, visit: &mut dyn FnMut(Access)) {
        let last = self.image.saturating_mul(u64::from(images.saturating_sub(1)));
        let end = last
            .saturating_add(self.first)
            .saturating_add(PATCH_GRID_BYTES.into());
        visit(Access::read(
            "pixels",
            self.pixels,
            usize::try_from(end).unwrap_or(usize::MAX),
        ));
    }
}

impl GridMaskArgs {
    /// Creates the arguments for `out` u8 `[images, tokens]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        grids: PatchGrids,
        out: DeviceAddress,
        [images, tokens]: [usize; 2],
    ) -> Result<Self, KernelError> {
        Ok(Self {
            out,
            grids,
            images: extent(images)?,
            tokens: extent(tokens)?,
        })
    }
}

// SAFETY: see hip/grid_mask.hip. Threads beyond the last token return.
unsafe impl KernelArguments for GridMaskArgs {
    const FILE: &'static str = "grid_mask";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.tokens == 0 {
            return Err("has images without tokens".into());
        }
        let tokens = u64::from(self.images) * u64::from(self.tokens);
        target.threads(tokens, ELEMENTWISE_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        self.grids.visit(self.images, visit);
        visit(Access::write(
            "out",
            self.out,
            bytes(1, &[self.images, self.tokens]),
        ));
    }
}

impl Lower for GridMask {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("grid_mask"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, tokens] = step.shape else {
            return Err("is not of images and tokens".into());
        };
        one(GridMaskArgs::new(step.grids(0)?, step.out, [images, tokens])?)
    }
}

impl Lowering<'_> {
    /// Returns the grids of the images in operand `index`.
    pub(super) fn grids(&self, index: usize) -> Result<PatchGrids, KernelError> {
        match (self.operand(index)?, self.shape_of(index)?) {
            (Operand::Input(id), &[_, height, width, _]) => {
                let (images, _) = self.input(id)?;
                Ok(PatchGrids::of_images(images, [height, width]))
            }
            _ => Err("takes the image that is given, not one that is computed".into()),
        }
    }
}
