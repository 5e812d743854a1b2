//! The graph of encoder and decoder together, for training on masks.
//!
//! Each image has one prompt. The tokens of prompts are made in the graph, so that their vectors are trained too.

use super::outputs::{MASKS, SCORES};
use super::prompts::{PromptEncoder, PromptPoint};
use super::{EMBEDDING, SamSource};
use crate::error::{Error, Result};
use crate::graph::{Graph, Role, ValueId};
use crate::model::loaded::Model;
use crate::model::splice::splice;
use crate::ops::{Add, Concat, Expand, Gather};
use crate::tensor::{DType, Tensor};

/// Number of tokens of a prompt: the corners of a box, or a point and the token that ends points.
pub(crate) const PROMPT_TOKENS: usize = 2;

/// Names of the inputs of a graph that trains masks, beside the images.
pub mod mask_inputs {
    /// f32 `[images, 2, channels]`: sines and cosines of the places of a prompt's points or corners.
    pub const POSITIONS: &str = "prompt_positions";
    /// i32 `[images, 2]`: the kind of each, which has a vector of its own.
    pub const KINDS: &str = "prompt_kinds";
}

/// A prompt as inputs of a graph that trains masks.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PromptRow {
    /// See [`mask_inputs::POSITIONS`].
    pub positions: Vec<f32>,
    /// See [`mask_inputs::KINDS`].
    pub kinds: Vec<i32>,
}

impl SamSource {
    /// Returns the model of images and [`mask_inputs`], with the outputs [`MASKS`] and [`SCORES`].
    pub(crate) fn with_prompts(&self) -> Result<Model> {
        let mut model = self.encoder.clone();
        let graph = &mut model.graph;
        let embedding = named_output(graph, EMBEDDING)?;
        graph.retain_outputs(|_| false);
        let tokens = self.prompts.append(graph, self.dim)?;
        let width = graph.value(tokens).shape[1];
        let decoder = self.decoder_of(width)?.graph;
        let image = decoder
            .inputs()
            .map(|input| input.value)
            .find(|&value| value != decoder.input());
        let image = image.ok_or_else(|| Error::graph(EMBEDDING, "is no input of the decoder"))?;
        let inputs = [(decoder.input(), tokens), (image, embedding)];
        let outputs = splice(graph, &decoder, &inputs, "decoder")?;
        for (name, id) in [MASKS, SCORES].into_iter().zip(outputs) {
            graph.add_output(name, id)?;
        }
        Ok(model)
    }
}

fn named_output(graph: &Graph, name: &str) -> Result<ValueId> {
    let mut outputs = graph.outputs().iter();
    let found = outputs.find(|&&(kind, _)| graph.output_name(kind) == name);
    let &(_, id) = found.ok_or_else(|| Error::graph(name, "is no output"))?;
    Ok(id)
}

impl PromptEncoder {
    /// Appends the tokens of outputs and of prompts, `[1, tokens, channels]`.
    fn append(&self, graph: &mut Graph, dim: usize) -> Result<ValueId> {
        let role = Role::Patch;
        let positions = graph.add_input(mask_inputs::POSITIONS, [1, PROMPT_TOKENS, dim], DType::F32)?;
        let kinds = graph.add_input(mask_inputs::KINDS, [1, PROMPT_TOKENS], DType::I32)?;
        let mut constant = |name: String, values: &[f32]| {
            let shape = [values.len() / dim, dim];
            let tensor = Tensor::from_f32(shape, values.to_vec());
            let tensor = tensor.ok_or_else(|| Error::graph(&name, "has no rows"))?;
            Ok::<_, Error>(graph.constant(name, tensor))
        };
        let mut rows = vec![constant(
            "prompt_encoder.not_a_point_embed.weight".into(),
            &self.no_point,
        )?];
        for (index, kind) in self.kinds.iter().enumerate() {
            rows.push(constant(
                format!("prompt_encoder.point_embed.{index}.weight"),
                kind,
            )?);
        }
        let (iou, masks) = self.output.split_at(dim);
        let output = [
            constant("mask_decoder.iou_token.weight".into(), iou)?,
            constant("mask_decoder.mask_tokens.weight".into(), masks)?,
        ];
        let table = graph.push(role, "prompt.kinds", Concat { axis: 0 }, rows)?;
        let vectors = graph.push(role, "prompt.vectors", Gather { axis: 0 }, [table, kinds])?;
        let prompt = graph.push(role, "prompt.tokens", Add, [vectors, positions])?;
        let output = graph.push(role, "prompt.outputs", Concat { axis: 0 }, output)?;
        let expand = Expand {
            extents: vec![1, self.output.len() / dim, dim],
            batch: Some(0),
            like: Some((0, 1)),
        };
        let output = graph.push(role, "prompt.output_tokens", expand, [output, prompt])?;
        Ok(graph.push(role, "prompt", Concat { axis: 1 }, [output, prompt])?)
    }

    /// Returns a point, or the corners of a box, as inputs of a graph that trains masks.
    pub(crate) fn row(&self, points: &[PromptPoint], corners: Option<[f64; 4]>) -> Result<PromptRow> {
        let places = match (points, corners) {
            (&[PromptPoint { x, y, is_inside }], None) => {
                vec![(Some([x, y]), 1 + i32::from(is_inside)), (None, 0)]
            }
            ([], Some([left, top, right, bottom])) => {
                vec![(Some([left, top]), 3), (Some([right, bottom]), 4)]
            }
            _ => {
                let reason = "is neither one point nor a box, with which masks are trained";
                return Err(Error::argument("prompt", reason));
            }
        };
        let mut row = PromptRow::default();
        for (place, kind) in places {
            match place {
                Some([x, y]) => row
                    .positions
                    .extend(self.position([x, y]).map(|value| value as f32)),
                None => row
                    .positions
                    .resize(row.positions.len() + self.no_point.len(), 0.0),
            }
            row.kinds.push(kind);
        }
        Ok(row)
    }
}
