//! Linear layers by hipSPARSELt, with weights that it has compressed.

use std::collections::HashMap;

use super::lower::{LinearCall, Unfused};
use super::regions::Regions;
use crate::error::{Error, Result};
use crate::exec::select::LinearShape;
use crate::hip::{Epilogue, SparseGemm, SparseLt, SparseMatmul, SparseOperands, Stream};
use crate::kernels::KernelCall;
use crate::timeline::{self, Activity};

/// What a prepared GEMM depends on. The library plans for the bias's address, which each layer has its own of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Prepared {
    shape: LinearShape,
    bias: u64,
    algorithm: Option<usize>,
    epilogue: bool,
}

impl Prepared {
    fn of(call: &LinearCall, algorithm: Option<usize>, epilogue: bool) -> Self {
        Self {
            shape: call.shape(),
            bias: if epilogue { call.bias } else { 0 },
            algorithm,
            epilogue,
        }
    }
}

/// The library on one stream, opened when it is first needed.
#[derive(Debug)]
pub(super) struct Hipsparselt {
    stream: Stream,
    lt: Option<SparseLt>,
    prepared: HashMap<Prepared, Result<SparseMatmul, String>>,
}

impl Hipsparselt {
    pub(super) fn new(stream: &Stream) -> Self {
        Self {
            stream: stream.clone(),
            lt: None,
            prepared: HashMap::new(),
        }
    }

    /// The library's version, if it can be used on this stream's device.
    pub(super) fn version(stream: &Stream) -> Option<String> {
        let lt = SparseLt::with_workspace(stream, 0).ok()?;
        Some(lt.version().ok()?.to_string())
    }

    /// Prepares what computes `call`, on first use; `Err` says why the library does not. `None` is the library's own choice of an
    /// algorithm.
    pub(super) fn check(
        &mut self,
        call: &LinearCall,
        algorithm: Option<usize>,
        epilogue: bool,
    ) -> Result<(), String> {
        let wanted = Prepared::of(call, algorithm, epilogue);
        if !self.prepared.contains_key(&wanted) {
            let _span = timeline::span(Activity::Select);
            let prepared = self.prepare(wanted).map_err(|error| error.to_string());
            self.prepared.insert(wanted, prepared);
        }
        match self.prepared.get(&wanted) {
            Some(Err(reason)) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    /// How many algorithms the library has for `call`; 0 if it does not compute it.
    pub(super) fn algorithms(&mut self, call: &LinearCall, epilogue: bool) -> usize {
        self.prepare(Prepared::of(call, None, epilogue))
            .map_or(0, |matmul| matmul.algorithms())
    }

    fn prepare(&mut self, wanted: Prepared) -> Result<SparseMatmul> {
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
            // Without the epilogue the call tells whether the residual is in place.
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

    /// Submits what [`check`](Self::check) has prepared, but for the kernel that follows where there is no epilogue.
    pub(super) fn submit(
        &mut self,
        call: &LinearCall,
        algorithm: Option<usize>,
        epilogue: bool,
        regions: &Regions<'_>,
    ) -> Result<Option<KernelCall>> {
        self.check(call, algorithm, epilogue)
            .map_err(|reason| Error::argument("linear", reason))?;
        let prepared = Prepared::of(call, algorithm, epilogue);
        let (Some(lt), Some(Ok(matmul))) = (&mut self.lt, self.prepared.get_mut(&prepared)) else {
            return Err(Error::argument("linear", "was not prepared"));
        };
        let operand = |address: u64| match address {
            0 => Ok(None),
            address => regions.from(address).map(Some),
        };
        let (d, bias, c, kernel) = if epilogue {
            (call.out, operand(call.bias)?, operand(call.residual)?, None)
        } else {
            let Unfused { gemm, c, kernel } = call.unfused().map_err(|e| Error::argument("linear", e))?;
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
        Ok(kernel)
    }
}
