//! 2:4 sparse weights on a GPU, packed and not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hipvit::exec::select::{Choice, PackedLayer, Problem, SelectOptions, WholeModel};
use hipvit::exec::{Executor, ExecutorOptions, HipExecutor, Placement};
use hipvit::graph::inspection::SelectedKernels;
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, interpret, optimize};
use hipvit::model::{self, LoadOptions};
use hipvit::reference::model_tolerance;
use hipvit::tensor::Input;
use hipvit::{DType, Session, Sparse};
use hipvit_quantize::{Options, Precision, Sparsity, quantize};

use crate::support::at;
use crate::support::gpu::{device, dtypes};
use crate::support::session::{compare, epsilon};

/// Linear layers with each form of an epilogue; their extents are no multiples of a tile.
const MODELS: [&str; 4] = ["", "hf_vit", "timm_mixer", "timm_eva02"];

fn pruned(name: &str, directory: &Path) -> PathBuf {
    let options = Options {
        precision: Precision::Full,
        sparsity: Some(Sparsity::TwoOfFour),
        ..Options::default()
    };
    let out = directory.join(format!("{name}-2-4"));
    let model = (!name.is_empty()).then(|| at("tests/golden").join(name));
    quantize(model.as_deref(), &out, options, []).unwrap();
    out
}

fn pixels(graph: &Graph, batch: usize) -> Vec<u8> {
    let shape = &graph.value(graph.input()).shape;
    (0..batch * shape.iter().product::<usize>())
        .map(|i| (i * 7919 % 251) as u8)
        .collect()
}

fn on_gpu(executor: &Arc<dyn Executor>) -> &HipExecutor {
    executor.hip().expect("an executor of one GPU")
}

/// Returns the number of steps with packed weights, computed by hipvit's kernel and by hipSPARSELt.
fn packed(kernels: &[SelectedKernels]) -> [usize; 2] {
    ["sparse_gemm", "hipSPARSELt"].map(|name| {
        let packed = kernels
            .iter()
            .filter(|of| of.kernels.iter().any(|kernel| kernel.starts_with(name)));
        packed
            .inspect(|of| {
                assert_eq!(of.origin.as_deref(), Some("asked"));
                assert!(name == "hipSPARSELt" || of.kernels.len() == 1);
            })
            .map(|of| of.steps)
            .sum()
    })
}

/// Returns true if the GPU has instructions for sparse matrices.
fn skips_zeros(arch: &str, dtype: DType) -> bool {
    let capability = arch.strip_prefix("sm_").and_then(|number| number.parse().ok());
    dtype.size() == 2 && (["gfx942", "gfx950"].contains(&arch) || capability.is_some_and(|c: u32| c >= 80))
}

#[test]
fn packed_weights_give_the_logits_of_the_reference() {
    let Some((device, _shared)) = device() else { return };
    let dir = tempfile::tempdir().unwrap();
    for name in MODELS {
        let path = pruned(name, dir.path());
        for dtype in dtypes() {
            let builder = Session::builder().device(device).dtype(dtype);
            let gpu = builder.open_device().unwrap().unwrap();
            let model = model::load(&path, &LoadOptions::default()).unwrap();
            let sparsity = model.info.sparsity.clone().unwrap();
            let (graph, _) = optimize(model.graph, &builder.passes()).unwrap();
            let graph = Arc::new(graph);
            // Of one image, and of some.
            for batch in [1, 5] {
                let plan = Arc::new(Plan::new(graph.clone(), batch, dtype).unwrap());
                let pixels = pixels(&graph, batch);
                let input = Input::Pixels(&pixels);
                let expected = interpret(&graph, batch, input).unwrap();
                let [own, on, off] = [Sparse::Builtin, Sparse::On, Sparse::Off].map(|sparse| {
                    let select = SelectOptions {
                        sparse,
                        ..SelectOptions::default()
                    };
                    let options = ExecutorOptions {
                        threads: Some(1),
                        select,
                        ..ExecutorOptions::new(dtype)
                    };
                    Placement::gpu(&gpu).executor(&graph, &options).unwrap()
                });
                let [steps, by_library] = packed(&on_gpu(&own).kernels(&plan).unwrap());
                assert_eq!(by_library, 0);
                // Where the library is there, it computes what it takes.
                let of_either: usize = packed(&on_gpu(&on).kernels(&plan).unwrap()).iter().sum();
                assert_eq!(of_either, steps);
                assert_eq!(packed(&on_gpu(&off).kernels(&plan).unwrap()), [0, 0]);
                let saved = on_gpu(&off).weight_bytes() - on_gpu(&own).weight_bytes();
                if skips_zeros(gpu.properties().arch(), dtype) {
                    assert!(steps >= sparsity.weights / 3, "{name}: {steps} steps, {sparsity}");
                    // 7/16 of what they take in 16 bits, where blocks of indices have no bits to spare.
                    let dense = sparsity.dense_bytes as usize / 2;
                    if name.is_empty() {
                        assert_eq!(16 * saved, 7 * dense);
                    }
                    assert!(saved > dense / 8, "{name}: {saved} of {dense}");
                } else {
                    assert_eq!((steps, saved), (0, 0), "{name} {dtype}");
                }
                // Step by step, captured, replayed.
                for run in 0..6 {
                    let executor = if run < 3 { &own } else { &on };
                    let outputs = executor.run(&plan, input, None).unwrap();
                    assert_eq!(outputs.len(), expected.len());
                    for (got, (_, expected)) in outputs.iter().zip(&expected) {
                        let (error, same) = compare(&got.values, expected, epsilon(dtype));
                        let bound = model_tolerance(dtype, graph.nodes().len());
                        println!("{dtype:<4} {name} of {batch}, {steps} steps: {error:.1e} of {bound:.1e}");
                        assert!(
                            same && error <= bound,
                            "{dtype} {name} run {run}: {error:.1e} of {bound:.1e}"
                        );
                    }
                }
            }
        }
    }
}

/// The packed form is measured with the libraries, whichever form the weights have.
#[test]
fn packed_weights_are_a_candidate() {
    let Some((device, _shared)) = device() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = pruned("", dir.path());
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype);
        let gpu = builder.open_device().unwrap().unwrap();
        let model = model::load(&path, &LoadOptions::default()).unwrap();
        let (graph, _) = optimize(model.graph, &builder.passes()).unwrap();
        let plan = Plan::new(Arc::new(graph), 2, dtype).unwrap();
        for sparse in [Sparse::Auto, Sparse::On, Sparse::Builtin] {
            let select = SelectOptions {
                sparse,
                ..SelectOptions::default()
            };
            let options = ExecutorOptions {
                select,
                ..ExecutorOptions::new(dtype)
            };
            let executor = HipExecutor::new(plan.graph(), &gpu, &options).unwrap();
            let is_sparse = |problem: &Problem| matches!(problem, Problem::Linear(shape) if shape.sparse);
            let problems = executor.problems(&plan).unwrap();
            let sparse = problems.iter().filter(|(problem, _)| is_sparse(problem)).count();
            let skips = skips_zeros(gpu.properties().arch(), dtype);
            assert_eq!(sparse, if skips { 4 } else { 0 }, "{problems:?}");
            if !skips {
                continue;
            }
            let mut measured = 0;
            let store = executor
                .tune(&plan, |tuned| {
                    if is_sparse(&tuned.shape) {
                        measured += 1;
                        assert!(tuned.candidates >= 2 && tuned.best_us > 0.0 && tuned.rule_us > 0.0);
                        assert!(matches!(tuned.rule, Choice::Rocblas | Choice::Hipblaslt { .. }));
                    }
                })
                .unwrap();
            assert_eq!(measured, 4);
            assert!(
                store.to_json().contains("\"sparse\": true") || store.to_json().contains("\"sparse\":true")
            );
        }
    }
}

/// The whole model is timed with weights packed where that was fastest and with dense weights, whatever the
/// user's cache contains.
#[test]
fn the_whole_model_is_timed_with_packed_weights_and_dense_ones() {
    const BATCH: usize = 2;
    let Some((device, _shared)) = device() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = pruned("", dir.path());
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype).batch(BATCH);
        let gpu = builder.open_device().unwrap().unwrap();
        if !skips_zeros(gpu.properties().arch(), dtype) {
            continue;
        }
        let session = builder.load(&path).unwrap();
        let executor = on_gpu(session.executor());
        let problems = executor.problems(&session.plan(BATCH).unwrap()).unwrap();
        let layer = |(problem, _)| PackedLayer {
            images: BATCH,
            problem,
            packed: (Choice::SparseGemm, 1.0),
            dense: (Choice::Rocblas, 2.0),
        };
        let layers: Vec<PackedLayer> = problems
            .into_iter()
            .filter(|(problem, _)| matches!(problem, Problem::Linear(shape) if shape.sparse))
            .map(layer)
            .collect();
        assert_eq!(layers.len(), 4);
        let [packed, dense] = [true, false].map(|packed| {
            let mut store = executor.store();
            store.set_packed(&layers, packed);
            builder.clone().tuned(store).load(&path).unwrap()
        });
        let bytes = [&packed, &dense].map(|session| on_gpu(session.executor()).weight_bytes());
        assert!(bytes[0] < bytes[1], "{bytes:?}");
        let steps = |session: &Session| -> [usize; 2] {
            let kernels = on_gpu(session.executor())
                .kernels(&session.plan(BATCH).unwrap())
                .unwrap();
            ["sparse_gemm", "rocBLAS"].map(|name| {
                let tuned = kernels.iter().filter(|of| of.origin.as_deref() == Some("tuned"));
                tuned
                    .filter(|of| of.kernels[0].starts_with(name))
                    .map(|of| of.steps)
                    .sum()
            })
        };
        assert_eq!((steps(&packed), steps(&dense)), ([16, 0], [0, 16]));
        let time = |is_packed: bool| {
            let session = if is_packed { &packed } else { &dense };
            let plan = session.plan(BATCH)?;
            let time = session.executor().time_runs(&plan, Duration::ZERO)?;
            Ok::<_, hipvit::Error>(1e6 * time.as_secs_f64())
        };
        let whole = WholeModel::measure(BATCH, time).unwrap();
        println!("{dtype}: {whole:?}");
        assert!(whole.packed_us > 0.0 && whole.dense_us > 0.0, "{whole:?}");
        let replays = on_gpu(packed.executor()).replays();
        assert!(replays.replayed_runs > 5, "{replays:?}");
    }
}
