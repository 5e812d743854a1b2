//! `hipvit train` on images with maps.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use hipvit::Session;
use hipvit::depth::DepthEstimator;
use hipvit::image::{Limits, open};
use hipvit::segment::{Prompt, Segmenter};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{assert_success, end_by};
use crate::support::digit_folders::write_digits;
use crate::support::program::{hipvit, stderr, stdout};

const SIDE: usize = 32;
/// Depth of the ground in millimetres.
const GROUND: u16 = 4000;
const RECIPE: &str = "epochs = 16\nbatch = 8\nclip_norm = 1.0\n[loss]\nlabel_smoothing = 0.0\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup_epochs = 1\n\
                      [evaluation]\nevery = 8\n";

/// Scenes of a square before the ground, whose shade tells its depth. A strip at the right has no known depth.
struct Scenes {
    directory: TempDir,
}

fn write_png(file: &Path, depth: png::BitDepth, bytes: &[u8]) {
    let mut encoder = png::Encoder::new(fs::File::create(file).unwrap(), SIDE as u32, SIDE as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(depth);
    encoder.write_header().unwrap().write_image_data(bytes).unwrap();
}

/// Writes the image, the depths and the mask of a scene. Returns its line of the list.
fn write_scene(folder: &Path, number: usize) -> Value {
    let files = ["", "_depth", "_mask"].map(|end| format!("{number:03}{end}.png"));
    let (size, shade) = (8 + number * 5 % 9, 120 + number * 37 % 130);
    let [left, top] = [7, 11].map(|factor| number * factor % (SIDE - 4 - size));
    let is_inside = |pixel: usize| {
        let (row, column) = (pixel / SIDE, pixel % SIDE);
        (top..top + size).contains(&row) && (left..left + size).contains(&column)
    };
    let image = (0..SIDE * SIDE).map(|pixel| if is_inside(pixel) { shade } else { 40 } as u8);
    write_png(
        &folder.join(&files[0]),
        png::BitDepth::Eight,
        &image.collect::<Vec<_>>(),
    );
    let depths = (0..SIDE * SIDE).map(|pixel| match pixel {
        _ if pixel % SIDE >= SIDE - 2 => 0,
        _ if is_inside(pixel) => (3500 - 10 * shade) as u16,
        _ => GROUND,
    });
    let depths: Vec<u8> = depths.flat_map(u16::to_be_bytes).collect();
    write_png(&folder.join(&files[1]), png::BitDepth::Sixteen, &depths);
    let mask = (0..SIDE * SIDE).map(|pixel| u8::from(is_inside(pixel)));
    write_png(
        &folder.join(&files[2]),
        png::BitDepth::Eight,
        &mask.collect::<Vec<_>>(),
    );
    json!({"file_name": files[0], "depth_file_name": files[1], "mask_file_name": files[2]})
}

impl Scenes {
    fn new() -> Self {
        let scenes = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        for (split, numbers) in [("train", 0..64), ("validation", 64..72)] {
            let folder = scenes.path("data").join(split);
            fs::create_dir_all(&folder).unwrap();
            let lines = numbers.map(|number| write_scene(&folder, number).to_string() + "\n");
            fs::write(folder.join("metadata.jsonl"), lines.collect::<String>()).unwrap();
        }
        fs::write(scenes.path("recipe.toml"), RECIPE).unwrap();
        scenes
    }

    /// Writes the configuration of a small Depth Anything model.
    fn write_depth_model(&self, estimation: &str) {
        let backbone = json!({
            "model_type": "dinov2", "image_size": SIDE, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "mlp_ratio": 2, "out_indices": [1, 2], "reshape_hidden_states": false, "layerscale_value": 1.0,
        });
        let config = json!({
            "architectures": ["DepthAnythingForDepthEstimation"], "model_type": "depth_anything", "backbone_config": backbone, "patch_size": 8,
            "reassemble_hidden_size": 32, "reassemble_factors": [2, 1], "neck_hidden_sizes": [16, 16], "fusion_hidden_size": 16,
            "head_hidden_size": 8, "depth_estimation_type": estimation, "max_depth": if estimation == "metric" { 8 } else { 1 },
        });
        let processor = json!({
            "image_processor_type": "DPTImageProcessor", "do_resize": true, "size": {"height": SIDE, "width": SIDE}, "resample": 3,
            "do_rescale": true, "do_normalize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
        });
        self.write_model(&config, &processor);
    }

    /// Writes the configuration of a small SAM model, whose images are larger than the scenes.
    fn write_mask_model(&self) {
        let (side, dim) = (40, 32);
        let config = json!({
            "architectures": ["SamModel"], "model_type": "sam",
            "vision_config": {
                "hidden_size": dim, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2.0, "image_size": side, "patch_size": 8,
                "window_size": 3, "global_attn_indexes": [1], "output_channels": dim, "num_pos_feats": dim / 2,
            },
            "prompt_encoder_config": {"hidden_size": dim, "image_size": side, "patch_size": 8, "image_embedding_size": side / 8},
            "mask_decoder_config": {
                "hidden_size": dim, "mlp_dim": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "iou_head_hidden_dim": dim,
            },
        });
        let processor = json!({
            "image_processor_type": "SamImageProcessor", "do_resize": true, "size": {"longest_edge": side}, "resample": 2, "do_pad": true,
            "pad_size": {"height": side, "width": side}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
        });
        self.write_model(&config, &processor);
    }

    fn write_model(&self, config: &Value, processor: &Value) {
        fs::create_dir_all(self.path("model")).unwrap();
        fs::write(self.path("model/config.json"), config.to_string()).unwrap();
        fs::write(self.path("model/preprocessor_config.json"), processor.to_string()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn arguments(&self, name: &str, more: &[&str]) -> Vec<OsString> {
        let mut arguments = vec!["train".into(), self.path("data").into()];
        arguments.extend(["--device", "cpu", "--threads", "2", "--log-every", "1", "-o"].map(Into::into));
        arguments.push(self.path(name).into());
        arguments.extend(more.iter().map(Into::into));
        if !more.contains(&"--resume") {
            arguments.extend(["-m".into(), self.path("model").into()]);
            arguments.extend(["--recipe".into(), self.path("recipe.toml").into()]);
        }
        arguments
    }

    fn train(&self, name: &str, more: &[&str]) -> Output {
        hipvit(self.arguments(name, more))
    }

    fn refused(&self, more: &[&str], reasons: &[&str]) {
        let output = self.train("refused", more);
        assert_ne!(output.status.code(), Some(0));
        for reason in reasons {
            assert!(stderr(&output).contains(reason), "{reason}: {}", stderr(&output));
        }
        let _ = fs::remove_dir_all(self.path("refused"));
    }

    fn last_epoch(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.path(name).join("log.jsonl")).unwrap();
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.rfind(|line| line["event"] == "epoch").unwrap()
    }

    /// Interrupts a run and resumes it. Its weights must be those of the run `whole`.
    fn assert_resumes(&self, whole: &str) {
        end_by(
            Signal::INT,
            self.arguments("parts", &[]),
            &self.path("parts/log.jsonl"),
            13,
        );
        assert_success(&self.train("parts", &["--resume"]));
        let weights = |run: &str| fs::read(self.path(run).join("model/model.safetensors")).unwrap();
        assert!(weights("parts") == weights(whole));
    }
}

#[test]
fn the_written_model_has_the_depths_of_the_evaluation_and_a_resumed_run_has_the_bits_of_an_uninterrupted_one()
{
    let scenes = Scenes::new();
    scenes.write_depth_model("metric");
    let output = scenes.train("whole", &[]);
    assert_success(&output);
    let printed = stdout(&output);
    assert!(printed.contains("δ1") && printed.contains("AbsRel"), "{printed}");
    let epoch = scenes.last_epoch("whole");
    let figures = &epoch["figures"]["depth"];
    let abs_rel = figures["abs_rel"].as_f64().unwrap();
    assert_eq!(epoch["val_accuracy"], figures["delta_1"]);
    assert!(epoch["train_accuracy"].is_null(), "{epoch}");
    let report = fs::read_to_string(scenes.path("whole/report.html")).unwrap();
    assert!(report.contains("AbsRel"));

    // The model that was written has these depths.
    let estimator = DepthEstimator::load(scenes.path("whole/model"), &Session::builder()).unwrap();
    let mut sum = 0.0;
    for number in 64..72 {
        let image = open(
            scenes.path(&format!("data/validation/{number:03}.png")),
            Limits::default(),
        )
        .unwrap();
        let depths = estimator.estimate(&[&image]).unwrap();
        let map = scenes.path(&format!("data/validation/{number:03}_depth.png"));
        let map = hipvit_data::Map::open(&map).unwrap();
        let pairs = depths[0].iter().zip(&map.values).filter(|(_, value)| **value > 0);
        let errors = pairs.map(|(&found, &value)| (f64::from(found) * 1000.0 / f64::from(value) - 1.0).abs());
        let errors: Vec<f64> = errors.collect();
        sum += errors.iter().sum::<f64>() / errors.len() as f64;
    }
    assert!((sum / 8.0 - abs_rel).abs() < 1e-9, "{} {abs_rel}", sum / 8.0);
    scenes.assert_resumes("whole");
}

#[test]
fn relative_depths_are_learned_up_to_scale_and_shift() {
    let scenes = Scenes::new();
    scenes.write_depth_model("relative");
    assert_success(&scenes.train("run", &[]));
    let epoch = scenes.last_epoch("run");
    let abs_rel = epoch["figures"]["depth"]["abs_rel"].as_f64().unwrap();
    assert!(abs_rel < 0.15, "{epoch}");
}

#[test]
fn masks_are_learned_and_a_resumed_run_has_the_bits_of_an_uninterrupted_one() {
    let scenes = Scenes::new();
    scenes.write_mask_model();
    let output = scenes.train("whole", &[]);
    assert_success(&output);
    let printed = stdout(&output);
    assert!(
        printed.contains("of pixels") && printed.contains("mean IoU"),
        "{printed}"
    );
    let epoch = scenes.last_epoch("whole");
    let figures = &epoch["figures"]["masks"];
    let [accuracy, iou] = ["pixel_accuracy", "mean_iou"].map(|key| figures[key].as_f64().unwrap());
    assert!(accuracy > 0.9 && iou > 0.5, "{epoch}");
    assert_eq!(epoch["val_accuracy"], figures["pixel_accuracy"]);

    // The model that was written has these masks.
    let segmenter = Segmenter::load(scenes.path("whole/model"), &Session::builder()).unwrap();
    let image = open(scenes.path("data/validation/064.png"), Limits::default()).unwrap();
    let map = hipvit_data::Map::open(&scenes.path("data/validation/064_mask.png")).unwrap();
    let places = || {
        map.values
            .iter()
            .enumerate()
            .filter(|(_, value)| **value > 0)
            .map(|(place, _)| place)
    };
    let (left, right) = (
        places().map(|p| p % SIDE).min().unwrap(),
        places().map(|p| p % SIDE).max().unwrap(),
    );
    let (top, bottom) = (places().min().unwrap() / SIDE, places().max().unwrap() / SIDE);
    let corners = [left, top, right + 1, bottom + 1].map(|corner| corner as f32);
    let embedding = segmenter.encode(&image).unwrap();
    let found = segmenter
        .segment(&embedding, &[Prompt::new().within(corners)])
        .unwrap();
    let mask = found[0].best();
    let equal = mask
        .pixels
        .iter()
        .zip(&map.values)
        .filter(|(found, value)| **found == (**value > 0));
    assert!(equal.count() as f64 > 0.85 * map.values.len() as f64);
    scenes.assert_resumes("whole");
}

#[test]
fn a_frozen_encoder_keeps_its_weights() {
    let scenes = Scenes::new();
    scenes.write_mask_model();
    assert_success(&scenes.train("start", &["--epochs", "1"]));
    fs::remove_dir_all(scenes.path("model")).unwrap();
    fs::rename(scenes.path("start/model"), scenes.path("model")).unwrap();
    assert_success(&scenes.train("run", &["--epochs", "1", "--freeze", "image"]));
    let read = |name: &str| fs::read(scenes.path(name).join("model.safetensors")).unwrap();
    let (before, after) = (read("model"), read("run/model"));
    let [before, after] =
        [&before, &after].map(|bytes| safetensors::SafeTensors::deserialize(bytes).unwrap());
    let unused = ["prompt_encoder.mask_embed", "mlps.0.", "positional_embedding"];
    for (name, tensor) in before.tensors() {
        let is_kept = after.tensor(&name).unwrap().data() == tensor.data();
        let is_frozen = name.starts_with("vision_encoder.") || unused.iter().any(|part| name.contains(part));
        assert!(is_kept || !is_frozen, "{name}");
        // A step has no gradient of masks that are not the best for any image.
        assert!(!is_kept || is_frozen || name.contains("hypernetworks"), "{name}");
    }
    scenes.refused(&["--freeze", "1"], &["freeze", "image (the encoder)"]);
}

#[test]
fn what_maps_cannot_have_is_refused_by_name() {
    let scenes = Scenes::new();
    scenes.write_depth_model("metric");
    for (more, reasons) in [
        (&["--lora", "2"][..], &["lora.rank", "maps"][..]),
        (&["--qat"], &["quantization.kind", "maps"]),
        (&["--freeze", "image"], &["freeze", "tower"]),
        (&["--teacher", "model"], &["distillation.teacher", "maps"]),
    ] {
        scenes.refused(more, reasons);
    }
    for (section, reasons) in [
        ("[augmentation]\nflip = 0.5\n", ["augmentation", "moves pixels"]),
        ("[augmentation]\nmixup = 0.5\n", ["augmentation.mixup", "maps"]),
        ("[dropout]\ndrop_rate = 0.1\n", ["dropout", "maps"]),
        ("[depth]\nscale = 0.0\n", ["depth.scale", "above 0"]),
    ] {
        fs::write(scenes.path("recipe.toml"), format!("{RECIPE}{section}")).unwrap();
        scenes.refused(&[], &reasons);
    }
    fs::write(scenes.path("recipe.toml"), RECIPE).unwrap();
    let list = scenes.path("data/train/metadata.jsonl");
    let lines = fs::read_to_string(&list).unwrap();
    let missing = lines.replacen("001_depth.png", "gone.png", 1);
    fs::write(&list, missing).unwrap();
    scenes.refused(&[], &["gone.png"]);
    let other = lines.replacen("depth_file_name", "depth", 1);
    fs::write(&list, other).unwrap();
    scenes.refused(&[], &["metadata.jsonl", "line 2", "depth_file_name"]);
    let colours = lines.replacen("001_depth.png", "../../colours.png", 1);
    let mut encoder = png::Encoder::new(fs::File::create(scenes.path("colours.png")).unwrap(), 1, 1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&[0; 3]).unwrap();
    fs::write(&list, colours).unwrap();
    scenes.refused(&[], &["colours.png", "has colours"]);
    fs::write(&list, &lines).unwrap();

    // Images with classes, and maps for a model without any.
    fs::write(scenes.path("model/config.json"), r#"{"model_type": "vit"}"#).unwrap();
    scenes.refused(&[], &["maps or objects", "predicts no maps"]);
    scenes.write_depth_model("metric");
    fs::remove_dir_all(scenes.path("data")).unwrap();
    write_digits(&scenes.path("data"), 2, 0, 4);
    scenes.refused(&[], &["classes", "estimates depths", "depth_file_name"]);
}
