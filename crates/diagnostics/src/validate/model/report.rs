//! The result of a model's validation: the structure that is written as JSON, and the table.

use std::fmt;

use serde::Serialize;

use super::Baseline;
use crate::table::{Column, Table, paragraph};
use crate::validate::digest::CodeDigest;
use hipvit::graph::Optimizations;
use hipvit::tensor::DType;

/// The version of [`LayerReport`]'s JSON: another number after the slash where a field changes its meaning or goes.
pub(super) const SCHEMA: &str = "hipvit.validate.model/1";

/// A model beside its baseline.
#[derive(Clone, Debug, Serialize)]
pub struct LayerReport {
    /// `hipvit.validate.model/1`.
    pub schema: &'static str,
    /// hipvit's version.
    pub version: &'static str,
    /// The model's name.
    pub model: String,
    /// The hash of its weights' names, extents and values.
    pub weights_sha256: String,
    /// How many images were run, in one batch.
    pub images: usize,
    /// The hash of their pixels at the model's size.
    pub pixels_sha256: String,
    /// Where the model ran.
    pub candidate: SideInfo,
    /// What it was compared with.
    pub against: Baseline,
    /// Where that ran.
    pub baseline: SideInfo,
    /// The name of the baseline's files, if they are other ones.
    pub baseline_model: Option<String>,
    /// The first layer beyond its tolerance.
    pub first_beyond: Option<String>,
    /// How many layers are beyond theirs.
    pub failed: usize,
    /// From the pixels to the logits, then the results as they are served.
    pub layers: Vec<Layer>,
    /// The code that the model ran on a GPU: the crate's own kernels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeDigest>,
}

/// A device, and how the model ran there.
#[derive(Clone, Debug, Serialize)]
pub struct SideInfo {
    /// `cpu` or `hip:N`.
    pub device: String,
    /// The device's name.
    pub name: String,
    /// Compute precision.
    pub dtype: DType,
    /// What was done for speed.
    pub optimizations: Optimizations,
    /// How many runs replayed a captured graph.
    pub replayed_runs: u64,
    /// Why none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Why `auto` chose the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_gpu: Option<String>,
}

/// One layer.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// `patch embedding`, `block 3`, `final tokens`, `embedding`, `logits`.
    pub name: String,
    /// The extents.
    pub shape: Vec<usize>,
    /// The nodes of the model's graph that it depends on.
    pub nodes: usize,
    /// The largest error of an element, relative to the largest magnitude of the baseline; null if it is not finite.
    pub elementwise_error: f64,
    /// The Euclidean norm of the error, relative to that of the baseline.
    pub normwise_error: f64,
    /// The bound of either.
    pub tolerance: f64,
    /// Where the largest error is.
    pub worst_index: usize,
    /// What the model has there.
    pub got: f64,
    /// What the baseline has there.
    pub want: f64,
    /// Whether it is within the tolerance.
    pub within: bool,
}

impl LayerReport {
    /// Whether every layer is within its tolerance.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && !self.layers.is_empty()
    }

    /// One line on the first layer beyond its tolerance.
    pub fn complaint(&self) -> Option<String> {
        let layer = self.layers.iter().find(|layer| !layer.within)?;
        Some(format!(
            "{}: {} is the first layer beyond its tolerance: error {:.1e}, tolerance {:.1e}; worst at index {}: got {:e}, want {:e}",
            self.model,
            layer.name,
            layer.elementwise_error.max(layer.normwise_error),
            layer.tolerance,
            layer.worst_index,
            layer.got,
            layer.want
        ))
    }

    /// Both sides, a table of the layers, and the first beyond its tolerance, in lines of `width` characters at most.
    pub fn text(&self, width: Option<usize>) -> String {
        let line = |text: String| paragraph(&text, "  ", width);
        let side = |side: &SideInfo| {
            let mut text = format!("{} in {} ({})", side.device, side.dtype, side.name);
            if side.optimizations == Optimizations::NONE {
                text += ", unoptimized";
            }
            if side.replayed_runs > 0 {
                text += &format!(", {} runs replayed", side.replayed_runs);
            }
            text
        };
        let images = match self.images {
            1 => "1 image".to_owned(),
            count => format!("{count} images"),
        };
        let mut text = line(format!("{} on {images}: {}", self.model, side(&self.candidate)));
        let files = self.baseline_model.as_ref();
        let files = files.map_or(String::new(), |name| format!("{name}, "));
        text += &line(format!(
            "against {}: {files}{}",
            self.against,
            side(&self.baseline)
        ));
        if let Some(reason) = &self.candidate.no_gpu {
            let reason = reason.strip_prefix("no GPU: ").unwrap_or(reason);
            text += &line(format!("no GPU: {reason}"));
        }
        if let Some(reason) = &self.candidate.fallback {
            text += &line(format!("no graph was replayed: {reason}"));
        }
        text += &format!("\n{}\n\n", self.table().text(width));
        if let Some(complaint) = self.complaint() {
            text += &line(format!("FAIL {complaint}"));
        }
        let within = self.layers.len() - self.failed;
        text + &format!(
            "{within} layers within their tolerances, {} beyond\n",
            self.failed
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            Column::left(""),
            Column::left("layer"),
            Column::right("shape").rank(2),
            Column::right("largest error"),
            Column::right("norm of errors").rank(1),
            Column::right("tolerance"),
            Column::right("worst at").rank(3),
            Column::right("got").rank(4),
            Column::right("want").rank(4),
        ]);
        for layer in &self.layers {
            let shape: Vec<String> = layer.shape.iter().map(ToString::to_string).collect();
            table.row([
                if layer.within { "ok" } else { "FAIL" }.to_owned(),
                layer.name.clone(),
                shape.join("×"),
                format!("{:.1e}", layer.elementwise_error),
                format!("{:.1e}", layer.normwise_error),
                format!("{:.1e}", layer.tolerance),
                layer.worst_index.to_string(),
                format!("{:.4e}", layer.got),
                format!("{:.4e}", layer.want),
            ]);
        }
        table
    }
}

/// [`LayerReport::text`] without a width.
impl fmt::Display for LayerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(None))
    }
}
