//! `interpolate`: images in another size.

use hipvit_graph::op::{Interpolate, InterpolationKernel, NearestRounding};

use super::Unit;
use super::bindings::{InterpolateArgs, InterpolateAxis, InterpolateKernel};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, bytes, extent};

// SAFETY: see hip/interpolate.hip. Positions are limited to the image. Threads beyond the last pixel return.
unsafe impl KernelArguments for InterpolateArgs {
    const FILE: &'static str = "interpolate";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.height, self.width, self.rows, self.columns].contains(&0) {
            return Err("has no pixels".into());
        }
        let lines = u64::from(self.images) * u64::from(self.rows);
        target.elementwise(lines.saturating_mul(self.columns.into()), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let x = bytes(element, &[self.images, self.height, self.width, self.channels]);
        let out = bytes(element, &[self.images, self.rows, self.columns, self.channels]);
        visit(Access::read("x", self.x, x));
        visit(Access::write("out", self.out, out));
    }
}

impl Lower for Interpolate {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("interpolate"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, height, width, channels] = step.shape_of(0)? else {
            return Err("takes images".into());
        };
        let axis = |axis: usize, extent: usize| {
            let positions = self.positions(axis, extent);
            InterpolateAxis {
                shift: positions.shift as f32,
                numerator: positions.numerator as f32,
                denominator: positions.denominator as f32,
                offset: positions.offset as f32,
                stretch: self.stretch(axis, extent) as f32,
            }
        };
        let kernel = match self.kernel {
            InterpolationKernel::Nearest(NearestRounding::PreferFloor) => {
                InterpolateKernel::NearestPreferFloor
            }
            InterpolationKernel::Nearest(NearestRounding::PreferCeil) => InterpolateKernel::NearestPreferCeil,
            InterpolationKernel::Nearest(NearestRounding::Floor) => InterpolateKernel::NearestFloor,
            InterpolationKernel::Nearest(NearestRounding::Ceil) => InterpolateKernel::NearestCeil,
            InterpolationKernel::Linear => InterpolateKernel::Linear,
            InterpolationKernel::Cubic(_) => InterpolateKernel::Cubic,
        };
        let is_nearest = matches!(self.kernel, InterpolationKernel::Nearest(_));
        one(InterpolateArgs {
            x: step.address(0)?,
            out: step.out,
            images: extent(images)?,
            height: extent(height)?,
            width: extent(width)?,
            channels: extent(channels)?,
            rows: extent(self.size[0])?,
            columns: extent(self.size[1])?,
            axes: [axis(0, height), axis(1, width)],
            kernel: kernel as u32,
            coefficient: match self.kernel {
                InterpolationKernel::Cubic(coefficient) => coefficient,
                _ => 0.0,
            },
            normalize: ((self.antialias || self.exclude_outside) && !is_nearest).into(),
            exclude_outside: (self.exclude_outside && !is_nearest).into(),
        })
    }
}
