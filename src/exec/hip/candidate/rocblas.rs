//! rocBLAS with its default algorithm, and a builtin kernel for bias, activation and residual.

use super::{
    Call, Called, Candidate, Choice, SelectOptions, Submitter, column_sums, described, linear, unusable,
};
use crate::error::{Error, Result};
use crate::exec::hip::lower::{LinearCall, Unfused};
use crate::exec::hip::regions::Regions;
use crate::hip::{Blas, DeviceAddress, Gemm, Stream};
use crate::kernels::{KernelError, Kernels};

/// rocBLAS on a stream. The handle, which has a workspace, is created on first use.
pub(in crate::exec::hip) struct Rocblas {
    stream: Stream,
    blas: Option<Blas>,
}

impl Rocblas {
    pub(in crate::exec::hip) fn new(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            blas: None,
        }
    }

    /// Creates the handle on first use.
    pub(in crate::exec::hip) fn open(&mut self) -> Result<&mut Blas> {
        Ok(match &mut self.blas {
            Some(blas) => blas,
            none => none.insert(Blas::new(&self.stream)?),
        })
    }

    /// Submits the GEMMs of a batch. For reproducible results they are submitted one by one, since rocBLAS's choice depends on their
    /// number.
    pub(in crate::exec::hip) fn gemms(
        &mut self,
        gemm: &Gemm,
        [a, b, c]: [DeviceAddress; 3],
        to: &mut Submitter<'_>,
    ) -> Result<()> {
        if !to.reproducible {
            return self.gemm(gemm, [a, b, c], to);
        }
        let one = Gemm { batch: 1, ..*gemm };
        for index in 0..gemm.batch {
            let at =
                |address: DeviceAddress, stride: usize, size: usize| address.offset(index * stride * size);
            let [inputs, output] = [gemm.inputs.size(), gemm.output.size()];
            let operands = [
                at(a, gemm.a.batch_stride, inputs),
                at(b, gemm.b.batch_stride, inputs),
                at(c, gemm.c.batch_stride, output),
            ];
            self.gemm(&one, operands, to)?;
        }
        Ok(())
    }

    fn gemm(&mut self, gemm: &Gemm, [a, b, c]: [DeviceAddress; 3], to: &mut Submitter<'_>) -> Result<()> {
        let regions: &Regions<'_> = to.regions;
        self.open()?
            .gemm(gemm, regions.from(a)?, regions.from(b)?, regions.from(c)?)?;
        to.record_call("rocBLAS GEMM", || gemm_shape(gemm))
    }

    /// Submits a linear layer as `parts` GEMMs with the same number of rows.
    fn linear(&mut self, call: &LinearCall, parts: usize, to: &mut Submitter<'_>) -> Result<()> {
        let Unfused { gemm, c, kernel } = call.unfused().map_err(unusable)?;
        if !gemm.m.is_multiple_of(parts) {
            let reason = format!("{} rows are not those of {parts} images", gemm.m);
            return Err(Error::internal("linear", reason));
        }
        let part = Gemm {
            m: gemm.m / parts,
            ..gemm
        };
        let element = gemm.inputs.size();
        for index in 0..parts {
            let row = index * part.m;
            let at = |address: DeviceAddress, stride: usize| address.offset(row * stride * element);
            let operands = [at(call.x, gemm.a.stride), call.weight, at(c, gemm.c.stride)];
            self.gemm(&part, operands, to)?;
        }
        to.finish(kernel)
    }
}

impl Candidate for Rocblas {
    fn choices(&mut self, call: &Call, _options: SelectOptions) -> Vec<Choice> {
        let computes =
            linear(call).is_ok_and(|linear| linear.float8.is_none() && linear.preactivation.is_null());
        computes.then_some(Choice::Rocblas).into_iter().collect()
    }

    fn prepare(&mut self, _choice: Choice, _call: &Call, _reproducible: bool) -> Result<(), KernelError> {
        Ok(())
    }

    fn submit(&mut self, choice: Choice, call: &Call, to: &mut Submitter<'_>) -> Result<Vec<Call>> {
        let linear = linear(call).map_err(unusable)?;
        // rocBLAS's choice depends on the number of rows. One GEMM per image makes it independent of the batch. Integer sums are exact. The
        // gradient of a weight sums over all images.
        let parts = if to.reproducible && linear.int8.is_none() && !linear.gemm.a.transposed {
            to.images
        } else {
            1
        };
        self.linear(linear, parts, to)?;
        column_sums(choice, linear)
    }

    fn describe(&self, choice: Choice, call: &Call, kernels: &Kernels) -> (Vec<Called>, Vec<Call>) {
        described(choice, call, kernels)
    }
}

fn gemm_shape(gemm: &Gemm) -> String {
    let Gemm {
        m,
        n,
        k,
        batch,
        inputs,
        ..
    } = gemm;
    match batch {
        1 => format!("{m}×{n}×{k} {inputs}"),
        _ => format!("{batch} of {m}×{n}×{k} {inputs}"),
    }
}
