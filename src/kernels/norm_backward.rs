//! `layer_norm_backward` and `rms_norm_backward`: the gradients of the normalised rows, and of weight and bias. Each block writes partial
//! sums of the latter, which `column_sum` adds up.

use std::borrow::Cow;

use hipvit_graph::op::{LayerNormBackward, RmsNormBackward};

use super::bindings::{
    ColumnSumArgs, NORM_BACKWARD_BLOCKS, NORM_BACKWARD_CHANNELS, NORM_BACKWARD_THREADS, NormBackwardArgs,
    ROW_THREADS, VEC128_BYTES,
};
use super::launch::check_channels;
use super::lower::{Call, Lower, Lowering, shape_of};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};
use crate::graph::plan::{ALIGNMENT, Plan, Step};

/// Attributes of the derivative of a norm.
#[derive(Clone, Copy)]
pub(crate) struct NormBackward {
    rms: bool,
    epsilon: f32,
    fixed: bool,
    /// True if the gradients of weight and bias are results.
    parameters: bool,
    residual: bool,
    /// True if the sums of the columns of dx are a result.
    sums: bool,
}

impl From<LayerNormBackward> for NormBackward {
    fn from(op: LayerNormBackward) -> Self {
        Self {
            rms: false,
            epsilon: op.epsilon,
            fixed: op.fixed_deviation,
            parameters: op.parameters,
            residual: op.residual,
            sums: op.sums,
        }
    }
}

impl From<RmsNormBackward> for NormBackward {
    fn from(op: RmsNormBackward) -> Self {
        Self {
            rms: true,
            epsilon: op.epsilon,
            fixed: op.fixed_root,
            parameters: op.parameters,
            residual: false,
            sums: false,
        }
    }
}

impl NormBackward {
    /// Returns the number of results beside dx: the gradients of weight and bias, and the sums of the columns of dx.
    fn sums(self) -> usize {
        let parameters = match (self.parameters, self.rms) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        };
        parameters + usize::from(self.sums)
    }
}

/// Returns the number of blocks, each with a row of partial sums.
fn blocks(rows: usize) -> usize {
    rows.clamp(1, NORM_BACKWARD_BLOCKS as usize)
}

/// Returns the bytes of the partial sums of one result.
fn partial_bytes([rows, channels]: [usize; 2]) -> usize {
    (blocks(rows) * channels * size_of::<f32>()).next_multiple_of(ALIGNMENT)
}

impl NormBackwardArgs {
    /// Creates the arguments for `x`, `dy` and `dx` `[rows, channels]`, and `weight` `[channels]`, without sums for the parameters.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, weight, dy, dx]: [DeviceAddress; 4],
        [rows, channels]: [usize; 2],
        op: NormBackward,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            weight,
            dy,
            residual: DeviceAddress::NULL,
            dx,
            dweight: DeviceAddress::NULL,
            dbias: DeviceAddress::NULL,
            sums: DeviceAddress::NULL,
            rows: extent(rows)?,
            channels: extent(channels)?,
            blocks: extent(blocks(rows))?,
            epsilon: op.epsilon,
            fixed: op.fixed.into(),
            rms: op.rms.into(),
        })
    }
}

impl NormBackwardArgs {
    /// Returns the channels of the entry that takes a row with a wave. `None` if a row needs a block: if it is long, or not in whole vec128s
    /// in each dtype.
    fn row_channels(&self) -> Option<u32> {
        let is_aligned = |address: DeviceAddress| address.is_aligned_to(VEC128_BYTES as usize);
        let addresses = [self.x, self.weight, self.dy, self.residual, self.dx];
        let whole = self.channels.is_multiple_of(VEC128_BYTES / 2) && addresses.into_iter().all(is_aligned);
        let entries = [512, 768, 1024];
        entries
            .into_iter()
            .find(|&channels| whole && self.channels <= channels)
    }
}

// SAFETY: see hip/norm_backward.hip. Waves and blocks beyond the last row access only their partial sums.
unsafe impl KernelArguments for NormBackwardArgs {
    const FILE: &'static str = "norm_backward";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let name = if self.rms == 1 {
            "rms_norm_backward"
        } else if self.sums.is_null() {
            "layer_norm_backward"
        } else {
            "layer_norm_backward_sums"
        };
        Ok(match self.row_channels() {
            Some(channels) => format!("{name}_{channels}").into(),
            None => format!("{name}_wide").into(),
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check_channels(self.channels)?;
        if self.channels > NORM_BACKWARD_CHANNELS {
            return Err(KernelError::Unsupported(format!(
                "differentiates a norm of {} channels, the kernel of at most {NORM_BACKWARD_CHANNELS}. Use the CPU",
                self.channels
            )));
        }
        let threads = match self.row_channels() {
            Some(_) => NORM_BACKWARD_THREADS,
            None => ROW_THREADS,
        };
        target.blocks(self.blocks.into(), threads)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let all = bytes(element, &[self.rows, self.channels]);
        let sums = bytes(size_of::<f32>(), &[self.blocks, self.channels]);
        visit(Access::read("x", self.x, all));
        visit(Access::read(
            "weight",
            self.weight,
            bytes(element, &[self.channels]),
        ));
        visit(Access::read("dy", self.dy, all));
        visit(optional(Access::read("residual", self.residual, all)));
        visit(Access::write("dx", self.dx, all));
        visit(optional(Access::write("dweight", self.dweight, sums)));
        visit(optional(Access::write("dbias", self.dbias, sums)));
        visit(optional(Access::write("sums", self.sums, sums)));
    }
}

impl Lower for LayerNormBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("norm_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        step.norm_backward((*self).into())
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        scratch_bytes((*self).into(), plan, step)
    }
}

impl Lower for RmsNormBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("norm_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        step.norm_backward((*self).into())
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        scratch_bytes((*self).into(), plan, step)
    }
}

fn scratch_bytes(op: NormBackward, plan: &Plan, step: &Step) -> usize {
    match step.inputs[..] {
        [x, weight, ..] => {
            let elements: usize = shape_of(plan, x).iter().product();
            let channels = shape_of(plan, weight).iter().product::<usize>().max(1);
            op.sums() * partial_bytes([elements / channels, channels])
        }
        _ => 0,
    }
}

impl Lowering<'_> {
    fn norm_backward(&self, op: NormBackward) -> Result<Vec<Call>, KernelError> {
        let extents = self.groups()?;
        let addresses = [self.address(0)?, self.address(1)?, self.address(2)?, self.out];
        let mut arguments = NormBackwardArgs::new(addresses, extents, op)?;
        if op.residual {
            arguments.residual = self.address(3)?;
        }
        let mut sums = Vec::with_capacity(3);
        for index in (1..=op.sums()).filter(|&index| self.is_read(index)) {
            let partial = self
                .addresses
                .scratch
                .offset((index - 1) * partial_bytes(extents));
            match index {
                _ if op.sums && index == op.sums() => arguments.sums = partial,
                1 => arguments.dweight = partial,
                _ => arguments.dbias = partial,
            }
            let of_blocks = [arguments.blocks as usize, extents[1]];
            sums.push(ColumnSumArgs::total([partial, self.result(index)?], of_blocks)?.into());
        }
        Ok(std::iter::once(arguments.into()).chain(sums).collect())
    }

    /// Returns false if no step reads result `index`, and it is no output.
    fn is_read(&self, index: usize) -> bool {
        let is_last = |step: usize| step + 1 == self.plan.steps().len();
        self.step.outputs.get(index).is_some_and(|&id| {
            let buffer = self.plan.buffer(id);
            buffer.last_step > buffer.first_step || is_last(buffer.first_step)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn a_row_takes_a_wave_or_a_block() {
        let target = Target {
            dtype: DType::BF16,
            wave_size: 32,
            max_blocks: u32::MAX,
            tile: 0,
        };
        let op = LayerNormBackward {
            epsilon: 1e-6,
            fixed_deviation: false,
            parameters: true,
            residual: false,
            sums: false,
        };
        let addresses = [1, 2, 3, 4].map(|n| DeviceAddress::from_raw(n << 20));
        let arguments = |extents| NormBackwardArgs::new(addresses, extents, op.into()).unwrap();
        for (channels, entry, threads) in [
            (384, "layer_norm_backward_512", 128),
            (1024, "layer_norm_backward_1024", 128),
            (7, "layer_norm_backward_wide", 256),
            (8192, "layer_norm_backward_wide", 256),
        ] {
            let mut of_row = arguments([5000, channels]);
            assert_eq!(of_row.entry().unwrap(), entry);
            let launch = of_row.plan(&target).unwrap();
            assert_eq!((launch.grid[0], launch.block[0]), (1024, threads));
        }
        let error = arguments([3, 8193]).plan(&target).unwrap_err().to_string();
        assert!(error.contains("8193 channels"), "{error}");

        let few = NormBackwardArgs {
            dweight: DeviceAddress::from_raw(5 << 20),
            ..arguments([3, 7])
        };
        let mut found = Vec::new();
        few.accesses(2, &mut |access| {
            found.push((access.field, access.bytes, access.written));
        });
        let all = 3 * 7 * 2;
        let expected = [
            ("x", all, false),
            ("weight", 7 * 2, false),
            ("dy", all, false),
            ("residual", 0, false),
            ("dx", all, true),
            ("dweight", 3 * 7 * 4, true),
            ("dbias", 0, true),
            ("sums", 0, true),
        ];
        assert_eq!(found, expected);
    }
}
