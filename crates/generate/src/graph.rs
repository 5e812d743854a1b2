//! The graphs of a decoder: a step, and the keys and values of cross-attention.
//!
//! `sequence` has the graph of whole texts, for training.
//!
//! A row of a step is a token of one sequence. The step writes its keys and values to the cache and returns the logits of the next token.

mod sequence;

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, OutputKind, Role, ValueId};
use hipvit::model::Checkpoint;
use hipvit::ops::{
    Add, Gather, LayerNorm, Linear, MulScalar, PagedAttention, Sample, TokenScores, TopK, WriteRows, sample,
};
use hipvit::tensor::{DType, Tensor};

use crate::names::{AttentionNames, HeadNames};
use crate::pages::PAGE;
use crate::spec::{DecoderSpec, Positions};

pub(crate) use self::sequence::{append_sequence, inputs as sequence_inputs};

/// Names of a step's inputs, each i32 with a row per token.
pub(crate) mod inputs {
    /// `[rows]`: ids of the tokens.
    pub(crate) const TOKENS: &str = "tokens";
    /// `[rows]`: rows of the table of positions.
    pub(crate) const POSITIONS: &str = "positions";
    /// `[rows]`: places in the cache, or -1 for a row that only fills a batch.
    pub(crate) const PLACES: &str = "places";
    /// `[rows, pages]`: pages of each row's sequence.
    pub(crate) const PAGES: &str = "pages";
    /// `[rows]`: tokens that each row attends to, with itself.
    pub(crate) const LENGTHS: &str = "lengths";
    /// `[rows, 1]`: number of each row's image in the cache of images.
    pub(crate) const IMAGES: &str = "images";
    /// `[rows]`: the encoder's tokens, or 0 for a row that only fills a batch.
    pub(crate) const IMAGE_LENGTHS: &str = "image_lengths";
    /// `[rows]`: the row of an image's token among those of all images, or 0 for a token of text. Only of decoders that have images in their sequence, as the next one.
    pub(crate) const FEATURES: &str = "features";
    /// `[rows]`: 1 for a token of text, 0 for one of an image.
    pub(crate) const TEXTS: &str = "texts";
    /// `[rows, 4]` in f32: temperature, top p and a random number for the next token.
    pub(crate) const RULES: &str = "rules";
    /// `[rows, 1]`: number of logits that are considered for the next token, or 0 for all.
    pub(crate) const TOP_K: &str = "top_k";
    /// `[rows, context]`: tokens of the text so far, then −1. Decoders with rules against repetitions read them.
    pub(crate) const HISTORY: &str = "history";
    /// `[rows, vocabulary]`: logits of a step, for beams.
    pub(crate) const LOGITS: &str = "logits";
}

/// Name of the state with the tokens of images in the decoder's own sequence.
pub(crate) const FEATURES: &str = "images";

/// A step's logits are padded to a multiple of these: libraries' products with rows that are not aligned to 16 bytes take several times as long.
const ALIGNED_TOKENS: usize = 8;

/// Maximum elements of a state, which kernels address by 32 bits.
const MAX_STATE: usize = 1 << 31;

/// Projection of the encoder's tokens to the decoder's width.
const PROJECTION: &str = "enc_to_dec_proj";

/// Sizes of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheSize {
    /// Pages of all sequences.
    pub(crate) pages: usize,
    /// Maximum pages of a sequence.
    pub(crate) sequence: usize,
    /// Images in progress.
    pub(crate) images: usize,
    /// Maximum tiles of an image. 1 if images are not divided.
    pub(crate) tiles: usize,
    /// The encoder's tokens of an image.
    pub(crate) tokens: usize,
}

/// Returns the name of the state with the keys and values of cross-attention.
pub(crate) fn cross_state(layer: usize) -> String {
    format!("cross.{layer}")
}

/// Builds the graph of a step. The logits after those of the vocabulary, if there are any, are padding.
///
/// # Errors
///
/// [`Error::Tensor`] for a tensor that is missing or has another shape.
pub(crate) fn step(spec: &DecoderSpec, weights: &Checkpoint, cache: CacheSize) -> Result<Graph> {
    let graph = Graph::of_values("decoder", inputs::TOKENS, [1], DType::I32)?;
    let mut builder = Builder::new(graph, spec, weights);
    builder.padding = spec.vocabulary.next_multiple_of(ALIGNED_TOKENS) - spec.vocabulary;
    let logits = match &spec.llama {
        Some(llama) => builder.llama_step(llama, cache)?,
        None => builder.step(cache)?,
    };
    builder.graph.set_output(OutputKind::Logits, logits);
    let mut scores = logits;
    if let Some(repetition) = &spec.rules.repetition {
        let history = builder
            .graph
            .add_input(inputs::HISTORY, [1, spec.history()], DType::I32)?;
        scores = builder.push(Role::Other, "scores", *repetition, &[logits, history])?;
    }
    let rules = builder
        .graph
        .add_input(inputs::RULES, [1, sample::RULES], DType::F32)?;
    let top_k = builder.graph.add_input(inputs::TOP_K, [1, 1], DType::I32)?;
    let operands = vec![scores, rules, top_k];
    let node = builder
        .graph
        .push_node(Role::Other, "next".into(), Sample.into(), operands)?;
    for (name, value) in ["next logits", "next tokens"]
        .into_iter()
        .zip(node.outputs.clone())
    {
        builder.graph.add_output(name, value)?;
    }
    Ok(builder.graph)
}

/// Builds the graph from the logits of a step to the `kept` most likely tokens of each row and the logarithms of their probabilities.
///
/// # Errors
///
/// [`Error::Graph`] for more tokens than the vocabulary has.
pub(crate) fn beams(spec: &DecoderSpec, kept: usize) -> Result<Graph> {
    let tokens = spec.vocabulary.next_multiple_of(ALIGNED_TOKENS);
    let mut graph = Graph::of_values("beams", inputs::LOGITS, [1, tokens], DType::F32)?;
    let history = graph.add_input(inputs::HISTORY, [1, spec.history()], DType::I32)?;
    let scores = TokenScores {
        log: true,
        ..spec.rules.repetition.unwrap_or(TokenScores::LOGARITHMS)
    };
    let logits = graph.input();
    let scores = graph.push(Role::Other, "scores", scores, [logits, history])?;
    let best = TopK {
        k: kept,
        largest: true,
    };
    let node = graph.push_node(Role::Other, "best".into(), best.into(), vec![scores])?;
    for (name, value) in ["best scores", "best tokens"]
        .into_iter()
        .zip(node.outputs.clone())
    {
        graph.add_output(name, value)?;
    }
    Ok(graph)
}

/// Builds the graph from the encoder's tokens of images to the keys and values of cross-attention: an output for each layer.
///
/// # Errors
///
/// [`Error::Tensor`] for a tensor that is missing or has another shape.
pub(crate) fn cross(spec: &DecoderSpec, weights: &Checkpoint, tokens: usize) -> Result<Graph> {
    let channels = spec.encoder_width;
    let graph = Graph::of_tokens("cross-attention", [tokens, channels]);
    let mut builder = Builder::new(graph, spec, weights);
    let mut encoded = builder.graph.input();
    let mut width = channels;
    if spec.projects_encoder {
        width = spec.width;
        encoded = builder.linear(
            Role::Other,
            PROJECTION,
            [width, channels],
            encoded,
            Linear::default(),
        )?;
    }
    for layer in 0..spec.layers {
        let rows = builder.keys_and_values(layer, &spec.names.cross, width, encoded)?;
        builder.graph.add_output(cross_state(layer), rows)?;
    }
    Ok(builder.graph)
}

/// Builder of a graph.
pub(crate) struct Builder<'a> {
    pub(crate) graph: Graph,
    pub(crate) spec: &'a DecoderSpec,
    weights: &'a Checkpoint,
    /// Tokens after the vocabulary. Their embeddings are zeros, and their logits are −∞.
    padding: usize,
    /// Initial elements of states, one of each size.
    zeros: Vec<Tensor>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(graph: Graph, spec: &'a DecoderSpec, weights: &'a Checkpoint) -> Self {
        Self {
            graph,
            spec,
            weights,
            padding: 0,
            zeros: Vec::new(),
        }
    }

    fn step(&mut self, cache: CacheSize) -> Result<ValueId> {
        let mut input = |name: &str, shape: &[usize]| self.graph.add_input(name, shape, DType::I32);
        let positions = input(inputs::POSITIONS, &[1])?;
        let places = input(inputs::PLACES, &[1])?;
        let own = [
            input(inputs::PAGES, &[1, cache.sequence])?,
            input(inputs::LENGTHS, &[1])?,
        ];
        let of_image = [
            input(inputs::IMAGES, &[1, 1])?,
            input(inputs::IMAGE_LENGTHS, &[1])?,
        ];

        let tokens = self.graph.input();
        let (mut x, head) = self.embedded(tokens, positions)?;
        for layer in 0..self.spec.layers {
            x = self.self_attention(layer, x, places, own, cache)?;
            x = self.cross_attention(layer, x, of_image, cache)?;
            x = self.feed_forward(layer, x)?;
        }
        if let Some(norm) = self.spec.names.final_norm {
            x = self.norm(norm, x)?;
        }
        self.head(x, head)
    }

    /// The embeddings of tokens with their positions, and the weight of the projection to logits.
    fn embedded(&mut self, tokens: ValueId, positions: ValueId) -> Result<(ValueId, ValueId)> {
        let (names, width) = (self.spec.names, self.spec.width);
        let (table, head) = self.embedding_and_head()?;
        let mut x = self.push(Role::Patch, "embedding", Gather { axis: 0 }, &[table, tokens])?;
        if self.spec.scales_embedding {
            x = self.push(Role::Patch, "scaled", MulScalar((width as f32).sqrt()), &[x])?;
        }
        let position = self.positions()?;
        let position = self.push(
            Role::Patch,
            "position",
            Gather { axis: 0 },
            &[position, positions],
        )?;
        x = self.push(Role::Patch, "embedded", Add, &[x, position])?;
        if self.spec.has_embedding_norm {
            x = self.norm(names.embedding_norm, x)?;
        }
        Ok((x, head))
    }

    /// Adds the embeddings of tokens and the weight of the projection to logits.
    pub(crate) fn embedding_and_head(&mut self) -> Result<(ValueId, ValueId)> {
        let (names, shape) = (self.spec.names, [self.spec.vocabulary, self.spec.width]);
        let table = self.padded(names.embedding, shape);
        let head = self.padded(names.head.weight, shape);
        // Files have tied weights once, under either name.
        match (table, head, self.spec.ties_embedding) {
            (Ok(table), _, true) => Ok((table, table)),
            (Err(_), Ok(head), true) => Ok((head, head)),
            (Ok(table), Ok(head), false) => Ok((table, head)),
            (Err(error), _, _) | (_, Err(error), _) => Err(error),
        }
    }

    fn self_attention(
        &mut self,
        layer: usize,
        x: ValueId,
        places: ValueId,
        [table, lengths]: [ValueId; 2],
        cache: CacheSize,
    ) -> Result<ValueId> {
        let (names, width) = (&self.spec.names.own, self.spec.width);
        let input = self.norm_before(layer, names.norm, x)?;
        let qkv = self.packed(layer, &[names.query, names.key, names.value], width, input)?;
        let state = self.state(&format!("self.{layer}"), [cache.pages * PAGE, 2 * width])?;
        let name = format!("blocks.{layer}.self.cache");
        let cached = self.push(Role::Attention, &name, WriteRows, &[state, qkv, places])?;
        self.graph.update(state, cached)?;
        let name = format!("blocks.{layer}.self.attention");
        let attention = self.attention(PAGE);
        let attended = self.push(Role::Attention, &name, attention, &[qkv, cached, table, lengths])?;
        self.attended(layer, names, attended, x)
    }

    fn cross_attention(
        &mut self,
        layer: usize,
        x: ValueId,
        [images, lengths]: [ValueId; 2],
        cache: CacheSize,
    ) -> Result<ValueId> {
        let names = &self.spec.names.cross;
        let input = self.norm_before(layer, names.norm, x)?;
        let q = self.query(layer, names, input)?;
        let rows = cache.images * cache.tokens;
        let cached = self.state(&cross_state(layer), [rows, 2 * self.spec.width])?;
        let name = format!("blocks.{layer}.cross.attention");
        let attention = self.attention(cache.tokens);
        let attended = self.push(Role::Attention, &name, attention, &[q, cached, images, lengths])?;
        self.attended(layer, names, attended, x)
    }

    fn query(&mut self, layer: usize, names: &AttentionNames, x: ValueId) -> Result<ValueId> {
        let (name, width) = (self.name(layer, names.query), self.spec.width);
        self.linear(Role::Qkv, &name, [width, width], x, Linear::default())
    }

    /// The projection of rows of `channels` channels to keys, then values.
    fn keys_and_values(
        &mut self,
        layer: usize,
        names: &AttentionNames,
        channels: usize,
        x: ValueId,
    ) -> Result<ValueId> {
        self.packed(layer, &[names.key, names.value], channels, x)
    }

    /// One layer that is several projections of rows of `channels` channels, side by side.
    fn packed(&mut self, layer: usize, names: &[&str], channels: usize, x: ValueId) -> Result<ValueId> {
        let width = self.spec.width;
        let name = format!("{}{}", self.name(layer, ""), names.join("+"));
        let mut all = |suffix: &str, shape: &[usize]| -> Result<ValueId> {
            let mut values = Vec::new();
            for name in names {
                let name = format!("{}.{suffix}", self.name(layer, name));
                values.extend_from_slice(&self.checked(&name, shape)?.to_f32());
            }
            let shape = [&[names.len() * width], &shape[1..]].concat();
            self.computed(&format!("{name}.{suffix}"), &shape, values)
        };
        let weight = all("weight", &[width, channels])?;
        let bias = all("bias", &[width])?;
        let spec = Linear {
            bias: true,
            ..Linear::default()
        };
        self.push(Role::Qkv, &name, spec, &[x, weight, bias])
    }

    /// Adds a constant that is computed from the file's tensors.
    pub(crate) fn computed(&mut self, name: &str, shape: &[usize], values: Vec<f32>) -> Result<ValueId> {
        let tensor = Tensor::from_f32(shape, values);
        let tensor = tensor.ok_or_else(|| {
            Error::internal("weights", format!("of {name} have another size than their shape"))
        })?;
        Ok(self.graph.constant(name, tensor))
    }

    /// The norm before a layer, in blocks that have it there.
    fn norm_before(&mut self, layer: usize, name: &str, x: ValueId) -> Result<ValueId> {
        if self.spec.is_pre_norm {
            self.norm(&self.name(layer, name), x)
        } else {
            Ok(x)
        }
    }

    /// The norm of the sum with the residual, in blocks that have it there.
    fn norm_after(&mut self, layer: usize, name: &str, x: ValueId) -> Result<ValueId> {
        if self.spec.is_pre_norm {
            Ok(x)
        } else {
            self.norm(&self.name(layer, name), x)
        }
    }

    /// The output projection of attention, the residual and the norm.
    fn attended(
        &mut self,
        layer: usize,
        names: &AttentionNames,
        attended: ValueId,
        x: ValueId,
    ) -> Result<ValueId> {
        let (name, width) = (self.name(layer, names.output), self.spec.width);
        let added = self.residual(Role::Attention, &name, [width, width], attended, x)?;
        self.norm_after(layer, names.norm, added)
    }

    fn feed_forward(&mut self, layer: usize, x: ValueId) -> Result<ValueId> {
        let (names, width, hidden) = (self.spec.names, self.spec.width, self.spec.hidden);
        let activated = Linear {
            activation: Some(self.spec.activation),
            ..Linear::default()
        };
        let input = self.norm_before(layer, names.norm, x)?;
        let inner = self.linear(
            Role::Ffn,
            &self.name(layer, names.fc1),
            [hidden, width],
            input,
            activated,
        )?;
        let added = self.residual(Role::Ffn, &self.name(layer, names.fc2), [width, hidden], inner, x)?;
        self.norm_after(layer, names.norm, added)
    }

    /// The layers from channels to logits. `weight` is the weight of the projection to logits.
    fn head(&mut self, mut x: ValueId, weight: ValueId) -> Result<ValueId> {
        let HeadNames { transform, bias, .. } = &self.spec.names.head;
        let width = self.spec.width;
        if let Some([layer, norm]) = transform {
            let activated = Linear {
                activation: Some(self.spec.activation),
                ..Linear::default()
            };
            x = self.linear(Role::Other, layer, [width, width], x, activated)?;
            x = self.norm(norm, x)?;
        }
        let exists = |name: &&&str| self.weights.names().any(|known| known == **name);
        let bias = bias.iter().find(exists).or(bias.first());
        self.logits(x, weight, bias.copied())
    }

    /// The projection to logits. `bias` is the name of its bias.
    pub(crate) fn logits(&mut self, x: ValueId, weight: ValueId, bias: Option<&str>) -> Result<ValueId> {
        let tokens = self.spec.vocabulary;
        let mut operands = vec![x, weight];
        if self.padding > 0 {
            let mut values = match bias {
                Some(name) => self.checked(name, &[tokens])?.to_f32().into_owned(),
                None => vec![0.0; tokens],
            };
            let rows = tokens + self.padding;
            values.resize(rows, f32::NEG_INFINITY);
            operands.push(self.computed("bias of logits", &[rows], values)?);
        } else if let Some(name) = bias {
            operands.push(self.tensor(name, &[tokens])?);
        }
        let spec = Linear {
            bias: operands.len() > 2,
            ..Linear::default()
        };
        self.push(Role::Other, "logits", spec, &operands)
    }

    /// Returns the name of a layer of a block.
    pub(crate) fn name(&self, layer: usize, name: &str) -> String {
        format!("{}{layer}.{name}", self.spec.names.blocks)
    }

    fn attention(&self, page: usize) -> PagedAttention {
        PagedAttention {
            heads: self.spec.heads,
            kv_heads: self.spec.heads,
            head_dim: self.spec.head_dim(),
            page,
            scale: 1.0 / (self.spec.head_dim() as f32).sqrt(),
        }
    }

    /// Adds a state of zeros, `[rows, width]`. States of equal size share the zeros.
    pub(crate) fn state(&mut self, name: &str, [rows, width]: [usize; 2]) -> Result<ValueId> {
        let elements = rows.checked_mul(width).filter(|&elements| elements <= MAX_STATE);
        let elements = elements.ok_or_else(|| {
            let reason = format!("is too large for the cache: {rows} tokens of {width} channels. Reduce it");
            Error::argument("batch", reason)
        })?;
        let zeros = match self.zeros.iter().find(|zeros| zeros.shape() == [rows, width]) {
            Some(zeros) => zeros.clone(),
            None => {
                let zeros = Tensor::from_f32([rows, width], vec![0.0; elements]);
                let zeros =
                    zeros.ok_or_else(|| Error::internal("cache", "has another size than its shape"))?;
                self.zeros.push(zeros.clone());
                zeros
            }
        };
        Ok(self.graph.state(name, zeros))
    }

    /// Adds the table of positions, whose rows [`DecoderSpec::position`] gives.
    fn positions(&mut self) -> Result<ValueId> {
        let (width, rows) = (self.spec.width, self.spec.position_rows());
        let padding = match self.spec.positions {
            Positions::Rotary => return Err(Error::internal("positions", "have no table")),
            Positions::Learned { .. } => return self.tensor(self.spec.names.positions, &[rows, width]),
            Positions::Sines { padding } => padding,
        };
        let mut table = sinusoids(rows, width);
        table[padding * width..][..width].fill(0.0);
        let table = Tensor::from_f32([rows, width], table);
        let table =
            table.ok_or_else(|| Error::internal("positions", "have another size than their shape"))?;
        Ok(self.graph.constant("sinusoids", table))
    }

    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        let tensor = self.checked(name, shape)?;
        Ok(self.graph.constant(name, tensor))
    }

    /// Adds a tensor with rows of tokens, and those of the padding.
    fn padded(&mut self, name: &str, [tokens, width]: [usize; 2]) -> Result<ValueId> {
        if self.padding == 0 {
            return self.tensor(name, &[tokens, width]);
        }
        let mut values = self.checked(name, &[tokens, width])?.to_f32().into_owned();
        let rows = tokens + self.padding;
        values.resize(rows * width, 0.0);
        self.computed(name, &[rows, width], values)
    }

    /// Returns a tensor of the file, which must have this shape.
    pub(crate) fn checked(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let tensor = self.weights.tensor(name)?;
        if tensor.shape() == shape {
            return Ok(tensor);
        }
        let reason = format!("has shape {:?}, expected {shape:?}", tensor.shape());
        Err(Error::tensor(self.weights.place(), name, reason))
    }

    /// A linear layer with a bias. `shape` is that of its weight.
    fn linear(
        &mut self,
        role: Role,
        name: &str,
        shape: [usize; 2],
        x: ValueId,
        spec: Linear,
    ) -> Result<ValueId> {
        self.layer(role, name, shape, &[x], spec)
    }

    /// A linear layer whose result is added to `residual`.
    fn residual(
        &mut self,
        role: Role,
        name: &str,
        shape: [usize; 2],
        x: ValueId,
        residual: ValueId,
    ) -> Result<ValueId> {
        let spec = Linear {
            residual: true,
            ..Linear::default()
        };
        self.layer(role, name, shape, &[x, residual], spec)
    }

    fn layer(
        &mut self,
        role: Role,
        name: &str,
        shape: [usize; 2],
        x: &[ValueId],
        spec: Linear,
    ) -> Result<ValueId> {
        let weight = self.tensor(&format!("{name}.weight"), &shape)?;
        let bias = self.tensor(&format!("{name}.bias"), &shape[..1])?;
        let operands = [&x[..1], &[weight, bias], &x[1..]].concat();
        self.push(role, name, Linear { bias: true, ..spec }, &operands)
    }

    fn norm(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let width = self.spec.width;
        let weight = self.tensor(&format!("{name}.weight"), &[width])?;
        let bias = self.tensor(&format!("{name}.bias"), &[width])?;
        self.push(
            Role::Other,
            name,
            LayerNorm {
                epsilon: self.spec.epsilon,
            },
            &[x, weight, bias],
        )
    }

    pub(crate) fn push(
        &mut self,
        role: Role,
        name: &str,
        op: impl Into<hipvit::ops::Op>,
        operands: &[ValueId],
    ) -> Result<ValueId> {
        Ok(self.graph.push(role, name, op, operands)?)
    }
}

/// Returns fairseq's positions `[rows, width]`, as `TrOCRSinusoidalPositionalEmbedding` computes them: sines of all frequencies, then cosines.
fn sinusoids(rows: usize, width: usize) -> Vec<f32> {
    let half = width / 2;
    let step = -(10_000f32.ln()) / (half as f32 - 1.0).max(1.0);
    let frequencies: Vec<f32> = (0..half).map(|i| (i as f32 * step).exp()).collect();
    let mut values = Vec::with_capacity(rows * width);
    for row in 0..rows {
        let angles = frequencies.iter().map(|frequency| row as f32 * frequency);
        values.extend(angles.clone().map(f32::sin));
        values.extend(angles.map(f32::cos));
        values.resize((row + 1) * width, 0.0);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinusoids_are_those_of_transformers() {
        let table = sinusoids(4, 7);
        let expected = [0.141_12, 0.029_995_5, 0.000_3, -0.989_992_5, 0.999_55, 1.0, 0.0];
        // TrOCRSinusoidalPositionalEmbedding.get_embedding(4, 7)[3] of transformers 5.24.
        for (value, expected) in table[21..].iter().zip(expected) {
            assert!((value - expected).abs() < 1e-5, "{table:?}");
        }
    }
}
