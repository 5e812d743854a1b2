//! Times the CPU executor on ViT-B/16 with random weights: `cargo bench -p hipvit-diagnostics --bench cpu`.
//! Prints the time of each kind of step in the fastest of several runs, then measures whole runs and each op
//! alone with criterion.

mod ops;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use hipvit::Result;
use hipvit::exec::{Arena, CpuExecutor};
use hipvit::graph::plan::{Plan, Step};
use hipvit::graph::{Graph, OutputKind, Role, ValueId};
use hipvit::ops::{
    Activation, Attention, AttentionOperands, LayerNorm, Linear, Op, PatchExtract, PixelLayout, Pool, Tokens,
};
use hipvit::tensor::Input;
use hipvit::tensor::{DType, Tensor};
use hipvit_diagnostics::validate::Options;

const SIZE: usize = 224;
const PATCH: usize = 16;
const DIM: usize = 768;
const DEPTH: usize = 12;
const HEADS: usize = 12;
const CLASSES: usize = 1000;

/// Adds constants with small pseudo-random values.
struct Builder {
    graph: Graph,
    state: u32,
}

impl Builder {
    fn constant(&mut self, name: String, shape: &[usize]) -> ValueId {
        let values: Vec<f32> = (0..shape.iter().product())
            .map(|_| {
                self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (self.state >> 8) as f32 / (1 << 24) as f32 * 0.1 - 0.05
            })
            .collect();
        let Some(tensor) = Tensor::from_f32(shape, values) else {
            unreachable!("there is a value for each element");
        };
        self.graph.constant(name, tensor)
    }

    fn norm(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let weight = self.constant(format!("{name}.weight"), &[DIM]);
        let bias = self.constant(format!("{name}.bias"), &[DIM]);
        let op = Op::LayerNorm(LayerNorm { epsilon: 1e-6 });
        Ok(self.graph.push(Role::Other, name, op, [x, weight, bias])?)
    }

    fn linear(
        &mut self,
        name: &str,
        x: ValueId,
        [n, k]: [usize; 2],
        activation: Option<Activation>,
        residual: Option<ValueId>,
    ) -> Result<ValueId> {
        let weight = self.constant(format!("{name}.weight"), &[n, k]);
        let bias = self.constant(format!("{name}.bias"), &[n]);
        let op = Op::Linear(Linear {
            bias: true,
            activation,
            residual: residual.is_some(),
            ..Linear::default()
        });
        let inputs: Vec<ValueId> = [x, weight, bias].into_iter().chain(residual).collect();
        Ok(self.graph.push(Role::Other, name, op, inputs)?)
    }
}

/// ViT-B/16 after all passes.
fn vit_base() -> Result<Graph> {
    let graph = Graph::new("vit_base_patch16_224", [1, SIZE, SIZE, 3], DType::U8);
    let mut b = Builder { graph, state: 1 };
    let patches = (SIZE / PATCH) * (SIZE / PATCH);
    let row = 3 * PATCH * PATCH;
    let extract = Op::PatchExtract(PatchExtract {
        patch: [PATCH; 2],
        layout: PixelLayout::Hwc,
        normalize: None,
    });
    let x = b.graph.push(Role::Patch, "patches", extract, [b.graph.input()])?;
    let x = b.linear("patch_embed", x, [DIM, row], None, None)?;
    let class = b.constant("cls_token".into(), &[1, 1, DIM]);
    let position = b.constant("pos_embed".into(), &[1, patches, DIM]);
    let tokens = Op::Tokens(Tokens {
        prefix: true,
        position: true,
    });
    let mut x = b
        .graph
        .push(Role::Patch, "tokens", tokens, [x, class, position])?;
    for i in 0..DEPTH {
        let name = |part: &str| format!("blocks.{i}.{part}");
        let y = b.norm(&name("norm1"), x)?;
        let qkv = b.linear(&name("qkv"), y, [3 * DIM, DIM], None, None)?;
        let attention = Op::Attention(Attention {
            heads: HEADS,
            head_dim: DIM / HEADS,
            scale: 0.125,
            operands: AttentionOperands::PackedQkv,
            ..Attention::default()
        });
        let y = b.graph.push(Role::Attention, name("attn"), attention, [qkv])?;
        x = b.linear(&name("proj"), y, [DIM, DIM], None, Some(x))?;
        let y = b.norm(&name("norm2"), x)?;
        let y = b.linear(&name("fc1"), y, [4 * DIM, DIM], Some(Activation::GeluErf), None)?;
        x = b.linear(&name("fc2"), y, [DIM, 4 * DIM], None, Some(x))?;
    }
    let x = b.norm("norm", x)?;
    let x = b.graph.push(Role::Other, "pool", Op::Pool(Pool::Token(0)), [x])?;
    let logits = b.linear("head", x, [CLASSES, DIM], None, None)?;
    b.graph.set_output(OutputKind::Logits, logits);
    Ok(b.graph)
}

/// Prints the time and rate of each kind of step in the fastest of several runs.
fn profile(executor: &CpuExecutor, plan: &Plan, pixels: &[u8]) -> Result<()> {
    let mut arena = Arena::new();
    let (mut least, mut times) = (Duration::MAX, Vec::new());
    for _ in 0..20 {
        let mut observed = Vec::with_capacity(plan.steps().len());
        let mut observe = |_: &Step, time: Duration| observed.push(time);
        let start = Instant::now();
        executor.run(plan, Input::Pixels(pixels), &mut arena, Some(&mut observe))?;
        if start.elapsed() < least {
            (least, times) = (start.elapsed(), observed);
        }
    }
    let mut kinds: BTreeMap<&str, (Duration, u64)> = BTreeMap::new();
    for (step, time) in plan.steps().iter().zip(&times) {
        let name = plan.node(step).name.rsplit('.').next().unwrap_or_default();
        let kind = kinds.entry(name).or_default();
        kind.0 += *time;
        kind.1 += step.flops;
    }
    println!(
        "batch {}, {} threads: {least:.2?}",
        plan.batch(),
        executor.threads()
    );
    for (name, (time, flops)) in kinds {
        let rate = flops as f64 / time.as_secs_f64() / 1e9;
        let share = 100.0 * time.as_secs_f64() / least.as_secs_f64();
        println!("  {name:12} {time:>9.2?} {share:5.1}%  {rate:6.1} GFLOP/s");
    }
    Ok(())
}

fn main() -> Result<()> {
    let graph = Arc::new(vit_base()?);
    let executor = CpuExecutor::new(&graph, None)?;
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("vit_base_patch16_224");
    group.sample_size(10);
    for batch in [1, 8] {
        let plan = Plan::new(graph.clone(), batch, DType::F32)?;
        let pixels: Vec<u8> = (0..batch * SIZE * SIZE * 3)
            .map(|i| (i * 31 % 251) as u8)
            .collect();
        profile(&executor, &plan, &pixels)?;
        let mut arena = Arena::new();
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(format!("batch {batch}"), |b| {
            b.iter(|| black_box(executor.run(&plan, Input::Pixels(&pixels), &mut arena, None)));
        });
    }
    group.finish();
    let options = Options {
        device: "cpu".parse()?,
        configs: vec!["1x12x197x64".parse()?],
        ..Options::default()
    };
    ops::bench(&mut criterion, &options)?;
    criterion.final_summary();
    Ok(())
}
