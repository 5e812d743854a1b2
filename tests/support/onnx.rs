//! Golden ONNX models: tensors by name, and ONNX Runtime's outputs.

#[path = "../../examples/onnx.rs"]
pub(crate) mod example;

use std::fs;
use std::path::{Path, PathBuf};

use half::f16;
use hipvit::{NamedTensors, SessionBuilder, TensorArray, TensorView};
use ndarray::{ArrayD, IxDyn};
use safetensors::{Dtype, SafeTensors, tensor};
use serde::Deserialize;

use crate::support::at;

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) dtype: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

pub(crate) fn cases() -> Vec<Case> {
    #[derive(Deserialize)]
    struct Index {
        cases: Vec<Case>,
    }
    let text = fs::read_to_string(at("tests/golden/onnx/cases.json")).unwrap();
    let Index { cases } = serde_json::from_str(&text).unwrap();
    assert!(cases.len() >= 15);
    cases
}

fn array(view: &tensor::TensorView<'_>) -> TensorArray {
    fn elements<T, const N: usize>(
        view: &tensor::TensorView<'_>,
        element: impl Fn([u8; N]) -> T,
    ) -> ArrayD<T> {
        let elements = view
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| element(bytes))
            .collect();
        ArrayD::from_shape_vec(IxDyn(view.shape()), elements).unwrap()
    }
    match view.dtype() {
        Dtype::F32 => TensorArray::F32(elements(view, f32::from_le_bytes)),
        Dtype::F16 => TensorArray::F32(elements(view, |bytes| f16::from_le_bytes(bytes).to_f32())),
        Dtype::I64 => TensorArray::I64(elements(view, i64::from_le_bytes)),
        dtype => panic!("{dtype:?}"),
    }
}

/// A golden model with its inputs and outputs.
pub(crate) struct Golden {
    pub(crate) model: PathBuf,
    tensors: Vec<(String, TensorArray)>,
}

impl Golden {
    pub(crate) fn read(name: &str) -> Self {
        let directory = at("tests/golden/onnx").join(name);
        Self::new(
            directory.join("model.onnx"),
            &directory.join("golden.safetensors"),
        )
    }

    /// Reads the models of single operators.
    pub(crate) fn of_operators() -> Vec<Self> {
        let entries = fs::read_dir(at("tests/golden/onnx_ops")).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "onnx"));
        paths.sort();
        assert!(paths.len() >= 6, "{paths:?}");
        let read = |path: PathBuf| {
            let tensors = path.with_extension("safetensors");
            Self::new(path, &tensors)
        };
        paths.into_iter().map(read).collect()
    }

    fn new(model: PathBuf, tensors: &Path) -> Self {
        let bytes = fs::read(tensors).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.tensors().into_iter();
        Self {
            model,
            tensors: tensors.map(|(name, view)| (name, array(&view))).collect(),
        }
    }

    /// Returns the largest difference from ONNX Runtime's outputs, as a part of the output's largest value. Integers must be equal.
    pub(crate) fn difference(&self, outputs: &NamedTensors) -> f64 {
        let mut worst = 0.0;
        let mut count = 0;
        for (name, expected) in &self.tensors {
            let Some(name) = name.strip_prefix("output.") else {
                continue;
            };
            count += 1;
            let got = outputs.get(name).unwrap();
            let (Some(x), Some(y)) = (got.as_f32(), expected.as_f32()) else {
                assert_eq!(got, expected, "{}: {name}", self.model.display());
                continue;
            };
            assert_eq!(x.shape(), y.shape(), "{}: {name}", self.model.display());
            let largest = y.iter().fold(0.0, |largest: f32, y| largest.max(y.abs()));
            for (x, y) in x.iter().zip(y) {
                let error = f64::from((x - y).abs() / largest);
                // `max` would drop NaN.
                worst = if error <= worst { worst } else { error };
            }
        }
        assert_eq!(outputs.len(), count);
        worst
    }

    /// Returns the inputs by name.
    pub(crate) fn inputs(&self) -> Vec<(String, TensorArray)> {
        let input = |(name, array): &(String, TensorArray)| {
            Some((name.strip_prefix("input.")?.to_owned(), array.clone()))
        };
        self.tensors.iter().filter_map(input).collect()
    }

    /// Returns the floating-point tensor `input.NAME` or `output.NAME`.
    pub(crate) fn floats(&self, name: &str) -> ArrayD<f32> {
        let (_, array) = self.tensors.iter().find(|(known, _)| known == name).unwrap();
        array.as_f32().unwrap().to_owned()
    }
}

/// Returns views of named arrays, as sessions take them.
pub(crate) fn views(arrays: &[(String, TensorArray)]) -> impl Iterator<Item = (&str, TensorView<'_>)> {
    arrays.iter().map(|(name, array)| (name.as_str(), array.view()))
}

impl Case {
    /// Returns the largest difference of any output from ONNX Runtime's, as a part of the output's largest value.
    pub(crate) fn error(&self, builder: &SessionBuilder) -> f64 {
        let directory = at("tests/golden/onnx").join(&self.name);
        let session = builder
            .load(directory.join("model.onnx"))
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let bytes = fs::read(directory.join("golden.safetensors")).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |kind: &str, name: &str| array(&golden.tensor(&format!("{kind}.{name}")).unwrap());
        let inputs: Vec<TensorArray> = self.inputs.iter().map(|name| tensor("input", name)).collect();
        let views = self
            .inputs
            .iter()
            .zip(&inputs)
            .map(|(name, input)| (name.as_str(), input.view()));
        let outputs: NamedTensors = session
            .run_tensors(views)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert_eq!(outputs.len(), self.outputs.len(), "{}", self.name);
        let mut worst = 0.0;
        for name in &self.outputs {
            let expected = tensor("output", name);
            let (expected, got) = (
                expected.as_f32().unwrap(),
                outputs.get(name).unwrap().as_f32().unwrap(),
            );
            assert_eq!(got.shape(), expected.shape(), "{} {name}", self.name);
            let largest = expected
                .iter()
                .fold(0f64, |largest, &y| largest.max(y.abs().into()));
            for (&x, &y) in got.iter().zip(&expected) {
                let error = (f64::from(x) - f64::from(y)).abs() / largest;
                // NaN is the largest error.
                worst = if error <= worst { worst } else { error };
            }
        }
        worst
    }
}
