//! `patch_extract_backward`: the gradient of images from that of their patches.

use hipvit_graph::op::{PatchExtractBackward, PixelLayout};

use super::Unit;
use super::bindings::PatchExtractBackwardArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

impl PatchExtractBackwardArgs {
    /// Creates the arguments for the patches `dy` and the pixels `dx` of `images` images.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [dy, dx]: [DeviceAddress; 2],
        images: usize,
        backward: &PatchExtractBackward,
    ) -> Result<Self, KernelError> {
        let extract = &backward.extract;
        Ok(Self {
            dy,
            dx,
            scale: extract.normalize.map_or([1.0; 3], |normalize| normalize.scale),
            images: extent(images)?,
            height: extent(backward.image[0])?,
            width: extent(backward.image[1])?,
            patch_height: extent(extract.patch[0])?,
            patch_width: extent(extract.patch[1])?,
            chw: (extract.layout == PixelLayout::Chw).into(),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/patch_extract_backward.hip. Threads beyond the last row of pixels return.
unsafe impl KernelArguments for PatchExtractBackwardArgs {
    const FILE: &'static str = "patch_extract_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let fits = |patch: u32, image: u32| (1..=image).contains(&patch);
        if !fits(self.patch_height, self.height) || !fits(self.patch_width, self.width) {
            return Err(format!(
                "a patch of {}×{} does not fit an image of {}×{}",
                self.patch_height, self.patch_width, self.height, self.width
            )
            .into());
        }
        // The kernel counts the elements of a row and of a patch in 32 bits.
        let patch = u64::from(self.patch_height) * u64::from(self.patch_width);
        if u64::from(self.width).max(patch) > u64::from(u32::MAX / 3) {
            return Err(KernelError::unsupported("its patches are too large"));
        }
        let (planes, columns) = match self.chw {
            0 => (1, 3 * self.width),
            _ => (3, self.width),
        };
        target.elementwise(u64::from(self.images) * planes * u64::from(self.height), columns)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let down = self.height.checked_div(self.patch_height).unwrap_or(0);
        let across = self.width.checked_div(self.patch_width).unwrap_or(0);
        let dy = [self.images, down, across, 3, self.patch_height, self.patch_width];
        let dx = [self.images, self.height, self.width, 3];
        visit(Access::read("dy", self.dy, bytes(element, &dy)));
        visit(Access::write("dx", self.dx, bytes(element, &dx)));
    }
}

impl Lower for PatchExtractBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("patch_extract_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let images = step.shape.first().copied().ok_or("takes patches")?;
        let addresses = [step.address(0)?, step.out];
        one(PatchExtractBackwardArgs::new(addresses, images, self)?)
    }
}
