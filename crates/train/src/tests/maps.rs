//! Training of models that predict maps, beside PyTorch's.

use std::path::Path;

use hipvit::model::Checkpoint;
use hipvit::tensor::Input;
use safetensors::SafeTensors;

use super::gradients::{MOVE, assert_gradients, bound_of, move_by_gradients};
use super::{IMAGES, RATE, f64s, golden, options};
use crate::initial::{InitialModel, Start};
use crate::{DepthLoss, TensorRule, TrainOptions, Trainer};

/// Side of the models' stored positions, which other sizes interpolate.
const SIDE: usize = 32;

/// The models, and the ends of the names of tensors that have no part in the depths: see `scripts/golden_depth.py`.
const MODELS: [(&str, DepthLoss, &[&str]); 3] = [
    (
        "depth_anything",
        DepthLoss::ScaleAndShiftInvariant,
        &["fusion_stage.layers.0.residual_layer1", "mask_token"],
    ),
    (
        "depth_anything_metric",
        DepthLoss::ScaleInvariant,
        &[
            "fusion_stage.layers.0.residual_layer1",
            "mask_token",
            "backbone.encoder.layer.3.",
            "backbone.layernorm.",
            "neck.reassemble_stage.layers.0.",
            "neck.convs.0.",
            "neck.fusion_stage.layers.2.",
        ],
    ),
    (
        "dpt",
        DepthLoss::ScaleAndShiftInvariant,
        &[
            "fusion_stage.layers.0.residual_layer1",
            "mask_token",
            "dpt.layernorm.",
        ],
    ),
];

fn trainer(name: &str, loss: DepthLoss, edit: impl Fn(&mut TrainOptions)) -> Trainer {
    let checkpoint = Checkpoint::open(Some(&golden("depth").join(name))).unwrap();
    let mut options = options(crate::Objective::Depth(loss));
    options.image_size = Some([SIDE; 2]);
    edit(&mut options);
    Trainer::new(checkpoint, options, &|_| TensorRule::default()).unwrap()
}

/// Returns the images and targets of `scripts/golden_training_maps.py`.
fn batch(trainer: &Trainer, loss: DepthLoss) -> (Vec<f32>, Vec<f32>) {
    let images = (0..IMAGES * 3 * SIDE * SIDE).map(|i| ((i * 7919) % 33) as f32 / 16.0 - 1.0);
    let target = |i: usize| {
        let value = ((i * 104_729 + 13) % 257) as f32 / 256.0;
        match loss {
            _ if i % 7 == 3 => -1.0,
            DepthLoss::ScaleInvariant => 1.0 + 8.0 * value,
            DepthLoss::ScaleAndShiftInvariant => value,
        }
    };
    let targets = (0..IMAGES * trainer.target_width()).map(target);
    (images.collect(), targets.collect())
}

/// Losses and gradients of all tensors are PyTorch's in double precision: of convolutions with strides, transposed convolutions, interpolations of
/// both kinds, and the projected class token.
#[test]
fn gradients_are_those_of_transformers() {
    for (name, loss, unused) in MODELS {
        let bytes = std::fs::read(golden("training").join(format!("maps_{name}.safetensors"))).unwrap();
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let bound = bound_of(&expected);
        let mut trainer = trainer(name, loss, move_by_gradients);
        let (images, targets) = batch(&trainer, loss);
        let report = trainer.step(Input::Values(&images), &targets, MOVE).unwrap();
        let loss = f64s(expected.tensor("losses").unwrap().data())[0];
        assert!(
            (f64::from(report.loss) / loss - 1.0).abs() < bound,
            "{name}: {report:?}, expected {loss}"
        );
        let is_unused = |tensor: &str| unused.iter().any(|part| tensor.contains(part));
        for frozen in trainer.frozen() {
            assert!(is_unused(&frozen.tensor), "{name}: {frozen:?}");
        }
        let compared = assert_gradients(name, &trainer, &expected, bound);
        let used = trainer
            .checkpoint()
            .names()
            .filter(|tensor| !is_unused(tensor))
            .count();
        assert_eq!(compared, used, "{name}");
    }
}

/// Pixels whose depth is unknown change no bit, whatever marks them. Micro-batches do not change the mean over the images of a batch.
#[test]
fn unknown_depths_count_for_nothing() {
    for (name, loss, _) in MODELS {
        let reports = |unknown: f32, accumulate: usize| {
            let mut trainer = trainer(name, loss, |options| options.accumulate = accumulate);
            let (images, mut targets) = batch(&trainer, loss);
            targets
                .iter_mut()
                .filter(|t| **t < 0.0)
                .for_each(|t| *t = unknown);
            [0; 3].map(|_| trainer.step(Input::Values(&images), &targets, RATE).unwrap())
        };
        assert_eq!(reports(-1.0, 1), reports(-7.5, 1), "{name}");
        for (whole, divided) in reports(-1.0, 1).into_iter().zip(reports(-1.0, 2)) {
            assert!(
                (whole.loss / divided.loss - 1.0).abs() < 1e-4,
                "{whole:?} {divided:?}"
            );
        }
    }
}

/// An image without known depths has no gradient, also where the prediction is constant.
#[test]
fn an_image_without_depths_gives_numbers() {
    for (name, loss, _) in MODELS {
        let mut trainer = trainer(name, loss, |_| {});
        let (images, targets) = batch(&trainer, loss);
        let unknown = vec![-1.0; targets.len()];
        let report = trainer.step(Input::Values(&images), &unknown, RATE).unwrap();
        assert!(
            report.loss.abs() < 1e-5 && report.grad_norm == 0.0,
            "{name}: {report:?}"
        );
    }
}

/// Copies the configurations of a model, with images of the size of its positions, which a new model does not interpolate.
fn write_start(from: &Path, to: &Path) {
    let [config, mut processor] = ["config.json", "preprocessor_config.json"].map(|name| {
        let bytes = std::fs::read(from.join(name)).unwrap();
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()
    });
    let side = [&config["backbone_config"], &config].map(|config| config["image_size"].clone());
    if let Some(side) = side.iter().find(|side| side.is_u64()) {
        processor["size"] = serde_json::json!({"height": side, "width": side});
    }
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    std::fs::write(to.join("preprocessor_config.json"), processor.to_string()).unwrap();
}

/// A new model has each tensor that transformers wrote for the same configuration, also those that have no part in the maps, and no other.
#[test]
fn new_models_have_the_tensors_of_transformers() {
    let shapes = |folder: &Path| {
        let checkpoint = Checkpoint::open(Some(folder)).unwrap();
        let shape = |name: &str| (name.to_owned(), checkpoint.tensor(name).unwrap().shape().to_vec());
        checkpoint.names().map(shape).collect::<Vec<_>>()
    };
    let depth = [
        "depth_anything",
        "depth_anything_metric",
        "dpt",
        "dpt_add",
        "dpt_dinov2",
    ];
    let depth = depth.map(|name| golden("depth").join(name));
    let masks = ["sam", "sam_plain"].map(|name| golden("segment").join(name));
    for folder in depth.iter().chain(&masks) {
        let written = tempfile::tempdir().unwrap();
        write_start(folder, written.path());
        let config = written.path().join("config.json");
        let model = InitialModel::of_maps(Start::Config(&config), 0).unwrap();
        model.write(written.path()).unwrap();
        assert_eq!(shapes(written.path()), shapes(folder), "{}", folder.display());
    }
}
