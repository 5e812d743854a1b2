//! Certificate of a validation: results, GPU, driver, libraries and code digests. Written by `hipvit validate
//! --certificate`.
//!
//! It shows that an installation computes correctly. Some releases of ROCm have wrong attention kernels.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::{DeviceInfo, Environment};
use crate::validate::{CodeDigest, LayerReport, Report, Status, Tier};
use hipvit::error::Result;
use hipvit::hip::{Library, Runtime};
use hipvit::session::{Device, Place};
use hipvit::tensor::DType;

/// Version of [`Certificate`]'s JSON. The number after the slash changes if a field changes its meaning or is
/// removed.
pub const SCHEMA: &str = "hipvit.certificate/1";

/// Results of a validation with its environment.
#[derive(Clone, Debug, Serialize)]
pub struct Certificate<'a> {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of hipvit.
    pub version: &'static str,
    /// Tier, if one was requested.
    pub tier: Option<Tier>,
    /// True if everything that ran is within its tolerance, and something ran.
    pub passed: bool,
    /// Validated device.
    pub device: DeviceInfo,
    /// System, driver and library versions.
    pub environment: Environment,
    /// Files of the GPU's libraries.
    pub libraries: Vec<Library>,
    /// Results of the ops.
    pub ops: Option<Ops>,
    /// Results of the models, with the error of each layer.
    pub models: &'a [LayerReport],
    /// SHA-256 of each of hipvit's code objects that ran.
    pub code: Vec<CodeDigest>,
}

/// Summary of the ops of a validation.
#[derive(Clone, Debug, Serialize)]
pub struct Ops {
    /// Number of cases that passed.
    pub passed: usize,
    /// Number of cases that failed.
    pub failed: usize,
    /// Number of cases that did not run.
    pub skipped: usize,
    /// Sizes of the cases.
    pub configs: Vec<String>,
    /// Worst case by op and dtype.
    pub worst: Vec<WorstOp>,
    /// One line for each failed case.
    pub complaints: Vec<String>,
}

/// Case of an op with the largest error relative to its tolerance.
#[derive(Clone, Debug, Serialize)]
pub struct WorstOp {
    /// Name of the op.
    pub op: &'static str,
    /// Dtype of the elements.
    pub dtype: DType,
    /// Number of the op's cases that ran.
    pub cases: usize,
    /// Form and sizes of the worst case.
    pub form: String,
    /// Larger of its two errors.
    pub error: f64,
    /// Tolerance of the worst case.
    pub tolerance: f64,
}

impl<'a> Certificate<'a> {
    /// Creates a certificate of a validation on `device`.
    ///
    /// # Errors
    ///
    /// [`Error::Hip`](hipvit::Error::Hip) if the device cannot be opened again.
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
            // Only an error of 0 meets a tolerance of 0.
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
            complaints: report.failure_messages().collect(),
        }
    }
}
