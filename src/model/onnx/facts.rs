//! The name, the facts and the limit of floating-point operations of an ONNX model.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::model::info::{Family, Info, Library, OnnxInfo};
use crate::model::options::{LoadOptions, MAX_FLOPS};
use crate::tensor::DType;
use crate::tensors::TensorInfo;

/// Refuses a model that takes more floating-point operations than the limit.
pub(in crate::model) fn check_flops(path: &Path, graph: &Graph, options: &LoadOptions) -> Result<()> {
    let plan = Plan::new(Arc::new(graph.clone()), 1, DType::F32)?;
    let (flops, limit) = (plan.flops(), options.max_flops.unwrap_or(MAX_FLOPS));
    if flops <= limit {
        return Ok(());
    }
    let reason = format!(
        "a batch of 1 takes {:.1e} floating-point operations, more than the limit of {:.1e}; SessionBuilder::max_flops or --max-flops \
         raises it",
        flops as f64, limit as f64
    );
    Err(Error::config(path, reason))
}

/// Returns the file's name without its extension. A file called `model.onnx` has the name of its directory.
pub(super) fn name(path: &Path) -> String {
    let stem = path
        .file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    let directory = path.canonicalize().ok();
    let mut above = directory.iter().flat_map(|path| path.ancestors().skip(1));
    let directory = above.find(|directory| !directory.ends_with("onnx"));
    match directory.and_then(Path::file_name) {
        Some(directory) if stem == "model" => directory.to_string_lossy().into_owned(),
        _ => stem,
    }
}

/// Returns the facts about a model. `reason` says why it does not take images, if it does not.
pub(super) fn info(
    model: &hipvit_onnx::Model,
    image_size: [usize; 2],
    classes: usize,
    dim: usize,
    reason: Option<String>,
) -> Info {
    let of_file = |info: &hipvit_onnx::Info| TensorInfo {
        counted: info.counted.clone(),
        ..TensorInfo::new(&info.name, info.element, info.dims.clone())
    };
    let constants = model.graph.values().iter().filter(|value| value.is_constant());
    Info {
        library: Library::Onnx,
        family: Family::Other,
        architecture: model.graph.name().to_owned(),
        image_size,
        patch: image_size.map(|side| side.max(1)),
        tokens: 0,
        any_aspect_ratio: false,
        prefix_tokens: 0,
        depth: 0,
        dim,
        heads: 0,
        merged_grid: None,
        classes,
        parameters: constants
            .map(|value| value.shape.iter().product::<usize>() as u64)
            .sum(),
        interpolated: None,
        ignored: Vec::new(),
        text: None,
        adapter: None,
        quantization: None,
        sparsity: None,
        depth_map: None,
        onnx: Some(Box::new(OnnxInfo {
            opset: model.opset,
            producer: model.producer.clone(),
            inputs: model.inputs.iter().map(of_file).collect(),
            outputs: model.outputs.iter().map(of_file).collect(),
            operators: model.operators.clone(),
            no_images: reason,
        })),
    }
}
