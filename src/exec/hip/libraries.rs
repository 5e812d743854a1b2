//! The libraries on one stream, and the calls that they or the crate's kernels compute as [selected](crate::exec::select).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use super::call_clock::CallClock;
use super::direct::DirectRank;
use super::hipsparselt::Hipsparselt;
use super::lower::{AllReduceCall, Call, LinearCall, SparseForm, Unfused, attention_is_unfused};
use super::miopen::Miopen;
use super::rank::RankStream;
use super::regions::Regions;
use crate::error::{Error, Result};
use crate::exec::select::{
    Candidate, HIPBLASLT, HIPSPARSELT, Key, LinearShape, MIOPEN, Origin, REFERENCE_ROWS, SelectOptions,
    Selection,
};
use crate::graph::plan::Plan;
use crate::hip::{
    Blas, BlasLt, Comm, DType, Epilogue, Gemm, Matmul, MatmulOperands, Reduction, Scales, Scaling, Stream,
};
use crate::kernels::{KernelCall, Kernels, LayerNormArgs, has_int8_gemm};
use crate::timeline::{self, Activity};

/// Handles are made when they are first needed: each has a workspace of its own.
pub(super) struct Libraries {
    stream: Stream,
    rocblas: Option<Blas>,
    hipblaslt: Option<BlasLt>,
    prepared: HashMap<Prepared, Result<Matmul, String>>,
    /// The rank on this stream, of a tensor-parallel model.
    comm: Option<Comm>,
    /// What sums small messages of it.
    direct: Option<DirectRank>,
    miopen: Miopen,
    hipsparselt: Hipsparselt,
    /// Set while calls are timed one by one.
    pub(super) calls: Option<CallClock>,
}

/// hipBLASLt's first algorithm, and kernels for the rest: what is left for FP8 where there is none with the epilogue.
const PLAIN_HIPBLASLT: Candidate = Candidate::Hipblaslt {
    algorithm: 0,
    epilogue: false,
};

/// The same for a weight that hipSPARSELt has compressed.
const PLAIN_HIPSPARSELT: Candidate = Candidate::Hipsparselt {
    algorithm: None,
    epilogue: false,
};

/// What a prepared GEMM of hipBLASLt depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Prepared {
    shape: LinearShape,
    algorithm: usize,
    epilogue: bool,
}

impl Libraries {
    /// `rank` is the one on this stream, where the work is summed over ranks.
    pub(super) fn new(stream: &Stream, rank: Option<&RankStream>) -> Self {
        Self {
            stream: stream.clone(),
            rocblas: None,
            hipblaslt: None,
            prepared: HashMap::new(),
            comm: rank.map(|rank| rank.comm.clone()),
            direct: rank.and_then(|rank| rank.direct.clone()),
            miopen: Miopen::new(stream),
            hipsparselt: Hipsparselt::new(stream),
            calls: None,
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Makes the handles that a run of `plan` needs, so that a lack of memory for them shows before it is submitted.
    pub(super) fn open(&mut self, plan: &Plan, selection: &Selection) -> Result<()> {
        if selection.has_hipblaslt() && self.hipblaslt.is_none() {
            self.hipblaslt = Some(BlasLt::new(&self.stream)?);
        }
        let unfused = || plan.steps().iter().any(|step| attention_is_unfused(plan, step));
        if self.rocblas.is_none() && (selection.uses_rocblas() || unfused()) {
            self.rocblas = Some(Blas::new(&self.stream)?);
        }
        Ok(())
    }

    /// hipBLASLt's version; `Err` says why it cannot be used on this stream's device.
    pub(super) fn hipblaslt_version(stream: &Stream) -> Result<String, String> {
        let probe = || -> Result<i32> {
            let lt = BlasLt::with_workspace(stream, 0)?;
            // The library may be there without kernels for the GPU.
            lt.matmul(Gemm::linear(64, 64, 64, DType::F32), Epilogue::Bias)?;
            Ok(lt.version()?)
        };
        let version = probe().map_err(|error| error.to_string())?;
        Ok(version.to_string())
    }

    /// Submits a call of a plan for `images` images, by what is selected; what a library turns out not to compute is
    /// [recorded](Selection::reject), and computed by the rule's candidate that always works.
    pub(super) fn submit(
        &mut self,
        call: Call,
        images: usize,
        selection: &Selection,
        kernels: &Kernels,
        regions: &Regions<'_>,
    ) -> Result<()> {
        match call {
            Call::Kernel(kernel) => {
                let mut selected = kernels.select(kernel, selection.options().reproducible);
                selected.try_for_each(|kernel| self.launch(kernel, kernels, regions))
            }
            Call::Gemm { gemm, a, b, c } => {
                self.gemms(&gemm, [a, b, c], selection.options().reproducible, regions)
            }
            Call::Linear(linear) => self.linear(&linear, images, selection, kernels, regions),
            Call::CopyRows(copy) => {
                self.stream.copy_rows(
                    (regions.from(copy.to)?, copy.to_stride),
                    (regions.from(copy.from)?, copy.from_stride),
                    copy.bytes,
                    copy.rows,
                )?;
                self.record_call("DtoD copy of rows", || {
                    format!("{} rows of {} bytes", copy.rows, copy.bytes)
                })
            }
            Call::AllReduce(call) => match self.direct(&call, selection) {
                Some(direct) => {
                    direct.submit(&call, None, &self.stream, &regions.0)?;
                    self.record_call("all-reduce over peer memory", || {
                        format!("{} bytes", call.bytes())
                    })
                }
                None => self.all_reduce(&call, kernels, regions),
            },
            Call::Patches(_) | Call::Projection(_) | Call::Attention(_) => {
                if self.resolve(&call, selection).0 == Candidate::Miopen {
                    self.miopen.submit(&call, kernels, regions)?;
                    let problem = call.problem();
                    return self.record_call("MIOpen", || problem.map(|p| p.to_string()).unwrap_or_default());
                }
                let own = call.own().map_err(|e| Error::argument("call", e))?;
                own.into_iter()
                    .try_for_each(|call| self.submit(call, images, selection, kernels, regions))
            }
        }
    }

    /// What sums a message, if it is not RCCL.
    fn direct(&self, call: &AllReduceCall, selection: &Selection) -> Option<&DirectRank> {
        let direct = self.direct.as_ref()?;
        direct
            .takes(call, selection.options().reproducible)
            .then_some(direct)
    }

    /// Submits a sum and the norm of its result as one launch, where that is possible; whether it was. Not where results must not depend on
    /// the batch size: a norm alone adds in another order, and larger sums take several launches.
    pub(super) fn submit_sum_and_norm(
        &mut self,
        call: &AllReduceCall,
        norm: &LayerNormArgs,
        selection: &Selection,
        regions: &Regions<'_>,
    ) -> Result<bool> {
        let direct = self.direct(call, selection);
        let fuses = |direct: &&DirectRank| !selection.options().reproducible && direct.normalizes(call, norm);
        let Some(direct) = direct.filter(fuses) else {
            return Ok(false);
        };
        direct.submit(call, Some(norm), &self.stream, &regions.0)?;
        self.record_call("all-reduce over peer memory, norm", || {
            format!("{} bytes", call.bytes())
        })?;
        Ok(true)
    }

    /// Submits a sum of RCCL, then bias and residual.
    fn all_reduce(&mut self, call: &AllReduceCall, kernels: &Kernels, regions: &Regions<'_>) -> Result<()> {
        let Some(comm) = &self.comm else {
            let reason = "sums over the ranks of a tensor-parallel model, and runs alone";
            return Err(Error::argument("all-reduce", reason));
        };
        let part = |address: u64| Ok::<_, Error>(regions.from(address)?.part(0..call.bytes())?);
        comm.all_reduce(call.dtype, Reduction::Sum, part(call.from)?, part(call.to)?)?;
        self.record_call("RCCL all-reduce", || format!("{} bytes", call.bytes()))?;
        let follows = call.follows().map_err(|e| Error::argument("all-reduce", e))?;
        self.finish(follows, kernels, regions)
    }

    /// Submits the GEMMs of a batch: one by one where they must not depend on their number, by which rocBLAS selects.
    fn gemms(
        &mut self,
        gemm: &Gemm,
        operands: [u64; 3],
        reproducible: bool,
        regions: &Regions<'_>,
    ) -> Result<()> {
        if !reproducible {
            return self.gemm(gemm, operands, regions);
        }
        let one = Gemm { batch: 1, ..*gemm };
        for index in 0..gemm.batch {
            let [a, b, c] = operands;
            let at = |address: u64, stride: usize, size: usize| address + (index * stride * size) as u64;
            let [inputs, output] = [gemm.inputs.size(), gemm.output.size()];
            let operands = [
                at(a, gemm.a.batch_stride, inputs),
                at(b, gemm.b.batch_stride, inputs),
                at(c, gemm.c.batch_stride, output),
            ];
            self.gemm(&one, operands, regions)?;
        }
        Ok(())
    }

    /// Submits a GEMM of rocBLAS.
    fn gemm(&mut self, gemm: &Gemm, [a, b, c]: [u64; 3], regions: &Regions<'_>) -> Result<()> {
        let blas = match &mut self.rocblas {
            Some(blas) => blas,
            none => none.insert(Blas::new(&self.stream)?),
        };
        blas.gemm(gemm, regions.from(a)?, regions.from(b)?, regions.from(c)?)?;
        self.record_call("rocBLAS GEMM", || gemm_shape(gemm))
    }

    /// Submits a linear layer; `images` is the number of images that its rows are of.
    fn linear(
        &mut self,
        call: &LinearCall,
        images: usize,
        selection: &Selection,
        kernels: &Kernels,
        regions: &Regions<'_>,
    ) -> Result<()> {
        let reproducible = selection.options().reproducible;
        match self.resolve(&Call::Linear(*call), selection).0 {
            Candidate::Hipblaslt { algorithm, epilogue } => {
                let prepared = Prepared {
                    shape: call.shape(),
                    algorithm,
                    epilogue,
                };
                self.matmul(call, prepared, kernels, regions)
            }
            Candidate::Sparse => {
                let kernel = call.packed().map_err(|e| Error::argument("linear", e))?;
                self.launch(kernel.into(), kernels, regions)
            }
            Candidate::Int8 => {
                let kernel = call.bytes().map_err(|e| Error::argument("linear", e))?;
                self.launch(kernel.into(), kernels, regions)
            }
            Candidate::Hipsparselt { algorithm, epilogue } => {
                let kernel = self.hipsparselt.submit(call, algorithm, epilogue, regions)?;
                let shape = call.shape();
                let name = if epilogue && shape.epilogue().is_some() {
                    "hipSPARSELt GEMM with epilogue"
                } else {
                    "hipSPARSELt GEMM"
                };
                self.record_call(name, || shape.to_string())?;
                self.finish(kernel, kernels, regions)
            }
            // Sums of bytes are exact.
            _ if reproducible && call.int8.is_none() => self.rocblas(call, images, kernels, regions),
            _ => self.rocblas(call, 1, kernels, regions),
        }
    }

    /// What is selected for `call`, or what takes its place if a library does not compute it; and where the choice comes
    /// from.
    pub(super) fn resolve(&mut self, call: &Call, selection: &Selection) -> (Candidate, Origin) {
        let Some(problem) = call.problem() else {
            return (Candidate::Own, Origin::Rule);
        };
        let (candidate, origin) = match call.sparse() {
            Some(SparseForm::Packed) => return selection.packed(),
            Some(SparseForm::Compressed { .. }) => selection.compressed(&problem),
            Some(SparseForm::Dense) | None => selection.select(problem),
        };
        let Err(reason) = self.check(candidate, call, selection.options().reproducible) else {
            return (candidate, origin);
        };
        let (library, instead) = match candidate {
            Candidate::Miopen => (MIOPEN, Candidate::Own),
            Candidate::Hipsparselt { .. } => (HIPSPARSELT, PLAIN_HIPSPARSELT),
            _ => match call {
                Call::Linear(linear) if linear.float8.is_some() => (HIPBLASLT, PLAIN_HIPBLASLT),
                _ => (HIPBLASLT, Candidate::Rocblas),
            },
        };
        selection.reject(library, problem, &reason);
        if instead == PLAIN_HIPBLASLT {
            // An error shows when it is submitted.
            let _ = self.check(instead, call, selection.options().reproducible);
        }
        (instead, Origin::Rule)
    }

    /// Prepares `candidate` for `call`, on first use; `Err` says why it does not compute it.
    pub(super) fn check(
        &mut self,
        candidate: Candidate,
        call: &Call,
        reproducible: bool,
    ) -> Result<(), String> {
        match (candidate, call) {
            (Candidate::Own | Candidate::Rocblas | Candidate::Sparse | Candidate::Int8, _) => Ok(()),
            (Candidate::Miopen, call) => self.miopen.check(call),
            (Candidate::Hipblaslt { algorithm, epilogue }, Call::Linear(call)) => {
                let wanted = Prepared {
                    shape: call.shape(),
                    algorithm,
                    epilogue,
                };
                self.hipblaslt(wanted, reproducible)
            }
            (Candidate::Hipsparselt { algorithm, epilogue }, Call::Linear(call)) => {
                self.hipsparselt.check(call, algorithm, epilogue)
            }
            (Candidate::Hipblaslt { .. } | Candidate::Hipsparselt { .. }, _) => {
                Err("is no linear layer".into())
            }
        }
    }

    /// All that can compute `call`, for which there is something to select; of hipBLASLt, a few without the epilogue, if it
    /// has one.
    pub(super) fn candidates(&mut self, call: &Call, options: SelectOptions) -> Vec<Candidate> {
        const WITHOUT_EPILOGUE: usize = 4;
        let shape = match call {
            Call::Linear(linear) => linear.shape(),
            _ => {
                let miopen = self.miopen.check(call).is_ok().then_some(Candidate::Miopen);
                return [Candidate::Own].into_iter().chain(miopen).collect();
            }
        };
        if shape.int8.is_some() {
            let own = has_int8_gemm(self.stream.device().properties().arch()).then_some(Candidate::Int8);
            return [Candidate::Rocblas].into_iter().chain(own).collect();
        }
        let follows = shape.bias
            || shape.activation.is_some()
            || shape.residual
            || shape.has_float8_result()
            || shape.has_float8_rows();
        let mut candidates = match shape.float8 {
            Some(_) => Vec::new(),
            None => vec![Candidate::Rocblas],
        };
        candidates.extend(shape.sparse.then_some(Candidate::Sparse));
        for epilogue in [true, false] {
            let fits = if epilogue {
                options.epilogues && shape.epilogue().is_some()
            } else {
                follows
            };
            if !fits {
                continue;
            }
            let limit = if epilogue { usize::MAX } else { WITHOUT_EPILOGUE };
            let first = Prepared {
                shape,
                algorithm: 0,
                epilogue,
            };
            let count = self.prepare(first, false).map_or(0, |matmul| matmul.algorithms());
            candidates
                .extend((0..count.min(limit)).map(|algorithm| Candidate::Hipblaslt { algorithm, epilogue }));
            let count = match (shape.sparse, call) {
                (true, Call::Linear(linear)) => self.hipsparselt.algorithms(linear, epilogue),
                _ => 0,
            };
            let numbers = (count > 0)
                .then_some(None)
                .into_iter()
                .chain((0..count).map(Some));
            candidates.extend(
                numbers
                    .take(limit)
                    .map(|algorithm| Candidate::Hipsparselt { algorithm, epilogue }),
            );
        }
        candidates
    }

    fn rocblas(
        &mut self,
        call: &LinearCall,
        parts: usize,
        kernels: &Kernels,
        regions: &Regions<'_>,
    ) -> Result<()> {
        let Unfused { gemm, c, kernel } = call.unfused().map_err(|e| Error::argument("linear", e))?;
        // rocBLAS selects by the number of rows: one GEMM per image is the same whatever the batch.
        if !gemm.m.is_multiple_of(parts) {
            let reason = format!("{} rows are not those of {parts} images", gemm.m);
            return Err(Error::argument("linear", reason));
        }
        let part = Gemm {
            m: gemm.m / parts,
            ..gemm
        };
        let element = gemm.inputs.size();
        for index in 0..parts {
            let row = (index * part.m) as u64;
            let at = |address: u64, stride: usize| address + row * (stride * element) as u64;
            let operands = [at(call.x, gemm.a.stride), call.weight, at(c, gemm.c.stride)];
            self.gemm(&part, operands, regions)?;
        }
        self.finish(kernel, kernels, regions)
    }

    /// Prepares a GEMM of hipBLASLt on first use; `Err` says why the library does not compute it.
    fn hipblaslt(&mut self, wanted: Prepared, reproducible: bool) -> Result<(), String> {
        if !self.prepared.contains_key(&wanted) {
            let _span = timeline::span(Activity::Select);
            let prepared = self
                .prepare(wanted, reproducible)
                .map_err(|error| error.to_string());
            self.prepared.insert(wanted, prepared);
        }
        match self.prepared.get(&wanted) {
            Some(Err(reason)) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    fn prepare(&mut self, wanted: Prepared, reproducible: bool) -> Result<Matmul> {
        let lt = match &mut self.hipblaslt {
            Some(lt) => lt,
            none => none.insert(BlasLt::new(&self.stream)?),
        };
        let Prepared {
            shape,
            algorithm,
            epilogue,
        } = wanted;
        let gemm = |m| Gemm {
            // Without the epilogue the call tells whether the residual is in place.
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
            ..Gemm::linear(m, shape.n, shape.k, shape.dtype)
        };
        let operation = if epilogue {
            shape.epilogue().unwrap_or(Epilogue::None)
        } else {
            Epilogue::None
        };
        let mut matmul = lt.matmul(gemm(shape.m), operation)?;
        if reproducible {
            let mut reference = lt.matmul(gemm(REFERENCE_ROWS), operation)?;
            // A workspace grows with the number of rows, and for the most rows it may not suffice.
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

    fn matmul(
        &mut self,
        call: &LinearCall,
        prepared: Prepared,
        kernels: &Kernels,
        regions: &Regions<'_>,
    ) -> Result<()> {
        let (Some(lt), Some(Ok(matmul))) = (&mut self.hipblaslt, self.prepared.get_mut(&prepared)) else {
            return Err(Error::argument("linear", "was not prepared"));
        };
        let operand = |address: u64| match address {
            0 => Ok(None),
            address => regions.from(address).map(Some),
        };
        let (d, bias, c, kernel) = if prepared.epilogue {
            (call.out, operand(call.bias)?, operand(call.residual)?, None)
        } else {
            let Unfused { gemm, c, kernel } = call.unfused().map_err(|e| Error::argument("linear", e))?;
            matmul.set_beta(gemm.beta);
            (c, None, None, kernel)
        };
        let operands = MatmulOperands {
            a: regions.from(call.x)?,
            b: regions.from(call.weight)?,
            c,
            d: regions.from(d)?,
            bias,
            scales: match call.float8 {
                Some(scales) if scaling(&prepared.shape, prepared.epilogue) != Scaling::None => Scales {
                    a: operand(scales.x)?,
                    b: operand(scales.weight)?,
                    d: if prepared.epilogue {
                        operand(scales.out.map_or(0, |out| out.reciprocal))?
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
        self.record_call(name, || shape.to_string())?;
        self.finish(kernel, kernels, regions)
    }

    fn finish(
        &mut self,
        kernel: Option<impl Into<KernelCall>>,
        kernels: &Kernels,
        regions: &Regions<'_>,
    ) -> Result<()> {
        match kernel {
            Some(kernel) => self.launch(kernel.into(), kernels, regions),
            None => Ok(()),
        }
    }

    fn launch(&mut self, kernel: KernelCall, kernels: &Kernels, regions: &Regions<'_>) -> Result<()> {
        kernel.launch(kernels, &self.stream, &regions.0)?;
        match &mut self.calls {
            Some(clock) => {
                let launch = kernel.geometry(kernels).ok();
                clock.tick(&self.stream, kernel_name(&kernel), None, launch)
            }
            None => Ok(()),
        }
    }

    /// Notes a library's call that has just been submitted, if calls are timed.
    fn record_call(&mut self, name: &str, shape: impl FnOnce() -> String) -> Result<()> {
        match &mut self.calls {
            Some(clock) => clock.tick(&self.stream, name.to_owned(), Some(shape()), None),
            None => Ok(()),
        }
    }
}

/// By which factors hipBLASLt multiplies. Those of rows are left to the kernel that does what the epilogue does not.
fn scaling(shape: &LinearShape, epilogue: bool) -> Scaling {
    match shape.float8 {
        None => Scaling::None,
        Some(float8) if !float8.rows => Scaling::Tensor,
        Some(_) if epilogue => Scaling::Outer,
        Some(_) => Scaling::None,
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

/// Returns the key of measurements on the stream's device, without MIOpen and hipSPARSELt, and the reason if hipBLASLt is unavailable.
pub(super) fn selection_key(stream: &Stream) -> (Key, Option<String>) {
    let properties = stream.device().properties();
    let key = Key {
        device: properties.name.clone(),
        arch: properties.arch().to_owned(),
        libraries: String::new(),
    };
    match Libraries::hipblaslt_version(stream) {
        Ok(version) => (key.with(HIPBLASLT, Some(version)), None),
        Err(reason) => (key, Some(reason)),
    }
}

/// Returns the name of the kernel's entry.
pub(super) fn kernel_name(kernel: &KernelCall) -> String {
    kernel.entry().map(Cow::into_owned).unwrap_or_default()
}

impl fmt::Debug for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Libraries").field(&self.stream).finish()
    }
}
