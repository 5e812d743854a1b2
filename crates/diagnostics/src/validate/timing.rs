//! The cases of a validation for `benches/gpu.rs`, which times them itself.

use super::backend::Backend;
use super::cases::{Case, cases};
use super::check::Batch;
use super::operands::Operands;
use super::{Cpu, Hip, Options, dtypes, too_large};
use hipvit::error::Result;
use hipvit::session::Place;
use hipvit::tensor::DType;

/// A timed case.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Name of the op.
    pub op: &'static str,
    /// Op and what was fused into it, size and operands.
    pub name: String,
    /// Dtype of the elements.
    pub dtype: DType,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of the operands and of the result.
    pub bytes: u64,
}

/// Calls `measure` for each case that fits the device. It passes a function that executes a number of
/// consecutive launches and returns their time, on a GPU by events. Returns the cases that did not run, with
/// the reason. Results are not checked.
///
/// # Errors
///
/// Errors of [`validate`](super::validate()) and of `measure`.
pub fn time_each(
    options: &Options,
    measure: &mut dyn FnMut(&Timed, Batch<'_>) -> Result<()>,
) -> Result<Vec<String>> {
    let backend: Box<dyn Backend> = match options.device.open()? {
        Place::Gpu(device) => Box::new(Hip::new(device)),
        Place::Cpu { .. } => Box::new(Cpu {
            threads: options.threads,
        }),
    };
    let mut skipped = Vec::new();
    let wanted = |case: &Case| options.ops.is_empty() || options.ops.iter().any(|op| op == case.op_name());
    for dtype in dtypes(backend.as_ref(), &options.dtypes)? {
        for case in options.configs.iter().copied().flat_map(cases).filter(wanted) {
            let dtype = case.dtype().unwrap_or(dtype);
            let timed = Timed::new(&case, dtype)?;
            let reason = match backend.lacks(&case, dtype) {
                Some(reason) => Some(reason.to_owned()),
                None => too_large(backend.as_ref(), &case, dtype)?,
            };
            if let Some(reason) = reason {
                skipped.push(format!("{}: {reason}", timed.name));
                continue;
            }
            let operands = Operands::new(&case, dtype)?;
            let mut clock = |_, _, batch: Batch<'_>| measure(&timed, batch);
            backend.run(&case, &operands, dtype, Some(&mut clock))?;
        }
    }
    Ok(skipped)
}

impl Timed {
    fn new(case: &Case, dtype: DType) -> Result<Self> {
        let result = case.result()?;
        let extents = |shape: &[usize]| {
            let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
            extents.join("x")
        };
        let operands: Vec<String> = case.shapes().into_iter().map(extents).collect();
        let elements = |shape: &[usize]| shape.iter().product::<usize>();
        let all = elements(&result) + case.shapes().into_iter().map(elements).sum::<usize>();
        Ok(Self {
            op: case.op_name(),
            name: format!("{case}, {dtype}, {}", operands.join(" ")),
            dtype,
            flops: case.flops(&result),
            bytes: (all * dtype.size()) as u64,
        })
    }
}
