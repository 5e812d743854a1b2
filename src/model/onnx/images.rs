//! ONNX models that take images: one input with three channels, and logits or embeddings as outputs.

use std::path::Path;

use hipvit_onnx::Dim;

use super::facts::{check_flops, info, name};
use super::image_input::NotImages;
use super::rule::Prepared;
use crate::error::Result;
use crate::graph::{OutputKind, ValueId};
use crate::labels::Labels;
use crate::model::loaded::Model;
use crate::model::options::{InputKind, LoadOptions};
use crate::model::preprocessing;
use crate::ops::Op;
use crate::outputs::Scores;

/// Loads the model for images.
pub(super) fn load(
    path: &Path,
    prepared: Prepared,
    options: &LoadOptions,
) -> Result<Result<Model, NotImages>> {
    let (height, width) = prepared.preprocess.output_size();
    let size = [height, width];
    let mut model = hipvit_onnx::load(path, &prepared.image.options(size, options))?;
    let Some(results) = Results::find(&model) else {
        let outputs: Vec<String> = model
            .outputs
            .iter()
            .map(|output| format!("`{}`", output.name))
            .collect();
        let reason = format!("of its outputs {}, none is [B, classes]", outputs.join(", "));
        return Ok(Err(NotImages(reason)));
    };
    let columns = |output: &Option<ValueId>| {
        output.map_or(0, |id| model.graph.value(id).shape.last().copied().unwrap_or(0))
    };
    let (classes, dim) = (columns(&results.logits), columns(&results.embedding));
    model.graph.retain_outputs(|_| false);
    for (kind, output) in [
        (OutputKind::Logits, results.logits),
        (OutputKind::Embedding, results.embedding),
    ] {
        if let Some(output) = output {
            model.graph.set_output(kind, output);
        }
    }
    let info = info(&model, size, classes, dim, None);
    let graph = match options.input {
        InputKind::PixelValues => model.graph,
        _ => {
            let normalize = preprocessing::normalize(&prepared.preprocess);
            model.graph.with_pixels(normalize, prepared.image.channels_last)?
        }
    };
    check_flops(path, &graph, options)?;
    let labels = match classes {
        0 => Labels::default(),
        classes => prepared.labels(classes)?,
    };
    Ok(Ok(Model {
        name: name(path),
        scores: if prepared.is_multi_label() || classes == 1 {
            Scores::Sigmoid
        } else {
            Scores::Softmax
        },
        preprocess: prepared.preprocess,
        labels,
        text: None,
        packing: None,
        info,
        graph,
    }))
}

/// Returns the operand of the softmax that computes `id`, or `id`. Probabilities are computed from logits.
fn before_softmax(model: &hipvit_onnx::Model, id: ValueId) -> ValueId {
    let mut nodes = model.graph.nodes().iter();
    match nodes.find(|node| node.outputs.contains(&id)) {
        Some(node) if matches!(node.op, Op::Softmax(_)) => node.inputs[0],
        _ => id,
    }
}

/// Returns the vector per image from which a linear layer computes the logits `id`, as an embedding is in timm's models.
fn before_classifier(model: &hipvit_onnx::Model, id: ValueId) -> Option<ValueId> {
    let mut nodes = model.graph.nodes().iter();
    let node = nodes.find(|node| node.outputs.contains(&id))?;
    let features = *node.inputs.first()?;
    let is_vector = matches!(*model.graph.value(features).shape, [1, _]);
    (matches!(node.op, Op::Linear(_)) && is_vector).then_some(features)
}

/// The outputs with a vector per image.
struct Results {
    logits: Option<ValueId>,
    embedding: Option<ValueId>,
}

impl Results {
    /// Parts of the names that the libraries' exporters give to embeddings.
    const EMBEDDINGS: [&'static str; 4] = ["embed", "pooler", "pooled", "feature"];

    /// Finds the logits and the embedding by shape and name. The first vector without the name of an embedding is the logits. Without an
    /// output of embeddings, the operand of the last linear layer is the embedding. Returns `None` if there is neither.
    fn find(model: &hipvit_onnx::Model) -> Option<Self> {
        let outputs = model.outputs.iter().zip(model.graph.outputs());
        let vectors = outputs.filter(|(output, _)| {
            output.element.is_float()
                && matches!(*output.dims, [Dim::Batch(1) | Dim::Fixed(1), Dim::Fixed(_)])
        });
        let (mut logits, mut embedding) = (None, None);
        for (output, &(_, id)) in vectors {
            let name = output.name.to_lowercase();
            if Self::EMBEDDINGS.iter().any(|part| name.contains(part)) {
                embedding = embedding.or(Some(id));
            } else {
                logits = logits.or(Some(id));
            }
        }
        let logits = logits.map(|id| before_softmax(model, id));
        let embedding = embedding.or_else(|| before_classifier(model, logits?));
        (logits.is_some() || embedding.is_some()).then_some(Self { logits, embedding })
    }
}
