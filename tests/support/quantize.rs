//! Models that `hipvit quantize` writes: written, changed, run, compared and refused.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use hipvit::evaluate::LabelledSet;
use hipvit::image::RgbImage;
use hipvit::{Device, Outputs, Session};
use hipvit_quantize::{Options, Precision, Report, quantize};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

pub(crate) const DIGITS: &str = "assets/digits/heldout.safetensors";

/// Quantises `model` into `directory` without images.
pub(crate) fn quantized(model: Option<&Path>, directory: &Path) -> Report {
    quantize(model, directory, Options::default(), []).unwrap()
}

pub(crate) fn on_cpu(model: &Path) -> Session {
    Session::builder().device(Device::Cpu).load(model).unwrap()
}

pub(crate) fn digits() -> LabelledSet {
    let file = at(DIGITS);
    LabelledSet::from_safetensors(&file, &fs::read(&file).unwrap()).unwrap()
}

pub(crate) fn outputs(session: &Session, images: &[RgbImage]) -> Outputs {
    session.run(images).unwrap()
}

/// Returns the root mean square difference of the logits, relative to their root mean square, and the number
/// of images with a different best class.
pub(crate) fn difference(a: &Outputs, b: &Outputs) -> (f64, usize) {
    let (a, b) = (a.logits().unwrap(), b.logits().unwrap());
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
    let error = square(&mut a.iter().zip(b).map(|(a, b)| a - b));
    let best = |row: ndarray::ArrayView1<'_, f32>| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map(|(index, _)| index)
    };
    let others = a
        .rows()
        .into_iter()
        .zip(b.rows())
        .filter(|(a, b)| best(*a) != best(*b));
    ((error / square(&mut a.iter().copied())).sqrt(), others.count())
}

/// Tensors by name: type, shape, bytes.
pub(crate) type Tensors = HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Changes the tensors of a model.
pub(crate) fn rewrite(directory: &Path, change: impl Fn(&mut Tensors)) {
    let file = directory.join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let owned = |(name, view): (String, TensorView<'_>)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    let mut tensors: Tensors = tensors.tensors().into_iter().map(owned).collect();
    change(&mut tensors);
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
}

pub(crate) fn refused(args: &[OsString], parts: &[&str]) {
    let output = hipvit(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{args:?}\n{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(stdout(&output), "");
}

/// Quantises `model` into `directory` with all layers of its blocks in bf16.
pub(crate) fn in_bf16(model: Option<&Path>, directory: &Path) -> Report {
    let options = Options {
        precision: Precision::Bf16,
        ..Options::default()
    };
    quantize(model, directory, options, []).unwrap()
}
