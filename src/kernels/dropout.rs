//! `dropout`: sets elements to 0 at random.

use hipvit_graph::op::Dropout;

use super::bindings::DropoutArgs;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for Dropout {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("dropout"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, ref image @ ..] = step.shape else {
            return Err("takes images, and two keys for each".into());
        };
        one(DropoutArgs {
            x: step.address(0)?,
            keys: step.address(1)?,
            out: step.out,
            images: extent(images)?,
            elements: extent(image.iter().product())?,
            site: self.site,
            threshold: self.threshold(),
            factor: self.factor(),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/dropout.hip. Threads beyond the last image return.
unsafe impl KernelArguments for DropoutArgs {
    const FILE: &'static str = "dropout";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.elementwise(self.images.into(), self.elements)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.images, self.elements]);
        visit(Access::read("x", self.x, all));
        visit(Access::read(
            "keys",
            self.keys,
            bytes(size_of::<f32>(), &[self.images, 2]),
        ));
        visit(Access::write("out", self.out, all));
    }
}
