//! One model over two GPUs, if there are two.

use hipvit::graph::Node;
use hipvit::hip::Device as Gpu;
use hipvit::image::{Limits, RgbImage};
use hipvit::ops::Op;
use hipvit::reference::model_tolerance;
use hipvit::{DType, Outputs, Parallelism, Session, SessionBuilder, digits};
use hipvit_quantize::{Options, Precision, quantize};

use crate::support::at;
use crate::support::gpu::{device, dtypes, gpu};
use crate::support::session::{compare, epsilon, pixels, run_pixels, same};

/// The embedded model, and a SwiGLU with LayerScale and registers.
const MODELS: [Option<&str>; 2] = [None, Some("timm_dinov2_reg4_swiglu")];

fn load(builder: &SessionBuilder, model: Option<&str>) -> Session {
    match model {
        Some(name) => builder.load(at("tests/golden").join(name)),
        None => builder.tinyvit32(),
    }
    .unwrap()
}

fn builder(gpus: &[Gpu], parallelism: Parallelism, dtype: DType) -> SessionBuilder {
    Session::builder()
        .gpus(gpus.to_vec())
        .parallel(parallelism)
        .dtype(dtype)
        .batch(2)
}

/// Pipeline parallelism gives the bits of one GPU. With tensor parallelism the order of sums differs, and
/// either result is within a whole model's tolerance of the exact one.
#[test]
fn a_model_over_two_gpus_computes_what_one_does() {
    let Some((device, _shared)) = device() else { return };
    let gpus = gpu(device).runtime().devices().unwrap();
    let [first, second, ..] = &gpus[..] else {
        eprintln!("skipped: there is one GPU");
        return;
    };
    let (one, two) = ([first.clone()], [first.clone(), second.clone()]);
    for (model, dtype) in MODELS
        .into_iter()
        .flat_map(|m| dtypes().into_iter().map(move |d| (m, d)))
    {
        let whole = load(&builder(&one, Parallelism::data(), dtype), model);
        // More than one batch, so that several are in flight.
        let input = pixels(&whole, 5);
        let expected = run_pixels(&whole, &input);

        let stages = load(&builder(&two, Parallelism::pipeline(), dtype), model);
        let shards = load(&builder(&two, Parallelism::tensor(), dtype), model);
        let bound = 2.0 * model_tolerance(dtype, whole.graph().nodes().len());
        let mut first: Option<Outputs> = None;
        // The second run captures, the third replays.
        for _ in 0..3 {
            same(&run_pixels(&stages, &input), &expected);
            let got = run_pixels(&shards, &input);
            let exact = expected.embeddings().mapv(f64::from);
            let (error, _) = compare(got.embeddings(), &exact, epsilon(dtype));
            assert!(error <= bound, "{model:?} {dtype}: {error:.2e} of {bound:.1e}");
            println!("{model:?} {dtype}: two GPUs differ from one by {error:.2e} of {bound:.1e}");
            same(&got, first.get_or_insert_with(|| got.clone()));
        }
        for divided in [&stages, &shards] {
            let replays = divided.hip_graphs().unwrap();
            assert_eq!(replays.fallback, None);
            assert!(replays.replayed_runs > 0, "{replays:?}");
        }
    }
}

/// Stages of two GPUs each, as two replicas if there are eight GPUs. There are full batches and batches of
/// one image; up to three are in flight.
#[test]
fn stages_of_two_gpus_compute_what_one_does() {
    let Some((device, _shared)) = device() else { return };
    let gpus = gpu(device).runtime().devices().unwrap();
    let count = match gpus.len() {
        ..4 => {
            eprintln!("skipped: there are {} GPUs", gpus.len());
            return;
        }
        4..8 => 4,
        8.. => 8,
    };
    for (model, dtype) in MODELS
        .into_iter()
        .flat_map(|m| dtypes().into_iter().map(move |d| (m, d)))
    {
        let whole = load(&builder(&gpus[..1], Parallelism::data(), dtype), model);
        let tensor = load(&builder(&gpus[..2], Parallelism::tensor(), dtype), model);
        let parallelism = Parallelism::new(count / 4, 2, 2).unwrap();
        let groups = load(&builder(&gpus[..count], parallelism, dtype), model);
        let bound = 2.0 * model_tolerance(dtype, whole.graph().nodes().len());
        for images in [7, 1, 4] {
            let input = pixels(&whole, images);
            let exact = run_pixels(&whole, &input).embeddings().mapv(f64::from);
            let expected = run_pixels(&tensor, &input);
            // The second run captures, the third replays.
            for _ in 0..3 {
                let got = run_pixels(&groups, &input);
                let (error, _) = compare(got.embeddings(), &exact, epsilon(dtype));
                assert!(error <= bound, "{model:?} {dtype}: {error:.2e} of {bound:.1e}");
                same(&got, &expected);
            }
        }
        let replays = groups.hip_graphs().unwrap();
        assert_eq!(replays.fallback, None);
        assert!(replays.replayed_runs > 0, "{replays:?}");
        let shares = groups.images_by_replica();
        assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
        println!("{model:?} {dtype}: {} on {}", groups.devices(), parallelism);
    }
}

/// A model with FP8 layers, with pipeline and tensor parallelism. A different order of sums may round an
/// activation to the adjacent number, which differs by a sixteenth. So results differ by as much as FP8
/// differs from the original model.
#[test]
fn a_model_in_float8_over_two_gpus_computes_what_one_does() {
    let Some((device, _shared)) = device() else { return };
    let gpus = gpu(device).runtime().devices().unwrap();
    let [first, second, ..] = &gpus[..] else {
        eprintln!("skipped: there is one GPU");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (images, options) = (
        digits::held_out().unwrap().into_iter().take(16),
        Options {
            precision: Precision::Fp8,
            ..Options::default()
        },
    );
    let images: Vec<RgbImage> = images
        .map(|(source, _)| source.decode(Limits::default()).unwrap())
        .collect();
    let quantized = directory.path().join("fp8");
    quantize(None, &quantized, options, images.into_iter().map(Ok)).unwrap();
    for dtype in dtypes() {
        let on = |gpus: &[Gpu], parallelism| builder(gpus, parallelism, dtype).load(&quantized).unwrap();
        let (one, two) = ([first.clone()], [first.clone(), second.clone()]);
        let whole = on(&one, Parallelism::data());
        let input = pixels(&whole, 5);
        let expected = run_pixels(&whole, &input);
        let stages = on(&two, Parallelism::pipeline());
        let shards = on(&two, Parallelism::tensor());
        if let Some(four) = gpus.get(..4) {
            let groups = on(four, Parallelism::new(1, 2, 2).unwrap());
            same(&run_pixels(&groups, &input), &run_pixels(&shards, &input));
        }
        let rounds = |session: &Session| {
            let rounds = |node: &&Node| matches!(&node.op, Op::Linear(spec) if spec.rounding.is_some());
            session.graph().nodes().iter().filter(rounds).count()
        };
        assert_eq!([rounds(&stages), rounds(&shards)], [rounds(&whole); 2], "{dtype}");
        for _ in 0..3 {
            same(&run_pixels(&stages, &input), &expected);
            let got = run_pixels(&shards, &input);
            let exact = expected.embeddings().mapv(f64::from);
            let (error, _) = compare(got.embeddings(), &exact, epsilon(dtype));
            println!("{dtype}: two GPUs differ from one by {error:.2e}");
            assert!(error < 0.1, "{dtype}: {error:.2e}");
        }
    }
}
