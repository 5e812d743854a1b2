//! TinyViT32 and its variant with one logit on held-out digits.

use std::fs;
use std::path::Path;

use hipvit::evaluate::{Evaluation, LabelledSet, evaluate};
use hipvit::image::Limits;
use hipvit::{RunInput, RunOptions, Scores, Session, digits};
use ndarray::Array2;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

fn accuracy(session: &Session, set: LabelledSet) -> Evaluation {
    evaluate(session, set, Limits::default(), |item| {
        assert!(item.is_ok());
    })
    .unwrap()
}

/// Returns the f64 logits that PyTorch computed for the held-out images.
fn golden(directory: &str) -> Array2<f64> {
    let bytes = fs::read(at(directory).join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let logits = tensors.tensor("logits").unwrap();
    let values = logits
        .data()
        .as_chunks()
        .0
        .iter()
        .map(|&b| f64::from_le_bytes(b))
        .collect();
    Array2::from_shape_vec((logits.shape()[0], logits.shape()[1]), values).unwrap()
}

fn assert_logits(session: &Session, directory: &str) {
    let expected = golden(directory);
    let bytes = fs::read(at("assets/digits/heldout.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let pixels: Vec<u8> = tensors
        .tensor("images")
        .unwrap()
        .data()
        .iter()
        .flat_map(|&g| [g; 3])
        .collect();
    let outputs = session
        .run_with(RunInput::Pixels(&pixels), RunOptions::new())
        .unwrap();
    let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
    for (got, expected) in outputs.logits().unwrap().iter().zip(&expected) {
        assert!(
            (f64::from(*got) - expected).abs() <= 2e-5 * largest,
            "{got}, expected {expected}"
        );
    }
}

#[test]
fn tinyvit32_is_right_about_357_of_360_held_out_digits() {
    let session = Session::tinyvit32().unwrap();
    let result = accuracy(&session, digits::held_out().unwrap());
    assert_eq!((result.images, result.correct), (360, 357));
    assert_eq!(result.classes.iter().map(|c| c.correct).sum::<usize>(), 357);
    assert!(result.correct_top5 >= result.correct);
    assert_logits(&session, "assets/tinyvit32");
}

#[test]
fn the_embedded_weights_are_below_a_megabyte_and_equal_the_directory() {
    assert!(
        fs::metadata(at("assets/tinyvit32/model.safetensors"))
            .unwrap()
            .len()
            < 1_000_000
    );
    let images: Vec<_> = digits::samples()
        .map(|s| s.decode(Limits::default()).unwrap())
        .collect();
    let embedded = Session::tinyvit32().unwrap().run(&images).unwrap();
    let loaded = Session::load(at("assets/tinyvit32"))
        .unwrap()
        .run(&images)
        .unwrap();
    assert_eq!(embedded.logits(), loaded.logits());
}

#[test]
fn eval_reads_a_directory_a_safetensors_file_and_the_embedded_set() {
    let dir = tempfile::tempdir().unwrap();
    for digit in 0..10 {
        fs::create_dir(dir.path().join(digit.to_string())).unwrap();
        let name = format!("{digit}.png");
        fs::copy(
            at("assets/samples").join(&name),
            dir.path().join(digit.to_string()).join(&name),
        )
        .unwrap();
    }
    let run = |data: Option<&Path>| -> Evaluation {
        let args = ["eval", "--json"].map(std::ffi::OsString::from);
        let output = hipvit(args.into_iter().chain(data.map(|d| d.as_os_str().to_owned())));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str(stdout(&output)).unwrap()
    };
    assert_eq!(
        (run(Some(dir.path())).correct, run(Some(dir.path())).images),
        (10, 10)
    );
    assert_eq!(run(Some(&at("assets/digits/heldout.safetensors"))).correct, 357);
    assert_eq!(run(None).correct, 357);
}

#[test]
fn a_directory_that_is_no_class_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("eleven")).unwrap();
    fs::copy(at("assets/samples/1.png"), dir.path().join("eleven/1.png")).unwrap();
    let output = hipvit(["eval".as_ref(), dir.path().as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("eleven"), "{}", stderr(&output));
}

/// With one logit the model predicts whether the digit is odd. The probability is a sigmoid's.
#[test]
fn the_one_logit_model_is_right_about_358_of_360_and_gives_sigmoid_probabilities() {
    let session = Session::load(at("assets/tinyvit32_odd")).unwrap();
    assert_eq!(session.scores(), Scores::Sigmoid);
    let mut odd = LabelledSet::default();
    for (source, digit) in digits::held_out().unwrap() {
        odd.push(source, digit % 2);
    }
    assert_eq!(accuracy(&session, odd).correct, 358);
    assert_logits(&session, "assets/tinyvit32_odd");

    let samples = at("assets/samples");
    let model = at("assets/tinyvit32_odd");
    let args = [
        "classify".as_ref(),
        samples.as_os_str(),
        "--json".as_ref(),
        "--logits".as_ref(),
        "--model".as_ref(),
        model.as_os_str(),
    ];
    for line in stdout(&hipvit(args)).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let logit = line["logits"][0].as_f64().unwrap();
        let probability = line["top"][0]["probability"].as_f64().unwrap();
        assert!((probability - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6);
        let digit = line["image"].as_str().unwrap().rsplit(['/', '.']).nth(1).unwrap();
        assert_eq!(
            probability > 0.5,
            digit.parse::<u32>().unwrap() % 2 == 1,
            "{line}"
        );
    }
}

#[test]
fn sets_without_a_pixel_or_with_labels_below_zero_are_refused() {
    let refused = |shape: [usize; 3], labels: &[i64]| {
        let pixels = vec![0; shape.iter().product()];
        let labels: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
        let view = |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).unwrap();
        let tensors = [
            ("images", view(Dtype::U8, shape.to_vec(), &pixels)),
            ("labels", view(Dtype::I64, vec![labels.len() / 8], &labels)),
        ];
        let bytes = safetensors::serialize(tensors, None).unwrap();
        let set = LabelledSet::from_safetensors(Path::new("set.safetensors"), &bytes);
        set.unwrap_err().to_string()
    };
    assert!(refused([0, 8, 8], &[]).contains("images"));
    assert!(refused([2, 0, 8], &[0, 1]).contains("images"));
    assert!(refused([2, 8, 8], &[0, -1]).contains("-1"));
}
