//! Broken images, weights and configurations lead to one line with the file and the cause, and exit code 1.
//! There is no panic, and no incomplete output.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit::image::{Limits, RgbImage, decode};
use hipvit::pipeline::Source;
use hipvit::{Error, ImageErrorKind, Session};
use serde_json::{Value, json};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

/// Runs `hipvit`. Expects exit code 1 and one line on standard error that contains all of `parts`.
fn refused(args: &[OsString], parts: &[&str]) {
    let output = hipvit(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{args:?}\n{text}");
    assert_eq!(text.lines().count(), 1, "{args:?}\n{text}");
    assert!(!text.contains("panicked"), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(stdout(&output), "", "{args:?}");
}

fn image_refused(name: &str, bytes: &[u8], parts: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    fs::write(&file, bytes).unwrap();
    let parts = [&[name], parts].concat();
    refused(&["classify".into(), file.clone().into()], &parts);
    let output = dir.path().join("out.safetensors");
    let args = [
        "preprocess".into(),
        file.into(),
        "--output".into(),
        output.clone().into(),
    ];
    refused(&args, &parts);
    assert!(!output.exists());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "something was left behind"
    );
}

fn sample() -> Vec<u8> {
    fs::read(at("tests/golden/images/small.png")).unwrap()
}

#[test]
fn broken_images_are_refused() {
    let png = sample();
    let jpeg = fs::read(at("tests/golden/images/photo.jpg")).unwrap();
    image_refused("empty.png", b"", &["empty"]);
    image_refused(
        "magic.png",
        b"GIF is not what this is, nor anything else",
        &["not a PNG"],
    );
    image_refused("cut.png", &png[..png.len() / 2], &["truncated"]);
    image_refused("cut.jpg", &jpeg[..jpeg.len() / 2], &["truncated"]);
    let mut corrupt = png;
    // The pixels follow the signature and the header chunk.
    corrupt[80..120].fill(0xA5);
    image_refused("corrupt.png", &corrupt, &["damaged"]);
}

#[test]
fn the_error_of_an_image_has_a_kind() {
    use ImageErrorKind::{Damaged, Size, TooLarge, Truncated, Unsupported};
    fn kind(result: Result<RgbImage, impl Into<Error>>) -> ImageErrorKind {
        match result.map_err(Into::into) {
            Err(Error::Image { kind, .. }) => kind,
            other => panic!("{other:?}"),
        }
    }
    let limits = Limits::default();
    let of = |bytes: &[u8]| kind(decode("x", bytes, limits));
    assert_eq!(of(b"no image at all"), Unsupported);
    assert_eq!(of(b""), Truncated);
    for name in ["small.png", "photo.jpg"] {
        let file = fs::read(at("tests/golden/images").join(name)).unwrap();
        assert_eq!(of(&file[..file.len() / 2]), Truncated, "{name}");
    }
    let mut png = sample();
    png[80..120].fill(0xA5);
    assert_eq!(of(&png), Damaged);
    assert_eq!(of(&bomb(300_000)), TooLarge);
    let few = Limits {
        max_pixels: 100,
        ..limits
    };
    assert_eq!(kind(decode("x", &sample(), few)), TooLarge);
    let mut bmp = image_file(4, 4);
    // The last row has three bytes of padding, which may be missing.
    assert_eq!(of(&bmp[..bmp.len() - 4]), Truncated);
    bmp[30] = 9;
    assert_eq!(of(&bmp), Unsupported);
    let sliver = Source::Bytes("x".into(), image_file((1 << 24) + 32, 1).into());
    let image = sliver.decode(limits).unwrap();
    let session = Session::tinyvit32().unwrap();
    assert_eq!(kind(sliver.resize(&image, session.preprocess())), Size);
    let missing = hipvit::image::open("no such file", limits);
    assert!(
        matches!(missing, Err(hipvit::image::Error::Io { .. })),
        "{missing:?}"
    );
}

#[test]
fn a_decompression_bomb_is_refused_before_it_is_decoded() {
    image_refused("bomb.png", &bomb(300_000), &["300000"]);
}

/// Creates a PNG whose header declares `side × side` pixels.
fn bomb(side: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = b"IHDR".to_vec();
    header.extend(side.to_be_bytes());
    header.extend(side.to_be_bytes());
    header.extend([8, 2, 0, 0, 0]);
    png.extend(13u32.to_be_bytes());
    png.extend(&header);
    png.extend(crc32fast::hash(&header).to_be_bytes());
    png.extend(0u32.to_be_bytes());
    png.extend(b"IDAT");
    png.extend(crc32fast::hash(b"IDAT").to_be_bytes());
    png
}

#[test]
fn the_limit_on_pixels_can_be_set() {
    let file = at("tests/golden/images/small.png");
    let run = |limit: &str| {
        hipvit([
            "classify".into(),
            "--max-pixels".into(),
            limit.into(),
            OsString::from(&file),
        ])
    };
    assert_eq!(run("100").status.code(), Some(1));
    assert_eq!(run("1000000").status.code(), Some(0));
}

/// A narrow image decodes, but has no pixel left at the model's size.
#[test]
fn an_image_that_the_preprocessing_refuses_is_named() {
    let sliver = image_file((1 << 24) + 32, 1);
    image_refused("sliver.bmp", &sliver, &["a side must be between"]);
}

/// Creates a BMP of `width × height` black pixels with one bit each.
fn image_file(width: u32, height: u32) -> Vec<u8> {
    let mut bmp = b"BM".to_vec();
    for field in [
        0,
        0,
        62,
        40,
        width,
        height,
        1 << 16 | 1,
        0,
        0,
        0,
        0,
        2,
        0,
        0,
        0xFF_FFFF,
    ] {
        bmp.extend(field.to_le_bytes());
    }
    bmp.resize(bmp.len() + (width.div_ceil(32) * 4 * height) as usize, 0);
    bmp
}

#[cfg(target_os = "linux")]
#[test]
fn what_has_no_end_is_not_read_to_it() {
    refused(
        &["classify".into(), "/dev/zero".into()],
        &["/dev/zero", "not a regular file"],
    );
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["classify", "-"])
        .stdin(fs::File::open("/dev/zero").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not a PNG"), "{}", stderr(&output));
}

#[test]
fn an_image_that_no_memory_holds_is_refused() {
    let limit = ["--max-pixels".into(), u64::MAX.to_string().into()];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vast.png");
    // The largest size that PNG allows: more bytes than the address space.
    fs::write(&file, bomb(i32::MAX as u32)).unwrap();
    refused(
        &[&["classify".into(), file.into()][..], &limit].concat(),
        &["vast.png", "memory"],
    );
}

#[test]
fn an_error_is_one_line_whatever_the_name() {
    refused(
        &["classify".into(), "two\nlines.png".into()],
        &["two\\nlines.png"],
    );
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.png");
    refused(&["classify".into(), missing.into()], &["missing.png"]);
    refused(
        &["classify".into(), dir.path().into()],
        &[dir.path().to_str().unwrap()],
    );
    let pattern = dir.path().join("*.jpeg");
    refused(&["classify".into(), pattern.into()], &["*.jpeg"]);
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let args = [
        "preprocess",
        "tests/golden/images/small.png",
        "--output",
        "no/such/directory/x.safetensors",
    ];
    let output = hipvit(args.map(|a| {
        if a.starts_with("tests") {
            at(a).into()
        } else {
            OsString::from(a)
        }
    }));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output)
            .contains("no/such/directory/x.safetensors: the directory no/such/directory does not exist"),
        "{}",
        stderr(&output)
    );
}

/// Copy of a golden model that a test can break.
struct Broken {
    dir: tempfile::TempDir,
}

impl Broken {
    fn copy(case: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(at("tests/golden").join(case)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
        Self { dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn edit_config(&self, file: &str, edit: impl FnOnce(&mut Value)) {
        let mut config = serde_json::from_slice(&fs::read(self.file(file)).unwrap()).unwrap();
        edit(&mut config);
        fs::write(self.file(file), config.to_string()).unwrap();
    }

    /// Rewrites the weight file's JSON header, keeping the data.
    fn edit_header(&self, edit: impl FnOnce(&mut Value)) {
        let file = self.file("model.safetensors");
        let bytes = fs::read(&file).unwrap();
        let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        let mut header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        edit(&mut header);
        let header = header.to_string();
        let mut edited = (header.len() as u64).to_le_bytes().to_vec();
        edited.extend(header.as_bytes());
        edited.extend(&bytes[8 + length..]);
        fs::write(file, edited).unwrap();
    }

    fn refused(&self, parts: &[&str]) {
        model_refused(self.dir.path(), parts);
    }
}

fn model_refused(model: &Path, parts: &[&str]) {
    let image = at("tests/golden/images/small.png");
    refused(
        &["classify".into(), image.into(), "--model".into(), model.into()],
        parts,
    );
    refused(&["inspect".into(), model.into()], parts);
}

#[test]
fn broken_weight_files_are_refused() {
    let model = Broken::copy("timm_vit_class_token");
    let whole = fs::read(model.file("model.safetensors")).unwrap();
    for (bytes, what) in [
        (&whole[..whole.len() - 100], "truncated"),
        (&whole[..5], "shorter than a header's length"),
        (&[], "empty"),
        (
            &[&u64::MAX.to_le_bytes()[..], &whole[8..]].concat(),
            "a lying length",
        ),
        (
            &[&whole[..8], b"}", &whole[9..]].concat(),
            "a header that is no JSON",
        ),
    ] {
        println!("{what}");
        fs::write(model.file("model.safetensors"), bytes).unwrap();
        model.refused(&["model.safetensors"]);
    }
}

#[test]
fn lying_headers_are_refused() {
    let name = "blocks.0.attn.qkv.weight";
    let model = Broken::copy("timm_vit_class_token");
    model.edit_header(|h| h[name]["data_offsets"] = h["blocks.0.attn.proj.weight"]["data_offsets"].clone());
    model.refused(&["model.safetensors"]);
    let model = Broken::copy("timm_vit_class_token");
    model.edit_header(|h| h[name]["dtype"] = json!("F13"));
    model.refused(&["model.safetensors", "F13"]);
    let model = Broken::copy("timm_vit_class_token");
    model.edit_header(|h| h[name]["data_offsets"][1] = json!(1u64 << 40));
    model.refused(&["model.safetensors"]);
}

#[test]
fn tensors_that_do_not_fit_the_configuration_are_named() {
    for case in ["timm_vit_class_token", "hf_vit"] {
        let name = if case.starts_with("timm") {
            "blocks.0.norm1.weight"
        } else {
            "layernorm.weight"
        };
        let model = Broken::copy(case);
        let mut found = String::new();
        model.edit_header(|h| {
            let header = h.as_object_mut().unwrap();
            let key = header.keys().find(|k| k.ends_with(name)).unwrap().clone();
            let entry = header.remove(&key).unwrap();
            header.insert(format!("{key}.renamed"), entry);
            found = key;
        });
        model.refused(&[&found, "missing"]);
        let model = Broken::copy(case);
        model.edit_header(|h| {
            let shape = h[&found]["shape"][0].as_u64().unwrap();
            h[&found]["shape"] = json!([shape / 2, 2]);
        });
        model.refused(&[&found]);
    }
}

#[test]
fn broken_configurations_are_refused() {
    let hf = |edit: fn(&mut Value), parts: &[&str]| {
        let model = Broken::copy("hf_vit");
        model.edit_config("config.json", edit);
        model.refused(&[&["config.json"], parts].concat());
    };
    hf(|c| c["num_attention_heads"] = json!(5), &["5"]);
    hf(|c| c["num_attention_heads"] = json!(0), &[]);
    hf(|c| c["patch_size"] = json!(4096), &["4096"]);
    hf(|c| c["patch_size"] = json!(0), &[]);
    hf(|c| c["model_type"] = json!("resnet"), &["resnet"]);
    hf(|c| c["hidden_act"] = json!("wavy"), &["wavy"]);
    hf(|c| c["hidden_size"] = json!("big"), &[]);
    let timm = |edit: fn(&mut Value), parts: &[&str]| {
        let model = Broken::copy("timm_vit_class_token");
        model.edit_config("config.json", edit);
        model.refused(&[&["config.json"], parts].concat());
    };
    timm(|c| c["architecture"] = json!("resnet50"), &["resnet50"]);
    timm(|c| c["model_args"]["num_heads"] = json!(5), &["5"]);
    timm(
        |c| c["model_args"]["no_such_option"] = json!(1),
        &["no_such_option"],
    );

    let model = Broken::copy("hf_vit");
    fs::write(model.file("config.json"), "{ \"model_type\": ").unwrap();
    model.refused(&["config.json"]);
    fs::remove_file(model.file("config.json")).unwrap();
    model.refused(&["config.json"]);
    let model = Broken::copy("hf_vit");
    fs::remove_file(model.file("preprocessor_config.json")).unwrap();
    model.refused(&["preprocessor_config.json"]);
    let model = Broken::copy("hf_vit");
    fs::remove_file(model.file("model.safetensors")).unwrap();
    model.refused(&["safetensors"]);
}

/// The configuration and the weights have different patch sizes.
#[test]
fn a_patch_size_that_contradicts_the_weights_names_the_tensor() {
    let model = Broken::copy("hf_vit");
    model.edit_config("config.json", |c| {
        let patch = c["patch_size"].as_u64().unwrap();
        c["patch_size"] = json!(patch * 2);
        c["image_size"] = json!(c["image_size"].as_u64().unwrap() * 2);
    });
    model.refused(&["patch_embeddings.projection.weight"]);
}

#[test]
fn a_directory_without_a_model_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    model_refused(dir.path(), &[dir.path().to_str().unwrap()]);
    model_refused(&dir.path().join("nowhere"), &["nowhere"]);
}
