//! ONNX models that take images: one input with three channels, and logits or embeddings as outputs.

use std::path::Path;

use hipvit_onnx::{Declared, Dim, Extent, Options};

use super::rule::Prepared;
use super::{check_flops, info, name};
use crate::error::Result;
use crate::graph::{OutputKind, ValueId};
use crate::labels::Labels;
use crate::model::load::Model;
use crate::model::options::{InputKind, LoadOptions};
use crate::model::preprocessing;
use crate::ops::Op;
use crate::outputs::Scores;

/// Why a model does not take images.
#[derive(Debug)]
pub(super) struct NotImages(pub(super) String);

impl NotImages {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The input of a model that takes images, `[B, 3, H, W]` or `[B, H, W, 3]`.
#[derive(Debug)]
pub(super) struct ImageInput {
    channels: Extent,
    /// Height and width.
    size: [Extent; 2],
    channels_last: bool,
}

impl ImageInput {
    /// Returns the input if there is one, with four axes of which one has three channels.
    pub(super) fn new(inputs: &[Declared]) -> Result<Self, NotImages> {
        let [input] = inputs else {
            return Err(NotImages(format!("it has {} inputs", inputs.len())));
        };
        let name = &input.name;
        let [batch, axes @ ..] = input.extents.as_slice() else {
            return Err(NotImages(format!("its input `{name}` is a scalar")));
        };
        if let Extent::Fixed(2..) = batch {
            return Err(NotImages(format!(
                "its input `{name}` is fixed to several images"
            )));
        }
        let [a, b, c] = axes else {
            let count = input.extents.len();
            return Err(NotImages(format!("its input `{name}` has {count} axes, not 4")));
        };
        let may_be_channels = |extent: &Extent| !matches!(extent, Extent::Fixed(n) if *n != 3);
        let channels_last = *c == Extent::Fixed(3) && *a != Extent::Fixed(3);
        if !input.element.is_float() || !(channels_last || may_be_channels(a)) {
            return Err(NotImages(format!(
                "its input `{name}` is not a batch of RGB images in floating point"
            )));
        }
        let [channels, height, width] = if channels_last { [c, a, b] } else { [a, b, c] };
        Ok(Self {
            channels: channels.clone(),
            size: [height.clone(), width.clone()],
            channels_last,
        })
    }

    /// Returns height and width, if the file has both.
    pub(super) fn fixed_size(&self) -> Option<[usize; 2]> {
        match self.size {
            [Extent::Fixed(height), Extent::Fixed(width)] => Some([height, width]),
            _ => None,
        }
    }

    /// Returns true if images of this size fit.
    pub(super) fn takes(&self, size: [usize; 2]) -> bool {
        let mut pairs = self.size.iter().zip(size);
        pairs.all(|(extent, given)| !matches!(extent, Extent::Fixed(side) if *side != given))
    }

    /// Returns the options that load the model for images of this size.
    fn options(&self, [height, width]: [usize; 2], options: &LoadOptions) -> Options {
        let mut extents = options.extents.clone();
        let numbers = [
            (&self.channels, 3),
            (&self.size[0], height),
            (&self.size[1], width),
        ];
        for (extent, number) in numbers {
            if let Extent::Named(name) = extent {
                extents.insert(name.clone(), number);
            }
        }
        Options {
            extents,
            pixels: options.input != InputKind::PixelValues,
            ..Options::default()
        }
    }
}

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
