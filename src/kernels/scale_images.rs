//! `scale_images`: a factor for each image.

use hipvit_graph::op::ScaleImages;

use super::bindings::ScaleImagesArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for ScaleImages {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("scale_images"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (&[images, ref image @ ..], &[_, stride]) = (step.shape, step.shape_of(1)?) else {
            return Err("takes images, and a row of factors for each".into());
        };
        one(ScaleImagesArgs {
            x: step.address(0)?,
            factors: step.address(1)?.offset(self.column * size_of::<f32>()),
            out: step.out,
            images: extent(images)?,
            elements: extent(image.iter().product())?,
            stride: extent(stride)?,
            reserved: 0,
        })
    }
}

// SAFETY: see hip/scale_images.hip. Threads beyond the last image return.
unsafe impl KernelArguments for ScaleImagesArgs {
    const FILE: &'static str = "scale_images";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.elementwise(self.images.into(), self.elements)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.images, self.elements]);
        // The last row ends with the factor.
        let factors = (self.images.saturating_sub(1) as usize * self.stride as usize + 1) * size_of::<f32>();
        visit(Access::read("x", self.x, all));
        visit(Access::read("factors", self.factors, factors));
        visit(Access::write("out", self.out, all));
    }
}
