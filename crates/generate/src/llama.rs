//! The parts of graphs that decoders of type Llama have: rotated queries and keys, gates, and the tokens of images in the sequence itself.

use hipvit::error::Result;
use hipvit::graph::{Graph, Role, ValueId};
use hipvit::model::Checkpoint;
use hipvit::ops::{
    Add, Concat, Gather, Linear, Mul, PagedAttention, PermuteTokens, RmsNorm, Slice, SwiGlu, TokenOrder,
    WriteRows,
};
use hipvit::tensor::DType;

use crate::graph::{Builder, CacheSize, FEATURES, inputs};
use crate::pages::PAGE;
use crate::spec::{DecoderSpec, Llama};

/// Projection of merged tokens of the encoder.
const CONNECTOR: &str = "model.connector.modality_projection.proj.weight";

/// Builds the graph from the encoder's tokens of tiles to the rows that the decoder reads.
///
/// # Errors
///
/// [`Error::Tensor`] for a tensor that is missing or has another shape.
pub(crate) fn features(spec: &DecoderSpec, llama: &Llama, weights: &Checkpoint) -> Result<Graph> {
    let (grid, scale, channels) = (llama.grid, llama.scale, spec.encoder_width);
    let graph = Graph::of_tokens("connector", [grid[0] * grid[1], channels]);
    let mut builder = Builder::new(graph, spec, weights);
    let merged = PermuteTokens {
        grid,
        from: TokenOrder::rows(grid),
        to: TokenOrder::merged(grid, [scale; 2]),
    };
    let encoded = builder.graph.input();
    let merged = builder.push(Role::Other, "merged", merged, &[encoded])?;
    let shape = [spec.width, scale * scale * channels];
    let stored = builder.checked(CONNECTOR, &shape)?;
    let stored = stored.to_f32();
    // The file has the channels row by row of the merged tokens, the op column by column.
    let mut weight = Vec::with_capacity(stored.len());
    for row in stored.chunks_exact(shape[1]) {
        for (column, line) in (0..scale).flat_map(|column| (0..scale).map(move |line| (column, line))) {
            weight.extend_from_slice(&row[(line * scale + column) * channels..][..channels]);
        }
    }
    let weight = builder.computed(CONNECTOR, &shape, weight)?;
    let rows = builder.push(Role::Other, "projected", Linear::default(), &[merged, weight])?;
    builder.graph.add_output(FEATURES, rows)?;
    Ok(builder.graph)
}

/// Cosines and sines of the positions of a step's rows.
#[derive(Clone, Copy)]
struct Angles {
    cosines: ValueId,
    sines: ValueId,
}

impl Builder<'_> {
    /// Adds a step from the inputs to the logits.
    pub(crate) fn llama_step(&mut self, llama: &Llama, cache: CacheSize) -> Result<ValueId> {
        let mut input = |name: &str, shape: &[usize]| self.graph.add_input(name, shape, DType::I32);
        let positions = input(inputs::POSITIONS, &[1])?;
        let places = input(inputs::PLACES, &[1])?;
        let pages = input(inputs::PAGES, &[1, cache.sequence])?;
        let lengths = input(inputs::LENGTHS, &[1])?;
        let features = input(inputs::FEATURES, &[1])?;
        let texts = input(inputs::TEXTS, &[1])?;
        let (table, head) = self.embedding_and_head()?;

        let width = self.spec.width;
        let tokens = self.graph.input();
        let words = self.gathered("words", table, tokens)?;
        let is_text: Vec<f32> = [0.0, 1.0].iter().flat_map(|&value| vec![value; width]).collect();
        let is_text = self.computed("is text", &[2, width], is_text)?;
        let is_text = self.gathered("is text of rows", is_text, texts)?;
        let words = self.push(Role::Patch, "words of texts", Mul, &[words, is_text])?;
        let rows = 1 + cache.images * cache.tiles * llama.tile_tokens();
        let state = self.state(FEATURES, [rows, width])?;
        let seen = self.gathered("seen", state, features)?;
        let mut x = self.push(Role::Patch, "embedded", Add, &[words, seen])?;

        let angles = self.angles(llama, positions)?;
        for layer in 0..self.spec.layers {
            x = self.llama_attention(llama, layer, x, places, [pages, lengths], angles, cache)?;
            x = self.gated(layer, x)?;
        }
        if let Some(norm) = self.spec.names.final_norm {
            x = self.rms_norm(norm, x)?;
        }
        self.logits(x, head, None)
    }

    fn gathered(&mut self, name: &str, table: ValueId, rows: ValueId) -> Result<ValueId> {
        self.push(Role::Patch, name, Gather { axis: 0 }, &[table, rows])
    }

    /// Adds the cosines and sines of positions, for all heads of the queries.
    fn angles(&mut self, llama: &Llama, positions: ValueId) -> Result<Angles> {
        let (context, dim, heads) = (self.spec.context, llama.head_dim, self.spec.heads);
        let mut table = |name: &str, of: fn(f32) -> f32| -> Result<ValueId> {
            let values = (0..context).flat_map(|position| {
                let angle = move |pair: usize| position as f32 * llama.frequency(pair);
                // Both halves of a head have the same angles.
                (0..dim).map(move |channel| of(angle(channel % (dim / 2))))
            });
            let table = self.computed(name, &[context, dim], values.collect())?;
            let rows = self.gathered(&format!("{name} of positions"), table, positions)?;
            let concat = Concat { axis: 1 };
            self.push(Role::Qkv, &format!("{name} of heads"), concat, &vec![rows; heads])
        };
        Ok(Angles {
            cosines: table("cosines", f32::cos)?,
            sines: table("sines", f32::sin)?,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the inputs of a step")]
    fn llama_attention(
        &mut self,
        llama: &Llama,
        layer: usize,
        x: ValueId,
        places: ValueId,
        [pages, lengths]: [ValueId; 2],
        angles: Angles,
        cache: CacheSize,
    ) -> Result<ValueId> {
        let names = &self.spec.names.own;
        let (width, dim) = (self.spec.width, llama.head_dim);
        let (q_width, kv_width) = (self.spec.heads * dim, llama.kv_heads * dim);
        let input = self.rms_norm(&self.name(layer, names.norm), x)?;
        // Queries and keys, and both with their halves exchanged, so that a rotation is two products and a sum.
        let mut weight = Vec::new();
        for (name, rows) in [(names.query, q_width), (names.key, kv_width)] {
            let name = format!("{}.weight", self.name(layer, name));
            let stored = self.checked(&name, &[rows, width])?;
            let stored = stored.to_f32();
            weight.extend_from_slice(&stored);
            weight.extend(exchanged_halves(&stored, dim, width));
        }
        let name = format!("{}.weight", self.name(layer, names.value));
        weight.extend_from_slice(&self.checked(&name, &[kv_width, width])?.to_f32());
        let step = format!("blocks.{layer}.self");
        let rows = 2 * q_width + 3 * kv_width;
        let weight = self.computed(&format!("{step}.qkv.weight"), &[rows, width], weight)?;
        let packed = self.push(
            Role::Qkv,
            &format!("{step}.qkv"),
            Linear::default(),
            &[input, weight],
        )?;
        let mut start = 0;
        let mut part = |builder: &mut Self, name: &str, len: usize| {
            let slice = Slice::new(1, start, len);
            start += len;
            builder.push(Role::Qkv, &format!("{step}.{name}"), slice, &[packed])
        };
        let q = part(self, "q", q_width)?;
        let q_exchanged = part(self, "q exchanged", q_width)?;
        let k = part(self, "k", kv_width)?;
        let k_exchanged = part(self, "k exchanged", kv_width)?;
        let v = part(self, "v", kv_width)?;
        let q = self.rotated(&format!("{step}.q"), [q, q_exchanged], angles)?;
        let of_keys = |builder: &mut Self, name: &str, value| {
            let slice = Slice::new(1, 0, kv_width);
            builder.push(Role::Qkv, &format!("{step}.{name}"), slice, &[value])
        };
        let of_keys = Angles {
            cosines: of_keys(self, "cosines", angles.cosines)?,
            sines: of_keys(self, "sines", angles.sines)?,
        };
        let k = self.rotated(&format!("{step}.k"), [k, k_exchanged], of_keys)?;
        let rows = self.push(Role::Qkv, &format!("{step}.kv"), Concat { axis: 1 }, &[k, v])?;
        let state = self.state(&format!("self.{layer}"), [cache.pages * PAGE, 2 * kv_width])?;
        let cached = self.push(
            Role::Attention,
            &format!("{step}.cache"),
            WriteRows,
            &[state, rows, places],
        )?;
        self.graph.update(state, cached)?;
        let attention = PagedAttention {
            heads: self.spec.heads,
            kv_heads: llama.kv_heads,
            head_dim: dim,
            page: PAGE,
            scale: 1.0 / (dim as f32).sqrt(),
        };
        let attended = self.push(
            Role::Attention,
            &format!("{step}.attention"),
            attention,
            &[q, cached, pages, lengths],
        )?;
        let output = self.tensor(
            &format!("{}.weight", self.name(layer, names.output)),
            &[width, q_width],
        )?;
        let added = Linear {
            residual: true,
            ..Linear::default()
        };
        self.push(
            Role::Attention,
            &format!("{step}.output"),
            added,
            &[attended, output, x],
        )
    }

    /// Rotates the channels of heads: `x · cos + exchanged(x) · sin`.
    fn rotated(&mut self, name: &str, [x, exchanged]: [ValueId; 2], angles: Angles) -> Result<ValueId> {
        let x = self.push(Role::Qkv, &format!("{name}.cosine"), Mul, &[x, angles.cosines])?;
        let exchanged = self.push(
            Role::Qkv,
            &format!("{name}.sine"),
            Mul,
            &[exchanged, angles.sines],
        )?;
        self.push(Role::Qkv, &format!("{name}.rotated"), Add, &[x, exchanged])
    }

    /// Adds the feed-forward network with its gate.
    fn gated(&mut self, layer: usize, x: ValueId) -> Result<ValueId> {
        let (names, width, hidden) = (self.spec.names, self.spec.width, self.spec.hidden);
        let input = self.rms_norm(&self.name(layer, names.norm), x)?;
        let mut weight = Vec::new();
        for name in [names.fc1, "mlp.up_proj"] {
            let name = format!("{}.weight", self.name(layer, name));
            weight.extend_from_slice(&self.checked(&name, &[hidden, width])?.to_f32());
        }
        let step = format!("blocks.{layer}.mlp");
        let weight = self.computed(&format!("{step}.gate+up.weight"), &[2 * hidden, width], weight)?;
        let both = self.push(
            Role::Ffn,
            &format!("{step}.gate+up"),
            Linear::default(),
            &[input, weight],
        )?;
        let inner = self.push(Role::Ffn, &format!("{step}.gated"), SwiGlu, &[both])?;
        let down = self.tensor(
            &format!("{}.weight", self.name(layer, names.fc2)),
            &[width, hidden],
        )?;
        let added = Linear {
            residual: true,
            ..Linear::default()
        };
        self.push(Role::Ffn, &format!("{step}.down"), added, &[inner, down, x])
    }

    fn rms_norm(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let weight = self.tensor(&format!("{name}.weight"), &[self.spec.width])?;
        let op = RmsNorm {
            epsilon: self.spec.epsilon,
        };
        self.push(Role::Other, name, op, &[x, weight])
    }
}

/// Returns the weight whose result is that of `weight` with the halves of each head exchanged, the second one negated.
fn exchanged_halves(weight: &[f32], head_dim: usize, width: usize) -> Vec<f32> {
    let mut exchanged = Vec::with_capacity(weight.len());
    for head in weight.chunks_exact(head_dim * width) {
        let (first, second) = head.split_at(head_dim / 2 * width);
        exchanged.extend(second.iter().map(|value| -value));
        exchanged.extend_from_slice(first);
    }
    exchanged
}
