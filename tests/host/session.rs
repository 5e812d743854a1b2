//! Sessions on the CPU: threads, batches, input, tokens and hidden layers.

use std::fs;

use hipvit::image::{Limits, RgbImage, open};
use hipvit::model::InputKind;
use hipvit::ndarray::{ArrayView2, Axis, s};
use hipvit::timing::{Phase, Timing};
use hipvit::{DType, Device, DtypeChoice, Error, RunInput, RunOptions, Session};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::support::at;

fn images() -> Vec<RgbImage> {
    ["small.png", "tall.png", "wide.png"]
        .map(|name| open(at("tests/golden/images").join(name), Limits::default()).unwrap())
        .to_vec()
}

#[test]
fn many_threads_share_a_session_and_get_the_same_bits() {
    let session = Session::load(at("tests/golden/timm_vit_class_token")).unwrap();
    let images = images();
    let alone = session.run(&images).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let together = session.run(&images).unwrap();
                    assert_eq!(together.logits(), alone.logits());
                    assert_eq!(together.embeddings(), alone.embeddings());
                }
            });
        }
    });
}

#[test]
fn the_batch_size_does_not_change_the_results() {
    let images: Vec<RgbImage> = images().into_iter().cycle().take(7).collect();
    let directory = at("tests/golden/timm_vit_class_token");
    let whole = Session::builder()
        .batch(7)
        .load(&directory)
        .unwrap()
        .run(&images)
        .unwrap();
    for batch in [1, 3, 4] {
        let parts = Session::builder()
            .batch(batch)
            .load(&directory)
            .unwrap()
            .run(&images)
            .unwrap();
        let (whole, parts) = (whole.logits().unwrap(), parts.logits().unwrap());
        let largest = whole.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (a, b) in whole.iter().zip(parts) {
            assert!((a - b).abs() <= 2e-5 * largest, "batch {batch}: {a} and {b}");
        }
    }
}

#[test]
fn one_thread_computes_what_all_cores_compute() {
    let directory = at("tests/golden/hf_dinov2_swiglu");
    let all = Session::load(&directory).unwrap().run(images()).unwrap();
    let one = Session::builder()
        .threads(1)
        .load(&directory)
        .unwrap()
        .run(images())
        .unwrap();
    assert_eq!(all.embeddings(), one.embeddings());
}

#[test]
fn options_that_the_cpu_lacks_are_errors() {
    let error = Session::builder()
        .dtype(DType::I8)
        .tinyvit32()
        .unwrap_err()
        .to_string();
    assert!(error.contains("i8") && error.contains("CPU"), "{error}");
    assert!(Session::builder().batch(0).tinyvit32().is_err());
    assert!(Session::builder().threads(0).tinyvit32().is_err());
    assert!(Session::builder().threads(100_000).tinyvit32().is_err());
}

#[test]
fn pixels_of_the_wrong_length_are_refused() {
    let session = Session::tinyvit32().unwrap();
    let run = |input| session.run_with(input, RunOptions::new());
    let error = run(RunInput::Pixels(&[0; 32 * 32 * 3 + 1])).unwrap_err();
    assert!(error.to_string().contains("3072"), "{error}");
    let error = run(RunInput::Values(&[0.0; 3072])).unwrap_err();
    assert_eq!(error.to_string(), "input: is f32, expected u8");
    assert!(run(RunInput::Values(&[])).is_err());
}

#[test]
fn no_image_gives_empty_outputs() {
    let builder = Session::builder().tokens(true).hidden_layers([1]);
    let session = builder.load(at("tests/golden/timm_vit_class_token")).unwrap();
    let dim = session.info().dim;
    for outputs in [
        session.run(Vec::<RgbImage>::new()).unwrap(),
        session
            .run_with(RunInput::Pixels(&[]), RunOptions::new())
            .unwrap(),
    ] {
        assert!(outputs.is_empty() && outputs.iter().next().is_none());
        assert_eq!(outputs.logits().unwrap().dim(), (0, session.labels().len()));
        assert_eq!(outputs.embeddings().dim(), (0, dim));
        assert_eq!(outputs.tokens().unwrap().shape()[0], 0);
        assert_eq!(
            outputs.hidden_layer(1).unwrap().dim(),
            (0, session.info().tokens, dim)
        );
    }
}

#[test]
fn whatever_borrows_images_can_be_run_and_timed() {
    let session = Session::load(at("tests/golden/timm_vit_class_token")).unwrap();
    let images = images();
    let expected = session.run(&images).unwrap();
    let borrowed: Vec<&RgbImage> = images.iter().collect();
    let mut timing = Timing::default();
    let options = RunOptions::new().timing(&mut timing);
    for outputs in [
        session.run(&borrowed).unwrap(),
        session.run(images.clone()).unwrap(),
        session.run(images.iter()).unwrap(),
        session.run_with(&images, options).unwrap(),
        session.run_with(&borrowed[..], RunOptions::new()).unwrap(),
    ] {
        assert_eq!(outputs.logits(), expected.logits());
    }
    assert!(timing.phases().any(|(phase, _)| phase == Phase::Resize));
    for (index, image) in expected.iter().enumerate() {
        assert_eq!(image.logits().unwrap(), expected.logits().unwrap().row(index));
        assert_eq!(image.embedding(), expected.embeddings().row(index));
        let top = image.top(2);
        assert!(top.len() == 2 && top[0].probability >= top[1].probability);
        assert_eq!(top[0].label, session.labels().get(top[0].index));
        assert_eq!(top[0].probability, image.probabilities().unwrap()[top[0].index]);
    }
}

#[test]
fn a_model_from_bytes_is_the_one_in_its_directory() {
    for name in ["timm_vit_class_token", "hf_dinov2"] {
        let directory = at("tests/golden").join(name);
        let read = |file: &str| fs::read(directory.join(file)).unwrap();
        let preprocessor = fs::read(directory.join("preprocessor_config.json")).ok();
        let session = Session::from_bytes(
            read("config.json"),
            read("model.safetensors"),
            preprocessor.as_deref(),
        )
        .unwrap();
        let expected = Session::load(&directory).unwrap().run(images()).unwrap();
        assert_eq!(session.run(images()).unwrap().embeddings(), expected.embeddings());
        assert_eq!(session.name(), "model");
    }
    let error = Session::from_bytes(b"{", b"".as_slice(), None).unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    let directory = at("tests/golden/hf_dinov2");
    let config = fs::read(directory.join("config.json")).unwrap();
    let weights = fs::read(directory.join("model.safetensors")).unwrap();
    let error = Session::from_bytes(config, weights, None).unwrap_err();
    assert!(error.to_string().contains("preprocessor_config.json"), "{error}");
}

fn close(got: ArrayView2<'_, f32>, expected: ArrayView2<'_, f32>, what: &str) {
    assert_eq!(got.dim(), expected.dim(), "{what}");
    let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    for (got, expected) in got.iter().zip(expected) {
        assert!(
            (got - expected).abs() <= 2e-5 * largest,
            "{what}: {got} {expected}"
        );
    }
}

/// One golden model has no pooler. Its output in transformers is all tokens after the final norm.
#[test]
fn tokens_are_those_of_the_library() {
    let directory = at("tests/golden/hf_vit_model_no_pooler");
    let bytes = fs::read(directory.join("golden.safetensors")).unwrap();
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    let values = |tensor: &TensorView<'_>| -> Vec<f32> {
        let bytes = tensor.data();
        match tensor.dtype() {
            safetensors::Dtype::F32 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|&b| f32::from_le_bytes(b))
                .collect(),
            _ => bytes
                .as_chunks()
                .0
                .iter()
                .map(|&b| f64::from_le_bytes(b) as f32)
                .collect(),
        }
    };
    let builder = Session::builder().input(InputKind::PixelValues).tokens(true);
    let session = builder.load(&directory).unwrap();
    let pixels = values(&golden.tensor("pixel_values").unwrap());
    let outputs = session
        .run_with(RunInput::Values(&pixels), RunOptions::new())
        .unwrap();
    let expected = golden.tensor("last_hidden_state").unwrap();
    let [images, tokens, dim] = *expected.shape() else {
        panic!("{:?}", expected.shape());
    };
    let expected = hipvit::ndarray::Array3::from_shape_vec((images, tokens, dim), values(&expected)).unwrap();
    for image in 0..images {
        let expected = expected.index_axis(Axis(0), image);
        let outputs = outputs.image(image);
        close(
            outputs.prefix_tokens().unwrap(),
            expected.slice(s![..1, ..]),
            "class token",
        );
        close(
            outputs.tokens().unwrap(),
            expected.slice(s![1.., ..]),
            "patch tokens",
        );
    }
}

/// The tokens of a model that ends after a block are the final norm of that block's hidden layer. The golden
/// tests show that such a model equals its library.
#[test]
fn hidden_layers_are_what_the_final_norm_of_a_shorter_model_gets() {
    for name in [
        "hf_dinov2_model",
        "hf_vit",
        "timm_dinov2_reg4",
        "hf_siglip_vision",
    ] {
        let directory = at("tests/golden").join(name);
        let images = images();
        let depth = Session::load(&directory).unwrap().info().depth;
        let builder = Session::builder().tokens(true).hidden_layers(0..depth);
        let session = builder.load(&directory).unwrap();
        let outputs = session.run(&images).unwrap();
        assert_eq!(
            outputs.hidden_layer_indices().collect::<Vec<_>>(),
            (0..depth).collect::<Vec<_>>()
        );
        // Requests do not change the results.
        let alone = Session::load(&directory).unwrap().run(&images).unwrap();
        close(outputs.embeddings().view(), alone.embeddings().view(), name);

        let [weight, bias] = ["weight", "bias"].map(|part| final_norm(&directory, part));
        let epsilon = epsilon(&directory);
        for block in 0..depth {
            let shorter = if block + 1 == depth {
                outputs.clone()
            } else {
                shorter(&directory, block + 1).run(&images).unwrap()
            };
            for image in 0..images.len() {
                let hidden = outputs.image(image).hidden_layer(block).unwrap();
                let mut normed = hidden.to_owned();
                for mut row in normed.rows_mut() {
                    let n = row.len() as f64;
                    let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
                    let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
                    for (x, (w, b)) in row.iter_mut().zip(weight.iter().zip(&bias)) {
                        let unit = (f64::from(*x) - mean) / (variance + epsilon).sqrt();
                        *x = (unit * f64::from(*w) + f64::from(*b)) as f32;
                    }
                }
                let prefix = session.info().prefix_tokens;
                let expected = shorter.image(image);
                let what = format!("{name} block {block}");
                close(
                    normed.slice(s![..prefix, ..]),
                    expected.prefix_tokens().unwrap(),
                    &what,
                );
                close(normed.slice(s![prefix.., ..]), expected.tokens().unwrap(), &what);
            }
        }
    }
}

/// Returns the model's tensors whose names match, as f32.
fn final_norm(directory: &std::path::Path, part: &str) -> Vec<f32> {
    let bytes = fs::read(directory.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let names = ["norm", "layernorm", "post_layernorm"];
    let is_norm = |name: &&str| {
        let module = name
            .strip_suffix(&format!(".{part}"))
            .and_then(|name| name.rsplit('.').next());
        module.is_some_and(|module| names.contains(&module))
            && !name.contains("layer.")
            && !name.contains("head.")
            && !name.contains("layers.")
            && !name.contains("blocks.")
    };
    let all = tensors.names();
    let name = all.into_iter().find(is_norm).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    bytemuck::pod_collect_to_vec(tensor.data())
}

fn config(directory: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(directory.join("config.json")).unwrap()).unwrap()
}

fn epsilon(directory: &std::path::Path) -> f64 {
    config(directory)["layer_norm_eps"].as_f64().unwrap_or(1e-6)
}

/// Returns the model with only its first blocks.
fn shorter(directory: &std::path::Path, depth: usize) -> Session {
    let mut config = config(directory);
    if config.get("architecture").is_some() {
        config["model_args"]["depth"] = depth.into();
    } else {
        config["num_hidden_layers"] = depth.into();
    }
    let bytes = fs::read(directory.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let is_kept = |name: &str| {
        let mut parts = name.split('.');
        let block = parts
            .find(|part| ["blocks", "layer", "layers"].contains(part))
            .and(parts.next());
        block
            .and_then(|index| index.parse().ok())
            .is_none_or(|index: usize| index < depth)
    };
    let kept = tensors.tensors().into_iter().filter(|(name, _)| is_kept(name));
    let weights = safetensors::serialize(kept, None).unwrap();
    let preprocessor = fs::read(directory.join("preprocessor_config.json")).ok();
    let builder = Session::builder().tokens(true);
    let config = serde_json::to_vec(&config).unwrap();
    builder
        .from_bytes(config, weights, preprocessor.as_deref())
        .unwrap()
}

#[test]
fn a_hidden_layer_that_the_model_does_not_have_is_an_error() {
    let error = Session::builder()
        .hidden_layers([0, 99])
        .tinyvit32()
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("hidden layers: block 99 is not one of the model's"),
        "{error}"
    );
}

#[test]
fn a_session_can_be_shared_and_sent() {
    fn check<T: Send + Sync>() {}
    check::<Session>();
}

#[test]
fn the_fastest_accurate_dtype_is_chosen() {
    let load = |builder: hipvit::SessionBuilder| builder.batch(4).device(Device::Cpu).tinyvit32();
    let auto = Session::builder().dtype(DtypeChoice::Auto);
    let session = load(
        auto.clone()
            .calibrate([at("assets/samples"), at("assets/samples/7.png")]),
    )
    .unwrap();
    let measured = session.measured_dtypes();
    assert_eq!(
        measured.iter().map(|row| row.dtype).collect::<Vec<_>>(),
        [DType::F32, DType::F16, DType::BF16]
    );
    assert!((measured[0].cosine - 1.0).abs() < 1e-12 && measured[0].is_accurate());
    for row in &measured[1..] {
        // The unit roundoffs are 2^-11 and 2^-8.
        let roundoff = if row.dtype == DType::F16 { 4.9e-4 } else { 3.9e-3 };
        assert!((1.0 - roundoff..1.0).contains(&row.cosine), "{row:?}");
    }
    let accurate = measured.iter().filter(|row| row.is_accurate());
    let fastest = accurate.min_by_key(|row| row.time).unwrap();
    assert_eq!(session.dtype(), fastest.dtype);
    let images = [open(at("assets/samples/3.png"), Limits::default()).unwrap()];
    let named = load(Session::builder().dtype(fastest.dtype)).unwrap();
    assert!(named.measured_dtypes().is_empty());
    assert_eq!(
        session.run(&images).unwrap().logits(),
        named.run(&images).unwrap().logits()
    );

    let error = |builder| load(builder).unwrap_err().to_string();
    assert!(error(auto.clone()).contains("add calibration images"));
    let unused = Session::builder().calibrate([at("assets/samples")]);
    assert!(error(unused).contains("set the dtype to auto"));
    assert!(error(auto.clone().calibrate([at("src")])).contains("has no image"));
    assert!(error(auto.calibrate([at("absent.png")])).contains("absent.png"));
}
