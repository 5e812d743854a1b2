//! Selected library kernels compared with the reference in f64.

use std::sync::Arc;

use hipvit::exec::select::{Choice, Problem, SelectOptions};
use hipvit::exec::{Executor, ExecutorOptions, HipExecutor};
use hipvit::graph::inspection::SelectedKernels;
use hipvit::graph::plan::Plan;
use hipvit::graph::{interpret, optimize};
use hipvit::model::{self, LoadOptions};
use hipvit::reference::model_tolerance;
use hipvit::tensor::Input;
use hipvit::{GraphMode, Session};

use crate::support::at;
use crate::support::gpu::{device, dtypes};
use crate::support::session::{compare, epsilon};

/// Models and batch sizes: a class token and none, patches that are no squares, a single image.
const MODELS: [(&str, usize); 4] = [
    ("timm_vit_class_token", 3),
    ("hf_vit", 1),
    ("timm_vit_non_square", 2),
    ("timm_siglip", 3),
];

fn has(kernels: &[SelectedKernels], name: &str) -> bool {
    kernels
        .iter()
        .any(|of| of.kernels.iter().any(|kernel| kernel == name))
}

/// MIOpen's convolution and attention where it supports them; the emulated MIOpen has both. They run eagerly,
/// captured, and replayed.
#[test]
fn miopen_computes_patch_embeddings_and_attention() {
    let Some((device, _shared)) = device() else { return };
    let emulated = std::env::var("HIPVIT_PROVIDER").is_ok_and(|provider| provider.contains("hip_emu"));
    for ((name, batch), dtype) in MODELS
        .into_iter()
        .flat_map(|model| dtypes().into_iter().map(move |d| (model, d)))
    {
        let builder = Session::builder().device(device).dtype(dtype);
        let gpu = builder.open_device().unwrap().unwrap();
        let model = model::load(&at("tests/golden").join(name), &LoadOptions::default()).unwrap();
        let (graph, _) = optimize(model.graph, &builder.passes()).unwrap();
        let graph = Arc::new(graph);
        let plan = Arc::new(Plan::new(graph.clone(), batch, dtype).unwrap());
        let shape = &graph.value(graph.input()).shape;
        let pixels: Vec<u8> = (0..batch * shape.iter().product::<usize>())
            .map(|i| (i * 7919 % 251) as u8)
            .collect();
        let expected = interpret(&graph, batch, Input::Pixels(&pixels)).unwrap();

        let options = ExecutorOptions {
            threads: Some(1),
            graphs: GraphMode::On,
            ..ExecutorOptions::new(dtype)
        };
        let mut on_gpu = HipExecutor::new(&graph, &gpu, &options).unwrap();
        let mut store = on_gpu.store();
        if !store.key().libraries.contains("MIOpen") {
            assert!(!emulated);
            println!("skipped: there is no MIOpen");
            return;
        }
        let problems = on_gpu.problems(&plan).unwrap();
        for (problem, steps) in problems {
            assert!(steps > 0);
            if !matches!(problem, Problem::Linear(_)) {
                store.insert(problem, Choice::Miopen, 1.0);
            }
        }
        assert_eq!(store.len(), 2, "{name}");
        on_gpu.set_tuned(store);
        let kernels = on_gpu.kernels(&plan).unwrap();
        let note = on_gpu.selection().note().map(str::to_owned);
        println!("{name} {dtype}: {note:?}");
        if emulated {
            assert_eq!(note, None, "{name} {dtype}");
            for of in [
                "patch_extract as an image",
                "MIOpen convolution",
                "MIOpen attention",
            ] {
                assert!(has(&kernels, of), "{name} {dtype}: no {of} in {kernels:?}");
            }
        }
        let mut on_gpu = Arc::new(on_gpu);
        let executor: Arc<dyn Executor> = on_gpu.clone();
        for run in 0..4 {
            let outputs = executor.run(&plan, Input::Pixels(&pixels), None).unwrap();
            assert_eq!(outputs.len(), expected.len());
            for (got, (_, expected)) in outputs.iter().zip(&expected) {
                let (error, _) = compare(&got.values, expected, epsilon(dtype));
                let bound = model_tolerance(dtype, graph.nodes().len());
                assert!(
                    error <= bound,
                    "{name} {dtype} run {run}: {error:.1e} of {bound:.1e}"
                );
            }
        }
        let replays = executor.statistics().replays.unwrap();
        assert_eq!((replays.replayed_runs, replays.eager_runs), (3, 1), "{replays:?}");

        drop(executor);
        let on_gpu = Arc::get_mut(&mut on_gpu).unwrap();
        on_gpu.set_selection(SelectOptions {
            reproducible: true,
            ..SelectOptions::default()
        });
        let kernels = on_gpu.kernels(&plan).unwrap();
        assert!(!has(&kernels, "MIOpen convolution") && !has(&kernels, "MIOpen attention"));
        assert!(has(&kernels, "patch_extract"), "{kernels:?}");
    }
}
