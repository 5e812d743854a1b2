//! Norms that write 8-bit rows, used in plans whose linear layers round their input by row. Each must produce
//! the bytes and scales that the rounding kernel makes of the norm's result.

use super::cases::Case;
use super::check::{FILL, MARGIN};
use super::config::Config;
use super::operands::{Operands, stored};
use hipvit::error::{Error, Result};
use hipvit::hip::{Device, DeviceAddress};
use hipvit::kernels::{KernelCall, KernelError, Kernels, LayerNormArgs, NormQuantizeArgs, QuantizeArgs};
use hipvit::ops::linear::LEVELS;
use hipvit::ops::{LayerNorm, Op, RmsNorm};
use hipvit::tensor::DType;

/// Compares both ways to 8 bits if `op` is a norm and the case is small. Returns the kernels that ran.
pub(super) fn check(
    device: &Device,
    case: &Case,
    op: &Op,
    operands: &Operands,
    dtype: DType,
) -> Result<Option<Kernels>> {
    let (Op::LayerNorm(LayerNorm { epsilon }) | Op::RmsNorm(RmsNorm { epsilon })) = *op else {
        return Ok(None);
    };
    if !matches!(case.config, Config::Micro | Config::Awkward) {
        return Ok(None);
    }
    let elements = operands.tensors[0].len();
    let channels = operands.tensors[1].len();
    let extents = [elements / channels, channels];
    let mut memory = vec![FILL; MARGIN];
    let mut place = |contents: &[u8]| {
        let at = memory.len();
        memory.extend_from_slice(contents);
        memory.resize(memory.len().next_multiple_of(256) + MARGIN, FILL);
        at
    };
    let tensors: Vec<usize> = operands
        .tensors
        .iter()
        .map(|tensor| place(&stored(tensor, dtype)))
        .collect();
    let normed = place(&vec![FILL; elements * dtype.size()]);
    let ranges = elements.next_multiple_of(256);
    let len = ranges + extents[0] * 2 * size_of::<f32>();
    let [apart, at_once] = [0; 2].map(|_| place(&vec![FILL; len]));

    let refused = |reason| Error::graph(case.op_name(), reason);
    let stream = device.stream()?;
    let units = ["layer_norm", "quantize", "norm_quantize"].map(hipvit::kernels::Unit::of);
    let kernels = Kernels::load(device, dtype, units)?;
    // FP8, and one set of int8 levels.
    for levels in [None, Some(LEVELS[channels % LEVELS.len()])] {
        let mut buffer = stream.upload(&memory)?;
        let base = buffer.address();
        let norm = |out: DeviceAddress| match tensors[..] {
            [x, weight, bias, ..] => {
                let [x, weight, bias] = [x, weight, bias].map(|at| base.offset(at));
                LayerNormArgs::new([x, weight, bias, out], extents, epsilon)
            }
            [x, weight] => LayerNormArgs::rms([base.offset(x), base.offset(weight), out], extents, epsilon),
            _ => Err("takes two or three operands".into()),
        };
        let quantize = |x: DeviceAddress, at: usize| {
            let addresses = [x, base.offset(at), base.offset(at + ranges)];
            match levels {
                None => QuantizeArgs::float8_rows(addresses, extents),
                Some(levels) => QuantizeArgs::int8(addresses, extents, levels),
            }
        };
        let calls = || -> std::result::Result<[KernelCall; 3], KernelError> {
            Ok([
                norm(base.offset(normed))?.into(),
                quantize(base.offset(normed), apart)?.into(),
                NormQuantizeArgs::new(
                    norm(DeviceAddress::NULL)?,
                    quantize(DeviceAddress::NULL, at_once)?,
                )
                .into(),
            ])
        };
        for call in calls().map_err(|error| refused(error.to_string()))? {
            call.launch(&kernels, &stream, &[buffer.writing()])?;
        }
        let mut left = buffer.read()?;
        let [apart, at_once] = [apart, at_once].map(|at| at..at + len);
        let differing = left[apart.clone()]
            .iter()
            .zip(&left[at_once.clone()])
            .position(|(apart, at_once)| apart != at_once);
        if let Some(at) = differing {
            let reason = format!(
                "norm_quantize differs from layer_norm and quantize at byte {at}, with {levels:?} (None: FP8 by rows)"
            );
            return Err(refused(reason));
        }
        let normed = normed..normed + elements * dtype.size();
        for written in [normed, apart, at_once] {
            left[written.clone()].copy_from_slice(&memory[written]);
        }
        if left != memory {
            return Err(refused("norm_quantize writes outside of its result".into()));
        }
    }
    Ok(Some(kernels))
}
