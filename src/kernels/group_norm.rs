//! `group_norm`: normalises groups of channels over all pixels of an image.

use hipvit_graph::op::GroupNorm;

use super::bindings::{GROUP_NORM_THREADS, GroupNormArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl GroupNormArgs {
    /// Creates the arguments for `x` and `out` `[images, pixels, channels]`, and `weight` and `bias` `[channels]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, weight, bias, out]: [DeviceAddress; 4],
        [images, pixels, channels]: [usize; 3],
        norm: &GroupNorm,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            weight,
            bias,
            out,
            images: extent(images)?,
            pixels: extent(pixels)?,
            channels: extent(channels)?,
            groups: extent(norm.groups)?,
            epsilon: norm.epsilon,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/group_norm.hip. Blocks beyond the last group return. The groups divide the channels.
unsafe impl KernelArguments for GroupNormArgs {
    const FILE: &'static str = "group_norm";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.groups == 0 || self.channels == 0 || !self.channels.is_multiple_of(self.groups) {
            return Err("has channels that the groups do not divide".into());
        }
        let groups = u64::from(self.images).saturating_mul(self.groups.into());
        target.blocks(groups, GROUP_NORM_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.images, self.pixels, self.channels]);
        let row = bytes(element, &[self.channels]);
        visit(Access::read("x", self.x, all));
        visit(Access::read("weight", self.weight, row));
        visit(Access::read("bias", self.bias, row));
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for GroupNorm {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("group_norm"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (&[images, ref pixels @ .., channels], addresses) = (
            step.shape,
            [step.address(0)?, step.address(1)?, step.address(2)?, step.out],
        ) else {
            return Err("takes images and channels".into());
        };
        let extents = [images, pixels.iter().product(), channels];
        one(GroupNormArgs::new(addresses, extents, self)?)
    }
}
