//! Every golden model: pixel values bit for bit, outputs within 2e-5 of the largest.

use std::fs;

use hipvit::image::{Limits, open};
use hipvit::model::InputKind;
use hipvit::{Outputs, RunInput, RunOptions, Session, SessionBuilder};
use ndarray::{Array2, ArrayD, Axis};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::at;

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    output: String,
    pub(crate) images: Vec<String>,
    image_size: [usize; 2],
    #[serde(default)]
    interpolate_pos_encoding: bool,
    #[serde(default)]
    override_image_size: Option<serde_json::Value>,
}

pub(crate) struct Golden {
    pub(crate) pixel_values: ArrayD<f32>,
    pub(crate) output: Array2<f64>,
}

pub(crate) fn cases() -> Vec<Case> {
    let cases = index("tests/golden/cases.json");
    assert!(cases.len() > 40);
    cases
}

/// All cases, and the directories as the libraries' own functions save them and as people edit them.
fn all_cases() -> Vec<Case> {
    let mut cases = cases();
    let saved = index("tests/golden/saved/cases.json");
    assert!(saved.len() > 5);
    cases.extend(saved);
    cases
}

fn index(file: &str) -> Vec<Case> {
    serde_json::from_str(&fs::read_to_string(at(file)).unwrap()).unwrap()
}

impl Case {
    pub(crate) fn builder(&self) -> SessionBuilder {
        let resized = self.interpolate_pos_encoding || self.override_image_size.is_some();
        if resized {
            Session::builder().image_size(self.image_size)
        } else {
            Session::builder()
        }
    }

    pub(crate) fn load(&self, builder: &SessionBuilder) -> Session {
        builder
            .load(at("tests/golden").join(&self.name))
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    pub(crate) fn golden(&self) -> Golden {
        let bytes = fs::read(at("tests/golden").join(&self.name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let pixels = tensors.tensor("pixel_values").unwrap();
        let values: Vec<f32> = pixels
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect();
        let output = tensors.tensor(&self.output).unwrap();
        let values64: Vec<f64> = output
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b))
            .collect();
        let output = ArrayD::from_shape_vec(output.shape(), values64).unwrap();
        // A model without a pooler gives all tokens; the first one represents the image.
        let output = if output.ndim() == 3 {
            output.index_axis_move(Axis(1), 0)
        } else {
            output
        };
        Golden {
            pixel_values: ArrayD::from_shape_vec(pixels.shape(), values).unwrap(),
            output: output.into_dimensionality().unwrap(),
        }
    }

    pub(crate) fn select<'a>(&self, outputs: &'a Outputs) -> &'a Array2<f32> {
        if self.output == "logits" {
            outputs.logits().unwrap()
        } else {
            outputs.embeddings()
        }
    }

    fn assert_output(&self, what: &str, got: &Array2<f32>, expected: &Array2<f64>) {
        assert_eq!(got.dim(), expected.dim(), "{}", self.name);
        let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
        for ((index, &got), expected) in got.indexed_iter().zip(expected) {
            let error = (f64::from(got) - expected).abs() / largest;
            assert!(
                error <= 2e-5,
                "{} {what} {index:?}: {got}, expected {expected}: {error:e}",
                self.name
            );
        }
    }
}

#[test]
fn pixel_values_equal_the_libraries() {
    for case in all_cases() {
        let session = case.load(&case.builder());
        let golden = case.golden();
        let rule = session.preprocess();
        for (index, name) in case.images.iter().enumerate() {
            let image = open(at("tests/golden/images").join(name), Limits::default()).unwrap();
            let image = rule.apply(&image).unwrap();
            let mut got = vec![0.0; image.data.len()];
            rule.normalize(&image.data, &mut got).unwrap();
            let expected = golden.pixel_values.index_axis(Axis(0), index);
            assert_eq!(expected.shape(), [3, image.height, image.width], "{}", case.name);
            for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
                assert!(
                    got == expected,
                    "{} {name} at {at}: {got}, expected {expected}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn outputs_from_pixel_values_equal_the_libraries() {
    for case in all_cases() {
        let golden = case.golden();
        let session = case.load(&case.builder().input(InputKind::PixelValues));
        let values: Vec<f32> = golden.pixel_values.iter().copied().collect();
        let outputs = session
            .run_with(RunInput::Values(&values), RunOptions::new())
            .unwrap();
        case.assert_output("from pixel values", case.select(&outputs), &golden.output);
    }
}

/// The whole way, with the normalisation constants folded into the weights.
#[test]
fn outputs_from_files_equal_the_libraries() {
    for case in all_cases() {
        let session = case.load(&case.builder());
        let golden = case.golden();
        let open = |name: &String| open(at("tests/golden/images").join(name), Limits::default()).unwrap();
        let images: Vec<_> = case.images.iter().map(open).collect();
        let outputs = session.run(&images).unwrap();
        case.assert_output("from files", case.select(&outputs), &golden.output);
    }
}
