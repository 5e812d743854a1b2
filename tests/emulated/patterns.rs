//! Attention with patterns that are compiled at run time, and the cache of their code.

use std::env;
use std::path::Path;

use hipvit::attention::{GpuAttention, Pattern, masks};
use hipvit::exec::{ExecutorOptions, Inputs, Placement};
use hipvit::graph::{Graph, OutputKind, Role, ValueId, interpret};
use hipvit::hip::Runtime;
use hipvit::kernels::compile_stats;
use hipvit::ops::{Add, AttentionOperands, Op, PatternAttention, Pool};
use hipvit::tensor::Input;
use hipvit::{DType, Device as DeviceKind, Session};

use crate::support::at;
use crate::support::emulated::{MARK, all, available, command};
use crate::support::program::{stderr, stdout};

/// Number of patterns of the graph. Compiling one takes half a second of a core.
fn patterns() -> u64 {
    if all() { 100 } else { 24 }
}

const TOKENS: usize = 17;
const CHANNELS: usize = 16;

/// Set to what the process must find: `compiled` or `kept`.
const EXPECTED: &str = "HIPVIT_TEST_PATTERNS";

/// Returns a graph that adds up attention with each of these windows, and pools it.
fn graph() -> Graph {
    let mut graph = Graph::of_tokens("patterns", [TOKENS, 3 * CHANNELS]);
    let qkv = graph.input();
    let mut push =
        |name: String, op: Op, inputs: &[ValueId]| graph.push(Role::Other, name, op, inputs).unwrap();
    let mut sum = None;
    for index in 0..patterns() as i32 {
        let pattern = Pattern::new().with_mask(masks::window(index % 10, index / 10));
        let layout = AttentionOperands::PackedQkv;
        let op = PatternAttention::new((1, CHANNELS), 0.25, layout, &pattern).unwrap();
        let attended = push(format!("attention {index}"), op.into(), &[qkv]);
        sum = Some(match sum {
            Some(sum) => push(format!("sum {index}"), Add.into(), &[sum, attended]),
            None => attended,
        });
    }
    let pooled = push("pooled".into(), Pool::Mean { skip: 0 }.into(), &[sum.unwrap()]);
    graph.set_output(OutputKind::Embedding, pooled);
    graph
}

/// Set to the tile that the process must find.
const TILE: &str = "HIPVIT_TEST_TILE";

/// Checks in a process with this cache that attention on the caller's memory has the stored tile, with the pattern and the shapes of the
/// model's first layer at batch size 2 in bf16.
pub(super) fn attention_has_tile(cache: &Path, model: &str, tile: &str) {
    let output = command(env::current_exe().unwrap(), "gfx942")
        .args(["emulated::patterns::a_stored_tile_is_used", "--exact"])
        .env(MARK, model)
        .env(TILE, tile)
        .env("HIPVIT_CACHE_DIR", cache)
        .output()
        .unwrap();
    let passed = output.status.success() && stdout(&output).contains("1 passed");
    assert!(passed, "{}{}", stdout(&output), stderr(&output));
}

/// Started by [`attention_has_tile`], and passes without it.
#[test]
fn a_stored_tile_is_used() {
    let (Ok(model), Ok(tile)) = (env::var(MARK), env::var(TILE)) else {
        return;
    };
    let session = Session::builder()
        .device(DeviceKind::Cpu)
        .load(at(model))
        .unwrap();
    let graph = session.graph();
    let (node, op) = graph
        .nodes()
        .iter()
        .find_map(|node| match &node.op {
            Op::PatternAttention(op) => Some((node, op)),
            _ => None,
        })
        .unwrap();
    let shapes = graph.shapes(2).unwrap();
    let shapes: Vec<&[usize]> = node.inputs.iter().map(|id| &shapes[id.index()][..]).collect();
    let device = Runtime::open().unwrap().device(0).unwrap();
    let attention = GpuAttention::new(&device, DType::BF16, op, &shapes).unwrap();
    assert_eq!(attention.tile().unwrap().to_string(), tile);
}

/// However many patterns a process has, each is one fused kernel. Another process compiles none of them.
#[test]
fn many_patterns_are_compiled_once() {
    if !available() {
        return;
    }
    let Ok(expected) = env::var(EXPECTED) else {
        let folder = tempfile::tempdir().unwrap();
        for expected in ["compiled", "kept"] {
            let output = command(env::current_exe().unwrap(), "gfx1100")
                .args(["emulated::patterns::many_patterns_are_compiled_once", "--exact"])
                .env(MARK, "1")
                .env(EXPECTED, expected)
                .env("HIPVIT_CACHE_DIR", folder.path())
                .output()
                .unwrap();
            let passed = output.status.success() && stdout(&output).contains("1 passed");
            assert!(passed, "{expected}: {}{}", stdout(&output), stderr(&output));
        }
        return;
    };
    let graph = graph();
    let device = Runtime::open().unwrap().device(0).unwrap();
    let load = || {
        Placement::gpu(&device)
            .executor(&graph, &ExecutorOptions::new(DType::F32))
            .unwrap()
    };
    let executor = load();
    let stats = compile_stats();
    // This build may have code of the sums and the mean.
    let units = stats.disk_hits + stats.misses;
    assert!([patterns(), patterns() + 2].contains(&units), "{stats:?}");
    if expected == "compiled" {
        assert_eq!(stats.disk_hits, 0);
        assert!(!stats.compile_time.is_zero());
    } else {
        assert_eq!((stats.misses, stats.hit_rate()), (0, 1.0));
    }
    load();
    assert_eq!(compile_stats().memory_hits, stats.memory_hits + units);

    let values: Vec<f32> = (0..TOKENS * 3 * CHANNELS)
        .map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0)
        .collect();
    let plan = executor.plan(1).unwrap();
    let inputs = Inputs::new([("activations", Input::Values(&values).into())]);
    let outputs = executor.run_inputs(&plan, inputs).unwrap();
    let found = &outputs.get("embedding").unwrap().values;
    let (_, expected) = &interpret(&graph, 1, Input::Values(&values)).unwrap()[0];
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (f64::from(*found) - expected).abs() < 1e-4 * patterns() as f64,
            "{found} {expected}"
        );
    }
}
