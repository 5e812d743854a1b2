//! `hipvit train` on images of texts.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{assert_success, end_by};
use crate::support::at;
use crate::support::digit_folders::write_digits;
use crate::support::program::{hipvit, stderr, stdout};

/// Digits of the golden models' tokenizer, five rows of three pixels each.
const GLYPHS: [[u8; 5]; 4] = [
    [0b111, 0b101, 0b101, 0b101, 0b111],
    [0b010, 0b110, 0b010, 0b010, 0b111],
    [0b111, 0b001, 0b111, 0b100, 0b111],
    [0b111, 0b001, 0b011, 0b001, 0b111],
];
/// The default of recipes is 0.1.
const NO_SMOOTHING: &str = "[loss]\nlabel_smoothing = 0.0\n";
const SIDE: usize = 32;
/// Height and width of a pixel of a glyph.
const DOT: usize = 3;

/// Lines of two digits at different heights, some of which are held out, and a TrOCR model whose tokenizer ends texts.
struct Lines {
    directory: TempDir,
}

/// Writes a line at a height.
fn write_line(file: &Path, digits: [usize; 2], top: usize) {
    let mut pixels = vec![230; SIDE * SIDE];
    for (place, digit) in digits.into_iter().enumerate() {
        for (row, bits) in GLYPHS[digit].into_iter().enumerate() {
            for column in (0..3).filter(|column| bits >> (2 - column) & 1 == 1) {
                let (y, x) = (top + row * DOT, 4 + place * 13 + column * DOT);
                for y in y..y + DOT {
                    pixels[y * SIDE + x..][..DOT].fill(20);
                }
            }
        }
    }
    let mut encoder = png::Encoder::new(fs::File::create(file).unwrap(), SIDE as u32, SIDE as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
}

impl Lines {
    fn new() -> Self {
        let lines = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let held_out = [3, 7, 13];
        let trained: Vec<usize> = (1..=16).filter(|top| !held_out.contains(top)).collect();
        for (split, tops) in [("train", &trained[..]), ("validation", &held_out)] {
            let folder = lines.path("data").join(split);
            fs::create_dir_all(&folder).unwrap();
            let mut list = String::new();
            for digits in 0..16 {
                for &top in tops {
                    let (name, digits) = (format!("{digits}-{top}.png"), [digits / 4, digits % 4]);
                    write_line(&folder.join(&name), digits, top);
                    list +=
                        &json!({"file_name": name, "text": digits.map(|digit| digit.to_string()).concat()})
                            .to_string();
                    list += "\n";
                }
            }
            fs::write(folder.join("metadata.jsonl"), list).unwrap();
        }
        lines.write_model();
        lines.write_recipe(NO_SMOOTHING);
        lines
    }

    /// Writes the recipe, with more sections.
    fn write_recipe(&self, more: &str) {
        let recipe = "epochs = 30\nbatch = 16\nclip_norm = 1.0\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup_epochs = 2\n[evaluation]\nevery = 15\n";
        fs::write(self.path("recipe.toml"), format!("{recipe}{more}")).unwrap();
    }

    /// Copies the golden model, which ends texts with `</s>` as its tokenizer then does.
    fn write_model(&self) {
        let golden = at("tests/golden/generation/trocr_base");
        fs::create_dir_all(self.path("model")).unwrap();
        for name in [
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "preprocessor_config.json",
        ] {
            fs::copy(golden.join(name), self.path("model").join(name)).unwrap();
        }
        let mut tokenizer: Value =
            serde_json::from_slice(&fs::read(golden.join("tokenizer.json")).unwrap()).unwrap();
        tokenizer["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
        });
        fs::write(self.path("model/tokenizer.json"), tokenizer.to_string()).unwrap();
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

    /// Returns the held-out images and their texts.
    fn held_out(&self) -> Vec<(PathBuf, String)> {
        let folder = self.path("data/validation");
        let list = fs::read_to_string(folder.join("metadata.jsonl")).unwrap();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            (folder.join(text("file_name")), text("text"))
        };
        list.lines().map(line).collect()
    }
}

#[test]
fn a_decoder_learns_to_read_and_a_resumed_run_has_the_bits_of_an_uninterrupted_one() {
    let lines = Lines::new();
    let output = lines.train("whole", &[]);
    assert_success(&output);
    let printed = stdout(&output);
    assert!(
        printed.contains("of lines exact") && printed.contains("character error rate"),
        "{printed}"
    );
    let epochs = lines.epochs("whole");
    let loss = |epoch: &Value| epoch["loss"].as_f64().unwrap();
    assert!(
        loss(&epochs[29]) < 0.2 * loss(&epochs[0]),
        "{} {}",
        epochs[0],
        epochs[29]
    );
    let reading = &epochs[29]["reading"];
    let share = reading["exact_lines"].as_f64().unwrap();
    assert!(share >= 0.8, "{reading}");
    assert_eq!(epochs[29]["val_accuracy"], reading["exact_lines"]);
    assert!(
        reading["character_error_rate"].as_f64().unwrap() <= (1.0 - share) * 1.5,
        "{reading}"
    );
    assert!(epochs[0]["reading"].is_null(), "evaluated every 15 epochs");
    let report = fs::read_to_string(lines.path("whole/report.html")).unwrap();
    assert!(report.contains("Character errors in %") && report.contains("texts are read exactly"));

    // `hipvit read` makes the texts that the evaluation counted.
    let held_out = lines.held_out();
    let mut arguments: Vec<OsString> = vec!["read".into()];
    arguments.extend(held_out.iter().map(|(file, _)| file.into()));
    arguments.extend(["--device", "cpu", "--json", "-m"].map(OsString::from));
    arguments.push(lines.path("whole/model").into());
    let output = hipvit(arguments);
    assert_success(&output);
    let read: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read.len(), held_out.len());
    let exact = read
        .iter()
        .zip(&held_out)
        .filter(|(read, (_, text))| read["text"] == text.as_str());
    assert_eq!(exact.count() as f64 / held_out.len() as f64, share);

    end_by(
        Signal::INT,
        lines.arguments("parts", &[]),
        &lines.path("parts/log.jsonl"),
        8,
    );
    assert_success(&lines.train("parts", &["--resume"]));
    let weights = |run: &str| fs::read(lines.path(run).join("model/model.safetensors")).unwrap();
    assert!(weights("parts") == weights("whole"));
}

#[test]
fn a_frozen_half_keeps_its_weights() {
    let lines = Lines::new();
    let weights = |file: &Path| fs::read(file.join("model.safetensors")).unwrap();
    let before = weights(&lines.path("model"));
    let before = safetensors::SafeTensors::deserialize(&before).unwrap();
    for (half, frozen) in [("image", "encoder."), ("text", "decoder.")] {
        assert_success(&lines.train(half, &["--freeze", half, "--epochs", "1"]));
        let after = weights(&lines.path(half).join("model"));
        let after = safetensors::SafeTensors::deserialize(&after).unwrap();
        for (name, tensor) in before.tensors() {
            let is_kept = after.tensor(&name).unwrap().data() == tensor.data();
            let is_frozen = name.starts_with(frozen) || name.starts_with("encoder.pooler.");
            assert_eq!(is_kept, is_frozen, "{half}: {name}");
        }
    }
}

#[test]
fn what_texts_cannot_have_is_refused_by_name() {
    let lines = Lines::new();
    for (more, reasons) in [
        (&["--lora", "2"][..], &["lora.rank", "texts"][..]),
        (&["--qat"], &["quantization.kind", "texts"]),
        (&["--freeze", "1"], &["freeze", "image (the encoder)"]),
        (&["--teacher", "model"], &["distillation.teacher", "texts"]),
    ] {
        lines.refused(more, reasons);
    }
    for (more, reasons) in [
        (
            "[loss]\nlabel_smoothing = 0.1\n",
            ["loss.label_smoothing", "texts"],
        ),
        ("[augmentation]\nmixup = 0.2\n", ["augmentation.mixup", "texts"]),
        ("[augmentation]\nflip = 0.5\n", ["augmentation.flip", "mirrors"]),
        ("[dropout]\ndrop_rate = 0.1\n", ["dropout", "texts"]),
        ("[loss]\nkind = \"bce\"\n", ["loss.kind", "recipe texts"]),
    ] {
        let smoothing = if more.starts_with("[loss]") {
            ""
        } else {
            NO_SMOOTHING
        };
        lines.write_recipe(&format!("{smoothing}{more}"));
        lines.refused(&[], &reasons);
    }
    lines.write_recipe(NO_SMOOTHING);
    let list = lines.path("data/train/metadata.jsonl");
    let texts = fs::read_to_string(&list).unwrap();
    let long = json!({"file_name": "0-1.png", "text": "0123".repeat(10)});
    fs::write(&list, format!("{texts}{long}\n")).unwrap();
    lines.refused(&[], &["train/0-1.png has 41 tokens", "max_position_embeddings"]);
    fs::write(&list, &texts).unwrap();

    // A tokenizer without an end, a model without weights, and images with classes.
    let golden = at("tests/golden/generation/trocr_base/tokenizer.json");
    fs::copy(golden, lines.path("model/tokenizer.json")).unwrap();
    lines.refused(&[], &["tokenizer.json", "does not end", "eos_token_id"]);
    lines.write_model();
    fs::remove_file(lines.path("model/model.safetensors")).unwrap();
    lines.refused(&[], &["has no weights", "save_pretrained"]);
    lines.write_model();
    fs::remove_dir_all(lines.path("data")).unwrap();
    write_digits(&lines.path("data"), 2, 0, 4);
    lines.refused(&[], &["classes", "makes texts", "metadata.jsonl"]);
}
