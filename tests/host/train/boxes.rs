//! `hipvit train` on images with boxes of objects.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{assert_success, end_by};
use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

/// Width and height of the images.
const SIZE: [usize; 2] = [96, 64];
/// Class of all objects.
const CLASS: usize = 2;
/// Colours of the objects, which have one class: classes take a detector much longer to learn than boxes.
const COLORS: [[u8; 3]; 3] = [[230, 40, 40], [40, 200, 60], [50, 80, 240]];

/// Images of coloured rectangles, some of which are held out, and a golden RT-DETR.
struct Scenes {
    directory: TempDir,
}

/// Writes an image with up to two rectangles. Returns its line in the list.
fn write_scene(folder: &Path, seed: usize) -> String {
    let number = |place: usize, most: usize| (seed * 7919 + place * 104_729 + seed * seed * 13) % most;
    let mut pixels = vec![90; SIZE[0] * SIZE[1] * 3];
    let (mut boxes, mut classes) = (Vec::new(), Vec::new());
    for object in 0..1 + number(0, 2) {
        let color = COLORS[number(1 + object, COLORS.len())];
        let [width, height] = [20 + number(3 + object, 12), 20 + number(5 + object, 12)];
        let (left, top) = (
            48 * object + number(7 + object, 48 - width),
            number(9 + object, 64 - height),
        );
        for y in top..top + height {
            for pixel in pixels[(y * SIZE[0] + left) * 3..][..3 * width].chunks_exact_mut(3) {
                pixel.copy_from_slice(&color);
            }
        }
        boxes.push([left, top, width, height]);
        classes.push(CLASS);
    }
    let name = format!("{seed}.png");
    let file = fs::File::create(folder.join(&name)).unwrap();
    let mut encoder = png::Encoder::new(file, SIZE[0] as u32, SIZE[1] as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    json!({"file_name": name, "objects": {"bbox": boxes, "categories": classes}}).to_string() + "\n"
}

impl Scenes {
    fn new() -> Self {
        let scenes = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        for (split, seeds) in [("train", 0..64), ("validation", 64..80)] {
            let folder = scenes.path("data").join(split);
            fs::create_dir_all(&folder).unwrap();
            let list: String = seeds.map(|seed| write_scene(&folder, seed)).collect();
            fs::write(folder.join("metadata.jsonl"), list).unwrap();
        }
        let model = scenes.path("model");
        fs::create_dir_all(&model).unwrap();
        for name in ["config.json", "model.safetensors", "preprocessor_config.json"] {
            fs::copy(at("tests/golden/rt_detr/rt_detr").join(name), model.join(name)).unwrap();
        }
        let recipe = "epochs = 20\nbatch = 8\nclip_norm = 1.0\n[loss]\nlabel_smoothing = 0.0\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup_epochs = 1\n[evaluation]\nevery = 10\n";
        fs::write(scenes.path("recipe.toml"), recipe).unwrap();
        scenes
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

    fn epochs(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name).join("log.jsonl")).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == "epoch").collect()
    }
}

#[test]
fn a_detector_learns_and_a_resumed_run_has_the_bits_of_an_uninterrupted_one() {
    let scenes = Scenes::new();
    let output = scenes.train("whole", &[]);
    assert_success(&output);
    assert!(stdout(&output).contains("mAP@0.5"), "{}", stdout(&output));
    let epochs = scenes.epochs("whole");
    let (first, last) = (&epochs[0], &epochs[19]);
    let loss = |epoch: &Value| epoch["loss"].as_f64().unwrap();
    let found = |epoch: &Value| epoch["train_accuracy"].as_f64().unwrap();
    assert!(
        loss(last) < 0.7 * loss(first) && found(last) > 0.6 && found(first) < 0.5,
        "{first} {last}"
    );
    let figures = &last["figures"]["boxes"];
    let [map, map_50] = ["map", "map_50"].map(|key| figures[key].as_f64().unwrap());
    // The weights of the golden model are far from those of a trained one: how good it becomes differs.
    assert!(map_50 > 0.05 && map > 0.0 && map < map_50, "{figures}");
    assert_eq!(last["val_accuracy"], figures["map_50"]);
    assert!(first["figures"].is_null(), "evaluated every 10 epochs");

    // `hipvit detect` loads the model, and finds objects of the classes.
    let mut arguments: Vec<OsString> = vec!["detect".into(), scenes.path("data/validation/64.png").into()];
    arguments.extend(["--device", "cpu", "--json", "--threshold", "0.02", "-m"].map(OsString::from));
    arguments.push(scenes.path("whole/model").into());
    let output = hipvit(arguments);
    assert_success(&output);
    let found: Value = serde_json::from_str(stdout(&output)).unwrap();
    let best = &found["objects"][0];
    assert_eq!(best["class"], CLASS, "{found}");

    end_by(
        Signal::INT,
        scenes.arguments("parts", &[]),
        &scenes.path("parts/log.jsonl"),
        20,
    );
    assert_success(&scenes.train("parts", &["--resume"]));
    let weights = |run: &str| fs::read(scenes.path(run).join("model/model.safetensors")).unwrap();
    assert!(weights("parts") == weights("whole"));
}

#[test]
fn what_detectors_cannot_have_is_refused_by_name() {
    let scenes = Scenes::new();
    scenes.refused(&["--lora", "2"], &["lora.rank"]);
    scenes.refused(&["--qat"], &["quantization.kind"]);
    let list = scenes.path("data/train/metadata.jsonl");
    let lines = fs::read_to_string(&list).unwrap();
    for (objects, reasons) in [
        (
            json!({"bbox": [[1, 2, 3, 4]], "categories": [7]}),
            ["category 7", "5 classes"],
        ),
        (
            json!({"bbox": [[1, 2, 0, 4]], "categories": [0]}),
            ["train/0.png", "no area"],
        ),
        (
            json!({"bbox": vec![[1, 2, 3, 4]; 99], "categories": vec![0; 99]}),
            ["99 objects", "num_queries"],
        ),
    ] {
        let line = json!({"file_name": "0.png", "objects": objects});
        fs::write(&list, format!("{lines}{line}\n")).unwrap();
        scenes.refused(&[], &reasons);
    }
    fs::write(&list, &lines).unwrap();
    let config = scenes.path("model/config.json");
    let text = fs::read_to_string(&config).unwrap();
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    changed["dropout"] = json!(0.1);
    fs::write(&config, changed.to_string()).unwrap();
    scenes.refused(&[], &["dropout", "is not 0"]);
    fs::write(&config, &text).unwrap();
    fs::remove_file(scenes.path("model/model.safetensors")).unwrap();
    scenes.refused(&[], &["has no weights", "save_pretrained"]);
}
