//! hipSPARSELt: linear layers with 2:4 sparse weights that the library has compressed.

use std::collections::HashMap;

use super::{Call, Called, Candidate, Choice, SelectOptions, Submitter, linear, unusable};
use crate::error::{Error, Result};
use crate::exec::hip::lower::{LinearCall, Unfused};
use crate::exec::select::LinearShape;
use crate::hip::{DeviceAddress, Epilogue, SparseGemm, SparseLt, SparseMatmul, SparseOperands, Stream};
use crate::kernels::{KernelError, Kernels};
use crate::timeline::{self, Activity};

/// Maximum number of algorithms without an epilogue that are measured.
const MAX_WITHOUT_EPILOGUE: usize = 4;

/// Key of a prepared GEMM. The library's plan includes the address of the bias, which differs between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Prepared {
    shape: LinearShape,
    bias: DeviceAddress,
    algorithm: Option<usize>,
    epilogue: bool,
}

impl Prepared {
    fn new(choice: Choice, call: &Call) -> Result<Self, KernelError> {
        let Choice::Hipsparselt { algorithm, epilogue } = choice else {
            return Err(KernelError::internal("is not of hipSPARSELt"));
        };
        let call = linear(call)?;
        Ok(Self {
            shape: call.shape(),
            bias: if epilogue { call.bias } else { DeviceAddress::NULL },
            algorithm,
            epilogue,
        })
    }
}

/// hipSPARSELt on a stream. The handle is created on first use.
#[derive(Debug)]
pub(in crate::exec::hip) struct Hipsparselt {
    stream: Stream,
    lt: Option<SparseLt>,
    prepared: HashMap<Prepared, Result<SparseMatmul, KernelError>>,
}

impl Hipsparselt {
    pub(in crate::exec::hip) fn new(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            lt: None,
            prepared: HashMap::new(),
        }
    }

    /// Returns the library's version. `None` if it cannot be used on this stream's device.
    pub(in crate::exec::hip) fn version(stream: &Stream) -> Option<String> {
        let lt = SparseLt::with_workspace(stream, 0).ok()?;
        Some(lt.version().ok()?.to_string())
    }

    fn matmul(&mut self, wanted: Prepared) -> Result<SparseMatmul> {
        let lt = match &mut self.lt {
            Some(lt) => lt,
            none => none.insert(SparseLt::new(&self.stream)?),
        };
        let shape = wanted.shape;
        let gemm = SparseGemm {
            m: shape.m,
            n: shape.n,
            k: shape.k,
            dtype: shape.dtype,
            // Without the epilogue, the call says whether the residual is in place.
            beta: if shape.residual && wanted.epilogue {
                1.0
            } else {
                0.0
            },
        };
        let epilogue = if wanted.epilogue {
            shape.epilogue().unwrap_or(Epilogue::None)
        } else {
            Epilogue::None
        };
        let mut matmul = lt.matmul(gemm, epilogue, wanted.bias)?;
        if let Some(algorithm) = wanted.algorithm {
            matmul.select(lt, algorithm)?;
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
            (call.out, bias, residual, None)
        } else {
            let Unfused { gemm, c, kernel } = call.unfused().map_err(unusable)?;
            matmul.set_beta(gemm.beta);
            (c, None, None, kernel)
        };
        let operands = SparseOperands {
            a: regions.from(call.x)?,
            b: regions.from(call.weight)?,
            c,
            d: regions.from(d)?,
            bias,
        };
        lt.run(matmul, operands)?;
        let Prepared { shape, epilogue, .. } = prepared;
        let name = if epilogue && shape.epilogue().is_some() {
            "hipSPARSELt GEMM with epilogue"
        } else {
            "hipSPARSELt GEMM"
        };
        to.record_call(name, || shape.to_string())?;
        to.finish(kernel)
    }
}

impl Candidate for Hipsparselt {
    fn choices(&mut self, call: &Call, options: SelectOptions) -> Vec<Choice> {
        let shape = match linear(call) {
            Ok(linear) if linear.sparse.is_some() && linear.int8.is_none() => linear.shape(),
            _ => return Vec::new(),
        };
        let mut choices = Vec::new();
        for epilogue in [true, false]
            .into_iter()
            .filter(|&epilogue| shape.has_form(epilogue, options))
        {
            // The library's default is one of the algorithms.
            let choice = |algorithm| Choice::Hipsparselt { algorithm, epilogue };
            let first = Prepared::new(choice(None), call);
            let matmul = first.ok().and_then(|first| self.matmul(first).ok());
            let count = matmul.map_or(0, |matmul| matmul.algorithms());
            let numbers = (count > 0)
                .then_some(None)
                .into_iter()
                .chain((0..count).map(Some));
            let limit = if epilogue {
                usize::MAX
            } else {
                MAX_WITHOUT_EPILOGUE
            };
            choices.extend(numbers.take(limit).map(choice));
        }
        choices
    }

    fn prepare(&mut self, choice: Choice, call: &Call, _reproducible: bool) -> Result<(), KernelError> {
        let wanted = Prepared::new(choice, call)?;
        if !self.prepared.contains_key(&wanted) {
            let _span = timeline::span(Activity::Select);
            let prepared = self.matmul(wanted).map_err(KernelError::library);
            self.prepared.insert(wanted, prepared);
        }
        match self.prepared.get(&wanted) {
            Some(Err(reason)) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    fn submit(&mut self, choice: Choice, call: &Call, to: &mut Submitter<'_>) -> Result<Vec<Call>> {
        self.prepare(choice, call, to.reproducible).map_err(unusable)?;
        let prepared = Prepared::new(choice, call).map_err(unusable)?;
        self.run(linear(call).map_err(unusable)?, prepared, to)?;
        Ok(Vec::new())
    }

    fn describe(&self, choice: Choice, call: &Call, kernels: &Kernels) -> (Vec<Called>, Vec<Call>) {
        let called = linear(call).map(|linear| Called::gemm(choice, linear, kernels));
        (called.unwrap_or_default(), Vec::new())
    }
}
