//! A Vision Transformer as model builders write it, in all variants that the passes distinguish, and comparisons of graphs. The engine's
//! tests include this file too.

#![allow(dead_code, reason = "each of the crates uses a part")]

use std::sync::Arc;

use hipvit_graph::op::{
    Activation, Add, Attention, AttentionOperands, LayerNorm, Linear, MulScalar, Normalize, Op, PatchConv,
    Pool, Prepend, Scale, SwiGlu,
};
use hipvit_graph::tensor::{DType, Input, Tensor};
use hipvit_graph::{Graph, OutputKind, Result, Role, ValueId, interpret, reference};

/// Tolerance of passes that move values without computing: only the order of the reference's f64 sums may change.
pub(crate) const EXACT: f64 = 1e-13;

/// Projection of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Projection {
    /// timm: one Linear.
    Packed,
    /// Hugging Face: three Linears. Without `key_bias`, only queries and values have a bias.
    Separate { key_bias: bool },
}

/// Representation of the image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Head {
    /// The class token, through a LayerNorm and a Linear.
    ClassToken,
    /// Class and distillation token, each with a head, averaged.
    Distilled,
    /// The mean of the patches.
    Mean,
    /// SigLIP: one latent query attends to all tokens.
    AttentionPool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Vit {
    pub(crate) image: usize,
    pub(crate) patch: usize,
    pub(crate) dim: usize,
    pub(crate) heads: usize,
    pub(crate) depth: usize,
    pub(crate) classes: usize,
    pub(crate) projection: Projection,
    pub(crate) head: Head,
    pub(crate) registers: usize,
    pub(crate) layer_scale: bool,
    pub(crate) swiglu: bool,
    /// True if positions are added to patches only, before the prefix is prepended.
    pub(crate) patch_positions: bool,
    pub(crate) pixels: bool,
}

impl Default for Vit {
    fn default() -> Self {
        Self {
            image: 14,
            patch: 4,
            dim: 12,
            heads: 3,
            depth: 2,
            classes: 5,
            projection: Projection::Packed,
            head: Head::ClassToken,
            registers: 0,
            layer_scale: false,
            swiglu: false,
            patch_positions: false,
            pixels: true,
        }
    }
}

impl Vit {
    pub(crate) const BASE: Self = Self {
        image: 224,
        patch: 16,
        dim: 768,
        heads: 12,
        depth: 12,
        classes: 1000,
        projection: Projection::Packed,
        head: Head::ClassToken,
        registers: 0,
        layer_scale: false,
        swiglu: false,
        patch_positions: false,
        pixels: true,
    };

    /// Returns the graph with weights of the size of trained ones.
    pub(crate) fn random(self, seed: u64) -> Graph {
        let mut random = Random(seed);
        self.build(move |shape| random.tensor(shape))
    }

    /// Returns the graph with weights that take no memory, for tests of shapes.
    pub(crate) fn zeros(self) -> Graph {
        let zeros = Arc::new(vec![0u8; 4 * self.dim * self.dim * 4]);
        self.build(move |shape| {
            let bytes = 4 * shape.iter().product::<usize>();
            Tensor::view(shape, DType::F32, zeros.clone(), 0..bytes).unwrap()
        })
    }

    fn build(self, weights: impl FnMut(&[usize]) -> Tensor) -> Graph {
        let shape = if self.pixels {
            ([1, self.image, self.image, 3], DType::U8)
        } else {
            ([1, 3, self.image, self.image], DType::F32)
        };
        let graph = Graph::new("test", shape.0, shape.1);
        let mut builder = Builder {
            graph,
            weights,
            vit: self,
        };
        builder.model().unwrap();
        builder.graph.verify().unwrap();
        builder.graph
    }
}

/// Generator of reproducible random numbers (xorshift64*), <https://doi.org/10.18637/jss.v008.i14>.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number in (−1, 1).
    pub(crate) fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40;
        (bits as f32 + 0.5) / (1u64 << 23) as f32 - 1.0
    }

    /// Returns a weight scaled so that a product with it keeps the magnitude.
    fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let terms: usize = shape.iter().skip(1).product();
        let scale = (3.0 / terms.max(1) as f32).sqrt();
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| scale * self.next()).collect();
        Tensor::from_f32(shape, values).unwrap()
    }
}

struct Builder<W> {
    graph: Graph,
    weights: W,
    vit: Vit,
}

impl<W: FnMut(&[usize]) -> Tensor> Builder<W> {
    fn weight(&mut self, name: String, shape: &[usize]) -> ValueId {
        let tensor = (self.weights)(shape);
        self.graph.constant(name, tensor)
    }

    fn linear(&mut self, role: Role, name: &str, x: ValueId, width: usize, bias: bool) -> Result<ValueId> {
        let k = *self.graph.value(x).shape.last().unwrap();
        let mut inputs = vec![x, self.weight(format!("{name}.weight"), &[width, k])];
        if bias {
            inputs.push(self.weight(format!("{name}.bias"), &[width]));
        }
        let op = Op::Linear(Linear {
            bias,
            ..Linear::default()
        });
        self.graph.push(role, name, op, inputs)
    }

    fn norm(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let dim = self.vit.dim;
        let weight = self.weight(format!("{name}.weight"), &[dim]);
        let bias = self.weight(format!("{name}.bias"), &[dim]);
        let op = Op::LayerNorm(LayerNorm { epsilon: 1e-6 });
        self.graph.push(Role::Other, name, op, [x, weight, bias])
    }

    fn model(&mut self) -> Result<()> {
        let mut x = self.tokens()?;
        for i in 0..self.vit.depth {
            x = self.block(&format!("blocks.{i}"), x)?;
        }
        let x = self.norm("norm", x)?;
        let (role, classes) = (Role::Other, self.vit.classes);
        let (embedding, logits) = match self.vit.head {
            Head::ClassToken | Head::Mean => {
                let pool = match self.vit.head {
                    Head::Mean => Pool::Mean { skip: 1 },
                    _ => Pool::Token(0),
                };
                let pooled = self.graph.push(role, "pool", Op::Pool(pool), [x])?;
                (pooled, self.linear(role, "head", pooled, classes, true)?)
            }
            Head::Distilled => {
                let class = self.graph.push(role, "pool", Op::Pool(Pool::Token(0)), [x])?;
                let distilled = self
                    .graph
                    .push(role, "pool_dist", Op::Pool(Pool::Token(1)), [x])?;
                let a = self.linear(role, "head", class, classes, true)?;
                let b = self.linear(role, "head_dist", distilled, classes, true)?;
                let sum = self.graph.push(role, "head.sum", Op::Add(Add), [a, b])?;
                let mean = self
                    .graph
                    .push(role, "head.mean", Op::MulScalar(MulScalar(0.5)), [sum])?;
                (class, mean)
            }
            Head::AttentionPool => {
                let pooled = self.attention_pool(x)?;
                (pooled, self.linear(role, "head", pooled, classes, true)?)
            }
        };
        self.graph.set_output(OutputKind::Logits, logits);
        self.graph.set_output(OutputKind::Embedding, embedding);
        Ok(())
    }

    fn tokens(&mut self) -> Result<ValueId> {
        let Vit {
            patch, dim, image, ..
        } = self.vit;
        let role = Role::Patch;
        let mut x = self.graph.input();
        if self.vit.pixels {
            let normalize = Op::Normalize(Normalize {
                scale: [0.017, 0.0175, 0.0171],
                shift: [-2.1, -2.0, -1.8],
            });
            x = self.graph.push(role, "normalize", normalize, [x])?;
        }
        let weight = self.weight("patch.weight".into(), &[dim, 3, patch, patch]);
        let bias = self.weight("patch.bias".into(), &[dim]);
        let conv = Op::PatchConv(PatchConv {
            patch: [patch; 2],
            bias: true,
        });
        let mut x = self.graph.push(role, "patch", conv, [x, weight, bias])?;
        let patches = (image / patch).pow(2);

        let mut prefix = Vec::new();
        if self.vit.head != Head::AttentionPool {
            let class = self.weight("cls_token".into(), &[1, 1, dim]);
            prefix.push(if self.vit.patch_positions {
                let position = self.weight("cls_pos".into(), &[1, 1, dim]);
                self.graph.push(role, "cls", Op::Add(Add), [class, position])?
            } else {
                class
            });
        }
        if self.vit.head == Head::Distilled {
            prefix.push(self.weight("dist_token".into(), &[1, 1, dim]));
        }
        if self.vit.registers > 0 {
            prefix.push(self.weight("registers".into(), &[1, self.vit.registers, dim]));
        }
        if self.vit.patch_positions || prefix.is_empty() {
            let position = self.weight("pos_embed".into(), &[1, patches, dim]);
            x = self.graph.push(role, "positions", Op::Add(Add), [x, position])?;
        }
        if prefix.is_empty() {
            return Ok(x);
        }
        prefix.push(x);
        let mut x = self.graph.push(role, "tokens", Op::Prepend(Prepend), prefix)?;
        if !self.vit.patch_positions {
            let tokens = self.graph.value(x).shape[1];
            let position = self.weight("pos_embed".into(), &[1, tokens, dim]);
            x = self.graph.push(role, "positions", Op::Add(Add), [x, position])?;
        }
        Ok(x)
    }

    fn attention(&self, operands: AttentionOperands) -> Op {
        let head_dim = self.vit.dim / self.vit.heads;
        Op::Attention(Attention {
            heads: self.vit.heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            operands,
            ..Attention::default()
        })
    }

    fn block(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let dim = self.vit.dim;
        let y = self.norm(&format!("{name}.norm1"), x)?;
        let (operands, inputs) = match self.vit.projection {
            Projection::Packed => {
                let qkv = self.linear(Role::Qkv, &format!("{name}.qkv"), y, 3 * dim, true)?;
                (AttentionOperands::PackedQkv, vec![qkv])
            }
            Projection::Separate { key_bias } => {
                let q = self.linear(Role::Qkv, &format!("{name}.q"), y, dim, true)?;
                let k = self.linear(Role::Qkv, &format!("{name}.k"), y, dim, key_bias)?;
                let v = self.linear(Role::Qkv, &format!("{name}.v"), y, dim, true)?;
                (AttentionOperands::Separate, vec![q, k, v])
            }
        };
        let attention = self.attention(operands);
        let y = self
            .graph
            .push(Role::Attention, format!("{name}.attn"), attention, inputs)?;
        let y = self.linear(Role::Attention, &format!("{name}.proj"), y, dim, true)?;
        let x = self.residual(Role::Attention, &format!("{name}.ls1"), x, y)?;

        let y = self.norm(&format!("{name}.norm2"), x)?;
        let y = self.mlp(name, y)?;
        self.residual(Role::Ffn, &format!("{name}.ls2"), x, y)
    }

    fn mlp(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let (role, dim) = (Role::Ffn, self.vit.dim);
        let y = self.linear(role, &format!("{name}.fc1"), x, 4 * dim, true)?;
        let y = if self.vit.swiglu {
            self.graph
                .push(role, format!("{name}.gate"), Op::SwiGlu(SwiGlu), [y])?
        } else {
            let gelu = Op::Activation(Activation::GeluErf);
            self.graph.push(role, format!("{name}.gelu"), gelu, [y])?
        };
        self.linear(role, &format!("{name}.fc2"), y, dim, true)
    }

    fn residual(&mut self, role: Role, name: &str, x: ValueId, mut y: ValueId) -> Result<ValueId> {
        if self.vit.layer_scale {
            let gamma = self.weight(format!("{name}.gamma"), &[self.vit.dim]);
            y = self.graph.push(role, name, Op::Scale(Scale), [y, gamma])?;
        }
        self.graph.push(role, format!("{name}.add"), Op::Add(Add), [x, y])
    }

    fn attention_pool(&mut self, x: ValueId) -> Result<ValueId> {
        let dim = self.vit.dim;
        let latent = self.weight("pool.latent".into(), &[1, 1, dim]);
        let q = self.linear(Role::Qkv, "pool.q", latent, dim, true)?;
        let k = self.linear(Role::Qkv, "pool.k", x, dim, true)?;
        let v = self.linear(Role::Qkv, "pool.v", x, dim, true)?;
        let attention = self.attention(AttentionOperands::Separate);
        let y = self
            .graph
            .push(Role::Attention, "pool.attn", attention, [q, k, v])?;
        let y = self.linear(Role::Attention, "pool.proj", y, dim, true)?;
        let z = self.norm("pool.norm", y)?;
        let z = self.mlp("pool", z)?;
        let y = self.graph.push(Role::Ffn, "pool.add", Op::Add(Add), [y, z])?;
        self.graph
            .push(Role::Other, "pool", Op::Pool(Pool::Token(0)), [y])
    }
}

/// Compares both graphs on two random images.
#[track_caller]
pub(crate) fn assert_same(before: &Graph, after: &Graph, tolerance: f64) {
    after.verify().unwrap();
    let batch = 2;
    let input = before.value(before.input());
    let len = batch * input.shape.iter().product::<usize>();
    let mut random = Random(7);
    let values: Vec<f32> = (0..len).map(|_| random.next()).collect();
    let pixels: Vec<u8> = values.iter().map(|v| (127.5 + 127.5 * v) as u8).collect();
    let input = match input.dtype {
        DType::U8 => Input::Pixels(&pixels),
        _ => Input::Values(&values),
    };
    let expected = interpret(before, batch, input).unwrap();
    let actual = interpret(after, batch, input).unwrap();
    assert_eq!(expected.len(), actual.len());
    for ((kind, expected), (actual_kind, actual)) in expected.iter().zip(&actual) {
        assert_eq!((kind, expected.dim()), (actual_kind, actual.dim()));
        let flat = |m: &ndarray::Array2<f64>| m.iter().copied().collect::<Vec<f64>>();
        reference::assert_close(&flat(actual), &flat(expected), tolerance);
    }
}

/// Returns random pixels for `batch` images.
pub(crate) fn pixels(graph: &Graph, batch: usize) -> Vec<u8> {
    let mut random = Random(7);
    let len = batch * graph.value(graph.input()).shape.iter().product::<usize>();
    (0..len).map(|_| (127.5 + 127.5 * random.next()) as u8).collect()
}

/// Outputs of an interpreted graph.
pub(crate) type Results = Vec<(OutputKind, ndarray::Array2<f64>)>;

/// Compares outputs up to the order of the reference's f64 sums.
#[track_caller]
pub(crate) fn assert_same_outputs(name: &str, actual: &Results, expected: &Results) {
    assert_eq!(actual.len(), expected.len(), "{name}");
    for ((kind, actual), (expected_kind, expected)) in actual.iter().zip(expected) {
        assert_eq!((kind, actual.dim()), (expected_kind, expected.dim()), "{name}");
        reference::assert_close(actual.as_slice().unwrap(), expected.as_slice().unwrap(), 1e-12);
    }
}
