//! Steps of every golden model.

use std::path::Path;

use hipvit::error::Result;
use hipvit::model::{Checkpoint, InputKind};
use hipvit::tensor::Input;

use super::{IMAGES, RATE, golden, options};
use crate::{ContrastiveOptions, Frozen, LossKind, Objective, StepReport, TensorRule, TrainOptions, Trainer};

/// Models with tensors that are not trained although the loss depends on them, and the end of their names.
const FROZEN: [(&str, &[&str]); 29] = [
    // The temperature is the exponential function of it.
    ("hf_swinv2", &["logit_scale"]),
    ("hf_swinv2_model", &["logit_scale"]),
    ("timm_swinv2", &["logit_scale"]),
    ("timm_swinv2_dynamic", &["logit_scale"]),
    // Interpolated to the grid of the model.
    (
        "hf_beit_model",
        &["position_embeddings", "relative_position_bias_table"],
    ),
    ("hf_clip_interpolated", &["position_embedding.weight"]),
    ("hf_deit_teacher_interpolated", &["position_embeddings"]),
    ("hf_dinov2_model", &["position_embeddings"]),
    ("hf_dinov2_registers_model", &["position_embeddings"]),
    ("hf_dinov2_same_count", &["position_embeddings"]),
    ("hf_siglip_vision_prefixed", &["position_embedding.weight"]),
    ("hf_swin_model", &["position_embeddings"]),
    ("hf_vit_interpolated", &["position_embeddings"]),
    ("timm_eva02", &["pos_embed"]),
    ("timm_flexivit", &["pos_embed"]),
    // The sum of both tables, one of which is interpolated.
    ("timm_hiera_abswin", &["pos_embed", "pos_embed_win"]),
    ("timm_hiera_override_size", &["pos_embed", "pos_embed_win"]),
    ("timm_naflex", &["pos_embed"]),
    ("timm_naflex_factorized", &["pos_embed_x", "pos_embed_y"]),
    ("timm_naflex_radio", &["pos_embed"]),
    ("timm_naflex_siglip", &["pos_embed"]),
    ("timm_radio", &["pos_embed"]),
    ("timm_test_vit", &["pos_embed"]),
    ("timm_vit_resampled_down", &["pos_embed"]),
    ("timm_vit_resampled_up", &["pos_embed"]),
    // Sines and cosines of it.
    ("timm_vit_rope_mixed_ape", &["rope.freqs"]),
    // A factor is in it.
    ("timm_vit_differential", &["sub_norm.weight"]),
    ("timm_vit_parallel_differential", &["sub_norm.weight"]),
    // Queries with a norm; keys and values that several heads share.
    (
        "timm_sapiens2",
        &[
            "q_proj.bias",
            "q_proj.weight",
            "k_proj.bias",
            "k_proj.weight",
            "v_proj.bias",
            "v_proj.weight",
        ],
    ),
];

/// Trains a model with a batch of pixels. Models without a classifier learn from embeddings of texts.
fn train(directory: &Path, steps: usize) -> Result<(Vec<StepReport>, Vec<Frozen>)> {
    let new = |loss: Objective| {
        let options = TrainOptions {
            input: InputKind::Pixels,
            loss,
            ..options(LossKind::CrossEntropy)
        };
        let checkpoint = Checkpoint::open(Some(directory))?;
        Trainer::new(checkpoint, options, &|_| TensorRule::default())
    };
    let mut trainer = match new(LossKind::CrossEntropy.into()) {
        Err(error) if error.to_string().contains("has no classifier") => {
            new(Objective::Contrastive(ContrastiveOptions::info_nce()))?
        }
        other => other?,
    };
    let (width, height) = trainer.preprocess().output_size();
    let pixel = |i: usize| ((i * 2_654_435_761) >> 13) as u8;
    let pixels: Vec<u8> = (0..IMAGES * 3 * width * height).map(pixel).collect();
    let mut targets = vec![0.0; IMAGES * trainer.target_width()];
    for (image, row) in targets.chunks_exact_mut(trainer.target_width()).enumerate() {
        row[image * 5 % row.len()] = 1.0;
    }
    let step = |_| trainer.step(Input::Pixels(&pixels), &targets, RATE);
    let reports = (0..steps).map(step).collect::<Result<Vec<_>>>()?;
    Ok((reports, trainer.frozen().to_vec()))
}

/// The loss of a batch falls with each of its steps, and all tensors are trained that the loss depends on.
#[test]
fn every_family_is_trained() {
    let root = golden("");
    let mut names: Vec<String> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("timm_") || name.starts_with("hf_"))
        .filter(|name| root.join(name).join("config.json").is_file())
        .collect();
    names.sort();
    assert!(names.len() > 90, "{names:?}");
    let mut failures = Vec::new();
    for name in names {
        match train(&root.join(&name), 3) {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok((reports, frozen)) => {
                let losses: Vec<f32> = reports.iter().map(|report| report.loss).collect();
                if !reports.iter().all(|report| report.updated) || !losses.is_sorted_by(|a, b| a > b) {
                    failures.push(format!("{name}: {reports:?}"));
                }
                let expected = FROZEN
                    .iter()
                    .find(|(other, _)| *other == name)
                    .map_or(&[][..], |(_, ends)| ends);
                let unexpected: Vec<String> = frozen
                    .iter()
                    .filter(|frozen| frozen.reason != "the loss does not depend on it")
                    .filter(|frozen| !expected.iter().any(|end| frozen.tensor.ends_with(end)))
                    .map(|frozen| format!("{} ({})", frozen.tensor, frozen.reason))
                    .collect();
                if !unexpected.is_empty() {
                    failures.push(format!("{name}: not trained: {}", unexpected.join(", ")));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
