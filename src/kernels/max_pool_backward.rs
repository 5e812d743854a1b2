//! `max_pool_backward`: gradients of the largest elements of sliding windows.

use hipvit_graph::op::MaxPoolBackward;

use super::bindings::{MaxPoolBackwardArgs, WindowGeometry};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit};

// SAFETY: see hip/max_pool_backward.hip. Threads beyond the last pixel return, and windows behind the last one are not read.
unsafe impl KernelArguments for MaxPoolBackwardArgs {
    const FILE: &'static str = "max_pool_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.windows.check()?;
        let WindowGeometry {
            images,
            height,
            width,
            channels,
            ..
        } = self.windows;
        let pixels = u64::from(images).saturating_mul(height.into());
        target.elementwise(pixels.saturating_mul(width.into()), channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let (windows, channels) = (&self.windows, self.windows.channels);
        visit(Access::read("x", self.x, windows.bytes_of_x(element)));
        visit(Access::read(
            "dy",
            self.dy,
            windows.bytes_of_result(element, channels),
        ));
        visit(Access::write("dx", self.dx, windows.bytes_of_x(element)));
    }
}

impl Lower for MaxPoolBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("max_pool_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[_, rows, columns, _] = step.shape_of(1)? else {
            return Err("takes no images".into());
        };
        one(MaxPoolBackwardArgs {
            x: step.address(0)?,
            dy: step.address(1)?,
            dx: step.out,
            windows: WindowGeometry::new(step.shape_of(0)?, [rows, columns], self.0.windows())?,
        })
    }
}
