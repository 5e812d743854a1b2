//! Depths beside those of transformers, on the CPU and by the command line; configurations that are refused.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use hipvit::depth::DepthEstimator;
use hipvit::image::{Limits, RgbImage};
use hipvit::model::{self, InputKind, LoadOptions};
use hipvit::ndarray::{Array4, s};
use hipvit::{DType, Device, Session};
use serde_json::{Value, json};

use crate::support::at;
use crate::support::depth::{Case, cases, image};
use crate::support::program::{hipvit, stderr, stdout};

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap()
}

#[test]
fn depths_are_those_of_transformers_in_every_dtype() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for case in cases() {
            case.check(case.path(), Device::Cpu, dtype);
        }
    }
}

#[test]
fn pixel_values_are_those_of_transformers() {
    for case in cases() {
        let estimator = DepthEstimator::load(case.path(), &Session::builder()).unwrap();
        let golden = case.golden();
        for image in &case.images {
            let decoded = crate::support::depth::image(&image.image);
            let rule = estimator
                .preprocess()
                .for_image(decoded.height, decoded.width)
                .unwrap();
            assert_eq!(
                <[usize; 2]>::from(rule.output_size()),
                image.size,
                "{}",
                image.image
            );
            let pixels = rule.apply(&decoded).unwrap();
            let mut values = vec![f32::NAN; pixels.data.len()];
            rule.normalize(&pixels.data, &mut values).unwrap();
            let expected = golden.tensor(&format!("{}.pixel_values", image.image));
            let expected: Vec<f32> = expected.iter().map(|&value| value as f32).collect();
            assert!(values == expected, "{} {}", case.name, image.image);
        }
    }
}

/// The file leaves batch, height and width open. With a size given, all images have it.
#[test]
fn onnx_files_give_the_same() {
    let case = case("depth_anything");
    let file = at("tests/golden/depth/onnx/model.onnx");
    for dtype in [DType::F32, DType::BF16] {
        case.check(file.clone(), Device::Cpu, dtype);
    }
    let builder = Session::builder().device(Device::Cpu).image_size([24, 40]);
    let depths = [case.path(), file].map(|path| {
        let estimator = DepthEstimator::load(path, &builder).unwrap();
        estimator.predict(&case.decoded()).unwrap()
    });
    let [native, onnx] = &depths;
    assert_eq!((native.len(), onnx.len()), (3, 3));
    for (a, b) in native.iter().zip(onnx) {
        assert_eq!((a.dim(), b.dim()), ((24, 40), (24, 40)));
        assert!(
            a.iter()
                .zip(b)
                .all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
        );
    }
}

/// Depths of a part of an image would not fit the image.
#[test]
fn processors_of_onnx_files_must_not_crop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.onnx");
    fs::copy(at("tests/golden/depth/onnx/model.onnx"), &file).unwrap();
    let load = |processor: Value| {
        fs::write(
            folder.path().join("preprocessor_config.json"),
            processor.to_string(),
        )
        .unwrap();
        DepthEstimator::load(&file, &Session::builder().device(Device::Cpu))
    };
    let vit = json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 24, "width": 40}});
    let depths = load(vit).unwrap().estimate(&[image("small.png")]).unwrap();
    assert_eq!(depths[0].dim(), (61, 97));
    let clip = json!({"image_processor_type": "CLIPImageProcessor", "size": 40, "crop_size": 40});
    let error = load(clip).unwrap_err().to_string();
    assert!(
        error.contains("crop 40×40") && error.contains("crops images"),
        "{error}"
    );
}

/// More sizes than sessions are kept, in batches that mix them.
#[test]
fn an_images_depths_do_not_depend_on_the_others() {
    let case = case("depth_anything");
    let builder = Session::builder().device(Device::Cpu).batch(3);
    let estimator = DepthEstimator::load(case.path(), &builder).unwrap();
    let source = image("wide.png");
    let cropped = |width: usize| {
        let rows = source.data.chunks_exact(source.width * 3);
        let data = rows
            .take(100)
            .flat_map(|row| row[..width * 3].iter().copied())
            .collect();
        RgbImage::new(width, 100, data).unwrap()
    };
    let images: Vec<RgbImage> = [100, 140, 100, 180, 220, 260, 300, 100].map(cropped).into();
    let together = estimator.estimate(&images).unwrap();
    for (image, together) in images.iter().zip(&together) {
        let alone = &estimator.estimate(std::slice::from_ref(image)).unwrap()[0];
        assert_eq!(alone.dim(), (image.height, image.width));
        assert!(
            alone
                .iter()
                .zip(together)
                .all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
        );
    }
    assert!(estimator.estimate::<RgbImage>(&[]).unwrap().is_empty());
    let line = RgbImage::new(3000, 1, vec![9; 9000]).unwrap();
    let error = estimator.estimate(&[line]).unwrap_err().to_string();
    assert!(
        error.contains("an image of 1×3000 would shrink to 0×40"),
        "{error}"
    );
}

/// The session of a directory takes pixels by name, and says what takes images.
#[test]
fn sessions_return_depths_by_name() {
    let case = case("dpt");
    let session = Session::builder().device(Device::Cpu).load(case.path()).unwrap();
    let info = session.info();
    assert_eq!(info.depth_map.unwrap().size, [96, 96]);
    assert!(!info.depth_map.unwrap().is_metric);
    assert!(
        info.to_string().contains("estimates relative depth, 96×96"),
        "{info}"
    );
    let error = session.run(case.decoded()).unwrap_err().to_string();
    assert!(
        error.contains("dpt estimates depth") && error.contains("DepthEstimator"),
        "{error}"
    );
    let pixels =
        Array4::<u8>::from_shape_fn((2, 48, 48, 3), |(b, y, x, c)| (b + 3 * y + 5 * x + 7 * c) as u8);
    let outputs = session.run_tensors([("pixels", &pixels)]).unwrap();
    let depths = outputs.get("predicted_depth").unwrap().as_f32().unwrap();
    assert_eq!(depths.shape(), [2, 96, 96]);
    let one = session
        .run_tensors([("pixels", pixels.slice(s![1..2, .., .., ..]))])
        .unwrap();
    let one = one.get("predicted_depth").unwrap().as_f32().unwrap();
    let second = depths.slice(s![1, .., ..]);
    assert!(
        one.iter()
            .zip(second)
            .all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
    );
    // The session is the one for images of its size.
    let estimator = DepthEstimator::of_session(&session).unwrap();
    let (images, from_path) = (
        case.decoded(),
        DepthEstimator::load(case.path(), &Session::builder().device(Device::Cpu)),
    );
    assert_eq!(
        estimator.estimate(&images).unwrap(),
        from_path.unwrap().estimate(&images).unwrap()
    );
    let of = |session: Session| DepthEstimator::of_session(&session).unwrap_err().to_string();
    let error = of(Session::tinyvit32().unwrap());
    assert!(error.contains("was not loaded from a path"), "{error}");
    let error = of(Session::load(at("tests/golden/hf_vit")).unwrap());
    assert!(error.contains("which estimates no depth"), "{error}");
    let values = session.reload(InputKind::PixelValues).unwrap();
    assert_eq!(values.graph.value(values.graph.input()).shape, [1, 3, 48, 48]);
}

/// Copies a case with changes to its configuration and its processor, by JSON pointer. A null removes a key.
fn changed(case: &str, config: &[(&str, Value)], processor: &[(&str, Value)]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = at("tests/golden/depth").join(case);
    fs::copy(
        from.join("model.safetensors"),
        copy.path().join("model.safetensors"),
    )
    .unwrap();
    for (file, changes) in [("config.json", config), ("preprocessor_config.json", processor)] {
        let mut document: Value =
            serde_json::from_str(&fs::read_to_string(from.join(file)).unwrap()).unwrap();
        for (pointer, value) in changes {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let object = document.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            object.insert(key.to_owned(), value.clone());
        }
        fs::write(copy.path().join(file), document.to_string()).unwrap();
    }
    copy
}

fn error(directory: &Path) -> String {
    let loaded = model::load(directory, &LoadOptions::default());
    let error = loaded.unwrap_err().to_string();
    error.replace(directory.to_str().unwrap(), "DIR")
}

#[test]
fn configurations_beyond_what_is_built_are_refused_by_key() {
    for (case, pointer, value, expected) in [
        (
            "depth_anything",
            "/architectures",
            json!(["DepthAnythingModel"]),
            "`architectures` is not",
        ),
        (
            "depth_anything",
            "/backbone",
            json!("facebook/dinov2-small"),
            "`backbone` is \"facebook",
        ),
        (
            "depth_anything",
            "/backbone_config/model_type",
            json!("swinv2"),
            "`backbone_config.model_type` is swinv2",
        ),
        (
            "depth_anything",
            "/backbone_config/reshape_hidden_states",
            json!(true),
            "`backbone_config.reshape_hidden_states`",
        ),
        (
            "depth_anything",
            "/backbone_config/out_indices",
            json!([1, 2, 3, 9]),
            "`backbone_config.out_indices` is 9",
        ),
        (
            "depth_anything",
            "/backbone_config/out_features",
            json!(["stage1", "stage2"]),
            "names other stages",
        ),
        (
            "depth_anything",
            "/backbone_config/num_channels",
            json!(4),
            "`backbone_config.num_channels`",
        ),
        (
            "depth_anything",
            "/patch_size",
            json!(16),
            "`patch_size` is 16, but the encoder has 8",
        ),
        (
            "depth_anything",
            "/reassemble_hidden_size",
            json!(12),
            "`reassemble_hidden_size` is 12",
        ),
        (
            "depth_anything",
            "/reassemble_factors",
            json!([4, 2, 1]),
            "`reassemble_factors` has 3 factors",
        ),
        (
            "depth_anything",
            "/reassemble_factors",
            json!([4, 2.5, 1, 0.5]),
            "`reassemble_factors` is [4,2.5,1,0.5]",
        ),
        (
            "depth_anything",
            "/neck_hidden_sizes",
            json!([4, 6, 8]),
            "`neck_hidden_sizes` has 3 sizes, but the encoder returns 4",
        ),
        (
            "depth_anything",
            "/neck_hidden_sizes",
            json!([4, 6, 8, 100_000]),
            "more than the maximum of 2048",
        ),
        (
            "depth_anything",
            "/head_in_index",
            json!(4),
            "`head_in_index` is 4",
        ),
        (
            "depth_anything",
            "/depth_estimation_type",
            json!("log"),
            "`depth_estimation_type` is \"log\"",
        ),
        ("depth_anything", "/max_depth", json!(null), "`max_depth` is null"),
        (
            "depth_anything",
            "/fusion_hidden_size",
            json!(12),
            "tensor `neck.convs.0.weight`",
        ),
        ("dpt", "/is_hybrid", json!(true), "`is_hybrid` is true"),
        (
            "dpt",
            "/use_batch_norm_in_fusion_residual",
            json!(true),
            "`use_batch_norm_in_fusion_residual` is true",
        ),
        (
            "dpt",
            "/readout_type",
            json!("mean"),
            "`readout_type` is \"mean\"",
        ),
        (
            "dpt",
            "/backbone_out_indices",
            json!([7]),
            "`backbone_out_indices` names none",
        ),
        (
            "dpt",
            "/backbone_config",
            json!({"model_type": "beit"}),
            "`backbone_config.model_type` is beit",
        ),
    ] {
        let copy = changed(case, &[(pointer, value)], &[]);
        let error = error(copy.path());
        assert!(
            error.starts_with("DIR") && error.contains(expected),
            "{pointer}: {error}"
        );
    }
    for (key, value, expected) in [
        ("/do_resize", json!(false), "`do_resize` is false"),
        ("/do_center_crop", json!(true), "`do_center_crop` is true"),
        (
            "/size",
            json!({"shortest_edge": 40}),
            "`size` is shortest edge to 40",
        ),
        ("/ensure_multiple_of", json!(null), "`ensure_multiple_of` is null"),
    ] {
        let copy = changed("depth_anything", &[], &[(key, value)]);
        let error = error(copy.path());
        assert!(error.contains(expected), "{key}: {error}");
    }
    let padded = [("/do_pad", json!(true)), ("/size_divisor", json!(32))];
    let error_of_padding = error(changed("depth_anything", &[], &padded).path());
    assert!(
        error_of_padding.contains("`size_divisor` is 32"),
        "{error_of_padding}"
    );
    // DPT's own encoder: the library arranges its tokens as a square.
    let wide = [("/size", json!({"height": 48, "width": 64}))];
    let error_of_wide = error(changed("dpt", &[], &wide).path());
    assert!(error_of_wide.contains("images of 48×64"), "{error_of_wide}");
}

/// Negative indices and stages by name; sizes that are no multiples are rounded.
#[test]
fn stages_and_sizes_have_the_forms_of_the_library() {
    let copy = changed(
        "depth_anything",
        &[
            ("/backbone_config/out_indices", json!([-4, -3, -2, -1])),
            ("/backbone_config/out_features", json!(null)),
        ],
        &[
            ("/do_pad", json!(true)),
            ("/size_divisor", json!(4)),
            ("/size", json!({"height": 42, "width": 38})),
        ],
    );
    let case = case("depth_anything");
    let load = |path: &Path| DepthEstimator::load(path, &Session::builder().device(Device::Cpu)).unwrap();
    let (copied, own) = (load(copy.path()), load(&case.path()));
    let images = [image("photo.jpg")];
    let size = |estimator: &DepthEstimator| estimator.preprocess().for_image(113, 151).unwrap().output_size();
    assert_eq!((size(&copied), size(&own)), ((40, 56), (40, 56)));
    assert_eq!(copied.predict(&images).unwrap(), own.predict(&images).unwrap());
    let squares = changed(
        "depth_anything",
        &[],
        &[
            ("/keep_aspect_ratio", json!(false)),
            ("/size", json!({"height": 45, "width": 27})),
        ],
    );
    assert_eq!(load(squares.path()).preprocess().output_size(), (48, 24));
    let halfway = changed(
        "depth_anything",
        &[],
        &[
            ("/keep_aspect_ratio", json!(false)),
            ("/size", json!({"height": 44, "width": 24})),
        ],
    );
    let error = error(halfway.path());
    assert!(
        error.contains("`size` is 44×24, halfway between multiples of 8"),
        "{error}"
    );
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Reads a PNG of 16 bits: width, height, values.
fn greys(path: &Path) -> (usize, usize, Vec<u16>) {
    let bytes = fs::read(path).unwrap();
    let mut reader = png::Decoder::new(Cursor::new(&bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(
        (frame.color_type, frame.bit_depth),
        (png::ColorType::Grayscale, png::BitDepth::Sixteen)
    );
    let values = pixels
        .as_chunks()
        .0
        .iter()
        .map(|&pair| u16::from_be_bytes(pair))
        .collect();
    (frame.width as usize, frame.height as usize, values)
}

#[test]
fn the_command_line_writes_depths() {
    let case = case("depth_anything_metric");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/depths");
    let images = ["small.png", "photo.jpg", "wide.png"].map(|name| at("tests/golden/images").join(name));
    let arguments = [
        "depth",
        text(&images[0]),
        text(&images[1]),
        text(&images[2]),
        "-m",
    ];
    let model = case.path();
    let more = [
        text(&model),
        "--device",
        "cpu",
        "--batch",
        "2",
        "--overlay",
        "--json",
        "-o",
        text(&out),
    ];
    let output = hipvit([&arguments[..], &more[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    let estimator = DepthEstimator::load(&model, &Session::builder().device(Device::Cpu)).unwrap();
    for (line, path) in lines.iter().zip(&images) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let decoded = image(name);
        let expected = &estimator.estimate(std::slice::from_ref(&decoded)).unwrap()[0];
        assert_eq!(
            (&line["image"], &line["metric"]),
            (&json!(text(path)), &json!(true))
        );
        assert_eq!(
            (&line["width"], &line["height"]),
            (&json!(decoded.width), &json!(decoded.height))
        );
        let saved = fs::read_to_string(out.join(format!("{stem}.depth.json"))).unwrap();
        assert_eq!(&serde_json::from_str::<Value>(&saved).unwrap(), line);
        let [min, max] = ["min", "max"].map(|key| line[key].as_f64().unwrap());
        // Cubic interpolation exceeds the largest depth a little.
        assert!(0.0 < min && min < max && max <= 22.0, "{line}");
        // The array has the depths, and the picture those between its smallest and its largest.
        let npy = fs::read(out.join(format!("{stem}.depth.npy"))).unwrap();
        let data = &npy[npy.len() - 4 * expected.len()..];
        let values: Vec<f32> = data
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect();
        assert!(
            String::from_utf8_lossy(&npy[..128])
                .contains(&format!("({}, {})", decoded.height, decoded.width))
        );
        let (width, height, greys) = greys(&out.join(format!("{stem}.depth.png")));
        assert_eq!((width, height), (decoded.width, decoded.height));
        assert!(greys.contains(&0) && greys.contains(&u16::MAX));
        for ((&value, &grey), &expected) in values.iter().zip(&greys).zip(expected) {
            assert!((value - expected).abs() <= 1e-4 * max as f32);
            let shown = min + (max - min) * f64::from(grey) / 65535.0;
            assert!((shown - f64::from(value)).abs() <= 0.6 * (max - min) / 65535.0 + 1e-6 * max);
        }
        let overlay =
            hipvit::image::open(out.join(format!("{stem}.overlay.png")), Limits::default()).unwrap();
        assert_eq!((overlay.width, overlay.height), (decoded.width, decoded.height));
        assert_ne!(overlay, decoded);
    }
    let mut names: Vec<String> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 12, "{names:?}");
}

#[test]
fn the_command_line_says_what_it_cannot_do() {
    let model = at("tests/golden/depth/onnx/model.onnx");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let small = at("tests/golden/images/small.png");
    let run = |more: &[&str]| {
        let arguments = ["depth", "--device", "cpu", "-m", text(&model), "-o", text(&out)];
        hipvit([&arguments[..], more].concat())
    };
    // An image that fails has no files, and the others have theirs. An ONNX file does not say whether depths are metric.
    let broken = folder.path().join("broken.png");
    fs::write(&broken, "no image").unwrap();
    let output = run(&[text(&broken), text(&small)]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("broken.png"), "{}", stderr(&output));
    let line = stdout(&output);
    assert!(line.starts_with(&format!("{}: 97×61, ", text(&small))), "{line}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 3);
    // Files that would replace each other, or an image.
    let twin = folder.path().join("small.jpg");
    fs::copy(at("tests/golden/images/photo.jpg"), &twin).unwrap();
    let output = run(&[text(&small), text(&twin)]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("would both write small.depth.png"),
        "{}",
        stderr(&output)
    );
    let output = run(&[text(&small), text(&out.join("small.depth.png"))]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("would replace the image"),
        "{}",
        stderr(&output)
    );
    let other = |arguments: &[&str]| {
        let output = hipvit(arguments);
        assert_ne!(output.status.code(), Some(0));
        stderr(&output).to_owned()
    };
    let error = other(&["depth", text(&small), "-o", text(&out)]);
    assert!(error.contains("the embedded model estimates no depth"), "{error}");
    let error = other(&[
        "depth",
        text(&small),
        "-o",
        text(&out),
        "-m",
        text(&at("tests/golden/hf_vit")),
    ]);
    assert!(
        error.contains("`model_type` is \"vit\", which estimates no depth"),
        "{error}"
    );
    let directory = at("tests/golden/depth/dpt");
    for command in ["classify", "embed"] {
        let error = other(&[command, text(&small), "--device", "cpu", "-m", text(&directory)]);
        assert!(error.contains("dpt estimates depth"), "{error}");
    }
    let error = other(&["explain", text(&small), "-o", text(&out), "-m", text(&directory)]);
    assert!(error.contains("dpt estimates depth"), "{error}");
    // Pixel values of several sizes are not one array.
    let tall = at("tests/golden/images/tall.png");
    let (keeps, array) = (
        at("tests/golden/depth/depth_anything"),
        folder.path().join("x.npy"),
    );
    let error = other(&[
        "preprocess",
        text(&small),
        text(&tall),
        "-m",
        text(&keeps),
        "-o",
        text(&array),
    ]);
    assert!(
        error.contains("tall.png becomes 3 × 128 × 40, and the images before 3 × 40 × 64"),
        "{error}"
    );
    assert!(!array.exists());
}

/// Linear layers of the encoder in 8 bits. Calibration images get the model's size.
#[test]
fn quantised_models_estimate_nearly_the_same() {
    let case = case("depth_anything");
    let folder = tempfile::tempdir().unwrap();
    let (out, model, images) = (folder.path().join("int8"), case.path(), at("tests/golden/images"));
    let output = hipvit([
        "quantize",
        text(&model),
        "-o",
        text(&out),
        "--calibrate",
        text(&images),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let predict = |path: &Path| {
        let builder = Session::builder().device(Device::Cpu);
        let estimator = DepthEstimator::load(path, &builder).unwrap();
        estimator.predict(&case.decoded()).unwrap()
    };
    for (got, expected) in predict(&out).iter().zip(&predict(&model)) {
        let squares = |difference: f32| f64::from(difference).powi(2);
        let error: f64 = got.iter().zip(expected).map(|(a, b)| squares(a - b)).sum();
        let whole: f64 = expected.iter().map(|&b| squares(b)).sum();
        // A step of 8 bits is 2/255 of the largest value, about 4 standard deviations: rounding changes an operand by 0.9 % (root mean square),
        // and a product of two by 1.3 %. Changes of 16 products in a row add up to 5 %; the bound is twice that.
        let error = (error / whole).sqrt();
        assert!(0.0 < error && error < 0.1, "{error}");
    }
}
