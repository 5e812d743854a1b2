//! Device memory of a training run, and its limit.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::{Placement, run_bytes};
use hipvit::graph::plan::{ALIGNMENT, Plan, state_dtype};
use hipvit::graph::{Graph, Recomputation, ValueKind, recompute};
use hipvit::tensor::DType;
use serde::{Deserialize, Serialize};

const UNLIMITED: &str = "unlimited";

/// Bytes of each unit, from the longest name to the shortest.
const UNITS: [(&str, u64); 9] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("K", 1_000),
];

/// Limit of the memory of training. Its text is `unlimited`, bytes such as `8G` or `512MiB`, or a share of the memory such as `0.5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MemoryLimit {
    /// All activations are kept.
    #[default]
    Unlimited,
    /// Number of bytes.
    Bytes(u64),
    /// Share of the GPU's memory, above 0 and at most 1.
    Share(f64),
}

impl FromStr for MemoryLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == UNLIMITED {
            return Ok(Self::Unlimited);
        }
        let unit = UNITS
            .iter()
            .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (number, factor) = unit.unwrap_or((text, 1));
        let number: f64 = number.trim().parse().unwrap_or(f64::NAN);
        let bytes = (number * factor as f64).round();
        match unit {
            // Above 0, and far from overflow.
            _ if !(number > 0.0 && bytes < 1e18) => Err(format!(
                "`{text}` is neither bytes such as 8G or 512MiB, nor a share of the GPU's memory such as 0.5, nor `{UNLIMITED}`"
            )),
            None if number <= 1.0 => Ok(Self::Share(number)),
            _ => Ok(Self::Bytes(bytes as u64)),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str(UNLIMITED),
            // A number up to 1 without a unit is a share.
            Self::Bytes(bytes @ ..=1) => write!(f, "{}K", *bytes as f64 / 1e3),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Share(share) => write!(f, "{share}"),
        }
    }
}

impl TryFrom<String> for MemoryLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<MemoryLimit> for String {
    fn from(limit: MemoryLimit) -> Self {
        limit.to_string()
    }
}

/// Memory of steps with a number of images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryBudget {
    /// Limit of the memory. Activations are recomputed as far as it requires.
    pub limit: MemoryLimit,
    /// Number of images per step.
    pub images: usize,
}

/// Device memory of training as planned. The code of kernels and the workspaces of libraries are not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Number of images per step.
    pub images: usize,
    /// Bytes of weights, their copies in f32, and the states of the optimiser.
    pub state_bytes: usize,
    /// Bytes of these that are weights as the forward pass reads them.
    #[serde(default)]
    pub weight_bytes: usize,
    /// Bytes of constants, such as weights that are not trained.
    pub constant_bytes: usize,
    /// Bytes of inputs and of the kernels' scratch memory.
    pub other_bytes: usize,
    /// Activations and gradients, and what the backward pass recomputes.
    pub recomputation: Recomputation,
}

impl MemoryReport {
    /// Returns the bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.fixed_bytes() + self.recomputation.arena_bytes
    }

    /// Returns the bytes of all parts if every activation is kept.
    #[must_use]
    pub fn bytes_before(&self) -> usize {
        self.fixed_bytes() + self.recomputation.arena_bytes_before
    }

    /// Returns the additional floating-point operations, as a share of those of a step that recomputes nothing.
    #[must_use]
    pub fn additional_flops(&self) -> f64 {
        let Recomputation {
            flops_before, flops, ..
        } = self.recomputation;
        flops as f64 / flops_before.max(1) as f64 - 1.0
    }

    /// Returns the memory and what is recomputed, as a line of text.
    #[must_use]
    pub fn summary(&self) -> String {
        let Recomputation {
            blocks,
            all_blocks,
            ops,
            ..
        } = &self.recomputation;
        let images = self.images;
        if ops.is_empty() {
            return format!("{} for steps of {images} images", gigabytes(self.bytes()));
        }
        let ops: Vec<String> = ops.iter().map(|(op, count)| format!("{count} {op}")).collect();
        let whole = match blocks {
            0 => String::new(),
            _ => format!(", in {blocks} of {all_blocks} blocks all but their input,"),
        };
        format!(
            "{} instead of {} for steps of {images} images: the backward pass recomputes {}{whole} with {:.1} % more operations",
            gigabytes(self.bytes()),
            gigabytes(self.bytes_before()),
            ops.join(", "),
            100.0 * self.additional_flops(),
        )
    }

    fn fixed_bytes(&self) -> usize {
        self.state_bytes + self.constant_bytes + self.other_bytes
    }
}

impl MemoryLimit {
    /// Returns the bytes on the devices, if there is a limit.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a share if there is no GPU. [`Error::Hip`] if a GPU does not tell its memory.
    pub(crate) fn bytes(self, placement: &Placement) -> Result<Option<usize>> {
        match (self, placement) {
            (Self::Unlimited, _) => Ok(None),
            (Self::Bytes(bytes), _) => Ok(Some(usize::try_from(bytes).unwrap_or(usize::MAX))),
            (Self::Share(share), Placement::Gpus { gpus, .. }) => {
                let total = gpus.iter().map(|gpu| Ok(gpu.memory()?.1));
                let total = total.collect::<Result<Vec<usize>>>()?.into_iter().min();
                Ok(total.map(|total| (total as f64 * share) as usize))
            }
            (Self::Share(share), _) => {
                let reason =
                    format!("{share} is a share of a GPU's memory. Without a GPU, give bytes such as 8G");
                Err(Error::argument("memory", reason))
            }
        }
    }
}

/// Returns the step `graph` with the recomputations that a limit of bytes requires, and its memory. Activations are in `dtype`.
///
/// # Errors
///
/// [`Error::Argument`] for a limit that no recomputation reaches. The errors of planning.
pub(crate) fn fit(
    graph: &Graph,
    images: usize,
    dtype: DType,
    limit: Option<usize>,
) -> Result<(Graph, MemoryReport)> {
    let limit = limit.unwrap_or(usize::MAX);
    let (graph, report) = within(graph, images, dtype, limit)?;
    if report.bytes() <= limit {
        return Ok((graph, report));
    }
    let reason = format!(
        "{} is too little for steps of {images} images: at least {} is needed. Raise the limit or take a smaller batch",
        gigabytes(limit),
        gigabytes(report.bytes()),
    );
    Err(Error::argument("memory", reason))
}

/// Returns the step `graph` with the recomputations by which it needs at most `limit` bytes, or as few as possible.
///
/// # Errors
///
/// The errors of planning.
pub(crate) fn within(
    graph: &Graph,
    images: usize,
    dtype: DType,
    limit: usize,
) -> Result<(Graph, MemoryReport)> {
    let plan = Plan::new(Arc::new(graph.clone()), images, dtype)?;
    let bytes = |id| {
        let elements: usize = graph.value(id).shape.iter().product();
        (elements * state_dtype(graph, id, dtype).size()).next_multiple_of(ALIGNMENT)
    };
    let weights = graph
        .states()
        .filter(|&id| graph.value(id).kind == ValueKind::Parameter);
    let constants = graph.values().iter().filter(|value| value.is_constant());
    let constants = constants.map(|value| {
        let size = dtype.size().min(value.dtype.size());
        (value.shape.iter().product::<usize>() * size).next_multiple_of(ALIGNMENT)
    });
    let mut report = MemoryReport {
        images,
        state_bytes: graph.states().map(bytes).sum(),
        weight_bytes: weights.map(bytes).sum(),
        constant_bytes: constants.sum(),
        other_bytes: run_bytes(&plan) - plan.arena_bytes(),
        recomputation: Recomputation::default(),
    };
    let arena = limit.saturating_sub(report.fixed_bytes());
    let (graph, recomputation) = recompute(graph, images, dtype, arena)?;
    report.recomputation = recomputation;
    Ok((graph, report))
}

/// Returns the text of an error for a device without the memory of a step, given the least memory of the step.
pub(crate) fn shortage(least: &MemoryReport) -> String {
    format!(
        "out of memory: a step of {} images needs {}. Take a smaller batch or a narrower dtype, or set a memory limit (at least {}), by which \
         the backward pass recomputes activations",
        least.images,
        gigabytes(least.bytes_before()),
        gigabytes(least.bytes()),
    )
}

/// Returns a number of bytes as text.
fn gigabytes(bytes: usize) -> String {
    let (unit, size) = match bytes {
        1_000_000_000.. => ("GB", 1e9),
        1_000_000.. => ("MB", 1e6),
        _ => ("KB", 1e3),
    };
    // Rounded up, so that a limit of this text suffices.
    format!("{:.2} {unit}", (bytes as f64 / size * 100.0).ceil() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bytes_or_shares() {
        for (text, limit) in [
            ("unlimited", MemoryLimit::Unlimited),
            ("8G", MemoryLimit::Bytes(8_000_000_000)),
            ("1.5 GiB", MemoryLimit::Bytes(3 << 29)),
            ("1G", MemoryLimit::Bytes(1_000_000_000)),
            ("123456", MemoryLimit::Bytes(123_456)),
            ("0.5", MemoryLimit::Share(0.5)),
            ("1", MemoryLimit::Share(1.0)),
            ("0.001K", MemoryLimit::Bytes(1)),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text}");
            assert_eq!(limit.to_string().parse(), Ok(limit), "{text}");
        }
        for text in ["", "G", "0", "-1G", "8T", "nan", "all", "1e30"] {
            let error = text.parse::<MemoryLimit>().unwrap_err();
            assert!(error.contains("such as 8G"), "{text}: {error}");
        }
    }
}
