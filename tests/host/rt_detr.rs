//! RT-DETR beside transformers on the CPU, and directories that are refused.

use std::ffi::OsStr;
use std::fs;

use hipvit::detect::Detector;
use hipvit::{DType, Device, Session};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};
use crate::support::rt_detr::{case, cases};

fn load(path: &std::path::Path) -> hipvit::Result<Detector> {
    Detector::load(path, &Session::builder().device(Device::Cpu))
}

#[test]
fn queries_and_objects_are_those_of_transformers_in_every_dtype() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for case in cases() {
            case.check(Device::Cpu, dtype);
        }
    }
}

/// Copies a case with changes to its configuration and its processor, by JSON pointer.
fn changed(name: &'static str, config: &[(&str, Value)], processor: &[(&str, Value)]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = case(name).path();
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
    let refused: [(&str, Value, &str); 22] = [
        (
            "/model_type",
            json!("detr"),
            "`model_type` is \"detr\"; directories of detectors",
        ),
        (
            "/architectures",
            json!(["RTDetrModel"]),
            "`architectures` is \"RTDetrModel\"",
        ),
        ("/architectures", json!(null), "`architectures` is missing"),
        (
            "/quantization_config",
            json!({}),
            "`quantization_config` is not supported",
        ),
        ("/backbone", json!("resnet50"), "`backbone` is not supported"),
        (
            "/backbone_config/model_type",
            json!("resnet"),
            "`backbone_config.model_type` is \"resnet\"",
        ),
        (
            "/backbone_config/num_channels",
            json!(1),
            "`backbone_config.num_channels` is 1",
        ),
        (
            "/backbone_config/layer_type",
            json!("other"),
            "`backbone_config.layer_type` is \"other\"",
        ),
        (
            "/backbone_config/depths",
            json!([1, 1]),
            "`backbone_config.depths` has 2 stages",
        ),
        (
            "/backbone_config/hidden_sizes",
            json!([16, 18, 24, 32]),
            "no multiple of 4",
        ),
        (
            "/backbone_config/hidden_act",
            json!("mish"),
            "`backbone_config.hidden_act` is \"mish\"",
        ),
        (
            "/backbone_config/out_features",
            json!(["stage3", "stage2"]),
            "in order",
        ),
        (
            "/encoder_in_channels",
            json!([16, 24]),
            "`encoder_in_channels` has 2 maps",
        ),
        (
            "/encoder_attention_heads",
            json!(3),
            "`encoder_attention_heads` is 3",
        ),
        ("/encode_proj_layers", json!([3]), "`encode_proj_layers` has 3"),
        (
            "/hidden_expansion",
            json!(0.01),
            "`hidden_expansion` leaves no channels",
        ),
        (
            "/decoder_in_channels",
            json!([16, 16, 8]),
            "`decoder_in_channels` is [16, 16, 8]",
        ),
        (
            "/num_feature_levels",
            json!(2),
            "`num_feature_levels` is 2, expected 3 to 8",
        ),
        (
            "/learn_initial_query",
            json!(true),
            "`learn_initial_query` is true",
        ),
        (
            "/anchor_image_size",
            json!([640, 640]),
            "`anchor_image_size` is 640×640, but images are resized to 64×96",
        ),
        ("/layer_norm_eps", json!(0.0), "`layer_norm_eps` is 0"),
        ("/id2label", json!({}), "`id2label` names no class"),
    ];
    for (key, value, expected) in refused {
        let copy = changed("rt_detr", &[(key, value)], &[]);
        let error = load(copy.path()).unwrap_err().to_string();
        assert!(
            error.contains("config.json") && error.contains(expected),
            "{key}: {error}"
        );
    }
    let of_v2: [(&str, Value, &str); 3] = [
        ("/decoder_n_levels", json!(2), "`decoder_n_levels` is 2"),
        ("/decoder_method", json!("cubic"), "`decoder_method` is \"cubic\""),
        (
            "/decoder_n_points",
            json!([4, 4, 4]),
            "`decoder_n_points` is [4,4,4]",
        ),
    ];
    for (key, value, expected) in of_v2 {
        let copy = changed("rt_detr_v2", &[(key, value)], &[]);
        let error = load(copy.path()).unwrap_err().to_string();
        assert!(
            error.contains("config.json") && error.contains(expected),
            "{key}: {error}"
        );
    }
    let copy = changed("rt_detr", &[("/num_queries", json!(127))], &[]);
    let error = load(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("`num_queries` is 127") && error.contains("126 pixels"),
        "{error}"
    );
    let copy = changed("rt_detr", &[], &[("/size", json!({"height": 64, "width": 80}))]);
    let error = load(copy.path()).unwrap_err().to_string();
    assert!(error.contains("`size`") && error.contains("64×80"), "{error}");
}

/// Tensors that have no place, that are missing, and a factor of points that the op does not have.
#[test]
fn weights_must_fit_the_configuration() {
    let copy = changed("rt_detr", &[("/decoder_layers", json!(1))], &[]);
    let error = load(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("model.decoder.bbox_embed.1.") && error.contains("is unexpected"),
        "{error}"
    );
    let copy = changed("rt_detr", &[("/decoder_layers", json!(3))], &[]);
    let error = load(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("model.decoder.layers.2.") && error.contains("is missing"),
        "{error}"
    );

    let copy = changed("rt_detr_v2", &[], &[]);
    let file = copy.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let name = "model.decoder.layers.1.encoder_attn.n_points_scale";
    let mut scales = tensors.tensor(name).unwrap().data().to_vec();
    scales[..4].copy_from_slice(&0.5f32.to_le_bytes());
    let views = tensors.tensors().into_iter().map(|(other, view)| {
        let data = if other == name {
            scales.clone()
        } else {
            view.data().to_vec()
        };
        let shape = view.shape().to_vec();
        (other, (view.dtype(), shape, data))
    });
    let views: Vec<_> = views.collect();
    let views = views.iter().map(|(name, (dtype, shape, data))| {
        (
            name,
            safetensors::tensor::TensorView::new(*dtype, shape.clone(), data).unwrap(),
        )
    });
    let written = safetensors::serialize(views, None).unwrap();
    fs::write(&file, written).unwrap();
    let error = load(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains(name) && error.contains("has the factor 0.5"),
        "{error}"
    );
}

#[test]
fn other_commands_and_options_are_refused() {
    let path = case("rt_detr").path();
    let error = Session::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("is \"rt_detr\"") && error.contains("use `hipvit detect` or Detector"),
        "{error}"
    );
    let error = Detector::load(&path, &Session::builder().tokens(true))
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not an option of RT-DETR"), "{error}");
    let error = load(&at("tests/golden/timm_vit_class_token"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("detects no objects"), "{error}");
    let detector = load(&path).unwrap();
    let error = detector
        .session()
        .run(case("rt_detr").decoded())
        .unwrap_err()
        .to_string();
    assert!(error.contains("detects objects"), "{error}");
    let reasons: Vec<&str> = detector
        .session()
        .info()
        .ignored
        .iter()
        .map(|ignored| ignored.reason)
        .collect();
    assert!(
        reasons.contains(&"only the classes of the last layer are an output"),
        "{reasons:?}"
    );
}

/// Another size than the processor's, by the option.
#[test]
fn images_of_another_size_are_detected_in() {
    let case = case("rt_detr");
    let builder = Session::builder().device(Device::Cpu).image_size([96, 32]);
    let detector = Detector::load(case.path(), &builder).unwrap();
    assert_eq!(detector.preprocess().output_size(), (96, 32));
    let queries = detector.session().info().tokens;
    assert_eq!(detector.detect(&case.decoded(), 0.0).unwrap()[1].len(), queries);
    let error = Detector::load(case.path(), &builder.image_size([96, 40]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("96×40"), "{error}");
}

#[test]
fn the_command_line_loads_directories() {
    let case = case("rt_detr");
    let (image, model) = (at("tests/golden/images/wide.png"), case.path());
    let threshold = case.threshold.to_string();
    let output = hipvit(
        [
            OsStr::new("detect"),
            image.as_os_str(),
            OsStr::new("-m"),
            model.as_os_str(),
        ]
        .into_iter()
        .chain(["--device", "cpu", "--json", "--threshold", &threshold].map(OsStr::new)),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let printed: Value = serde_json::from_str(stdout(&output)).unwrap();
    let expected = &case.images["wide.png"];
    let objects = printed["objects"].as_array().unwrap();
    assert_eq!(objects.len(), expected.len());
    for (object, expected) in objects.iter().zip(expected) {
        assert_eq!(object["class"], expected.label);
        assert_eq!(object["label"], format!("thing {}", expected.label));
    }
}
