//! What a step minimises: the end of the forward pass.

use std::borrow::Cow;
use std::path::Path;

use hipvit::Scores;
use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, OutputKind, Provenance, Role, ValueId};
use hipvit::model::{
    Checkpoint, DETECTOR_OUTPUTS, LoadOptions, MASKS, Model, PREDICTED_DEPTH, SCORES, TEXT_EMBEDDING,
    TensorValues, TextTower,
};
use hipvit::ops::{
    Add, ContrastiveKind, ContrastiveLoss, DetectionLoss, DistillationLoss, Linear, Loss, LossKind,
    MulScalar, Op, RmsNorm, Slice, TokenLoss,
};
use hipvit::segment::MaskModel;
use hipvit::tensor::{DType, Tensor};
use hipvit_generate::TextDecoder;

use crate::dense_loss::{DepthLoss, push_masks};
use crate::inputs;
use crate::trained::{TensorRule, Trained};

/// Name of the state with the logarithm of the factor of similarities.
pub(crate) const LOG_SCALE: &str = "contrastive.log_scale";

/// Name of the output of a step that is 1 for each token that the model predicts, or the overlap of each box with its object.
const HITS: &str = "hits";

/// Name of the state that is added to the logits of pairs.
pub(crate) const BIAS: &str = "contrastive.bias";

/// Name of the tensor of a dual encoder with the logarithm of the factor.
pub(crate) const SCALE_TENSOR: &str = "logit_scale";

/// Name of the tensor of a dual encoder that is added to the logits.
pub(crate) const BIAS_TENSOR: &str = "logit_bias";

/// Limit of the scale in CLIP's training.
const LARGEST_SCALE: f32 = 100.0;

/// Smallest length by which an embedding is divided: PyTorch's `normalize`.
const SMALLEST_LENGTH: f32 = 1e-12;

/// What a step minimises: the mean of a loss over the images of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Objective {
    /// Loss of the logits and the targets of each image.
    Targets(LossKind),
    /// Loss that also compares the logits with those of a teacher. A model with two classifiers, as distilled DeiT models have, compares those
    /// of the distillation token. The logits of other models are compared with both.
    Distillation(DistillationLoss),
    /// Loss of pairs of images and texts, for a model without a classifier. The targets of an image are the embedding of its text. The text
    /// tower is not trained.
    Contrastive(ContrastiveOptions),
    /// Loss of pairs of images and texts that trains both towers of a CLIP or SigLIP model. Scale and bias are tensors of the model, which are
    /// trained too.
    Pairs(PairOptions),
    /// Cross-entropy of the tokens of texts, given the tokens before them, for an image encoder with a text decoder. It is the mean over the tokens of
    /// a batch, which micro-batches do not change.
    Texts(TextOptions),
    /// Loss of the depths of each image, for a model that estimates them. The targets are numbers for the pixels of its map.
    Depth(DepthLoss),
    /// Loss of the masks of a prompt in each image, and of their predicted quality, for SAM. The targets are shares of the pixels of a mask that
    /// the object covers. See `docs/training.md`.
    Masks,
    /// Loss of the boxes and classes of objects, for a detector. It is the mean over the objects of a batch, which micro-batches do not change.
    Boxes(BoxOptions),
}

/// A loss of objects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxOptions {
    /// Function of the queries and the objects.
    pub loss: DetectionLoss,
    /// Maximum number of objects in an image.
    pub objects: usize,
}

/// A loss of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Number of tokens of each text.
    pub tokens: usize,
}

/// A loss of pairs for both towers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairOptions {
    /// Function of the logits, with the values that the model has for what it learns.
    pub contrastive: ContrastiveOptions,
    /// Number of tokens of each text. Texts of models with causal attention may be shorter than the context.
    pub tokens: usize,
}

impl PairOptions {
    /// Returns the loss of a model's family, with its scale and bias: InfoNCE for CLIP, whose scale is limited to 100 as by open_clip, and the
    /// sigmoid loss for SigLIP.
    pub fn of(tower: &TextTower, tokens: usize) -> Self {
        let [scale, bias] = tower.scale_and_bias().map(|value| value as f32);
        let family = if tower.scores() == Scores::Sigmoid {
            ContrastiveOptions::sigmoid()
        } else {
            ContrastiveOptions {
                largest_scale: LARGEST_SCALE,
                ..ContrastiveOptions::info_nce()
            }
        };
        Self {
            contrastive: ContrastiveOptions {
                scale,
                bias,
                ..family
            },
            tokens,
        }
    }
}

/// A loss of pairs, with the initial values of what it learns: the logits are `scale · similarity + bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContrastiveOptions {
    /// Function of the logits.
    pub kind: ContrastiveKind,
    /// Factor of the similarities, whose logarithm is trained.
    pub scale: f32,
    /// Number added to the logits, which is trained too. Only for [`ContrastiveKind::Sigmoid`].
    pub bias: f32,
    /// Limit of the scale. A step that exceeds it ends with this scale. Infinity if there is none.
    pub largest_scale: f32,
}

impl ContrastiveOptions {
    /// Returns CLIP's loss.
    pub fn info_nce() -> Self {
        Self {
            kind: ContrastiveKind::InfoNce,
            scale: 1.0 / 0.07,
            bias: 0.0,
            largest_scale: f32::INFINITY,
        }
    }

    /// Returns SigLIP's loss.
    pub fn sigmoid() -> Self {
        Self {
            kind: ContrastiveKind::Sigmoid,
            scale: 10.0,
            bias: -10.0,
            largest_scale: f32::INFINITY,
        }
    }
}

impl Default for Objective {
    fn default() -> Self {
        Self::Targets(LossKind::default())
    }
}

impl From<LossKind> for Objective {
    fn from(kind: LossKind) -> Self {
        Self::Targets(kind)
    }
}

/// The loss of a graph.
pub(crate) struct PushedLoss {
    /// Loss of each image.
    pub(crate) loss: ValueId,
    /// Numbers that the loss learns beside the weights of the model.
    pub(crate) learned: Vec<Trained>,
}

impl Objective {
    /// Returns true if the targets are those of classes.
    pub(crate) fn has_classes(&self) -> bool {
        matches!(self, Self::Targets(_) | Self::Distillation(_))
    }

    /// Returns the loss of pairs, if it is one.
    pub(crate) fn contrastive(&self) -> Option<&ContrastiveOptions> {
        match self {
            Self::Contrastive(options)
            | Self::Pairs(PairOptions {
                contrastive: options, ..
            }) => Some(options),
            Self::Targets(_)
            | Self::Distillation(_)
            | Self::Texts(_)
            | Self::Depth(_)
            | Self::Masks
            | Self::Boxes(_) => None,
        }
    }

    /// Returns true if both towers of a model are trained.
    pub(crate) fn has_texts(&self) -> bool {
        matches!(self, Self::Pairs(_))
    }

    /// Returns true if the targets are the tokens that follow those of a text.
    pub(crate) fn has_labels(&self) -> bool {
        matches!(self, Self::Texts(_))
    }

    /// Returns true if the targets are maps.
    pub(crate) fn has_maps(&self) -> bool {
        matches!(self, Self::Depth(_) | Self::Masks)
    }

    /// Returns true if each image has a prompt.
    pub(crate) fn has_prompts(&self) -> bool {
        matches!(self, Self::Masks)
    }

    /// Returns the model of a checkpoint, with new values of some tensors.
    ///
    /// # Errors
    ///
    /// The errors of [`Checkpoint::model_with`].
    pub(crate) fn model(
        &self,
        checkpoint: &Checkpoint,
        values: &TensorValues,
        options: &LoadOptions,
    ) -> Result<Model> {
        match self {
            Self::Masks => MaskModel::of_checkpoint(checkpoint, values)?.graph(),
            _ => checkpoint.model_with(values, options),
        }
    }

    /// Returns true if the targets are the boxes and classes of objects.
    pub(crate) fn has_boxes(&self) -> bool {
        matches!(self, Self::Boxes(_))
    }

    /// Returns the number of losses of an image with targets of this width.
    pub(crate) fn losses(&self, width: usize) -> usize {
        match self {
            Self::Texts(_) => width,
            Self::Boxes(options) => options.loss.layers,
            _ => 1,
        }
    }

    /// Returns the graph whose outputs the loss compares. `model` is that of the checkpoint with these values.
    ///
    /// # Errors
    ///
    /// The errors of [`Model::pairs`] and [`TextDecoder::append`].
    pub(crate) fn graph<'a>(
        &self,
        model: &'a Model,
        checkpoint: &Checkpoint,
        values: &TensorValues,
    ) -> Result<Cow<'a, Graph>> {
        match self {
            Self::Pairs(options) => model.pairs(options.tokens).map(Cow::Owned),
            Self::Texts(options) => {
                let decoder = TextDecoder::open(directory_of(checkpoint), checkpoint.config())?;
                let weights = checkpoint.with_values(values)?;
                decoder
                    .append(model.graph.clone(), &weights, options.tokens)
                    .map(Cow::Owned)
            }
            _ => Ok(Cow::Borrowed(&model.graph)),
        }
    }

    /// Returns true if steps need the logits of a teacher.
    pub(crate) fn has_teacher(&self) -> bool {
        matches!(self, Self::Distillation(_))
    }

    /// Checks that a step may add the gradients of this many micro-batches.
    pub(crate) fn check(&self, accumulate: usize) -> Result<()> {
        if let Some(options) = self.contrastive() {
            if accumulate > 1 {
                let reason = format!(
                    "is {accumulate}, but a contrastive loss compares all pairs of a batch, which is not divided"
                );
                return Err(Error::argument("accumulate", reason));
            }
            let is_limited = options.largest_scale > 1.0;
            if !options.scale.is_normal() || options.scale < 0.0 || !options.bias.is_finite() || !is_limited {
                let reason = format!(
                    "has a scale of {}, limited to {}, and a bias of {}, expected a scale above 0 and a limit above 1",
                    options.scale, options.largest_scale, options.bias
                );
                return Err(Error::argument("contrastive loss", reason));
            }
        }
        Ok(())
    }

    /// Appends the loss. The graph keeps only the outputs that steps return.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no output that the loss compares. The errors of ops.
    pub(crate) fn push(&self, graph: &mut Graph) -> Result<PushedLoss> {
        match self {
            Self::Contrastive(options) => {
                let embedding = image_embedding(graph)?;
                let shape = graph.value(embedding).shape.clone();
                let texts = graph.add_input(inputs::TARGETS, shape, DType::F32)?;
                push_contrastive(graph, [embedding, texts], *options)
            }
            Self::Pairs(options) => {
                let embedding = image_embedding(graph)?;
                let text = named_output(graph, TEXT_EMBEDDING);
                let text =
                    text.ok_or_else(|| Error::internal("training", "the graph has no embedding of texts"))?;
                push_contrastive(graph, [embedding, text], options.contrastive)
            }
            Self::Texts(options) => {
                let logits = output(graph, OutputKind::Logits);
                let logits =
                    logits.ok_or_else(|| Error::internal("training", "the decoder has no logits"))?;
                graph.retain_outputs(|_| false);
                let labels = graph.add_input(inputs::LABELS, [1, options.tokens], DType::I32)?;
                let node =
                    graph.push_node(Role::Other, "loss".into(), TokenLoss.into(), vec![logits, labels])?;
                let (loss, hits) = (node.outputs[0], node.outputs[1]);
                graph.add_output(HITS, hits)?;
                Ok(of_model(loss))
            }
            Self::Depth(kind) => {
                let depths = named_output(graph, PREDICTED_DEPTH).ok_or_else(|| {
                    let reason = format!("{} estimates no depth", graph.name());
                    Error::argument("model", reason)
                })?;
                graph.retain_outputs(|_| false);
                Ok(of_model(kind.push(graph, depths)?))
            }
            Self::Masks => {
                let outputs = [MASKS, SCORES].map(|name| named_output(graph, name));
                let [Some(masks), Some(scores)] = outputs else {
                    return Err(Error::internal("training", "the graph has no masks"));
                };
                graph.retain_outputs(|_| false);
                Ok(of_model(push_masks(graph, masks, scores)?))
            }
            Self::Boxes(options) => push_boxes(graph, *options),
            Self::Targets(kind) => {
                let (logits, targets) = logits_and_targets(graph)?;
                let loss = graph.push(Role::Other, "loss", Loss(*kind), [logits, targets])?;
                Ok(of_model(loss))
            }
            Self::Distillation(op) => {
                let (logits, targets) = logits_and_targets(graph)?;
                let shape = graph.value(logits).shape.clone();
                let teacher = graph.add_input(inputs::TEACHER, shape, DType::F32)?;
                let [class, distilled] = classifiers(graph, logits);
                let operands = [class, distilled, targets, teacher];
                let loss = graph.push(Role::Other, "loss", *op, operands)?;
                Ok(of_model(loss))
            }
        }
    }
}

/// Returns the directory of a checkpoint's files.
pub(crate) fn directory_of(checkpoint: &Checkpoint) -> &Path {
    let place = checkpoint.place();
    if place.is_dir() {
        return place;
    }
    place.parent().unwrap_or(Path::new(""))
}

/// Returns a loss that learns nothing but weights of the model.
fn of_model(loss: ValueId) -> PushedLoss {
    PushedLoss {
        loss,
        learned: Vec::new(),
    }
}

/// Appends the loss of the queries of all layers of a detector. The overlaps of the last layer become the output `hits`.
fn push_boxes(graph: &mut Graph, BoxOptions { loss, objects }: BoxOptions) -> Result<PushedLoss> {
    let [Some(logits), Some(boxes)] = DETECTOR_OUTPUTS.map(|name| named_output(graph, name)) else {
        return Err(Error::internal("training", "the detector has no logits or boxes"));
    };
    graph.retain_outputs(|_| false);
    let targets = graph.add_input(inputs::TARGETS, [1, objects, 5], DType::F32)?;
    let node = graph.push_node(
        Role::Other,
        "loss".into(),
        loss.into(),
        vec![logits, boxes, targets],
    )?;
    let (losses, overlaps) = (node.outputs[0], node.outputs[3]);
    let queries = graph.value(overlaps).shape[1] / loss.layers;
    let of_last = Slice::new(1, (loss.layers - 1) * queries, queries);
    let hits = graph.push(Role::Other, HITS, of_last, [overlaps])?;
    graph.add_output(HITS, hits)?;
    Ok(of_model(losses))
}

/// Returns the logits and the input of the targets, which has their shape.
fn logits_and_targets(graph: &mut Graph) -> Result<(ValueId, ValueId)> {
    let logits = output(graph, OutputKind::Logits);
    let Some(logits) = logits else {
        let reason = format!(
            "{} has no classifier, so there are no logits to train",
            graph.name()
        );
        return Err(Error::argument("model", reason));
    };
    graph.retain_outputs(|kind| kind == OutputKind::Logits);
    let shape = graph.value(logits).shape.clone();
    let targets = graph.add_input(inputs::TARGETS, shape, DType::F32)?;
    Ok((logits, targets))
}

fn named_output(graph: &Graph, name: &str) -> Option<ValueId> {
    let mut outputs = graph.outputs().iter();
    outputs
        .find(|&&(kind, _)| graph.output_name(kind) == name)
        .map(|&(_, id)| id)
}

fn output(graph: &Graph, wanted: OutputKind) -> Option<ValueId> {
    let mut outputs = graph.outputs().iter();
    outputs.find(|(kind, _)| *kind == wanted).map(|&(_, id)| id)
}

/// Returns the logits of the class token and those of the distillation token, whose mean are the logits of a model with both. The logits of
/// other models are returned twice.
fn classifiers(graph: &Graph, logits: ValueId) -> [ValueId; 2] {
    let producer = |id: ValueId| {
        graph
            .nodes()
            .iter()
            .find(|node: &&Node| node.outputs.contains(&id))
    };
    let is_linear = |id: &ValueId| producer(*id).is_some_and(|node| matches!(node.op, Op::Linear(_)));
    let heads = producer(logits)
        .filter(|mean| mean.op == MulScalar(0.5).into())
        .and_then(|mean| producer(mean.inputs[0]))
        .filter(|sum| sum.op == Add.into() && sum.inputs.iter().all(is_linear));
    match heads.map(|sum| sum.inputs.as_slice()) {
        Some(&[class, distilled]) => [class, distilled],
        _ => [logits; 2],
    }
}

/// Returns the embedding of images, which a text could have too.
fn image_embedding(graph: &Graph) -> Result<ValueId> {
    let embedding = output(graph, OutputKind::Embedding);
    embedding
        .filter(|&id| graph.value(id).shape.len() == 2)
        .ok_or_else(|| {
            let reason = format!("{} has no embedding that a text could have", graph.name());
            Error::argument("model", reason)
        })
}

/// Appends the loss of the pairs of embeddings of images and texts. The similarities become the output `logits`.
fn push_contrastive(
    graph: &mut Graph,
    [images, texts]: [ValueId; 2],
    options: ContrastiveOptions,
) -> Result<PushedLoss> {
    graph.retain_outputs(|_| false);
    let [width, of_texts] = [images, texts].map(|id| graph.value(id).shape[1]);
    if width != of_texts {
        let reason = format!(
            "texts have embeddings of {of_texts} channels, but images of {width}. They cannot be compared"
        );
        return Err(Error::argument("model", reason));
    }
    // The length of a vector is the root mean square of its elements times √width.
    let factor = vec![1.0 / (width as f32).sqrt(); width];
    let weight = Tensor::from_f32([width], factor)
        .ok_or_else(|| Error::graph("contrastive.length", "has no channels"))?;
    let weight = graph.constant(Provenance::computed("contrastive.length", []), weight);
    let op = RmsNorm {
        epsilon: SMALLEST_LENGTH * SMALLEST_LENGTH / width as f32,
    };
    let images = graph.push(Role::Other, "contrastive.images", op, [images, weight])?;
    let texts = graph.push(Role::Other, "contrastive.texts", op, [texts, weight])?;
    let similarity = graph.push(
        Role::Other,
        "contrastive.similarity",
        Linear::default(),
        [images, texts],
    )?;
    graph.set_output(OutputKind::Logits, similarity);
    let mut learned = vec![learned(graph, LOG_SCALE, options.scale.ln())?];
    if options.kind.has_bias() {
        learned.push(self::learned(graph, BIAS, options.bias)?);
    }
    let mut operands = vec![similarity];
    operands.extend(learned.iter().map(|learned| learned.id));
    let loss = graph.push(Role::Other, "loss", ContrastiveLoss(options.kind), operands)?;
    Ok(PushedLoss { loss, learned })
}

/// Adds a number that steps learn, without weight decay.
fn learned(graph: &mut Graph, name: &str, value: f32) -> Result<Trained> {
    let tensor = Tensor::from_f32([1], vec![value]).ok_or_else(|| Error::graph(name, "is no number"))?;
    Ok(Trained {
        id: graph.state(name, tensor),
        rule: TensorRule::default(),
        mask: None,
        is_f32: true,
    })
}
