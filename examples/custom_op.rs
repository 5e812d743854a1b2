//! An op that hipvit does not have, and a fusion that puts it into a model: `x + y` and its LayerNorm as one kernel.
//!
//! The op has a definition, a CPU kernel and a HIP kernel, which is compiled at run time. A rewrite of the graph replaces each
//! addition that a LayerNorm follows. The results are compared with those of the model without the fusion.
//!
//!     cargo run --release --example custom_op
//!     HIPVIT_PROVIDER=emu:gfx1100 cargo run --release --example custom_op    # on an emulated GPU
#![allow(unsafe_code, reason = "a HIP kernel states once what it accesses")]

use std::borrow::Cow;

use hipvit::custom::{CpuKernel, CpuOperand, CustomOp, HipKernel, HipLaunch, HipStep, OpBuilder};
use hipvit::graph::{self, Graph, rewrite};
use hipvit::hip::Launch;
use hipvit::image::Limits;
use hipvit::ndarray::Array2;
use hipvit::ops::operands::{exactly, expect};
use hipvit::ops::{LayerNorm, Locality, Op, OpError, Shape};
use hipvit::reference::{Array, layer_norm_tolerance, narrow, tolerance};
use hipvit::{DType, Device, Result, Session, SessionBuilder, digits};
use rayon::prelude::*;

/// `(x, y, weight [D], bias [D]) → (x + y, LayerNorm(x + y))`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddLayerNorm {
    /// Added to the variance.
    pub epsilon: f32,
}

impl CustomOp for AddLayerNorm {
    fn name(&self) -> &'static str {
        "add_layer_norm"
    }

    fn attributes(&self) -> String {
        format!("ε={:e}", self.epsilon)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, y, weight, bias] = exactly(operands)?;
        expect("y", y, x)?;
        expect("weight", weight, &x[x.len().saturating_sub(1)..])?;
        expect("bias", bias, weight)?;
        Ok(vec![x.to_vec(), x.to_vec()])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 2..4 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0, 1])
    }

    fn reference(&self, operands: &[&Array], results: &mut [Array]) {
        let [x, y, weight, bias] = [0, 1, 2, 3].map(|index| operands[index].values());
        let channels = weight.len();
        let sums: Vec<f64> = x.iter().zip(y).map(|(x, y)| x + y).collect();
        for (row, norm) in sums
            .chunks(channels)
            .zip(results[1].values_mut().chunks_mut(channels))
        {
            let mean = row.iter().sum::<f64>() / channels as f64;
            let variance = row.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / channels as f64;
            let deviation = (variance + f64::from(self.epsilon)).sqrt();
            for (i, norm) in norm.iter_mut().enumerate() {
                *norm = (row[i] - mean) / deviation * weight[i] + bias[i];
            }
        }
        results[0].values_mut().copy_from_slice(&sums);
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        if index == 0 {
            return narrow(dtype) + tolerance(DType::F32, 1);
        }
        let shape = operands[0].shape().to_vec();
        let mut results = [Array::zeros(shape.clone()), Array::zeros(shape)];
        self.reference(operands, &mut results);
        let [sum, norm] = &results;
        layer_norm_tolerance([sum, operands[2], operands[3]], norm, self.epsilon, dtype, true)
    }
}

impl CpuKernel for AddLayerNorm {
    fn run(&self, operands: &[CpuOperand<'_>], results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [x, y, weight, bias] = [0, 1, 2, 3].map(|index| operands[index].values());
        let [sum, norm] = results else {
            return Err("has two results".into());
        };
        let channels = weight.len();
        let rows = sum.par_chunks_mut(channels).zip(norm.par_chunks_mut(channels));
        let rows = rows.zip(x.par_chunks(channels).zip(y.par_chunks(channels)));
        rows.for_each(|((sum, norm), (x, y))| {
            sum.iter_mut()
                .zip(x)
                .zip(y)
                .for_each(|((sum, x), y)| *sum = x + y);
            let mean = sum.iter().sum::<f32>() / channels as f32;
            let variance = sum.iter().map(|s| (s - mean).powi(2)).sum::<f32>() / channels as f32;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            for (i, norm) in norm.iter_mut().enumerate() {
                *norm = (sum[i] - mean) * scale * weight[i] + bias[i];
            }
        });
        Ok(())
    }
}

/// A block computes a row. Headers are those of hipvit's kernels; a source need not include any.
const SOURCE: &str = r#"
#include "wave.hpp"
using namespace hipvit;
using T = HIPVIT_DTYPE;
constexpr int THREADS = 64;

HIPVIT_KERNEL(THREADS) add_layer_norm(const T *x, const T *y, const T *weight, const T *bias, T *sum, T *out,
                                      u32 channels, float epsilon) {
    HIPVIT_LDS static float scratch[THREADS / WAVE];
    const RowGroup<THREADS> block{true, scratch};
    const u64 row = u64(block_index()) * channels;
    float total = 0;
    for (u32 i = thread_index(); i < channels; i += THREADS) {
        const float s = to_float(x[row + i]) + to_float(y[row + i]);
        sum[row + i] = from_float<T>(s);
        total += s;
    }
    const float mean = block.reduce<Sum>(total) / channels;
    float squares = 0;
    for (u32 i = thread_index(); i < channels; i += THREADS) {
        const float centred = to_float(sum[row + i]) - mean;
        squares += centred * centred;
    }
    const float deviation = square_root(block.reduce<Sum>(squares) / channels + epsilon);
    for (u32 i = thread_index(); i < channels; i += THREADS) {
        const float centred = to_float(sum[row + i]) - mean;
        out[row + i] = from_float<T>(centred / deviation * to_float(weight[i]) + to_float(bias[i]));
    }
}
"#;

// SAFETY: the kernel has these parameters. Block `row` reads and writes `channels` elements of that row of x, y, sum and out, and
// reads `channels` elements of weight and bias. A thread reads an element of x before it writes that of sum.
unsafe impl HipKernel for AddLayerNorm {
    fn source(&self) -> Cow<'static, str> {
        SOURCE.into()
    }

    fn launches(&self, step: &HipStep<'_>) -> Result<Vec<HipLaunch>, OpError> {
        let Some((&channels, rows)) = step.operands[0].split_last() else {
            return Err("takes rows of channels".into());
        };
        let fits = |n: usize| {
            u32::try_from(n).map_err(|_| OpError::from("takes 2^32 - 1 rows and channels at most"))
        };
        let geometry = Launch::new(fits(rows.iter().product())?, 64);
        let launch = HipLaunch::new("add_layer_norm", geometry);
        let launch = launch
            .operand(0)
            .operand(1)
            .operand(2)
            .operand(3)
            .result(0)
            .result(1);
        Ok(vec![launch.u32(fits(channels)?).f32(self.epsilon)])
    }
}

/// Replaces each addition that a LayerNorm follows. The sum is a result too, for the next addition.
pub(crate) fn fuse(graph: &Graph) -> graph::Result<Graph> {
    let rewritten = rewrite(graph, |rewriter, node| {
        let (Op::LayerNorm(LayerNorm { epsilon }), &[x, weight, bias]) = (&node.op, &node.inputs[..]) else {
            return Ok(None);
        };
        let sum = rewriter.producer(x).filter(|sum| matches!(sum.op, Op::Add(_)));
        let Some(sum) = sum else { return Ok(None) };
        let (value, channels) = (|id| graph.value(id), graph.value(weight).shape.last());
        // Position embeddings are one image for all, and a norm of heads has fewer channels than the sum.
        if sum.inputs.iter().any(|&id| value(id).is_constant()) || value(x).shape.last() != channels {
            return Ok(None);
        }
        let op = OpBuilder::new(AddLayerNorm { epsilon: *epsilon }).cpu().hip();
        let operands = rewriter.map_all(&[sum.inputs[0], sum.inputs[1], weight, bias]);
        let results = rewriter.emit_node(node.role, &node.name, op, operands)?;
        rewriter.replace(sum.output(), results[0]);
        Ok(Some(results[1]))
    })?;
    Ok(rewritten.graph)
}

/// How a model with the fusion differs from the model without it.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The device in use.
    pub device: Device,
    /// Number of fused additions.
    pub fused: usize,
    /// Largest difference of a logit, relative to the largest logit.
    pub difference: f32,
}

/// Runs the embedded model on its samples, with the fusion and without.
pub(crate) fn compare(builder: &SessionBuilder) -> Result<Comparison> {
    let images = digits::samples().map(|sample| sample.decode(Limits::default()));
    let images = images.collect::<Result<Vec<_>>>()?;
    let (plain, fused) = (builder.tinyvit32()?, builder.clone().rewrite(fuse).tinyvit32()?);
    let logits = |session: &Session| -> Result<Array2<f32>> {
        let outputs = session.run(&images)?;
        Ok(outputs.logits().cloned().unwrap_or_default())
    };
    let (expected, got) = (logits(&plain)?, logits(&fused)?);
    let largest = |values: Array2<f32>| values.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let difference = largest(&got - &expected);
    let nodes = fused.graph().nodes().iter();
    Ok(Comparison {
        device: fused.device(),
        fused: nodes.filter(|node| matches!(node.op, Op::Custom(_))).count(),
        difference: difference / largest(expected),
    })
}

fn main() -> Result<()> {
    for device in [Device::Cpu, Device::Auto] {
        let compared = compare(&Session::builder().device(device))?;
        println!(
            "{}: {} additions fused, logits differ by {:.1e} of the largest",
            compared.device, compared.fused, compared.difference
        );
    }
    Ok(())
}
