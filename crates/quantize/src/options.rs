//! Options of quantisation.

use super::precision::{Precision, Scales};
use super::range::ActivationRange;
use super::sparse::Sparsity;
use super::times::GpuTarget;

/// Options of [`quantize`](crate::quantize).
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Target precision of the weights.
    pub precision: Precision,
    /// Method that determines the scales.
    pub scales: Scales,
    /// Maximum root mean square error of the outputs on the images, relative to the outputs; 0.005 is 0.5 %.
    ///
    /// With a budget, `precision` must be int8. Error and time then determine the precision of each layer:
    ///
    /// - without a `target`: its own, int8 or bf16
    /// - with a `target`: its own, int8 or FP8
    ///
    /// If there are two or more images, a fifth of them, at least one, is held out. They are not used for
    /// calibration, and the error on them must also be within the budget.
    pub budget: Option<f64>,
    /// Range of FP8 activations that are calibrated with images.
    pub activation_range: ActivationRange,
    /// Target GPU of a model with a budget; `None` for the CPU. The budget bounds the errors that the CPU
    /// computes in f32. The error on the GPU can be larger; it is measured at the end ([`Decision::on_gpu`](crate::Decision::on_gpu)).
    pub target: Option<GpuTarget>,
    /// Weights to prune before the remaining ones are rounded. Errors of the outputs are then relative to the
    /// pruned model.
    pub sparsity: Option<Sparsity>,
}
