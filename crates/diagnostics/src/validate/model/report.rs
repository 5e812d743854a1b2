//! Report of a model's validation, as JSON and as a table.

use std::fmt;

use serde::Serialize;

use super::baseline::Baseline;
use crate::table::{Column, Table, paragraph};
use crate::validate::digest::CodeDigest;
use hipvit::graph::Optimizations;
use hipvit::tensor::DType;

/// Version of [`LayerReport`]'s JSON. The number after the slash changes if a field changes its meaning or is
/// removed.
pub(super) const SCHEMA: &str = "hipvit.validate.model/1";

/// Comparison of a model with its baseline.
#[derive(Clone, Debug, Serialize)]
pub struct LayerReport {
    /// `hipvit.validate.model/1`.
    pub schema: &'static str,
    /// Version of hipvit.
    pub version: &'static str,
    /// Name of the model.
    pub model: String,
    /// Hash of the weights' names, shapes and values.
    pub weights_sha256: String,
    /// Number of images, which are one batch.
    pub images: usize,
    /// Hash of the images' pixels at the model's size.
    pub pixels_sha256: String,
    /// Device and configuration of the model.
    pub candidate: SideInfo,
    /// Kind of baseline.
    pub against: Baseline,
    /// Device and configuration of the baseline.
    pub baseline: SideInfo,
    /// Name of the baseline's files, if they differ from the model's.
    pub baseline_model: Option<String>,
    /// Name of the first layer beyond its tolerance.
    pub first_beyond: Option<String>,
    /// Number of layers beyond their tolerance.
    pub failed: usize,
    /// Layers from the pixels to the logits, then the results as they are served.
    pub layers: Vec<Layer>,
    /// hipvit's kernels that the model ran on a GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodeDigest>,
}

/// A device, and the configuration of a model on it.
#[derive(Clone, Debug, Serialize)]
pub struct SideInfo {
    /// `cpu` or `hip:N`.
    pub device: String,
    /// Name of the device.
    pub name: String,
    /// Compute precision.
    pub dtype: DType,
    /// Enabled optimisations.
    pub optimizations: Optimizations,
    /// Number of runs that replayed a captured graph.
    pub replayed_runs: u64,
    /// Reason if no run replayed a graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Reason if `auto` selected the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_gpu: Option<String>,
}

/// Comparison of one layer.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// `patch embedding`, `block 3`, `final tokens`, `embedding`, `logits`.
    pub name: String,
    /// Shape of the layer's value.
    pub shape: Vec<usize>,
    /// Number of the graph's nodes that the layer depends on.
    pub nodes: usize,
    /// The largest error of an element, relative to the largest magnitude of the baseline; null if it is not finite.
    pub elementwise_error: f64,
    /// The Euclidean norm of the error, relative to that of the baseline.
    pub normwise_error: f64,
    /// Bound of either error.
    pub tolerance: f64,
    /// Index of the element with the largest error.
    pub worst_index: usize,
    /// Value of the model at this index.
    pub got: f64,
    /// Value of the baseline at this index.
    pub want: f64,
    /// True if both errors are within the tolerance.
    pub within: bool,
}

impl LayerReport {
    /// Returns true if every layer is within its tolerance.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && !self.layers.is_empty()
    }

    /// Returns a line about the first layer beyond its tolerance. Returns `None` if there is no such layer.
    pub fn failure_message(&self) -> Option<String> {
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

    /// Formats both sides, a table of the layers, and the first layer beyond its tolerance. Lines have at
    /// most `width` characters.
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
        if let Some(message) = self.failure_message() {
            text += &line(format!("FAIL {message}"));
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
