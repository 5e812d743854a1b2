//! Masks beside those of transformers, on the CPU and by the command line; configurations and prompts that are refused.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use hipvit::image::{Limits, RgbImage, open};
use hipvit::segment::{Prompt, Segmenter};
use hipvit::{DType, Device, Session};
use serde_json::{Value, json};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};
use crate::support::segment::{Case, Image, cases};

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap()
}

fn load(path: &Path) -> hipvit::Result<Segmenter> {
    Segmenter::load(path, &Session::builder().device(Device::Cpu))
}

#[test]
fn masks_are_those_of_transformers_in_every_dtype() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for case in cases() {
            case.check(Device::Cpu, dtype);
        }
    }
}

#[test]
fn pixel_values_are_those_of_transformers() {
    for case in cases() {
        let (segmenter, golden) = (load(&case.path()).unwrap(), case.golden());
        let image = case.images.last().unwrap();
        let values = segmenter.pixel_values(&image.decoded()).unwrap();
        let expected = golden.tensor(&format!("{}.pixel_values", image.image));
        assert_eq!(values.shape(), expected.shape());
        let is_equal = values
            .iter()
            .zip(&expected)
            .all(|(&found, &expected)| found == expected as f32);
        assert!(is_equal, "{}", case.name);
    }
}

/// More numbers of points than decoders are kept, in batches that mix them.
#[test]
fn a_prompts_masks_do_not_depend_on_the_others() {
    let case = case("sam");
    let segmenter = Segmenter::load(case.path(), &Session::builder().device(Device::Cpu).batch(2)).unwrap();
    let image = case.images[0].decoded();
    let embedding = segmenter.encode(&image).unwrap();
    assert_eq!(embedding.size(), [image.height, image.width]);
    let of_points = |count: usize| {
        let points = (0..count).map(|index| (20.0 + 11.0 * index as f32, 30.0 + 7.0 * index as f32));
        points.fold(Prompt::new(), |prompt, (x, y)| prompt.point(x, y, x < 50.0))
    };
    let prompts: Vec<Prompt> = [1, 2, 3, 1, 4, 5, 6, 1].map(of_points).into();
    let together = segmenter.segment(&embedding, &prompts).unwrap();
    for (prompt, together) in prompts.iter().zip(&together) {
        let alone = &segmenter
            .segment(&embedding, std::slice::from_ref(prompt))
            .unwrap()[0];
        let pairs = alone.logits().iter().zip(together.logits());
        assert!(pairs.clone().all(|(a, b)| (a - b).abs() <= 1e-3), "{prompt:?}");
        assert_eq!(alone.best_index(), together.best_index());
    }
    assert_ne!(together[0].logits(), together[1].logits());
    assert!(segmenter.segment(&embedding, &[]).unwrap().is_empty());
    let best = together[0].best();
    let scores = together[0].scores();
    assert!(scores.iter().all(|&score| score <= best.score));
    assert_eq!(best, together[0].masks()[together[0].best_index()]);
    let error = together[0].logits_of(3).unwrap_err().to_string();
    assert!(error.contains("3 is not one of the 3 masks"), "{error}");
}

#[test]
fn what_is_wrong_with_images_and_prompts_is_said() {
    let case = case("sam");
    let segmenter = load(&case.path()).unwrap();
    let embedding = segmenter.encode(&case.images[2].decoded()).unwrap();
    let error = segmenter.segment(&embedding, &[Prompt::new().inside(98.0, 3.0)]);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("the point 98,3 is outside of the image, which is 97×61"),
        "{error}"
    );
    let line = RgbImage::new(3000, 1, vec![9; 9000]).unwrap();
    let error = segmenter.encode(&line).unwrap_err().to_string();
    assert!(error.contains("would shrink to 0×64"), "{error}");
    let other = load(&at("tests/golden/segment/sam_plain")).unwrap();
    let error = other.segment(&embedding, &[Prompt::new().inside(3.0, 3.0)]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("Encode the image with this model"), "{error}");
}

/// Copies a case with changes to its configuration and its processor, by JSON pointer. A null removes a key.
fn changed(config: &[(&str, Value)], processor: &[(&str, Value)]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = at("tests/golden/segment/sam");
    fs::copy(
        from.join("model.safetensors"),
        copy.path().join("model.safetensors"),
    )
    .unwrap();
    for (file, changes) in [("config.json", config), ("preprocessor_config.json", processor)] {
        let mut value: Value = serde_json::from_slice(&fs::read(from.join(file)).unwrap()).unwrap();
        for (pointer, new) in changes {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            parent.insert(key.to_owned(), new.clone());
        }
        fs::write(copy.path().join(file), value.to_string()).unwrap();
    }
    copy
}

#[test]
fn configurations_are_refused_by_key() {
    let config: [(&str, Value, &str); 12] = [
        ("/model_type", json!("sam2"), "`model_type` is \"sam2\""),
        ("/model_type", json!("sam_hq"), "`model_type` is \"sam_hq\""),
        (
            "/architectures",
            json!(["SamVisionModel"]),
            "`architectures` is \"SamVisionModel\"",
        ),
        (
            "/vision_config/num_channels",
            json!(4),
            "`vision_config.num_channels` is 4",
        ),
        (
            "/vision_config/num_attention_heads",
            json!(5),
            "`vision_config.num_attention_heads` is 5",
        ),
        (
            "/vision_config/image_size",
            json!(60),
            "no multiple of the `patch_size`",
        ),
        (
            "/vision_config/output_channels",
            json!(16),
            "`vision_config.output_channels` makes 16 channels",
        ),
        (
            "/vision_config/hidden_act",
            json!("mish"),
            "`vision_config.hidden_act` is \"mish\"",
        ),
        (
            "/prompt_encoder_config/image_size",
            json!(128),
            "makes 16 rows of patches",
        ),
        (
            "/prompt_encoder_config/num_point_embeddings",
            json!(5),
            "expected 4",
        ),
        ("/mask_decoder_config/hidden_size", json!(36), "no multiple of 8"),
        (
            "/quantization_config",
            json!({}),
            "`quantization_config` is not supported",
        ),
    ];
    for (key, value, expected) in config {
        let copy = changed(&[(key, value)], &[]);
        let error = load(copy.path()).unwrap_err().to_string();
        assert!(
            error.contains("config.json") && error.contains(expected),
            "{key}: {error}"
        );
    }
    let processor: [(&str, Value, &str); 7] = [
        (
            "/image_processor_type",
            json!("Sam2ImageProcessor"),
            "\"Sam2ImageProcessor\"",
        ),
        ("/do_pad", json!(null), "`do_pad` is false"),
        ("/do_resize", json!(false), "`do_resize` is false"),
        ("/do_center_crop", json!(true), "`do_center_crop` is true"),
        ("/size", json!({"longest_edge": 128}), "`size` is 128"),
        (
            "/pad_size",
            json!({"height": 64, "width": 128}),
            "`pad_size` is 64×128",
        ),
        ("/resample", json!(9), "`resample` is 9"),
    ];
    for (key, value, expected) in processor {
        let copy = changed(&[], &[(key, value)]);
        let error = load(copy.path()).unwrap_err().to_string();
        let names = error.contains("preprocessor_config.json") && error.contains(expected);
        assert!(names, "{key}: {error}");
    }
}

#[test]
fn other_models_and_options_are_refused() {
    let error = load(&at("tests/golden/hf_vit")).unwrap_err().to_string();
    assert!(
        error.contains("`model_type` is \"vit\"") && error.contains("\"sam\" is supported"),
        "{error}"
    );
    let error = load(&at("tests/golden/depth/onnx/model.onnx"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("is an ONNX file"), "{error}");
    let path = at("tests/golden/segment/sam");
    let error = Session::load(&path).unwrap_err().to_string();
    assert!(error.contains("use `hipvit segment` or Segmenter"), "{error}");
    let error = Segmenter::load(&path, &Session::builder().image_size([32, 32])).unwrap_err();
    assert!(error.to_string().contains("is not an option of SAM"), "{error}");
    let segmenter = load(&path).unwrap();
    let session = segmenter.session();
    let error = session.run(cases()[0].images.iter().map(Image::decoded).collect::<Vec<_>>());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("segments images") && error.contains("Segmenter"),
        "{error}"
    );
    let reasons: Vec<&str> = session
        .info()
        .ignored
        .iter()
        .map(|ignored| ignored.reason)
        .collect();
    assert!(
        reasons.contains(&"prompts are points and boxes, not masks"),
        "{reasons:?}"
    );
}

/// A tensor of the file that has no place, and one that is missing.
#[test]
fn weights_must_fit_the_configuration() {
    let copy = changed(&[("/vision_config/num_hidden_layers", json!(2))], &[]);
    let error = load(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("vision_encoder.layers.2.") && error.contains("is unexpected"),
        "{error}"
    );
    let copy = changed(&[("/vision_config/num_hidden_layers", json!(4))], &[]);
    let error = load(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("vision_encoder.layers.3.") && error.contains("is missing"),
        "{error}"
    );
}

fn run(arguments: &[&str], output: &Path) -> std::process::Output {
    let (image, model) = (
        at("tests/golden/images/small.png"),
        at("tests/golden/segment/sam"),
    );
    let all = [
        OsStr::new("segment"),
        image.as_os_str(),
        OsStr::new("-m"),
        model.as_os_str(),
    ];
    let rest = [OsStr::new("-o"), output.as_os_str()];
    let arguments = arguments.iter().map(OsStr::new);
    hipvit(
        all.into_iter()
            .chain(["--device", "cpu"].map(OsStr::new))
            .chain(rest)
            .chain(arguments),
    )
}

#[test]
fn the_command_line_writes_masks() {
    let folder = tempfile::tempdir().unwrap();
    let masks = folder.path().join("masks");
    let output = run(&["--point", "40,30", "--overlay", "--json"], &masks);
    assert!(output.status.success(), "{}", stderr(&output));
    let printed: Value = serde_json::from_str(stdout(&output)).unwrap();
    let written: Value = serde_json::from_slice(&fs::read(masks.join("small.masks.json")).unwrap()).unwrap();
    assert_eq!(written, printed);
    let case = case("sam");
    let segmenter = load(&case.path()).unwrap();
    let image = case.images[2].decoded();
    let embedding = segmenter.encode(&image).unwrap();
    let best = segmenter
        .segment(&embedding, &case.images[2].prompts()[..1])
        .unwrap()[0]
        .best();
    let mask = &printed["masks"][0];
    assert_eq!(mask["area"], best.area());
    assert_eq!(mask["box"], json!(best.bounding_box()));
    assert_eq!(
        mask["rle"],
        json!({"size": [61, 97], "counts": best.run_lengths()})
    );
    assert!((mask["score"].as_f64().unwrap() - f64::from(best.score)).abs() < 1e-5);
    let png = open(masks.join("small.mask.png"), Limits::default()).unwrap();
    let white: Vec<bool> = png.data.chunks_exact(3).map(|pixel| pixel == [255; 3]).collect();
    assert!(white.iter().eq(&best.pixels) && best.area() > 0 && best.area() < 61 * 97);
    let npy = fs::read(masks.join("small.masks.npy")).unwrap();
    let bytes = &npy[npy.len() - 61 * 97..];
    assert!(
        bytes
            .iter()
            .map(|&byte| byte == 1)
            .eq(best.pixels.iter().copied())
    );
    // The overlay changes the pixels of the mask only.
    let overlay = open(masks.join("small.overlay.png"), Limits::default()).unwrap();
    let pixels = overlay.data.chunks_exact(3).zip(image.data.chunks_exact(3));
    for ((painted, original), inside) in pixels.zip(&best.pixels) {
        assert!(*inside || painted == original);
    }
    assert_ne!(overlay.data, image.data);

    let output = run(&["--box", "10,6,61,49", "--box", "3,3,30,30", "--all"], &masks);
    let lines = stdout(&output);
    assert!(
        lines
            .lines()
            .next()
            .unwrap()
            .ends_with("small.png: 97×61, 6 masks"),
        "{lines}"
    );
    assert!((1..=6).all(|number| masks.join(format!("small.mask{number}.png")).exists()));
    let written: Value = serde_json::from_slice(&fs::read(masks.join("small.masks.json")).unwrap()).unwrap();
    let listed: Vec<(u64, u64)> = written["masks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mask| (mask["object"].as_u64().unwrap(), mask["index"].as_u64().unwrap()))
        .collect();
    assert_eq!(listed, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn the_command_line_says_what_is_wrong_with_prompts() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code, expected) in [
        (&[][..], 2, "--point or --box is required"),
        (&["--point", "3,4:2"], 2, "the label is 2, expected 1"),
        (&["--point", "3"], 2, "expected X,Y or X,Y:LABEL"),
        (&["--box", "9,3,1,8"], 2, "the box has no area"),
        (
            &["--point", "3,4", "--box", "1,1,5,5", "--box", "2,2,5,5"],
            2,
            "--point with several --box",
        ),
        (&["--point", "3,62"], 1, "small.png: "),
        (
            &["--point", "-1,3"],
            1,
            "the point -1,3 is outside of the image, which is 97×61",
        ),
        (&["--box", "1,1,99,5"], 1, "is not inside of the image"),
    ] {
        let output = run(arguments, folder.path());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
