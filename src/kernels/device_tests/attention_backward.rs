//! The derivative of attention: masks that no op has, and equal bits in repeated runs.

use std::sync::Arc;

use super::{DTYPES, Gpu, Part, numbers, random, rounded};
use crate::exec::{ExecutorOptions, HipExecutor};
use crate::graph::plan::Plan;
use crate::graph::{Graph, Role};
use crate::hip::DeviceAddress;
use crate::kernels::attention::visibility;
use crate::kernels::bindings::{
    AttentionBackwardBiasArgs, AttentionBackwardKvArgs, AttentionBackwardOperands, AttentionBackwardQArgs,
};
use crate::kernels::{KernelCall, KernelError, Strided};
use crate::ops::{Attention, AttentionBackward, AttentionOperands, Definition as _, GridMask, Op};
use crate::reference::Array;
use crate::tensor::{DType, Input, Tensor};

const IMAGES: usize = 2;
const HEADS: usize = 2;

/// Attention of queries to the keys around their position, without padded keys and the first ones.
#[derive(Clone, Copy, Debug)]
struct Case {
    queries: usize,
    keys: usize,
    head_dim: usize,
    /// Keys before and after the position of a query.
    window: Option<[i32; 2]>,
    diagonal: i32,
    first_key: usize,
    has_bias: bool,
}

/// Gradients of an operand that the kernels write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kernel {
    Kv,
    Q,
    Partial,
    Bias,
    /// The sum over each image in f32.
    PartialBias,
}

impl Kernel {
    /// Returns true if the results are f32 in any dtype.
    fn is_partial(self) -> bool {
        matches!(self, Self::Partial | Self::PartialBias)
    }
}

/// Operands, in a dtype. `rows` are f32.
struct Operands {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    dy: Vec<f32>,
    bias: Vec<f32>,
    key_mask: Vec<u8>,
    rows: Vec<[f32; 2]>,
}

/// Gradients in f64.
struct Gradients {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    bias: Vec<f64>,
}

impl Case {
    const SCALE: f32 = 0.4;

    fn operands(self, dtype: DType) -> Operands {
        let of = |seed, count, spread| rounded(&random(count, seed, spread), dtype);
        let row = HEADS * self.head_dim;
        let [queries, keys] = [self.queries, self.keys].map(|tokens| IMAGES * tokens * row);
        let scores = HEADS * self.queries * self.keys;
        let bias = if self.has_bias { 2.0 } else { 0.0 };
        let mut operands = Operands {
            q: of(1, queries, 1.0),
            k: of(2, keys, 1.0),
            v: of(3, keys, 1.0),
            dy: of(4, queries, 1.0),
            bias: of(5, scores, bias),
            key_mask: (0..IMAGES * self.keys).map(|i| u8::from(i % 7 != 3)).collect(),
            rows: Vec::new(),
        };
        operands.rows = self.rows(&operands);
        operands
    }

    fn sees(self, operands: &Operands, [image, query, key]: [usize; 3]) -> bool {
        let distance = key as i32 - query as i32 - self.diagonal;
        let near = self
            .window
            .is_none_or(|[left, right]| (-left..=right).contains(&distance));
        near && key >= self.first_key && operands.key_mask[image * self.keys + key] != 0
    }

    /// Returns the product of channels of two tokens.
    fn dot(self, a: (&[f32], usize, usize), b: (&[f32], usize, usize), [image, head]: [usize; 2]) -> f64 {
        let channels = |(values, tokens, token): (&[f32], usize, usize)| {
            let first = ((image * tokens + token) * HEADS + head) * self.head_dim;
            values[first..first + self.head_dim].to_vec()
        };
        let products = channels(a).into_iter().zip(channels(b));
        products.map(|(a, b)| f64::from(a) * f64::from(b)).sum()
    }

    fn score(self, operands: &Operands, at: [usize; 2], [query, key]: [usize; 2]) -> f64 {
        let q = (&operands.q[..], self.queries, query);
        let product = self.dot(q, (&operands.k, self.keys, key), at);
        let bias = operands.bias[(at[1] * self.queries + query) * self.keys + key];
        f64::from(Self::SCALE) * product + f64::from(bias)
    }

    /// Returns log₂ Σ e^s of each query, and any number for Σ o · dy.
    fn rows(self, operands: &Operands) -> Vec<[f32; 2]> {
        let mut rows = Vec::new();
        for image in 0..IMAGES {
            for head in 0..HEADS {
                for query in 0..self.queries {
                    let visible = (0..self.keys).filter(|&key| self.sees(operands, [image, query, key]));
                    let sum: f64 = visible
                        .map(|key| self.score(operands, [image, head], [query, key]).exp())
                        .sum();
                    let log_sum = if sum > 0.0 { sum.log2() } else { f64::INFINITY };
                    rows.push([log_sum as f32, (query % 3) as f32 - 1.0]);
                }
            }
        }
        rows
    }

    fn reference(self, operands: &Operands) -> Gradients {
        let zeros = |of: &[f32]| vec![0.0; of.len()];
        let mut gradients = Gradients {
            q: zeros(&operands.q),
            k: zeros(&operands.k),
            v: zeros(&operands.v),
            bias: zeros(&operands.bias),
        };
        for image in 0..IMAGES {
            for head in 0..HEADS {
                for query in 0..self.queries {
                    let row = (image * HEADS + head) * self.queries + query;
                    let [log_sum, delta] = operands.rows[row].map(f64::from);
                    for key in (0..self.keys).filter(|&key| self.sees(operands, [image, query, key])) {
                        let at = [image, head];
                        let score = self.score(operands, at, [query, key]);
                        let p = (score * std::f64::consts::LOG2_E - log_sum).exp2();
                        let dy = (&operands.dy[..], self.queries, query);
                        let d_p = self.dot(dy, (&operands.v, self.keys, key), at);
                        let d_s = p * (d_p - delta);
                        gradients.bias[(head * self.queries + query) * self.keys + key] += d_s;
                        let of_q = ((image * self.queries + query) * HEADS + head) * self.head_dim;
                        let of_k = ((image * self.keys + key) * HEADS + head) * self.head_dim;
                        for c in 0..self.head_dim {
                            let [q, dy] = [&operands.q, &operands.dy].map(|v| f64::from(v[of_q + c]));
                            let k = f64::from(operands.k[of_k + c]);
                            gradients.q[of_q + c] += f64::from(Self::SCALE) * d_s * k;
                            gradients.k[of_k + c] += f64::from(Self::SCALE) * d_s * q;
                            gradients.v[of_k + c] += p * dy;
                        }
                    }
                }
            }
        }
        gradients
    }

    /// Addresses in `at`: Q, K, V, dy, bias, key mask, rows, and both results.
    fn call(self, kernel: Kernel, at: [DeviceAddress; 9]) -> Result<KernelCall, KernelError> {
        let [q, k, v, dy, bias, key_mask, rows, first, second] = at;
        let strided = |address, tokens: usize| Strided {
            address,
            tokens,
            image: tokens * HEADS * self.head_dim,
            token: HEADS * self.head_dim,
        };
        let spec = Attention {
            heads: HEADS,
            head_dim: self.head_dim,
            scale: Self::SCALE,
            first_key: self.first_key,
            ..Attention::default()
        };
        let [left, right] = self.window.map_or([None; 2], |window| window.map(Some));
        let visible = visibility(key_mask, self.diagonal, left, right);
        let operands = [
            strided(q, self.queries),
            strided(k, self.keys),
            strided(v, self.keys),
            strided(dy, self.queries),
        ];
        let mut operands = AttentionBackwardOperands::new(&spec, IMAGES, operands, rows, visible)?;
        if self.has_bias {
            operands.bias = bias;
            operands.bias_head = (self.queries * self.keys) as u64;
            operands.bias_query = self.keys as u32;
        }
        let none = DeviceAddress::NULL;
        let [only, partial] = if kernel.is_partial() {
            [none, first]
        } else {
            [first, none]
        };
        Ok(match kernel {
            Kernel::Kv => AttentionBackwardKvArgs {
                operands,
                dk: first,
                dv: second,
            }
            .into(),
            Kernel::Q | Kernel::Partial => AttentionBackwardQArgs {
                operands,
                dq: only,
                partial,
            }
            .into(),
            Kernel::Bias | Kernel::PartialBias => AttentionBackwardBiasArgs {
                operands,
                dbias: only,
                partial,
                chunk: if kernel == Kernel::Bias { IMAGES as u32 } else { 1 },
                reserved: 0,
            }
            .into(),
        })
    }

    fn check(self, gpu: &Gpu, dtype: DType) {
        let operands = self.operands(dtype);
        let expected = self.reference(&operands);
        let of_bias = [Kernel::Bias, Kernel::PartialBias].into_iter();
        let kernels = [Kernel::Kv, Kernel::Q, Kernel::Partial].into_iter();
        for kernel in kernels.chain(of_bias.filter(|_| self.has_bias)) {
            let expected: &[&[f64]] = match kernel {
                Kernel::Kv => &[&expected.k, &expected.v],
                Kernel::Q | Kernel::Partial => &[&expected.q],
                Kernel::Bias | Kernel::PartialBias => &[&expected.bias],
            };
            let in_f32 = kernel.is_partial();
            let chunks = if kernel == Kernel::PartialBias { IMAGES } else { 1 };
            let element = if in_f32 { 4 } else { dtype.size() };
            let [q, k, v, dy, bias] = [
                &operands.q,
                &operands.k,
                &operands.v,
                &operands.dy,
                &operands.bias,
            ]
            .map(|values| Part::numbers(values, dtype));
            let parts = [
                q,
                k,
                v,
                dy,
                bias,
                Part::operand(&operands.key_mask),
                Part::operand(&operands.rows),
                Part::result(chunks * expected[0].len(), element),
                Part::result(expected.get(1).map_or(0, |of_v| of_v.len()), element),
            ];
            let shift = usize::from(self.queries % 2 == 1 && element == dtype.size());
            let run = || gpu.run(dtype, &parts, shift, |at| self.call(kernel, at));
            let results = run();
            assert!(
                results == run(),
                "{dtype} {self:?} {kernel:?}: other bits in the next run"
            );
            for (result, expected) in results.iter().zip(expected) {
                let values = numbers(result, if in_f32 { DType::F32 } else { dtype });
                let (first, others) = values.split_at(expected.len());
                let mut sum = first.to_vec();
                for more in others.chunks(expected.len()) {
                    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                }
                self.compare(&sum, expected, dtype, kernel);
            }
        }
    }

    fn compare(self, values: &[f32], expected: &[f64], dtype: DType, kernel: Kernel) {
        let largest = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let tolerance = match dtype {
            DType::F16 => 4e-3,
            DType::BF16 => 3e-2,
            _ => 1e-5,
        };
        for (index, (&got, &expected)) in values.iter().zip(expected).enumerate() {
            assert!(
                (f64::from(got) - expected).abs() <= tolerance * largest,
                "{dtype} {self:?} {kernel:?} {index}: {got}, expected {expected}"
            );
        }
    }
}

#[test]
fn derivatives_of_masked_attention_agree_with_the_reference() {
    let Some(gpu) = Gpu::get() else { return };
    let case = Case {
        queries: 33,
        keys: 81,
        head_dim: 20,
        window: None,
        diagonal: 0,
        first_key: 0,
        has_bias: false,
    };
    let cases = [
        // Padded keys alone; a window that leaves out tiles, and hides all keys from some queries; the first keys.
        case,
        Case {
            window: Some([9, 4]),
            diagonal: 55,
            has_bias: true,
            ..case
        },
        Case {
            queries: 70,
            keys: 70,
            head_dim: 32,
            window: Some([0, 3]),
            first_key: 34,
            ..case
        },
        // Blocks whose last rows are at most 16, which waves of Hopper share.
        Case {
            queries: 16,
            keys: 130,
            head_dim: 64,
            ..case
        },
        Case {
            queries: 80,
            keys: 65,
            head_dim: 32,
            ..case
        },
    ];
    for dtype in DTYPES {
        cases.iter().for_each(|case| case.check(&gpu, dtype));
    }
}

/// Attention of one image's tokens whose results are saved, and its derivative.
#[derive(Clone, Copy, Debug)]
struct Saved {
    images: usize,
    key_mask: bool,
}

impl Saved {
    const TOKENS: usize = 37;
    const HEAD_DIM: usize = 32;
    /// Patches of the image, as rows and columns. The other keys are padding.
    const GRID: [u8; 2] = [5, 6];

    fn spec(self) -> Attention {
        Attention {
            heads: HEADS,
            head_dim: Self::HEAD_DIM,
            scale: 0.5,
            operands: AttentionOperands::PackedQkv,
            causal: !self.key_mask,
            key_mask: self.key_mask,
            bias: true,
            statistics: true,
            ..Attention::default()
        }
    }

    fn check(self, gpu: &Gpu, dtype: DType) {
        let channels = HEADS * Self::HEAD_DIM;
        let shapes: [&[usize]; 3] = [
            &[self.images, Self::TOKENS, 3 * channels],
            &[HEADS, Self::TOKENS, Self::TOKENS],
            &[self.images, Self::TOKENS, channels],
        ];
        let values: Vec<Vec<f32>> = shapes
            .iter()
            .zip(1..)
            .map(|(shape, seed)| rounded(&random(shape.iter().product(), seed, 1.0), dtype))
            .collect();
        let results = self.run(gpu, dtype, &shapes, &values);
        assert!(
            results == self.run(gpu, dtype, &shapes, &values),
            "{dtype} {self:?}: other bits in the next run"
        );
        for (result, expected) in results.iter().zip(self.expected(&shapes, &values)) {
            let largest = expected
                .values()
                .iter()
                .fold(0.0, |most: f64, x| most.max(x.abs()));
            // The saved result is rounded to the dtype.
            let tolerance = match dtype {
                DType::F16 => 4e-3,
                DType::BF16 => 3e-2,
                _ => 1e-5,
            };
            for (&got, &expected) in numbers(result, dtype).iter().zip(expected.values()) {
                assert!(
                    (f64::from(got) - expected).abs() <= tolerance * largest,
                    "{dtype} {self:?}: {got}, expected {expected}"
                );
            }
        }
    }

    /// Returns the gradients of packed queries, keys and values, and of the bias.
    fn run(self, gpu: &Gpu, dtype: DType, shapes: &[&[usize]; 3], values: &[Vec<f32>]) -> Vec<Vec<u8>> {
        // Patches of 2×2 pixels, and the row with the grid.
        let image = [1, 2 * Self::TOKENS + 1, 2, 3];
        let mut graph = Graph::new("backward", image, DType::U8);
        let [qkv, bias, dy] = [0, 1, 2].map(|index| {
            let tensor = Tensor::from_f32(shapes[index], values[index].clone()).unwrap();
            graph.constant("operand", tensor)
        });
        let mut operands = vec![qkv, bias];
        if self.key_mask {
            let input = graph.input();
            operands.push(graph.push(Role::Other, "mask", GridMask, [input]).unwrap());
        }
        let node = graph.push_node(
            Role::Other,
            "forward".into(),
            Op::Attention(self.spec()),
            operands.clone(),
        );
        operands.extend(&node.unwrap().outputs);
        operands.push(dy);
        graph
            .push(Role::Other, "backward", AttentionBackward(self.spec()), operands)
            .unwrap();
        let graph = Arc::new(graph);
        let executor = HipExecutor::new(&graph, &gpu.device, &ExecutorOptions::new(dtype)).unwrap();
        let plan = Plan::new(graph, 1, dtype).unwrap();
        let mut pixels = vec![0; image.iter().product()];
        let last_row = pixels.len() - 6;
        [pixels[last_row], pixels[last_row + 2]] = Self::GRID;
        let memory = executor.run_guarded(&plan, Input::Pixels(&pixels), (0, 0xff), |_, _| Ok(()));
        let memory = memory.unwrap();
        let result = |&id| {
            let buffer = plan.buffer(id);
            memory[buffer.offset..buffer.offset + buffer.bytes].to_vec()
        };
        plan.steps().last().unwrap().outputs.iter().map(result).collect()
    }

    fn expected(self, shapes: &[&[usize]; 3], values: &[Vec<f32>]) -> Vec<Array> {
        let [qkv, bias, dy] = [0, 1, 2].map(|index| {
            let values = values[index].iter().map(|&value| f64::from(value));
            Array::new(shapes[index], values.collect()).unwrap()
        });
        let patches = Self::GRID.iter().map(|&extent| usize::from(extent)).product();
        let visible = (0..Self::TOKENS).map(|key| if key < patches { 1.0 } else { 0.0 });
        let mask = Array::new([1, Self::TOKENS], visible.collect()).unwrap();
        let mut operands = vec![&qkv, &bias];
        operands.extend(self.key_mask.then_some(&mask));
        let saved = self.spec().eval(&operands).unwrap();
        operands.extend(&saved);
        operands.push(&dy);
        AttentionBackward(self.spec()).eval(&operands).unwrap()
    }
}

/// The statistics of the forward pass are f32 in any dtype, and key masks are bytes.
#[test]
fn derivatives_from_saved_results_agree_with_the_reference() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        for (images, key_mask) in [(2, false), (1, true)] {
            Saved { images, key_mask }.check(&gpu, dtype);
        }
    }
}
