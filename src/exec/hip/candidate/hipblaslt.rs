//! hipBLASLt: a numbered algorithm, with an epilogue or a builtin kernel after it.

use std::collections::HashMap;

use super::{
    Call, Called, Candidate, Choice, SelectOptions, Submitter, column_sums, described, linear, unusable,
};
use crate::error::{Error, Result};
use crate::exec::hip::lower::{LinearCall, Unfused};
use crate::exec::select::{GemmLayout, LinearShape, REFERENCE_ROWS};
use crate::hip::{BlasLt, DType, Epilogue, Gemm, Matmul, MatmulOperands, Scales, Scaling, Stream};
use crate::kernels::{KernelError, Kernels};
use crate::timeline::{self, Activity};

/// Maximum number of algorithms without an epilogue that are measured beside those with one.
const MAX_WITHOUT_EPILOGUE: usize = 4;

/// hipBLASLt on a stream. The handle, which has a workspace, is created on first use.
pub(in crate::exec::hip) struct Hipblaslt {
    stream: Stream,
    lt: Option<BlasLt>,
    prepared: HashMap<Prepared, Result<Matmul, KernelError>>,
}

/// Key of a prepared GEMM.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Prepared {
    shape: LinearShape,
    algorithm: usize,
    epilogue: bool,
}

impl Prepared {
    fn new(choice: Choice, call: &Call) -> Result<Self, KernelError> {
        let Choice::Hipblaslt { algorithm, epilogue } = choice else {
            return Err(KernelError::internal("is not of hipBLASLt"));
        };
        Ok(Self {
            shape: linear(call)?.shape(),
            algorithm,
            epilogue,
        })
    }
}

impl Hipblaslt {
    pub(in crate::exec::hip) fn new(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            lt: None,
            prepared: HashMap::new(),
        }
    }

    /// Creates the handle on first use.
    pub(in crate::exec::hip) fn open(&mut self) -> Result<&mut BlasLt> {
        Ok(match &mut self.lt {
            Some(lt) => lt,
            none => none.insert(BlasLt::new(&self.stream)?),
        })
    }

    /// Returns the library's version. `Err` has the reason why it cannot be used on this stream's device.
    pub(in crate::exec::hip) fn version(stream: &Stream) -> Result<String> {
        let lt = BlasLt::with_workspace(stream, 0)?;
        // The library may be installed without kernels for the GPU.
        lt.matmul(Gemm::linear(64, 64, 64, DType::F32), Epilogue::Bias)?;
        Ok(lt.version()?.to_string())
    }

    fn matmul(&mut self, wanted: Prepared, reproducible: bool) -> Result<Matmul> {
        let lt = self.open()?;
        let Prepared {
            shape,
            algorithm,
            epilogue,
        } = wanted;
        let gemm = |m| Gemm {
            // Without the epilogue, the call says whether the residual is in place.
            beta: if shape.residual && epilogue { 1.0 } else { 0.0 },
            wide: shape.activations(),
            output: if epilogue && shape.has_float8_result() {
                shape.dtype
            } else if !epilogue && shape.has_float8_rows() {
                DType::F32
            } else {
                shape.activations()
            },
            scaling: scaling(&shape, epilogue),
            ..shape.gemm(m)
        };
        let operation = if epilogue {
            shape.epilogue().unwrap_or(Epilogue::None)
        } else {
            Epilogue::None
        };
        let mut matmul = lt.matmul(gemm(shape.m), operation)?;
        // A sum over the rows of all images depends on their number anyway.
        if reproducible && shape.layout != GemmLayout::Tn {
            let mut reference = lt.matmul(gemm(REFERENCE_ROWS), operation)?;
            // Larger numbers of rows need larger workspaces, and the largest may exceed the limit.
            let mut algorithm = 0;
            while reference.workspace() > 0 {
                algorithm += 1;
                reference.select(algorithm)?;
            }
            matmul.pin(&reference)?;
        } else {
            matmul.select(algorithm)?;
        }
        Ok(matmul)
    }

    fn run(&mut self, call: &LinearCall, prepared: Prepared, to: &mut Submitter<'_>) -> Result<()> {
        let (Some(lt), Some(Ok(matmul))) = (&mut self.lt, self.prepared.get_mut(&prepared)) else {
            return Err(Error::internal("linear", "was not prepared"));
        };
        let regions = to.regions;
        let (d, bias, c, kernel) = if prepared.epilogue {
            let [bias, residual] = [regions.optional(call.bias)?, regions.optional(call.residual)?];
            // A kernel sums the columns of a derivative.
            let bias = bias.filter(|_| prepared.shape.layout != GemmLayout::Nn);
            (call.out, bias, residual, None)
        } else {
            let Unfused { gemm, c, kernel } = call.unfused().map_err(unusable)?;
            matmul.set_beta(gemm.beta);
            (c, None, None, kernel)
        };
        let operands = MatmulOperands {
            a: regions.from(call.x)?,
            b: regions.from(call.weight)?,
            c,
            d: regions.from(d)?,
            bias,
            aux: regions.optional(call.preactivation)?,
            scales: match call.float8 {
                Some(scales) if scaling(&prepared.shape, prepared.epilogue) != Scaling::None => Scales {
                    a: regions.optional(scales.x)?,
                    b: regions.optional(scales.weight)?,
                    d: if prepared.epilogue {
                        let out = scales.out.map(|out| regions.from(out.reciprocal));
                        out.transpose()?
                    } else {
                        None
                    },
                },
                _ => Scales::default(),
            },
            amax: None,
        };
        lt.run(matmul, operands)?;
        let Prepared { shape, epilogue, .. } = prepared;
        let name = if epilogue && (shape.epilogue().is_some() || shape.has_float8_result()) {
            "hipBLASLt GEMM with epilogue"
        } else {
            "hipBLASLt GEMM"
        };
        to.record_call(name, || shape.to_string())?;
        to.finish(kernel)
    }
}

impl Candidate for Hipblaslt {
    fn choices(&mut self, call: &Call, options: SelectOptions) -> Vec<Choice> {
        let Ok(linear) = linear(call) else {
            return Vec::new();
        };
        let shape = linear.shape();
        if shape.int8.is_some() {
            return Vec::new();
        }
        let mut choices = Vec::new();
        for epilogue in [true, false]
            .into_iter()
            .filter(|&epilogue| shape.has_form(epilogue, options))
        {
            let first = Prepared {
                shape,
                algorithm: 0,
                epilogue,
            };
            let limit = if epilogue {
                usize::MAX
            } else {
                MAX_WITHOUT_EPILOGUE
            };
            let count = self.matmul(first, false).map_or(0, |matmul| matmul.algorithms());
            let choice = |algorithm| Choice::Hipblaslt { algorithm, epilogue };
            choices.extend((0..count.min(limit)).map(choice));
        }
        choices
    }

    fn prepare(&mut self, choice: Choice, call: &Call, reproducible: bool) -> Result<(), KernelError> {
        let wanted = Prepared::new(choice, call)?;
        if !self.prepared.contains_key(&wanted) {
            let _span = timeline::span(Activity::Select);
            let prepared = self.matmul(wanted, reproducible).map_err(KernelError::library);
            self.prepared.insert(wanted, prepared);
        }
        match self.prepared.get(&wanted) {
            Some(Err(reason)) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    fn submit(&mut self, choice: Choice, call: &Call, to: &mut Submitter<'_>) -> Result<Vec<Call>> {
        let prepared = Prepared::new(choice, call).map_err(unusable)?;
        let linear = linear(call).map_err(unusable)?;
        self.run(linear, prepared, to)?;
        column_sums(choice, linear)
    }

    fn describe(&self, choice: Choice, call: &Call, kernels: &Kernels) -> (Vec<Called>, Vec<Call>) {
        described(choice, call, kernels)
    }
}

/// Returns the scales that hipBLASLt applies. Without the epilogue, the kernel after it applies the scales of rows.
fn scaling(shape: &LinearShape, epilogue: bool) -> Scaling {
    match shape.float8 {
        None => Scaling::None,
        Some(float8) if !float8.rows => Scaling::Tensor,
        Some(_) if epilogue => Scaling::Outer,
        Some(_) => Scaling::None,
    }
}
