//! `transpose`: `gamma · xᵀ` of each image, plus `y` or times `y`. `gamma` and `y` are optional. The last columns of `x` may be omitted,
//! and zeros may follow each row of the result.

use super::Unit;
use super::bindings::{TRANSPOSE_LINE, TRANSPOSE_ROWS, TRANSPOSE_THREADS, TransposeArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional};
use crate::ops::{Combine, Transpose};

impl TransposeArgs {
    /// Creates the arguments for `x` `[images, rows, columns]`, `out` and `y` `[images, columns − crop, rows + pad]`, and `gamma` `[rows]`.
    /// `gamma` and `y` may be null.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, gamma, y, out]: [DeviceAddress; 4],
        [images, rows, columns]: [usize; 3],
        spec: Transpose,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            gamma,
            y,
            out,
            images: extent(images)?,
            rows: extent(rows)?,
            columns: extent(columns)?,
            kept: extent(columns.saturating_sub(spec.crop))?,
            width: extent(rows + spec.pad)?,
            multiply: (spec.combine == Some(Combine::Multiply)).into(),
        })
    }
}

// SAFETY: see hip/transpose.hip. Blocks beyond the last image return. Elements beyond an image's rows and columns are not accessed, in `x`
// or in `out`.
unsafe impl KernelArguments for TransposeArgs {
    const FILE: &'static str = "transpose";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.rows == 0 || self.kept == 0 {
            return Err("has an image without elements".into());
        }
        let columns = TRANSPOSE_LINE / target.dtype.size() as u32;
        let tiles = [self.width.div_ceil(TRANSPOSE_ROWS), self.kept.div_ceil(columns)];
        let blocks = tiles.into_iter().fold(self.images.into(), |blocks: u64, tiles| {
            blocks.saturating_mul(tiles.into())
        });
        target.blocks(blocks, TRANSPOSE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.images, self.kept, self.width]);
        let x = bytes(element, &[self.images, self.rows, self.columns]);
        visit(Access::read("x", self.x, x));
        visit(optional(Access::read(
            "gamma",
            self.gamma,
            bytes(element, &[self.rows]),
        )));
        visit(optional(Access::read("y", self.y, all)));
        visit(Access::write("out", self.out, all));
    }
}

impl Lower for Transpose {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("transpose"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, rows, columns] = step.shape_of(0)? else {
            return Err("takes tokens".into());
        };
        let gamma = if self.scale {
            step.address(1)?
        } else {
            DeviceAddress::NULL
        };
        let y = match self.combine {
            Some(_) => step.address(1 + usize::from(self.scale))?,
            None => DeviceAddress::NULL,
        };
        let addresses = [step.address(0)?, gamma, y, step.out];
        one(TransposeArgs::new(addresses, [images, rows, columns], *self)?)
    }
}
