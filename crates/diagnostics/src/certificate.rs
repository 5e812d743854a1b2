//! What a validation found, on which GPU, with which driver and libraries, and by which code: `hipvit validate --certificate`. With it an
//! installation shows that it computes what it should: there are releases of ROCm whose attention is wrong.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::{DeviceInfo, Environment};
use crate::validate::{CodeDigest, LayerReport, Report, Status, Tier};
use hipvit::error::Result;
use hipvit::hip::{Library, Runtime};
use hipvit::session::{Device, Place};
use hipvit::tensor::DType;

/// The version of [`Certificate`]'s JSON: another number after the slash where a field changes its meaning or goes.
pub const SCHEMA: &str = "hipvit.certificate/1";

/// What was validated, where, and how far off it was.
#[derive(Clone, Debug, Serialize)]
pub struct Certificate<'a> {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// hipvit's version.
    pub version: &'static str,
    /// The tier, if one was asked for.
    pub tier: Option<Tier>,
    /// Whether everything that ran is within its tolerance, and something did.
    pub passed: bool,
    /// The device.
    pub device: DeviceInfo,
    /// System, driver, library versions.
    pub environment: Environment,
    /// Where the GPU's libraries came from.
    pub libraries: Vec<Library>,
    /// The ops.
    pub ops: Option<Ops>,
    /// The models, with each layer's error.
    pub models: &'a [LayerReport],
    /// The SHA-256 of each code object of the crate's own that ran.
    pub code: Vec<CodeDigest>,
}

/// The ops of a validation.
#[derive(Clone, Debug, Serialize)]
pub struct Ops {
    /// How many cases passed.
    pub passed: usize,
    /// How many failed.
    pub failed: usize,
    /// How many did not run.
    pub skipped: usize,
    /// The sizes.
    pub configs: Vec<String>,
    /// By op and dtype.
    pub worst: Vec<WorstOp>,
    /// One line on each that failed.
    pub complaints: Vec<String>,
}

/// The case of an op that came nearest to its tolerance, or went furthest beyond it.
#[derive(Clone, Debug, Serialize)]
pub struct WorstOp {
    /// The op.
    pub op: &'static str,
    /// The dtype.
    pub dtype: DType,
    /// Its cases that ran.
    pub cases: usize,
    /// The form and the sizes of the worst.
    pub form: String,
    /// The larger of its two errors.
    pub error: f64,
    /// Its tolerance.
    pub tolerance: f64,
}

impl<'a> Certificate<'a> {
    /// Of a validation on `device`.
    ///
    /// # Errors
    ///
    /// The device cannot be opened again.
    pub fn new(
        device: Device,
        tier: Option<Tier>,
        ops: Option<&Report>,
        models: &'a [LayerReport],
    ) -> Result<Self> {
        let gpu = match device.open()? {
            Place::Gpu(gpu) => Some(gpu),
            Place::Cpu { .. } => None,
        };
        let clean = ops.is_none_or(Report::is_clean) && models.iter().all(LayerReport::is_clean);
        let mut code: BTreeMap<String, CodeDigest> = BTreeMap::new();
        let of_ops = ops.into_iter().flat_map(|report| &report.code);
        for digest in of_ops.chain(models.iter().flat_map(|model| &model.code)) {
            code.insert(digest.kernel.clone(), digest.clone());
        }
        Ok(Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            tier,
            passed: clean && (ops.is_some() || !models.is_empty()),
            device: gpu.as_ref().map_or_else(DeviceInfo::cpu, DeviceInfo::gpu),
            environment: Environment::new(gpu.as_ref()),
            libraries: match &gpu {
                Some(gpu) => Runtime::libraries(gpu.runtime()),
                None => Vec::new(),
            },
            ops: ops.map(Ops::of),
            models,
            code: code.into_values().collect(),
        })
    }
}

impl Ops {
    fn of(report: &Report) -> Self {
        let mut worst: BTreeMap<(&'static str, String), WorstOp> = BTreeMap::new();
        for row in report.rows.iter().filter(|row| row.status != Status::Skipped) {
            let entry = worst
                .entry((row.op, row.dtype.to_string()))
                .or_insert_with(|| WorstOp {
                    op: row.op,
                    dtype: row.dtype,
                    cases: 0,
                    form: String::new(),
                    error: 0.0,
                    tolerance: 0.0,
                });
            entry.cases += 1;
            let error = row.elementwise_error.zip(row.normwise_error);
            let Some(((elementwise, normwise), tolerance)) = error.zip(row.tolerance) else {
                continue;
            };
            let error = elementwise.max(normwise);
            // A tolerance of 0 is met by an error of 0 alone.
            let part = |error: f64, tolerance: f64| if tolerance > 0.0 { error / tolerance } else { error };
            if entry.form.is_empty() || part(error, tolerance) > part(entry.error, entry.tolerance) {
                entry.form = format!("{}, {}", row.form, row.config);
                (entry.error, entry.tolerance) = (error, tolerance);
            }
        }
        Self {
            passed: report.passed,
            failed: report.failed,
            skipped: report.skipped,
            configs: report
                .configs
                .iter()
                .map(|config| config.config.to_string())
                .collect(),
            worst: worst.into_values().collect(),
            complaints: report.complaints().collect(),
        }
    }
}
