//! `grid_sample`: samples of images at given positions.

use hipvit_graph::op::{GridSample, Outside, SampleKernel};

use super::bindings::{Border, GridSampleArgs, Sampling};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::graph::plan::Operand;
use crate::tensor::DType;

impl GridSampleArgs {
    /// Creates the arguments for `x` `[images, height, width, channels]` and a grid of `positions` positions per image, in f32 or, if it is
    /// narrow, in the model's dtype.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [x, grid, out]: [DeviceAddress; 3],
        [images, height, width, channels]: [usize; 4],
        positions: usize,
        op: GridSample,
        narrow_grid: bool,
    ) -> Result<Self, KernelError> {
        let sampling = match op.kernel {
            SampleKernel::Nearest => Sampling::Nearest,
            SampleKernel::Linear => Sampling::Linear,
            SampleKernel::Cubic => Sampling::Cubic,
        };
        let border = match op.outside {
            Outside::Zeros => Border::Zeros,
            Outside::Edge => Border::Edge,
            Outside::Reflect => Border::Reflect,
        };
        Ok(Self {
            x,
            grid,
            out,
            images: extent(images)?,
            height: extent(height)?,
            width: extent(width)?,
            channels: extent(channels)?,
            positions: extent(positions)?,
            sampling: sampling as u32,
            border: border as u32,
            align_corners: op.align_corners.into(),
            narrow_grid: narrow_grid.into(),
            reserved: 0,
        })
    }
}

// SAFETY: see hip/grid_sample.hip. Threads beyond the last sample return. Pixels outside of an image are moved inside or not read.
unsafe impl KernelArguments for GridSampleArgs {
    const FILE: &'static str = "grid_sample";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        // Pixels are counted by i32.
        const MOST: u32 = 1 << 28;
        if [self.height, self.width]
            .iter()
            .any(|extent| !(1..=MOST).contains(extent))
        {
            return Err("samples an image without pixels, or with too many".into());
        }
        let samples = u64::from(self.images).saturating_mul(self.positions.into());
        target.elementwise(samples, self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let of_grid = if self.narrow_grid == 0 {
            DType::F32.size()
        } else {
            element
        };
        let x = bytes(element, &[self.images, self.height, self.width, self.channels]);
        let grid = bytes(of_grid, &[self.images, self.positions, 2]);
        let out = bytes(element, &[self.images, self.positions, self.channels]);
        visit(Access::read("x", self.x, x));
        visit(Access::read("grid", self.grid, grid));
        visit(Access::write("out", self.out, out));
    }
}

impl Lower for GridSample {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("grid_sample"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (&[images, height, width, channels], &[_, down, across, _]) =
            (step.shape_of(0)?, step.shape_of(1)?)
        else {
            return Err("takes images and positions".into());
        };
        // Positions that other ops compute have the model's dtype.
        let grid = match step.operand(1)? {
            Operand::Buffer(id) => step.addresses.buffer(step.plan, id),
            _ => step.address(1)?,
        };
        let is_buffer = matches!(step.operand(1)?, Operand::Buffer(_));
        let is_narrow = is_buffer && step.dtype_of(1)? != DType::F32;
        let extents = [images, height, width, channels];
        let addresses = [step.address(0)?, grid, step.out];
        one(GridSampleArgs::new(
            addresses,
            extents,
            down * across,
            *self,
            is_narrow,
        )?)
    }
}
