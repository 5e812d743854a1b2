//! The libraries on a stream. Submits calls to the library or builtin kernel that is [selected](crate::exec::select).

use std::fmt;

use super::call_clock::CallClock;
use super::candidate::{Builtin, Called, Candidate, Hipblaslt, Hipsparselt, Miopen, Rocblas, Submitter};
use super::direct::DirectRank;
use super::exchanges::Exchanges;
use super::lower::{AllReduceCall, Call, SparseForm, attention_is_unfused, has_group_gemm};
use super::rank::RankStream;
use super::regions::Regions;
use crate::dtype::to_hip;
use crate::error::{Error, Result};
use crate::exec::select::{Choice, HIPBLASLT, HIPSPARSELT, Key, MIOPEN, Origin, SelectOptions, Selection};
use crate::graph::plan::Plan;
use crate::hip::{Comm, DeviceAddress, Reduction, Stream};
use crate::kernels::{KernelError, Kernels, LayerNormArgs, Unit};

/// All candidates on a stream, and the all-reduce of a tensor-parallel model.
pub(super) struct Libraries {
    stream: Stream,
    builtin: Builtin,
    rocblas: Rocblas,
    hipblaslt: Hipblaslt,
    hipsparselt: Hipsparselt,
    miopen: Miopen,
    /// The communicator of the rank on this stream.
    comm: Option<Comm>,
    /// Set if a builtin kernel sums small messages.
    direct: Option<DirectRank>,
    /// Set for a rank of a training step.
    exchanges: Option<Exchanges>,
    /// Set while calls are timed one by one.
    pub(super) calls: Option<CallClock>,
}

/// hipBLASLt's first algorithm and a kernel after it. Used for FP8 if no algorithm has the epilogue.
const PLAIN_HIPBLASLT: Choice = Choice::Hipblaslt {
    algorithm: 0,
    epilogue: false,
};

/// hipSPARSELt's default algorithm and a kernel after it, for a compressed weight.
const PLAIN_HIPSPARSELT: Choice = Choice::Hipsparselt {
    algorithm: None,
    epilogue: false,
};

impl Libraries {
    /// Creates candidates without handles. `rank` is set if the stream belongs to a rank.
    pub(super) fn new(stream: &Stream, rank: Option<&RankStream>) -> Self {
        Self {
            stream: stream.clone(),
            builtin: Builtin::new(stream.device().properties().arch()),
            rocblas: Rocblas::new(stream),
            hipblaslt: Hipblaslt::new(stream),
            hipsparselt: Hipsparselt::new(stream),
            miopen: Miopen::new(stream),
            comm: rank.map(|rank| rank.comm.clone()),
            direct: rank.and_then(|rank| rank.direct.clone()),
            exchanges: rank.and_then(|rank| rank.training.clone()).map(Exchanges::new),
            calls: None,
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Creates the handles that a run of `plan` needs, so that missing memory is detected before the run is submitted.
    pub(super) fn open(&mut self, plan: &Plan, selection: &Selection) -> Result<()> {
        if selection.has_hipblaslt() {
            self.hipblaslt.open()?;
        }
        let has_gemms = || {
            let mut steps = plan.steps().iter();
            steps.any(|step| attention_is_unfused(plan, step) || has_group_gemm(plan, step))
        };
        if selection.uses_rocblas() || has_gemms() {
            self.rocblas.open()?;
        }
        Ok(())
    }

    /// Returns the candidate of a choice.
    fn candidate(&mut self, choice: Choice) -> &mut dyn Candidate {
        match choice {
            Choice::Builtin | Choice::SparseGemm | Choice::Gemv | Choice::Int8 | Choice::Tile(_) => {
                &mut self.builtin
            }
            Choice::Rocblas => &mut self.rocblas,
            Choice::Hipblaslt { .. } => &mut self.hipblaslt,
            Choice::Hipsparselt { .. } => &mut self.hipsparselt,
            Choice::Miopen => &mut self.miopen,
        }
    }

    /// Submits calls of a plan for `images` images, each by the selected choice. If a library fails to compute a call, this is
    /// [recorded](Selection::reject), and the fallback of the rule computes the call.
    pub(super) fn submit(
        &mut self,
        calls: Vec<Call>,
        images: usize,
        selection: &Selection,
        kernels: &Kernels,
        regions: &Regions<'_>,
    ) -> Result<()> {
        let stream = self.stream.clone();
        let reproducible = selection.options().reproducible;
        for call in calls {
            let choice = call.problem().map(|_| self.resolve(&call, selection, kernels).0);
            let mut clock = self.calls.take();
            let mut to = Submitter {
                stream: &stream,
                kernels,
                regions,
                clock: &mut clock,
                images,
                reproducible,
            };
            let next = match (choice, &call) {
                (Some(choice), call) => self.candidate(choice).submit(choice, call, &mut to),
                (None, Call::Kernel(kernel)) => {
                    let mut selected = kernels.select(*kernel, reproducible);
                    let launched = selected.try_for_each(|kernel| to.launch(kernel));
                    launched.map(|()| Vec::new())
                }
                (None, Call::Custom(call)) => to.launch_custom(call).map(|()| Vec::new()),
                (None, Call::Generated(call)) => {
                    let selected = kernels.select_generated(call, reproducible);
                    to.launch_generated(&selected).map(|()| Vec::new())
                }
                (None, call) => self.submit_to_library(call, &mut to).map(|()| Vec::new()),
            };
            self.calls = clock;
            let next = next?;
            if !next.is_empty() {
                // In reproducible runs, each GEMM of a convolution is of one image.
                let images = if matches!(call, Call::Conv(_)) { 1 } else { images };
                self.submit(next, images, selection, kernels, regions)?;
            }
        }
        Ok(())
    }

    /// Submits a library call that has no choice.
    fn submit_to_library(&mut self, call: &Call, to: &mut Submitter<'_>) -> Result<()> {
        match call {
            Call::Gemm { gemm, a, b, c } => self.rocblas.gemms(gemm, [*a, *b, *c], to),
            Call::CopyRows(copy) => {
                to.stream.copy_rows(
                    (to.regions.from(copy.to)?, copy.to_stride),
                    (to.regions.from(copy.from)?, copy.from_stride),
                    copy.bytes,
                    copy.rows,
                )?;
                to.record_call("DtoD copy of rows", || {
                    format!("{} rows of {} bytes", copy.rows, copy.bytes)
                })
            }
            Call::AllReduce(call) => self.all_reduce(call, to),
            Call::Collective(call) => self.exchanges()?.start(call, to),
            Call::AwaitCollective(call) => self.exchanges()?.finish(call, to),
            Call::RankPart(call) => self.exchanges()?.rank_part(call, to),
            Call::Zero { to: target, bytes } => {
                to.stream.fill(to.regions.from(*target)?.part(0..*bytes)?, 0)?;
                to.record_call("memset", || format!("{bytes} bytes"))
            }
            call => Err(Error::internal("call", format!("{call:?} is none of a library"))),
        }
    }

    /// Tries to fuse an all-reduce with the norm of its result. Returns true if it did.
    ///
    /// Never fuses if results must not depend on the batch size: a separate norm adds in another order, and larger sums take several
    /// launches.
    pub(super) fn submit_sum_and_norm(
        &mut self,
        call: &AllReduceCall,
        norm: &LayerNormArgs,
        selection: &Selection,
        regions: &Regions<'_>,
    ) -> Result<bool> {
        let reproducible = selection.options().reproducible;
        let direct = direct(&self.direct, call, reproducible);
        let Some(direct) = direct.filter(|direct| !reproducible && direct.normalizes(call, norm)) else {
            return Ok(false);
        };
        direct.submit(call, Some(norm), &self.stream, &regions.operands())?;
        self.record_call("all-reduce over peer memory, norm", || {
            format!("{} bytes", call.bytes())
        })?;
        Ok(true)
    }

    /// Submits an all-reduce, then bias and residual.
    fn all_reduce(&mut self, call: &AllReduceCall, to: &mut Submitter<'_>) -> Result<()> {
        if let Some(direct) = direct(&self.direct, call, to.reproducible) {
            direct.submit(call, None, to.stream, &to.regions.operands())?;
            return to.record_call("all-reduce over peer memory", || {
                format!("{} bytes", call.bytes())
            });
        }
        let Some(comm) = &self.comm else {
            let reason = "sums over the ranks of a tensor-parallel model, and runs alone";
            return Err(Error::kernel("all-reduce", reason.into()));
        };
        let part = |address: DeviceAddress| Ok::<_, Error>(to.regions.from(address)?.part(0..call.bytes())?);
        comm.all_reduce(
            to_hip(call.dtype),
            Reduction::Sum,
            part(call.from)?,
            part(call.to)?,
        )?;
        to.record_call("RCCL all-reduce", || format!("{} bytes", call.bytes()))?;
        let follows = call.follows().map_err(|e| Error::kernel("all-reduce", e))?;
        to.finish(follows)
    }

    /// Returns the exchanges of a training step's rank.
    fn exchanges(&mut self) -> Result<&mut Exchanges> {
        let alone = || {
            let reason = "is of a training step of several ranks, and runs alone";
            Error::kernel("exchange", reason.into())
        };
        self.exchanges.as_mut().ok_or_else(alone)
    }

    /// Makes the stream wait for all exchanges of a run.
    pub(super) fn finish_exchanges(&mut self) -> Result<()> {
        match &mut self.exchanges {
            Some(exchanges) => exchanges.finish_all(&self.stream),
            None => Ok(()),
        }
    }

    /// Forgets the exchanges of a run that failed, at the start of another one.
    pub(super) fn forget_exchanges(&mut self) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.forget();
        }
    }

    /// Returns the selected choice for `call` and its origin, or another choice if its library cannot compute the call.
    pub(super) fn resolve(
        &mut self,
        call: &Call,
        selection: &Selection,
        kernels: &Kernels,
    ) -> (Choice, Origin) {
        let Some(problem) = call.problem() else {
            return (Choice::Builtin, Origin::Rule);
        };
        let (choice, origin) = match call.sparse() {
            Some(SparseForm::Packed) => return selection.packed(),
            Some(SparseForm::Compressed { .. }) => selection.compressed(&problem),
            Some(SparseForm::Dense) | None => selection.select(problem),
        };
        let reproducible = selection.options().reproducible;
        let Err(reason) = self.prepare(choice, call, kernels, reproducible) else {
            return (choice, origin);
        };
        let (library, instead) = match choice {
            Choice::Miopen => (MIOPEN.to_owned(), Choice::Builtin),
            Choice::Tile(_) => (choice.to_string(), Choice::Builtin),
            Choice::Hipsparselt { .. } => (HIPSPARSELT.to_owned(), PLAIN_HIPSPARSELT),
            Choice::Gemv if selection.has_hipblaslt() => (choice.to_string(), PLAIN_HIPBLASLT),
            Choice::Gemv => (choice.to_string(), Choice::Rocblas),
            _ => match call {
                Call::Linear(linear) if linear.float8.is_some() => (HIPBLASLT.to_owned(), PLAIN_HIPBLASLT),
                _ => (HIPBLASLT.to_owned(), Choice::Rocblas),
            },
        };
        selection.reject(&library, problem, &reason.to_string());
        if instead == PLAIN_HIPBLASLT {
            // `submit` reports the error.
            let _ = self.prepare(instead, call, kernels, reproducible);
        }
        (instead, Origin::Rule)
    }

    /// Prepares `choice` for `call`, on first use.
    ///
    /// # Errors
    ///
    /// The reason why the choice cannot compute `call`.
    pub(super) fn prepare(
        &mut self,
        choice: Choice,
        call: &Call,
        kernels: &Kernels,
        reproducible: bool,
    ) -> Result<(), KernelError> {
        match (choice, call) {
            (Choice::Tile(tile), Call::PatternAttention(call)) => call.load(tile, kernels),
            (Choice::Gemv, _) => kernels.add(&Unit::of("gemv")),
            _ => self.candidate(choice).prepare(choice, call, reproducible),
        }
    }

    /// Returns all choices for `call`, whose default kernels are loaded.
    ///
    /// # Errors
    ///
    /// The default tile cannot be read from the device.
    pub(super) fn choices(
        &mut self,
        call: &Call,
        kernels: &Kernels,
        options: SelectOptions,
    ) -> Result<Vec<Choice>> {
        let tiles = match call {
            Call::PatternAttention(call) => call.alternatives(kernels)?,
            _ => Vec::new(),
        };
        let candidates: [&mut dyn Candidate; 5] = [
            &mut self.rocblas,
            &mut self.builtin,
            &mut self.hipblaslt,
            &mut self.hipsparselt,
            &mut self.miopen,
        ];
        let choices = candidates
            .into_iter()
            .flat_map(|candidate| candidate.choices(call, options));
        Ok(choices.chain(tiles.into_iter().map(Choice::Tile)).collect())
    }

    /// Returns the launches and library calls of `call` for reports, and the origin of the choice if there is one.
    pub(super) fn describe(
        &mut self,
        call: &Call,
        selection: &Selection,
        kernels: &Kernels,
    ) -> (Vec<Called>, Option<Origin>) {
        let Some(origin) = call.problem().map(|_| self.resolve(call, selection, kernels)) else {
            return (describe_only(call, selection, kernels), None);
        };
        let (choice, origin) = origin;
        let (mut called, next) = self.candidate(choice).describe(choice, call, kernels);
        let mut of_parts = None;
        for part in next {
            let (more, origin) = self.describe(&part, selection, kernels);
            called.extend(more);
            of_parts = origin;
        }
        // The choice for the projection is the choice for its linear layer.
        let origin = match call {
            Call::Projection(_) => of_parts.unwrap_or(origin),
            _ => origin,
        };
        (called, Some(origin))
    }

    /// Records a library's call that was just submitted, if calls are timed.
    fn record_call(&mut self, name: &str, shape: impl FnOnce() -> String) -> Result<()> {
        match &mut self.calls {
            Some(clock) => clock.tick(&self.stream, name.to_owned(), Some(shape()), None),
            None => Ok(()),
        }
    }
}

/// Returns the launches and library calls of a call without a choice.
fn describe_only(call: &Call, selection: &Selection, kernels: &Kernels) -> Vec<Called> {
    match call {
        Call::Kernel(kernel) => {
            let selected = kernels.select(*kernel, selection.options().reproducible);
            selected.map(|kernel| Called::kernel(kernel, kernels)).collect()
        }
        Call::Custom(call) => vec![Called::custom(call)],
        Call::Generated(call) => {
            let selected = kernels.select_generated(call, selection.options().reproducible);
            vec![Called::generated(&selected, kernels)]
        }
        Call::CopyRows(_) | Call::RankPart(_) => vec![Called::library("copy")],
        Call::Zero { .. } => vec![Called::library("memset")],
        Call::Collective(_) => vec![Called::library("RCCL")],
        Call::AwaitCollective(_) => Vec::new(),
        Call::AllReduce(call) => {
            let follows = call.follows().ok().flatten();
            let follows = follows.map(|kernel| Called::kernel(kernel.into(), kernels));
            let sum = Called::library("RCCL all-reduce");
            [sum].into_iter().chain(follows).collect()
        }
        _ => vec![Called::library("rocBLAS")],
    }
}

/// Returns the builtin all-reduce for a message. `None` if RCCL sums it.
fn direct<'a>(
    direct: &'a Option<DirectRank>,
    call: &AllReduceCall,
    reproducible: bool,
) -> Option<&'a DirectRank> {
    direct.as_ref().filter(|direct| direct.takes(call, reproducible))
}

/// Returns the key of measurements on the stream's device, without MIOpen and hipSPARSELt, and a reason if hipBLASLt is unavailable.
pub(super) fn selection_key(stream: &Stream) -> (Key, Option<String>) {
    let key = Key::of(stream.device());
    match Hipblaslt::version(stream) {
        Ok(version) => (key.with(HIPBLASLT, Some(version)), None),
        Err(error) => (key, Some(error.to_string())),
    }
}

impl fmt::Debug for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Libraries").field(&self.stream).finish()
    }
}
