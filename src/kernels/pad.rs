//! `pad`: elements before and after each axis.

use half::{bf16, f16};
use hipvit_graph::op::{Pad, PadMode};

use super::bindings::{PAD_AXES, PAD_THREADS, PadArgs, Padding, VEC128_BYTES};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::tensor::DType;

/// Number of axes of the kernel.
const AXES: usize = PAD_AXES as usize;
/// Index of the last axis.
const LAST: usize = AXES - 1;

impl PadArgs {
    /// Creates the arguments for `x` of this shape, with elements of `dtype`.
    ///
    /// # Errors
    ///
    /// More axes than those of the kernel are padded, or an extent exceeds 32 bits.
    pub fn new(
        [x, out]: [DeviceAddress; 2],
        shape: &[usize],
        pad: &Pad,
        dtype: DType,
    ) -> Result<Self, KernelError> {
        // Neighbours without padding are one axis.
        let mut axes: Vec<[usize; 3]> = Vec::with_capacity(shape.len());
        for ((&length, &before), &after) in shape.iter().zip(&pad.before).zip(&pad.after) {
            match axes.last_mut() {
                Some([outer, 0, 0]) if before == 0 && after == 0 => *outer *= length,
                _ => axes.push([length, before, after]),
            }
        }
        let Some(missing) = AXES.checked_sub(axes.len()) else {
            let reason = format!("pads {} axes apart, the kernel at most {AXES}", axes.len());
            return Err(KernelError::Unsupported(reason));
        };
        let (mut from, mut to, mut of_axis) = ([1; AXES], [1; AXES], [0; AXES]);
        for (axis, [length, before, after]) in axes.into_iter().enumerate() {
            from[missing + axis] = extent(length)?;
            to[missing + axis] = extent(before + length + after)?;
            of_axis[missing + axis] = extent(before)?;
        }
        let element = extent(dtype.size())?;
        let vec = VEC128_BYTES / element;
        let is_vectorized = from[LAST] == to[LAST] && to[LAST].is_multiple_of(vec);
        let (mode, value) = match pad.mode {
            PadMode::Constant(value) => (Padding::Constant, bits(value, dtype)),
            PadMode::Reflect => (Padding::Reflect, 0),
            PadMode::Edge => (Padding::Edge, 0),
        };
        Ok(Self {
            x,
            out,
            from,
            to,
            before: of_axis,
            mode: mode as u32,
            value,
            element,
            // 8 bytes, which the kernel does not take for a vector.
            width: if is_vectorized { vec } else { vec / 2 },
        })
    }
}

/// Returns the bits of a number in `dtype`.
fn bits(value: f32, dtype: DType) -> u32 {
    match dtype {
        DType::F16 => f16::from_f32(value).to_bits().into(),
        DType::BF16 => bf16::from_f32(value).to_bits().into(),
        DType::I32 => (value as i32).cast_unsigned(),
        DType::U8 | DType::I8 => (value as i32).cast_unsigned() & 0xff,
        _ => value.to_bits(),
    }
}

// SAFETY: see hip/pad.hip. Threads beyond the last row return. An index outside of x is a constant, or is moved inside, which the op's shape
// rule makes possible.
unsafe impl KernelArguments for PadArgs {
    const FILE: &'static str = "pad";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.from.contains(&0) || self.to.contains(&0) {
            return Err("pads a tensor without elements".into());
        }
        let rows = self.to[..LAST].iter().map(|&extent| u64::from(extent));
        let per_row = u64::from(self.to[LAST].div_ceil(self.width));
        target.threads(rows.fold(per_row, u64::saturating_mul), PAD_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let element = self.element as usize;
        visit(Access::read("x", self.x, bytes(element, &self.from)));
        visit(Access::write("out", self.out, bytes(element, &self.to)));
    }
}

impl Lower for Pad {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("pad"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let addresses = [step.address(0)?, step.out];
        let dtype = step.plan.buffer(step.step.output()).dtype;
        one(PadArgs::new(addresses, step.shape_of(0)?, self, dtype)?)
    }
}
