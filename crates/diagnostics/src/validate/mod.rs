//! Validates every op in every form, size and dtype against the reference implementation, on any device:
//! `hipvit validate`, and the hardware test suite.
//!
//! An op is a graph of one node. The executor plans and runs it as part of a model ([`hipvit::exec`]), in
//! memory with known contents and margins around it. Forms of GPU kernels that no op needs are run in the
//! same way.
//!
//! Operands are first rounded to the dtype. The [reference](mod@hipvit::reference) computes from the rounded
//! numbers: all rows of the result, or a sample if all would take long. A case passes if
//!
//! - the errors are within a tolerance derived from the dtype's epsilon and the reduction length
//!   ([`op_tolerance`](hipvit::reference::op_tolerance)),
//! - every element is finite, and
//! - nothing else in that memory was written.
//!
//! Times are shown next to the device's measured peaks. They do not affect the result.
//!
//! To add a kernel or an op, write its file in `cases` and name it in the list there.
//!
//! ```
//! use hipvit_diagnostics::validate::{Config, Options, validate};
//!
//! # fn main() -> hipvit::Result<()> {
//! let options = Options {
//!     device: "cpu".parse()?,
//!     configs: vec![Config::Micro],
//!     ops: vec!["layer_norm".into()],
//!     ..Options::default()
//! };
//! let report = validate(&options, &mut |_, _| {})?;
//! assert!(report.is_clean(), "{report}");
//! # Ok(())
//! # }
//! ```

mod backend;
mod cases;
mod check;
mod config;
mod cpu;
mod digest;
mod expected;
mod hip;
mod model;
mod operands;
mod part;
mod report;
mod rounded_rows;
#[cfg(test)]
mod tests;
mod tier;
mod timing;

pub use crate::peaks::{GemmPeak, Peaks};
pub use check::Batch;
pub use config::{Config, Sizes};
pub use digest::CodeDigest;
pub use model::{Baseline, Layer, LayerReport, ModelOptions, SideInfo, validate_model};
pub use report::{ConfigSummary, Limit, Report, Row, SCHEMA, Status, Worst};
pub use tier::Tier;
pub use timing::{Timed, time_each};

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use self::backend::Backend;
pub use self::cases::Operand;
use self::cases::{Case, Role, cases, op_cases};
use self::check::{Clock, Content, check, median, time};
use self::cpu::Cpu;
use self::expected::{expect, sample};
use self::hip::Hip;
use self::operands::Operands;
use hipvit::error::{Error, Result};
use hipvit::ops::Op;
use hipvit::session::{Device, Place};
use hipvit::tensor::DType;
use hipvit::threads;

/// Options of [`validate()`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Device to validate.
    pub device: Device,
    /// Compute precisions; if empty, all of the device's. Resampling always uses bytes.
    pub dtypes: Vec<DType>,
    /// Sizes. If empty, all on a GPU, and the micro, small, awkward and heads sizes on the CPU.
    pub configs: Vec<Config>,
    /// Names of the ops, see [`ops`]; all if empty.
    pub ops: Vec<String>,
    /// Number of CPU threads; by default one per core.
    pub threads: Option<usize>,
    /// True to check results only, without timing.
    pub untimed: bool,
}

/// Returns the names of the validated ops, as `hipvit inspect` prints them.
pub fn ops() -> Vec<&'static str> {
    let mut names: Vec<_> = cases(Config::Micro).iter().map(Case::op_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Validates ops. Calls `progress` with the number of rows and each finished row. A failing op is not an
/// error; the [`Report`] has it.
///
/// # Errors
///
/// - [`Error::Hip`] if there is no such device.
/// - [`Error::Argument`] if the device does not compute in a dtype, or if there is no such op.
pub fn validate(options: &Options, progress: &mut dyn FnMut(usize, &Row)) -> Result<Report> {
    let (backend, no_gpu) = open(options)?;
    Ok(Report {
        no_gpu,
        ..validate_on(backend.as_ref(), options, progress)?
    })
}

/// Validates each result of one op on random operands, inside and outside of the arena. Checks an op that is
/// [defined outside](hipvit::custom) this workspace.
///
/// Ignores [`Options::configs`] and [`Options::ops`].
///
/// # Errors
///
/// - [`Error::Hip`] if there is no such device.
/// - [`Error::Argument`] if the device does not compute in a dtype.
/// - [`Error::Graph`] if the op does not accept the operands.
pub fn validate_op(op: &Op, operands: &[Operand], options: &Options) -> Result<Report> {
    let (backend, no_gpu) = open(options)?;
    let dtypes = dtypes(backend.as_ref(), &options.dtypes)?;
    let cases = op_cases(op, operands)?;
    let runs: Vec<_> = dtypes
        .iter()
        .flat_map(|&dtype| cases.iter().map(move |case| (dtype, case)))
        .collect();
    Ok(Report {
        no_gpu,
        ..validate_runs(backend.as_ref(), options, &dtypes, &runs, &mut |_, _| {})?
    })
}

/// Returns the device, and the reason if [`Device::Auto`] selected the CPU.
fn open(options: &Options) -> Result<(Box<dyn Backend>, Option<String>)> {
    threads::start_shared()?;
    Ok(match options.device.open()? {
        Place::Gpu(device) => (Box::new(Hip::new(device)), None),
        Place::Cpu { no_gpu } => {
            let threads = options.threads;
            (Box::new(Cpu { threads }), no_gpu.map(|error| error.to_string()))
        }
    })
}

fn validate_on(
    backend: &dyn Backend,
    options: &Options,
    progress: &mut dyn FnMut(usize, &Row),
) -> Result<Report> {
    let dtypes = dtypes(backend, &options.dtypes)?;
    let known = ops();
    if let Some(unknown) = options.ops.iter().find(|op| !known.contains(&op.as_str())) {
        let reason = format!("`{unknown}` is not one of {}", known.join(", "));
        return Err(Error::argument("op", reason));
    }
    let wanted = |case: &Case| options.ops.is_empty() || options.ops.iter().any(|op| op == case.op_name());
    let configs = match options.configs.as_slice() {
        [] if backend.device() == "cpu" => {
            vec![Config::Micro, Config::Small, Config::Awkward, Config::Heads]
        }
        [] => Config::ALL.to_vec(),
        configs => configs.to_vec(),
    };
    let cases: Vec<Case> = configs.into_iter().flat_map(cases).filter(wanted).collect();

    let mut runs: Vec<(DType, &Case)> = Vec::with_capacity(cases.len() * dtypes.len());
    for &dtype in &dtypes {
        let of_any = cases.iter().filter(|case| case.dtype().is_none());
        runs.extend(of_any.map(|case| (dtype, case)));
    }
    runs.extend(cases.iter().filter_map(|case| Some((case.dtype()?, case))));
    validate_runs(backend, options, &dtypes, &runs, progress)
}

fn validate_runs(
    backend: &dyn Backend,
    options: &Options,
    dtypes: &[DType],
    runs: &[(DType, &Case)],
    progress: &mut dyn FnMut(usize, &Row),
) -> Result<Report> {
    let peaks = if options.untimed {
        Peaks::default()
    } else {
        backend.peaks(dtypes)
    };
    let mut rows: Vec<Row> = Vec::with_capacity(runs.len());
    let mut taken: BTreeMap<Config, Duration> = BTreeMap::new();
    for &(dtype, case) in runs {
        let timed = (!options.untimed).then_some(&peaks);
        let start = Instant::now();
        let row = run_case(backend, case, dtype, timed)?;
        *taken.entry(case.config).or_default() += start.elapsed();
        progress(runs.len(), &row);
        rows.push(row);
    }
    let count = |status| rows.iter().filter(|row| row.status == status).count();
    Ok(Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        device: backend.device(),
        device_name: backend.name(),
        no_gpu: None,
        peaks,
        passed: count(Status::Passed),
        failed: count(Status::Failed),
        skipped: count(Status::Skipped),
        configs: taken
            .into_iter()
            .map(|(config, taken)| ConfigSummary::new(config, &rows, taken))
            .collect(),
        code: backend.code(),
        rows,
    })
}

/// Returns the requested dtypes without duplicates, or all of the device's.
fn dtypes(backend: &dyn Backend, wanted: &[DType]) -> Result<Vec<DType>> {
    let offered = backend.dtypes();
    if wanted.is_empty() {
        return Ok(offered.to_vec());
    }
    if let Some(dtype) = wanted.iter().find(|dtype| !offered.contains(dtype)) {
        let names: Vec<String> = offered.iter().map(ToString::to_string).collect();
        let reason = format!(
            "the {} computes in {}, not in {dtype}",
            backend.device(),
            names.join(", ")
        );
        return Err(Error::argument("dtype", reason));
    }
    let wanted = offered.iter().copied().filter(|dtype| wanted.contains(dtype));
    Ok(wanted.collect())
}

/// Runs a case. An error of the case is recorded in its row. The case is timed if there are peaks.
fn run_case(backend: &dyn Backend, case: &Case, dtype: DType, peaks: Option<&Peaks>) -> Result<Row> {
    let result = case.result()?;
    let mut row = Row {
        op: case.op_name(),
        form: case.to_string(),
        config: case.config,
        dtype,
        operands: case.operands.iter().map(|o| o.shape.clone()).collect(),
        in_place: false,
        status: Status::Passed,
        reason: None,
        rows_checked: 0,
        rows: result.iter().product::<usize>() / result.last().copied().unwrap_or(1).max(1),
        elementwise_error: None,
        normwise_error: None,
        tolerance: None,
        worst: None,
        seconds: None,
        runs: 0,
        flops: case.flops(&result),
        bytes: 0,
        bytes_per_second: None,
        flops_per_second: None,
        limit: None,
        of_peak: None,
        result,
    };
    let skip = match backend.lacks(case, dtype) {
        Some(reason) => Some(reason.to_owned()),
        None => too_large(backend, case, dtype)?,
    };
    if let Some(reason) = skip {
        row.status = Status::Skipped;
        row.reason = Some(reason);
        return Ok(row);
    }
    if let Err(error) = compute(backend, case, peaks, &mut row) {
        row.status = Status::Failed;
        row.reason = Some(error.to_string());
    }
    Ok(row)
}

fn compute(backend: &dyn Backend, case: &Case, peaks: Option<&Peaks>, row: &mut Row) -> Result<()> {
    let operands = Operands::new(case, row.dtype)?;
    let (mut times, mut runs) = (Vec::new(), 0);
    let mut clock = |first, most, batch: Batch<'_>| {
        (times, runs) = time(first, most, batch)?;
        Ok(())
    };
    let clock: Option<Clock<'_>> = match peaks {
        Some(_) => Some(&mut clock),
        None => None,
    };
    let run = backend.run(case, &operands, row.dtype, clock)?;
    let placed = run
        .regions
        .iter()
        .filter(|(_, content)| matches!(content, Content::Operand(_)));
    let activations = case.operands.iter().filter(|o| o.role == Role::Activation);
    row.in_place = case.in_place().is_some() || case.in_arena && placed.count() < activations.count();
    row.bytes = run.bytes;
    row.runs = runs;
    if let Some((time, peaks)) = median(&times).zip(peaks) {
        row.rate(time.as_secs_f64(), peaks);
    }
    let expected = expect(case, &operands.tensors, sample(case, &row.result), row.dtype)?;
    row.rows_checked = expected.rows.len();
    row.tolerance = Some(expected.tolerance);
    let verdict = check(case, &operands, &expected, &run, backend.activations(row.dtype));
    row.elementwise_error = verdict.elementwise;
    row.normwise_error = verdict.normwise;
    row.worst = verdict.worst;
    if verdict.failure.is_some() {
        row.status = Status::Failed;
        row.reason = verdict.failure;
    }
    Ok(())
}

/// Returns the reason if the case exceeds the device's or the host's memory.
fn too_large(backend: &dyn Backend, case: &Case, dtype: DType) -> Result<Option<String>> {
    let elements = |shape: &[usize]| shape.iter().product::<usize>();
    let operands: usize = case.operands.iter().map(|o| elements(&o.shape)).sum();
    let is_parameter = |o: &&cases::Operand| {
        matches!(
            o.role,
            Role::Parameter | Role::SparseWeight | Role::CompressedWeight
        )
    };
    let parameters = case.operands.iter().filter(is_parameter);
    let parameters: usize = parameters.map(|o| elements(&o.shape)).sum();
    let result = elements(&case.result()?);
    // Operands outside of the arena and in it; the result, and as much scratch memory.
    let device = dtype.size() * (2 * operands + 2 * result) + (64 << 20);
    // Operands as f32 and as stored; the arena as read back and its result as f32; the reference's arrays.
    let sampled = (operands + result).min(expected::MOST_ELEMENTS) + parameters;
    let host = operands * (4 + dtype.size()) + (operands + 2 * result) * 4 + 8 * sampled;
    let needs = |what: &str, needed: usize, free: usize| {
        let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        format!(
            "needs {:.1} GiB of {what} memory, {:.1} are free",
            gib(needed),
            gib(free)
        )
    };
    if let Some(free) = backend.free_memory()?.filter(|&free| free < device) {
        return Ok(Some(needs("device", device, free)));
    }
    let free = host_memory();
    Ok((free < host).then(|| needs("host", host, free)))
}

/// Returns the bytes that this process can still allocate.
pub(crate) fn host_memory() -> usize {
    let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(memory);
    let available = system.available_memory();
    // A container may have less memory than its host.
    let available = system
        .cgroup_limits()
        .map_or(available, |limits| limits.free_memory.min(available));
    usize::try_from(available).unwrap_or(usize::MAX)
}
