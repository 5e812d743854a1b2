//! The extension module of the Python package `hipvit`. It converts Python's images to sources, results to numpy arrays, and errors to
//! exceptions.

// PyO3's macros generate items that are public within this crate only.
#![allow(unreachable_pub, reason = "methods of Python classes are called from Python")]

mod arguments;
mod attention;
mod command_line;
mod detector;
mod dlpack;
mod dtype;
mod error;
mod generation;
mod gpu_outputs;
mod images;
mod loaded_model;
mod model;
mod outputs;
mod process;
mod progress;
mod ranks;
mod segmenter;
mod tensors;
mod trainable;
mod training;
mod zero_shot;

use pyo3::prelude::*;

/// Vision Transformers from pixels to logits.
#[pymodule]
mod _hipvit {
    #[pymodule_export]
    use super::arguments::load;
    #[pymodule_export]
    use super::attention::AttentionPattern;
    #[pymodule_export]
    use super::command_line::{command_line, devices, pull};
    #[pymodule_export]
    use super::detector::Detector;
    #[pymodule_export]
    use super::gpu_outputs::{GpuOutputs, GpuTensor};
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::outputs::Outputs;
    #[pymodule_export]
    use super::samples;
    #[pymodule_export]
    use super::segmenter::{ImageEmbedding, Segmenter};
    #[pymodule_export]
    use super::trainable::{Differentiable, new_model};
    #[pymodule_export]
    use super::training::train;
    #[pymodule_export]
    use super::zero_shot::ZeroShot;

    /// Version of the library.
    #[pymodule_export]
    const __VERSION__: &str = env!("CARGO_PKG_VERSION");
}

/// Returns ten handwritten digits as `(name, encoded image)`. The embedded model was not trained on them.
#[pyfunction]
fn samples(py: Python<'_>) -> PyResult<Vec<(String, Bound<'_, pyo3::types::PyBytes>)>> {
    let mut samples = Vec::new();
    for source in hipvit::digits::samples() {
        if let hipvit::pipeline::Source::Bytes(name, bytes) = source {
            samples.push((name, pyo3::types::PyBytes::new(py, &bytes)));
        }
    }
    Ok(samples)
}
