//! Gradients of all tensors beside those of a golden file. A step of SGD moves each weight by its gradient.

use hipvit::model::Checkpoint;
use safetensors::{Dtype, SafeTensors};

use super::{f32s, f64s};
use crate::{OptimizerOptions, SgdOptions, TrainOptions, Trainer};

/// Learning rate of the step. A power of two, so that the moved weights have the gradient's digits.
pub(super) const MOVE: f32 = 4096.0;

/// Sets the optimiser that moves weights by their gradients.
pub(super) fn move_by_gradients(options: &mut TrainOptions) {
    options.optimizer = OptimizerOptions::Sgd(SgdOptions {
        momentum: 0.0,
        ..SgdOptions::default()
    });
    options.clip_norm = None;
}

fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = values.map(|value| value * value).collect();
    (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
}

/// Compares the moves of a trainer's tensors, but those that it does not train, with the gradients in a file. Returns the number of tensors. The models amplify rounding errors:
/// `bound` is a multiple of the error of PyTorch's own gradients in f32. All tensors beyond it are named.
pub(super) fn assert_gradients(
    name: &str,
    trainer: &Trainer,
    expected: &SafeTensors<'_>,
    bound: f64,
) -> usize {
    let folder = tempfile::tempdir().unwrap();
    trainer.write_model(folder.path()).unwrap();
    let moved = Checkpoint::open(Some(folder.path())).unwrap();
    let is_frozen = |tensor: &str| trainer.frozen().iter().any(|frozen| frozen.tensor == tensor);
    let (mut compared, mut wrong) = (0, Vec::new());
    for (tensor, view) in expected
        .tensors()
        .into_iter()
        .filter(|(tensor, view)| view.dtype() == Dtype::F32 && !is_frozen(tensor))
    {
        let [before, after] =
            [trainer.checkpoint(), &moved].map(|of| of.tensor(&tensor).unwrap().to_f32().into_owned());
        let gradient = f32s(view.data());
        // Biases of keys have a gradient of 0 but for the errors of what cancels, which is that of their weights.
        let of_keys = tensor.ends_with("key.bias") || tensor.ends_with("k_proj.bias");
        let measure = if of_keys {
            tensor.replace(".bias", ".weight")
        } else {
            tensor.clone()
        };
        let measure = f32s(expected.tensor(&measure).unwrap().data());
        let size = rms(measure.iter().map(|&g| f64::from(g)));
        // The moved weight is rounded.
        let weight = rms(after.iter().map(|&w| f64::from(w)));
        let rounding = f64::from(f32::EPSILON) * weight / f64::from(MOVE);
        let found = before
            .iter()
            .zip(&after)
            .map(|(before, after)| f64::from(before - after) / f64::from(MOVE));
        let error = rms(found.zip(&gradient).map(|(found, &g)| found - f64::from(g)));
        if error > bound * size + rounding || error.is_nan() {
            wrong.push(format!("`{tensor}` is off by {error:e} of {size:e}"));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{name}, bound {bound:e}: {wrong:#?}");
    compared
}

/// Returns three times the error of PyTorch's own gradients in f32, for sums in another order.
pub(super) fn bound_of(expected: &SafeTensors<'_>) -> f64 {
    3.0 * f64s(expected.tensor("single").unwrap().data())[0]
}
