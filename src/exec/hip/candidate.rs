//! Implementations of calls that have a choice: the builtin kernels or a library, with its handles on a stream.

mod builtin;
mod hipblaslt;
mod hipsparselt;
mod miopen;
mod rocblas;

pub(super) use self::builtin::Builtin;
pub(super) use self::hipblaslt::Hipblaslt;
pub(super) use self::hipsparselt::Hipsparselt;
pub(super) use self::miopen::Miopen;
pub(super) use self::rocblas::Rocblas;

use std::borrow::Cow;

use super::call_clock::CallClock;
use super::lower::{AttentionTile, Call, CustomCall, GeneratedCall, LinearCall, Unfused};
use super::regions::Regions;
use crate::error::{Error, Result};
use crate::exec::select::{Choice, SelectOptions};
use crate::hip::{Launch, Stream};
use crate::kernels::{KernelCall, KernelError, Kernels};

/// The builtin kernels or a library, on one stream.
pub(super) trait Candidate {
    /// Returns all ways to compute `call`.
    fn choices(&mut self, call: &Call, options: SelectOptions) -> Vec<Choice>;

    /// Prepares `choice` for `call` on first use. Never submits anything.
    ///
    /// # Errors
    ///
    /// The reason why the choice cannot compute `call`.
    fn prepare(&mut self, choice: Choice, call: &Call, reproducible: bool) -> Result<(), KernelError>;

    /// Submits `call` by a prepared choice. Returns the calls to submit next, each with its own choice.
    fn submit(&mut self, choice: Choice, call: &Call, to: &mut Submitter<'_>) -> Result<Vec<Call>>;

    /// Returns the launches and library calls of `call` for reports, and the calls that have their own choice.
    fn describe(&self, choice: Choice, call: &Call, kernels: &Kernels) -> (Vec<Called>, Vec<Call>);
}

/// Everything that calls are submitted with: stream, kernels, memory.
pub(super) struct Submitter<'a> {
    pub(super) stream: &'a Stream,
    pub(super) kernels: &'a Kernels,
    pub(super) regions: &'a Regions<'a>,
    /// Set while calls are timed one by one.
    pub(super) clock: &'a mut Option<CallClock>,
    /// Number of images of the batch.
    pub(super) images: usize,
    /// Results must not depend on the batch size.
    pub(super) reproducible: bool,
}

impl Submitter<'_> {
    /// Launches a kernel.
    pub(super) fn launch(&mut self, kernel: KernelCall) -> Result<()> {
        kernel.launch(self.kernels, self.stream, &self.regions.operands())?;
        match self.clock {
            Some(clock) => {
                let launch = kernel.geometry(self.kernels).ok();
                clock.tick(self.stream, kernel_name(&kernel), None, launch)
            }
            None => Ok(()),
        }
    }

    /// Launches a kernel of a custom op.
    pub(super) fn launch_custom(&mut self, call: &CustomCall) -> Result<()> {
        let memory = |address| self.regions.from(address);
        self.kernels.launch_custom(self.stream, call, memory)?;
        match self.clock {
            Some(clock) => {
                let launch = Some(call.geometry());
                clock.tick(self.stream, call.kernel().to_owned(), None, launch)
            }
            None => Ok(()),
        }
    }

    /// Launches a kernel of a generated program.
    pub(super) fn launch_generated(&mut self, call: &GeneratedCall) -> Result<()> {
        call.launch(self.kernels, self.stream, &self.regions.operands())?;
        match self.clock {
            Some(clock) => {
                let launch = call.geometry(self.kernels).ok();
                clock.tick(self.stream, call.kernel().to_owned(), None, launch)
            }
            None => Ok(()),
        }
    }

    /// Launches the kernel that completes a library's result, if one is needed.
    pub(super) fn finish(&mut self, kernel: Option<impl Into<KernelCall>>) -> Result<()> {
        kernel.map_or(Ok(()), |kernel| self.launch(kernel.into()))
    }

    /// Records a library's call that was just submitted, if calls are timed.
    pub(super) fn record_call(&mut self, name: &str, shape: impl FnOnce() -> String) -> Result<()> {
        match self.clock {
            Some(clock) => clock.tick(self.stream, name.to_owned(), Some(shape()), None),
            None => Ok(()),
        }
    }
}

/// A kernel or library call in a report.
#[derive(Clone, PartialEq)]
pub(super) struct Called {
    pub(super) name: String,
    pub(super) geometry: Option<Launch>,
}

impl Called {
    /// Reports a library call.
    pub(super) fn library(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { name, geometry: None }
    }

    /// Reports a launch of a builtin kernel. A kernel that cannot be launched has no geometry.
    pub(super) fn kernel(kernel: KernelCall, kernels: &Kernels) -> Self {
        Self {
            name: kernel_name(&kernel),
            geometry: kernel.geometry(kernels).ok(),
        }
    }

    /// Reports a launch of a custom op's kernel.
    pub(super) fn custom(call: &CustomCall) -> Self {
        Self {
            name: call.kernel().to_owned(),
            geometry: Some(call.geometry()),
        }
    }

    /// Reports a launch of a kernel of a generated program.
    pub(super) fn generated(call: &GeneratedCall, kernels: &Kernels) -> Self {
        let name = match AttentionTile::of_unit(call.unit()) {
            Some(tile) => format!("{} (tile {tile})", call.kernel()),
            None => call.kernel().to_owned(),
        };
        Self {
            name,
            geometry: call.geometry(kernels).ok(),
        }
    }

    /// Reports the kernel after a GEMM without an epilogue, if one is needed.
    pub(super) fn follows(linear: &LinearCall, kernels: &Kernels) -> Option<Self> {
        let Unfused { kernel, .. } = linear.unfused().ok()?;
        Some(Self::kernel(kernel?, kernels))
    }

    /// Reports a library's GEMM, and the kernel after it if it has no epilogue.
    fn gemm(choice: Choice, linear: &LinearCall, kernels: &Kernels) -> Vec<Self> {
        let follows = if choice.has_epilogue() {
            None
        } else {
            Self::follows(linear, kernels)
        };
        [Self::library(choice.to_string())]
            .into_iter()
            .chain(follows)
            .collect()
    }
}

/// Returns the name of the kernel's entry.
pub(super) fn kernel_name(kernel: &KernelCall) -> String {
    kernel.entry().map(Cow::into_owned).unwrap_or_default()
}

/// Returns the linear layer of a call, for a library that computes nothing else.
fn linear(call: &Call) -> Result<&LinearCall, KernelError> {
    match call {
        Call::Linear(linear) => Ok(linear),
        _ => Err(KernelError::internal("is no linear layer")),
    }
}

/// Returns the calls that sum columns after a GEMM without an epilogue, if a backward pass needs the sums.
fn column_sums(choice: Choice, linear: &LinearCall) -> Result<Vec<Call>> {
    if choice.has_epilogue() {
        return Ok(Vec::new());
    }
    linear.column_sums().map_err(unusable)
}

/// Reports a library's GEMM, the kernel after it, and the calls that follow.
fn described(choice: Choice, call: &Call, kernels: &Kernels) -> (Vec<Called>, Vec<Call>) {
    let Ok(linear) = linear(call) else {
        return Default::default();
    };
    let sums = column_sums(choice, linear).unwrap_or_default();
    (Called::gemm(choice, linear, kernels), sums)
}

/// Converts the reason why a linear layer cannot be submitted.
fn unusable(reason: KernelError) -> Error {
    Error::kernel("linear", reason)
}
