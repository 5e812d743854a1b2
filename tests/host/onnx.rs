//! Sessions of ONNX models on the CPU: tensors by name, and images.

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::image::{Limits, open};
use hipvit::model::{ImageRule, InputKind};
use hipvit::ndarray::{ArrayD, Axis, IxDyn};
use hipvit::{Device, Error, RunInput, RunOptions, Session, SessionBuilder, TensorArray, TensorView};
use serde_json::{Value, json};

use crate::support::at;
use crate::support::onnx::{Golden, views};
use crate::support::program::{hipvit, stderr, stdout};

fn on_cpu() -> SessionBuilder {
    Session::builder().device(Device::Cpu).threads(2)
}

/// Puts the model `name` into a directory, with a configuration of timm beside it.
fn with_config(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("classifier.onnx");
    fs::copy(at("tests/golden/onnx").join(name).join("model.onnx"), &path).unwrap();
    let config = json!({
        "architecture": "an_architecture_that_only_the_file_has",
        "label_names": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
        "pretrained_cfg": { "mean": [0.5, 0.4, 0.3], "std": [0.5, 0.6, 0.7], "crop_pct": 1.0 },
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    (folder, path)
}

/// A batch above the session's is divided, and the rows keep their order.
#[test]
fn large_batches_are_run_in_parts() {
    let golden = Golden::read("convnext");
    let session = on_cpu().batch(2).load(&golden.model).unwrap();
    let rows = |array: &ArrayD<f32>, order: &[usize]| array.select(Axis(0), order);
    let order = [0, 1, 1, 0, 1];
    let input = rows(&golden.floats("input.input"), &order);
    let outputs = session.run_tensors([("input", &input)]).unwrap();
    let outputs = outputs.get("output").unwrap().as_f32().unwrap();
    let expected = rows(&golden.floats("output.output"), &order);
    assert_eq!(outputs.shape(), [5, 10]);
    let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    for (got, expected) in outputs.iter().zip(&expected) {
        assert!(
            (got - expected).abs() <= 1e-4 * largest,
            "{got}, expected {expected}"
        );
    }
}

/// Some outputs have as many rows as the data demand.
#[test]
fn operators_agree_with_onnx_runtime() {
    for golden in Golden::of_operators() {
        let session = on_cpu().load(&golden.model).unwrap();
        let inputs = golden.inputs();
        let outputs = session.run_tensors(views(&inputs)).unwrap();
        let difference = golden.difference(&outputs);
        assert!(difference <= 2e-6, "{}: {difference:.1e}", golden.model.display());
    }
}

#[test]
fn extents_that_depend_on_the_data_are_shown_as_bounds() {
    let session = on_cpu().load(at("tests/golden/onnx_ops/boxes.onnx")).unwrap();
    let outputs = session.tensor_outputs();
    let texts: Vec<String> = outputs.iter().map(ToString::to_string).collect();
    // Five boxes of each of three classes.
    assert!(texts[0].ends_with(": i64 [≤15·B, 3]"), "{texts:?}");
    assert!(texts[1].ends_with(": f32 [≤15·B, 6]"), "{texts:?}");
    assert_eq!((outputs[0].extent(0), outputs[0].extent(1)), (None, Some(3)));
    let json = serde_json::to_value(&outputs[0]).unwrap();
    assert_eq!(json["shape"], json!(["≤15·B", 3]));
}

#[test]
fn wrong_inputs_are_refused_by_name() {
    let session = on_cpu().load(at("tests/golden/onnx/vit/model.onnx")).unwrap();
    let zeros = |shape: &[usize]| ArrayD::<f32>::zeros(IxDyn(shape));
    let refused = |inputs: Vec<(&str, TensorView<'_>)>| {
        let error = session.run_tensors(inputs).unwrap_err();
        assert!(matches!(error, Error::Argument { what: "inputs", .. }), "{error}");
        error.to_string()
    };
    let image = zeros(&[1, 3, 24, 24]);
    assert_eq!(refused(vec![]), "inputs: `input` is missing");
    assert_eq!(
        refused(vec![("x", (&image).into())]),
        "inputs: `x` is not an input of the model. The inputs are `input`"
    );
    assert_eq!(
        refused(vec![("input", (&image).into()), ("input", (&image).into())]),
        "inputs: `input` is given twice. The inputs are `input`"
    );
    assert_eq!(
        refused(vec![("input", (&zeros(&[2, 3, 24, 23])).into())]),
        "inputs: `input` has the shape [2, 3, 24, 23], expected [B, 3, 24, 24]"
    );
    assert_eq!(
        refused(vec![("input", (&zeros(&[0, 3, 24, 24])).into())]),
        "inputs: `input` has no rows"
    );
    let integers = ArrayD::<i32>::zeros(IxDyn(&[1, 3, 24, 24]));
    assert_eq!(
        refused(vec![("input", (&integers).into())]),
        "inputs: `input` is i32, expected f32"
    );
    let error = session
        .run([open(at("assets/samples/7.png"), Limits::default()).unwrap()])
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("images: vit takes tensors by name, not images: no config.json"),
        "{message}"
    );
}

const OPEN_EXTENTS: &str = "tests/data/onnx/open_extents.onnx";

/// The model of `scripts/onnx_open_extents.py`: means of channels, doubled, and doubled integers.
#[test]
fn open_extents_may_change_from_run_to_run() {
    let path = at(OPEN_EXTENTS);
    let error = on_cpu().load(&path).unwrap_err().to_string();
    assert!(
        error.contains("leaves height, width of its inputs open. Give each a number"),
        "{error}"
    );
    let session = on_cpu()
        .extent("height", 4)
        .extent("width", 6)
        .load(&path)
        .unwrap();
    let infos = session.tensor_inputs();
    assert_eq!(infos[0].to_string(), "x: f32 [B, 3, 4, 6]");
    assert_eq!(infos[1].to_string(), "ids: i64 [B, 2]");
    // More sizes than a session keeps, and the first ones again.
    let sizes = [[4, 6], [6, 4], [1, 1], [5, 7], [8, 3], [2, 2], [6, 4], [4, 6]];
    for (batch, [height, width]) in sizes
        .into_iter()
        .enumerate()
        .map(|(index, size)| (1 + index % 3, size))
    {
        let mut next = 0.0;
        let x = ArrayD::from_shape_simple_fn(IxDyn(&[batch, 3, height, width]), || {
            next += 0.25;
            next
        });
        let ids = ArrayD::from_shape_fn(IxDyn(&[batch, 2]), |index| (10 * index[0] + index[1]) as i64 - 3);
        let inputs: [(&str, TensorView<'_>); 2] = [("ids", (&ids).into()), ("x", (&x).into())];
        let outputs = session.run_tensors(inputs).unwrap();
        assert_eq!(outputs.get("indices"), Some(&TensorArray::I64(2 * &ids)));
        let means = x
            .mean_axis(Axis(3))
            .and_then(|rows| rows.mean_axis(Axis(2)))
            .unwrap();
        let y = outputs.get("y").unwrap().as_f32().unwrap();
        assert_eq!(y.shape(), [batch, 3]);
        for (got, mean) in y.iter().zip(&means) {
            assert!(
                (got - 2.0 * mean).abs() <= 1e-5 * mean,
                "{got}, expected {}",
                2.0 * mean
            );
        }
    }
}

#[test]
fn inputs_must_agree_and_integers_fit_into_32_bits() {
    let x = ArrayD::<f32>::zeros(IxDyn(&[2, 3, 4, 4]));
    let shapes = [("x", x.shape()), ("ids", &[2, 2][..])];
    let session = on_cpu().load_for(at(OPEN_EXTENTS), shapes).unwrap();
    let refused = |ids: &ArrayD<i64>| {
        let inputs: [(&str, TensorView<'_>); 2] = [("x", (&x).into()), ("ids", ids.into())];
        session.run_tensors(inputs).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&ArrayD::zeros(IxDyn(&[3, 2]))),
        "inputs: `ids` has 3 rows, but `x` has 2"
    );
    assert_eq!(
        refused(&ArrayD::from_elem(IxDyn(&[2, 2]), 1 << 40)),
        "inputs: `ids` has the integer 1099511627776, which does not fit into 32 bits"
    );
}

/// Preprocessing and labels of a configuration beside the file; the same image as normalised values gives the same logits.
#[test]
fn a_configuration_beside_the_file_makes_it_a_classifier() {
    let (_folder, path) = with_config("vit");
    let session = on_cpu().load(&path).unwrap();
    assert_eq!(session.name(), "classifier");
    assert_eq!(session.labels().get(7), "seven");
    assert_eq!(session.info().image_size, [24, 24]);
    let image = open(at("tests/golden/images/wide.png"), Limits::default()).unwrap();
    let outputs = session.run([&image, &image]).unwrap();
    let logits = outputs.logits().unwrap();
    let rule = session.preprocess();
    let pixels = rule.apply(&image).unwrap().data;
    let mut values = vec![0.0; pixels.len()];
    rule.normalize(&pixels, &mut values).unwrap();
    let array = ArrayD::from_shape_vec(IxDyn(&[1, 3, 24, 24]), values.clone()).unwrap();
    let tensors = session.run_tensors([("input", &array)]).unwrap();
    let expected = tensors.get("output").unwrap().as_f32().unwrap();
    let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let agree = |logits: &[f32]| {
        for (got, expected) in logits.iter().zip(&expected) {
            assert!(
                (got - expected).abs() <= 1e-4 * largest,
                "{got}, expected {expected}"
            );
        }
    };
    for row in logits.rows() {
        agree(&row.to_vec());
    }
    let of_values = on_cpu().input(InputKind::PixelValues).load(&path).unwrap();
    let outputs = of_values
        .run_with(RunInput::Values(&values), RunOptions::new())
        .unwrap();
    agree(&outputs.logits().unwrap().row(0).to_vec());
}

#[test]
fn an_image_rule_takes_the_place_of_a_configuration() {
    let path = at("tests/golden/onnx/resnet/model.onnx");
    let rule = ImageRule {
        mean: [0.25; 3],
        std: [0.5; 3],
        ..ImageRule::default()
    };
    let session = on_cpu().image_rule(rule).load(&path).unwrap();
    assert_eq!(session.preprocess().mean(), [0.25; 3]);
    assert_eq!(session.labels().get(3), "class 3");
    let image = open(at("assets/samples/7.png"), Limits::default()).unwrap();
    assert_eq!(session.run([image]).unwrap().logits().unwrap().dim(), (1, 10));
    let error = on_cpu()
        .image_size([32, 32])
        .image_rule(rule)
        .load(&path)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("does not take images of 32×32: its size is fixed"),
        "{error}"
    );
    let error = on_cpu().image_rule(rule).tinyvit32().unwrap_err();
    assert!(
        error.to_string().contains("options of ONNX models only"),
        "{error}"
    );
}

#[test]
fn options_of_vision_transformers_are_refused() {
    let path = at("tests/golden/onnx/vit/model.onnx");
    for (builder, what) in [
        (on_cpu().tokens(true), "tokens"),
        (on_cpu().hidden_layers([0]), "hidden layers"),
        (on_cpu().packed(64), "packed"),
        (on_cpu().attention_statistics(true), "attention statistics"),
    ] {
        let error = builder.load(&path).unwrap_err().to_string();
        assert!(error.starts_with(what), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged.onnx");
    fs::write(&damaged, b"not a model").unwrap();
    let error = on_cpu().load(&damaged).unwrap_err();
    assert!(error.to_string().contains("is not an ONNX model"), "{error}");
}

fn write_npy(path: &Path, array: &ArrayD<f32>) {
    let shape: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    let header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}\n",
        shape.join(", ")
    );
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(array.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_command_line_runs_arrays_and_shows_inputs() {
    let golden = Golden::read("vit");
    let folder = tempfile::tempdir().unwrap();
    let (input, results) = (folder.path().join("x.npy"), folder.path().join("results"));
    write_npy(&input, &golden.floats("input.input"));
    let model = golden.model.to_str().unwrap();
    let arguments = ["run", model, "--device", "cpu", "--input"];
    let output =
        hipvit(
            arguments
                .iter()
                .copied()
                .chain([input.to_str().unwrap(), "-o", results.to_str().unwrap()]),
        );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "output: f32 [2, 10]\n");
    let bytes = fs::read(results.join("output.npy")).unwrap();
    let data = bytes.len() - 2 * 10 * 4;
    let values = bytes[data..]
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes));
    let expected = golden.floats("output.output");
    let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    for (got, expected) in values.zip(&expected) {
        assert!(
            (got - expected).abs() <= 1e-4 * largest,
            "{got}, expected {expected}"
        );
    }
    let output = hipvit(["inspect", model, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    let facts = &report["info"]["onnx"];
    assert_eq!(
        facts["inputs"][0],
        json!({"name": "input", "dtype": "f32", "shape": ["B", 3, 24, 24]})
    );
    assert_eq!(facts["opset"], 20);
    let output = hipvit(["inspect", model]);
    assert!(
        stdout(&output).contains("input: f32 [B, 3, 24, 24]"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn the_command_line_classifies_images() {
    let (_folder, path) = with_config("convnext");
    let image = at("assets/samples/7.png");
    let output = hipvit([
        "classify",
        image.to_str().unwrap(),
        "-m",
        path.to_str().unwrap(),
        "--device",
        "cpu",
        "--json",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let line: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(line["top"].as_array().unwrap().len(), 5);
    let model = at("tests/golden/onnx/convnext/model.onnx");
    let arguments = [
        "classify",
        image.to_str().unwrap(),
        "--device",
        "cpu",
        "-m",
        model.to_str().unwrap(),
    ];
    let output = hipvit(arguments);
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("or --mean and --std"),
        "{}",
        stderr(&output)
    );
    let output = hipvit(arguments.iter().copied().chain(["--mean", "0.5", "--std", "0.5"]));
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Embeddings are what the classifier's linear layer reads.
#[test]
fn the_commands_for_images_run_classifiers() {
    let (folder, path) = with_config("vit");
    let model = path.to_str().unwrap();
    let samples = at("assets/samples");
    let samples = samples.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let output = hipvit(arguments.iter().chain(&["-m", model, "--device", "cpu"]));
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output).to_owned()
    };
    let embedded: Vec<Vec<f64>> = run(&["embed", samples, "--json"])
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            serde_json::from_value(line["embedding"].clone()).unwrap()
        })
        .collect();
    assert_eq!(embedded.len(), 10);
    let session = on_cpu().load(&path).unwrap();
    assert!(
        embedded
            .iter()
            .all(|row| row.len() == session.info().dim && row.len() > 10)
    );
    // Logits by the weights of the file.
    let graph = hipvit_onnx::load(&path, &hipvit_onnx::Options::default())
        .unwrap()
        .graph;
    let node = graph.nodes().last().unwrap();
    let constant = |index: usize| {
        let tensor = graph.value(node.inputs[index]).constant.as_ref().unwrap();
        tensor.to_f32().into_owned()
    };
    let (weight, bias) = (constant(1), constant(2));
    let images: Vec<_> = (0..10)
        .map(|digit| open(at(format!("assets/samples/{digit}.png")), Limits::default()).unwrap())
        .collect();
    let outputs = session.run(&images).unwrap();
    let logits = outputs.logits().unwrap();
    for (row, logits) in embedded.iter().zip(logits.rows()) {
        for (class, &logit) in logits.iter().enumerate() {
            let weights = &weight[class * row.len()..][..row.len()];
            let expected: f64 = row.iter().zip(weights).map(|(x, &w)| x * f64::from(w)).sum();
            let expected = expected + f64::from(bias[class]);
            assert!((f64::from(logit) - expected).abs() < 1e-4 * expected.abs().max(1.0));
        }
    }
    let images = folder.path().join("images");
    for (digit, label) in [(3, "three"), (7, "seven")] {
        fs::create_dir_all(images.join(label)).unwrap();
        let name = format!("{digit}.png");
        fs::copy(at("assets/samples").join(&name), images.join(label).join(name)).unwrap();
    }
    let evaluation = run(&["eval", images.to_str().unwrap(), "--json"]);
    assert!(evaluation.contains("\"images\":2"), "{evaluation}");
    assert!(run(&["bench", "--runs", "1", "--no-peaks", "--batch", "1,3", "--json"]).contains("end_to_end"));
    // A detector has no embedding.
    let detector = folder.path().join("detector.onnx");
    fs::copy(at("tests/golden/onnx/segformer/model.onnx"), &detector).unwrap();
    let output = hipvit([
        "embed",
        samples,
        "-m",
        detector.to_str().unwrap(),
        "--device",
        "cpu",
    ]);
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("takes tensors by name"),
        "{}",
        stderr(&output)
    );
}
