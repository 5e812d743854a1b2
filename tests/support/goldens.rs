//! Golden models: their directories, pixel values and outputs.

use std::fs;

use hipvit::image::{Limits, open};
use hipvit::model::InputKind;
use hipvit::reference::model_tolerance;
use hipvit::{DType, Device, Outputs, RunInput, RunOptions, Session, SessionBuilder};
use ndarray::{Array2, ArrayD, Axis};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::support::at;
use crate::support::session::{compare, epsilon};

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

pub(crate) fn index(file: &str) -> Vec<Case> {
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

    pub(crate) fn assert_output(&self, what: &str, got: &Array2<f32>, expected: &Array2<f64>) {
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

/// Runs a case from pixel values, and from the files that every decoder decodes equally.
pub(crate) fn run(case: &Case, device: Device, dtype: DType) -> (f64, f64, bool) {
    let golden = case.golden();
    let builder = case.builder().device(device).dtype(dtype);
    let check =
        |outputs: &Outputs, expected: &Array2<f64>| compare(case.select(outputs), expected, epsilon(dtype));

    let session = case.load(&builder.clone().input(InputKind::PixelValues));
    assert_eq!(session.device(), device);
    let bound = model_tolerance(dtype, session.graph().nodes().len());
    let values: Vec<f32> = golden.pixel_values.iter().copied().collect();
    let outputs = session
        .run_with(RunInput::Values(&values), RunOptions::new())
        .unwrap();
    let (mut error, mut same) = check(&outputs, &golden.output);

    let png = |(_, name): &(usize, &String)| name.ends_with(".png");
    let (rows, images): (Vec<usize>, Vec<_>) = case
        .images
        .iter()
        .enumerate()
        .filter(png)
        .map(|(row, name)| {
            (
                row,
                open(at("tests/golden/images").join(name), Limits::default()).unwrap(),
            )
        })
        .unzip();
    if !images.is_empty() {
        let outputs = case.load(&builder).run(&images).unwrap();
        let (e, s) = check(&outputs, &golden.output.select(Axis(0), &rows));
        (error, same) = (if e <= error { error } else { e }, same && s);
    }
    (error, bound, same)
}
