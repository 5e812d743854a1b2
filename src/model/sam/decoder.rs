//! Graph of SAM's mask decoder: a transformer between the tokens of a prompt and the image, and a mask for each of its mask tokens.
//!
//! The first input has the tokens of each prompt, the output tokens first. The embedding of the image is the same for all prompts.

use super::config::{Config, Decoder};
use super::layers::mlp_tensors;
use super::outputs::{EMBEDDING, MASKS, SCORES, TOKENS};
use super::prompts::{Frequencies, IOU_TOKEN, MASK_TOKENS};
use crate::error::{Error, Result};
use crate::graph::{Graph, Role, ValueId};
use crate::model::layers::Layers;
use crate::model::weights::Weights;
use crate::ops::{Activation, BatchMatMul, Concat, Elementwise, Expand, Slice};
use crate::tensor::DType;

const FREQUENCIES: &str = "shared_image_embedding.positional_embedding";
const TRANSFORMER: &str = "mask_decoder.transformer";
/// Epsilon of the norm of upscaled maps.
const UPSCALE_EPSILON: f32 = 1e-6;
/// Epsilon of the transformer's last norm: PyTorch's default.
const FINAL_EPSILON: f32 = 1e-5;

/// Builds the graph from tokens, `[1, tokens, channels]`, to logits, `[1, masks, rows · columns]`, and scores, `[1, masks]`.
pub(super) fn decoder(
    name: &str,
    config: &Config,
    frequencies: &Frequencies,
    weights: &mut Weights,
) -> Result<Graph> {
    let (spec, grid) = (&config.decoder, config.vision.grid());
    // Prompts have other numbers of tokens: see `Graph::with_tokens`.
    let shape = [1, 1 + spec.output_tokens(), spec.dim];
    let mut layers = Layers {
        graph: Graph::of_values(name, TOKENS, shape, DType::F32)?,
        weights,
    };
    let tokens = layers.graph.input();
    let embedding = layers
        .graph
        .add_fixed_input(EMBEDDING, [1, grid * grid, spec.dim], DType::F32)?;
    let mut decoder = MaskDecoder {
        tokens,
        positions: layers.computed(
            "image_positions",
            &[FREQUENCIES],
            &[1, grid * grid, spec.dim],
            frequencies.of_grid(grid),
        )?,
        layers,
        spec,
        grid,
    };
    let image = decoder.image(embedding)?;
    let (tokens, image) = decoder.transformer(image)?;
    let masks = decoder.masks(tokens, image)?;
    let scores = decoder.scores(tokens)?;
    let mut graph = decoder.layers.graph;
    graph.add_output(MASKS, masks)?;
    graph.add_output(SCORES, scores)?;
    Ok(graph)
}

struct MaskDecoder<'a> {
    layers: Layers<'a>,
    spec: &'a Decoder,
    /// Rows, or columns, of the image's patches.
    grid: usize,
    /// Tokens of the prompts, which are also their positions.
    tokens: ValueId,
    /// Positions of the patches.
    positions: ValueId,
}

impl MaskDecoder<'_> {
    /// Returns the embedding without a mask as prompt, for each prompt.
    fn image(&mut self, embedding: ValueId) -> Result<ValueId> {
        let (patches, dim, role) = (self.grid * self.grid, self.spec.dim, Role::Patch);
        let name = "prompt_encoder.no_mask_embed.weight";
        let no_mask = self.layers.constant(name, &[1, dim])?;
        let sum = Elementwise::binary(|x, y| x + y).map_err(|error| Error::graph(name, error))?;
        let image = self.layers.push(role, "no_mask", sum, [embedding, no_mask])?;
        let op = Expand {
            extents: vec![1, patches, dim],
            batch: Some(0),
            like: Some((0, 1)),
        };
        self.layers.push(role, "image", op, [image, self.tokens])
    }

    /// Returns the tokens and the image after all layers.
    fn transformer(&mut self, mut image: ValueId) -> Result<(ValueId, ValueId)> {
        let mut x = self.tokens;
        for index in 0..self.spec.depth {
            (x, image) = self.layer(index, x, image)?;
        }
        let Decoder {
            dim,
            heads,
            final_channels,
            ..
        } = *self.spec;
        let step = "final";
        let (query, key) = (self.placed(step, x)?, self.placed_image(step, image)?);
        let tensors = format!("{TRANSFORMER}.final_attn_token_to_image");
        let y = self.layers.attention(
            "final.attn",
            [query, key, image],
            &tensors,
            [dim, final_channels, heads],
        )?;
        let x = self.layers.add(Role::Attention, "final.attn.residual", x, y)?;
        let norm = format!("{TRANSFORMER}.layer_norm_final_attn");
        Ok((
            self.layers.norm("final.norm", x, &norm, dim, FINAL_EPSILON)?,
            image,
        ))
    }

    /// Adds a layer: attention among the tokens, of the tokens to the image, a feed-forward network, and attention of the image to the tokens.
    fn layer(&mut self, index: usize, mut x: ValueId, image: ValueId) -> Result<(ValueId, ValueId)> {
        let Decoder {
            dim,
            hidden,
            heads,
            activation,
            epsilon,
            ..
        } = *self.spec;
        let cross = [dim, self.spec.cross_channels(), heads];
        let (step, tensors) = (format!("blocks.{index}"), format!("{TRANSFORMER}.layers.{index}"));
        let role = Role::Attention;
        let own = format!("{step}.self");
        let query = if index == 0 { x } else { self.placed(&own, x)? };
        let y = self.layers.attention(
            &own,
            [query, query, x],
            &format!("{tensors}.self_attn"),
            [dim, dim, heads],
        )?;
        // The tokens before the first layer are positions only, to which nothing is added.
        x = if index == 0 {
            y
        } else {
            self.layers.add(role, &format!("{own}.residual"), x, y)?
        };
        let norm = |number: usize| {
            (
                format!("{step}.norm{number}"),
                format!("{tensors}.layer_norm{number}"),
            )
        };
        let (name, tensor) = norm(1);
        x = self.layers.norm(&name, x, &tensor, dim, epsilon)?;

        let to_image = format!("{step}.to_image");
        let query = self.placed(&to_image, x)?;
        let key = self.placed_image(&to_image, image)?;
        let tensor = format!("{tensors}.cross_attn_token_to_image");
        let y = self
            .layers
            .attention(&to_image, [query, key, image], &tensor, cross)?;
        x = self.layers.add(role, &format!("{to_image}.residual"), x, y)?;
        let (name, tensor) = norm(2);
        x = self.layers.norm(&name, x, &tensor, dim, epsilon)?;

        let mlp = format!("{step}.mlp");
        let y = self
            .layers
            .network(&mlp, x, mlp_tensors(&tensors), [dim, hidden], activation)?;
        x = self.layers.add(Role::Ffn, &format!("{mlp}.residual"), x, y)?;
        let (name, tensor) = norm(3);
        x = self.layers.norm(&name, x, &tensor, dim, epsilon)?;

        let to_tokens = format!("{step}.to_tokens");
        let query = self.placed(&to_tokens, x)?;
        let tensor = format!("{tensors}.cross_attn_image_to_token");
        let y = self
            .layers
            .attention(&to_tokens, [key, query, x], &tensor, cross)?;
        let image = self
            .layers
            .add(role, &format!("{to_tokens}.residual"), image, y)?;
        let (name, tensor) = norm(4);
        Ok((x, self.layers.norm(&name, image, &tensor, dim, epsilon)?))
    }

    /// Adds the positions of the tokens.
    fn placed(&mut self, step: &str, x: ValueId) -> Result<ValueId> {
        self.layers
            .add(Role::Qkv, &format!("{step}.token_positions"), x, self.tokens)
    }

    /// Adds the positions of the patches.
    fn placed_image(&mut self, step: &str, image: ValueId) -> Result<ValueId> {
        self.layers.add(
            Role::Qkv,
            &format!("{step}.image_positions"),
            image,
            self.positions,
        )
    }

    /// Returns the products of each mask token's vector with the enlarged map.
    fn masks(&mut self, tokens: ValueId, image: ValueId) -> Result<ValueId> {
        let (role, grid, dim, masks) = (Role::Other, self.grid, self.spec.dim, self.spec.masks);
        let layers = &mut self.layers;
        let x = layers.reshaped(role, "upscale.map", image, &[1, grid, grid, dim])?;
        let x = layers.doubled("upscale.conv1", x, "mask_decoder.upscale_conv1", [dim / 4, dim])?;
        let norm = "mask_decoder.upscale_layer_norm";
        let x = layers.norm("upscale.norm", x, norm, dim / 4, UPSCALE_EPSILON)?;
        let x = layers.activation(role, "upscale.act1", x, Activation::GeluErf)?;
        let x = layers.doubled(
            "upscale.conv2",
            x,
            "mask_decoder.upscale_conv2",
            [dim / 8, dim / 4],
        )?;
        let x = layers.activation(role, "upscale.act2", x, Activation::GeluErf)?;
        let map = layers.reshaped(role, "upscale.pixels", x, &[1, 16 * grid * grid, dim / 8])?;
        let mut vectors = Vec::with_capacity(masks);
        // The first mask token is for prompts without ambiguity, whose mask is no output.
        for index in 1..=masks {
            let (step, tensors) = (
                format!("hypernetwork.{index}"),
                format!("mask_decoder.output_hypernetworks_mlps.{index}"),
            );
            let token = Slice::new(1, MASK_TOKENS + index, 1);
            let token = self
                .layers
                .push(role, &format!("{step}.token"), token, [tokens])?;
            vectors.push(self.head(&step, token, &tensors, [dim, dim, dim / 8], 3)?);
        }
        let vectors = match vectors.as_slice() {
            [only] => *only,
            _ => self
                .layers
                .push(role, "hypernetwork", Concat { axis: 1 }, vectors)?,
        };
        let op = BatchMatMul {
            transpose_a: false,
            transpose_b: true,
        };
        self.layers.push(role, "masks", op, [vectors, map])
    }

    /// Returns the predicted IoU of each mask.
    fn scores(&mut self, tokens: ValueId) -> Result<ValueId> {
        let Decoder {
            dim,
            masks,
            iou_hidden,
            iou_depth,
            ..
        } = *self.spec;
        let (role, step) = (Role::Other, "iou");
        let token = Slice::new(1, IOU_TOKEN, 1);
        let token = self.layers.push(role, "iou.token", token, [tokens])?;
        let tensors = "mask_decoder.iou_prediction_head";
        let scores = self.head(step, token, tensors, [dim, iou_hidden, masks + 1], iou_depth)?;
        let scores = self
            .layers
            .push(role, "iou.masks", Slice::new(2, 1, masks), [scores])?;
        self.layers.reshaped(role, "iou.scores", scores, &[1, masks])
    }

    /// Adds `depth` linear layers with ReLU between them.
    fn head(
        &mut self,
        step: &str,
        mut x: ValueId,
        tensors: &str,
        [inputs, hidden, outputs]: [usize; 3],
        depth: usize,
    ) -> Result<ValueId> {
        for layer in 0..depth {
            let (name, extents) = match layer {
                0 => ("proj_in".to_owned(), [hidden, inputs]),
                last if last + 1 == depth => ("proj_out".to_owned(), [outputs, hidden]),
                inner => (format!("layers.{}", inner - 1), [hidden, hidden]),
            };
            let name_of_step = format!("{step}.{name}");
            x = self.layers.linear(
                Role::Other,
                &name_of_step,
                x,
                &format!("{tensors}.{name}"),
                extents,
            )?;
            if layer + 1 < depth {
                x = self.layers.activation(
                    Role::Other,
                    &format!("{name_of_step}.act"),
                    x,
                    Activation::Relu,
                )?;
            }
        }
        Ok(x)
    }
}
