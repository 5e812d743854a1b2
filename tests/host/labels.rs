//! Class names: ImageNet's for a model without names, names from a file, and directories named by either.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use hipvit::{Labels, Session};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

/// Creates a golden timm model with 1,000 classes and these additions to its configuration. The most likely
/// classes are 207, 1, 2, 3 and 4 for every image.
fn imagenet_model(root: &Path, additions: &Value) -> PathBuf {
    let golden = at("tests/golden/timm_deit");
    let directory = root.join("imagenet");
    fs::create_dir_all(&directory).unwrap();
    let bytes = fs::read(golden.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let width = tensors.tensor("head.weight").unwrap().shape()[1];
    let weight = vec![0; 1000 * width * 4];
    let bias = |class: usize| match class {
        207 => 9.0,
        1..=4 => 5.0 - class as f32,
        _ => -1.0,
    };
    let bias: Vec<u8> = (0..1000)
        .flat_map(|class| f32::to_le_bytes(bias(class)))
        .collect();
    let head = |name: &str| match name {
        "head.weight" => Some(TensorView::new(Dtype::F32, vec![1000, width], &weight).unwrap()),
        "head.bias" => Some(TensorView::new(Dtype::F32, vec![1000], &bias).unwrap()),
        _ => None,
    };
    let all = tensors.tensors().into_iter().map(|(name, tensor)| {
        let tensor = head(&name).unwrap_or(tensor);
        (name, tensor)
    });
    safetensors::serialize_to_file(all, None, &directory.join("model.safetensors")).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(golden.join("config.json")).unwrap()).unwrap();
    config["num_classes"] = json!(1000);
    config["model_args"]["num_classes"] = json!(1000);
    for (key, value) in additions.as_object().unwrap() {
        config[key] = value.clone();
    }
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    directory
}

/// Creates a directory of images with these subdirectories.
fn images(root: &Path, names: &[&str]) -> PathBuf {
    let data = root.join("images");
    for name in names {
        fs::create_dir_all(data.join(name)).unwrap();
        fs::copy(at("assets/samples/1.png"), data.join(name).join("1.png")).unwrap();
    }
    data
}

#[test]
fn a_model_without_labels_has_imagenets_if_it_has_a_thousand_classes() {
    let root = tempfile::tempdir().unwrap();
    let model = imagenet_model(root.path(), &json!({}));
    let session = Session::load(&model).unwrap();
    assert_eq!(*session.labels(), Labels::imagenet_1k());
    let output = hipvit([
        "classify",
        at("assets/samples/1.png").to_str().unwrap(),
        "-m",
        model.to_str().unwrap(),
    ]);
    let text = stdout(&output);
    assert!(
        text.contains("golden retriever") && text.contains("goldfish, Carassius auratus"),
        "{text}"
    );

    // The model's own names take precedence; for ImageNet, timm writes only ids.
    let own: Vec<String> = (0..1000).map(|class| format!("thing {class}")).collect();
    let session = Session::load(imagenet_model(root.path(), &json!({ "label_names": own }))).unwrap();
    assert_eq!(
        (session.labels().get(207), session.labels().id(207)),
        ("thing 207", None)
    );
    let imagenet = Labels::imagenet_1k();
    let ids: Vec<&str> = (0..1000).filter_map(|class| imagenet.id(class)).collect();
    let session = Session::load(imagenet_model(root.path(), &json!({ "label_names": ids }))).unwrap();
    assert_eq!(*session.labels(), imagenet);
}

#[test]
fn a_description_leaves_the_name_as_the_id() {
    let session = Session::load(at("tests/golden/timm_vit_class_token")).unwrap();
    assert_eq!(session.labels().id(3), Some("n00000003"));
    assert_eq!(session.labels().find("n00000003").unwrap(), 3);
}

#[test]
fn labels_of_a_file_replace_the_models_and_must_be_as_many() {
    let root = tempfile::tempdir().unwrap();
    let (ten, nine) = (root.path().join("ten.txt"), root.path().join("nine.json"));
    fs::write(
        &ten,
        "null\neins\nzwei\ndrei\nvier\nfünf\nsechs\nsieben\nacht\nneun\n",
    )
    .unwrap();
    fs::write(&nine, r#"["1", "2", "3", "4", "5", "6", "7", "8", "9"]"#).unwrap();
    let run = |labels: &Path| {
        let (image, labels) = (at("assets/samples/7.png"), labels.to_str().unwrap());
        hipvit([
            "classify",
            image.to_str().unwrap(),
            "--json",
            "--top",
            "1",
            "--labels",
            labels,
        ])
    };
    let line: Value = serde_json::from_str(stdout(&run(&ten))).unwrap();
    assert_eq!(line["top"][0]["label"], "sieben");
    let output = run(&nine);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        format!(
            "error: {}: there are 9 labels, but the model has 10 classes\n",
            nine.display()
        )
    );
    let given = Session::builder()
        .labels(Labels::from_iter(["a", "b"]))
        .tinyvit32();
    assert_eq!(
        given.unwrap_err().to_string(),
        "labels: there are 2 labels, but the model has 10 classes"
    );
    let given = Session::builder()
        .labels(Labels::from_iter(["a"]))
        .load(at("tests/golden/hf_clip"));
    assert!(given.unwrap_err().to_string().contains("no classification head"));
}

fn eval(model: &Path, data: &Path, more: &[&str]) -> Output {
    let args = ["eval", data.to_str().unwrap(), "-m", model.to_str().unwrap()];
    hipvit(args.iter().chain(&["--device", "cpu"]).chain(more))
}

#[test]
fn eval_reads_the_standard_layout_of_imagenet() {
    let root = tempfile::tempdir().unwrap();
    let model = imagenet_model(root.path(), &json!({}));
    // By id, by index, by label and by one of its synonyms: right, among the five, not among them.
    let data = images(
        root.path(),
        &["n02099601", "3", "goldfish, Carassius auratus", "stingray"],
    );
    let output = eval(&model, &data, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(
        (&result["images"], &result["correct"], &result["correct_top5"]),
        (&4.into(), &1.into(), &3.into())
    );
    assert_eq!(
        (&result["accuracy"], &result["accuracy_top5"]),
        (&0.25.into(), &0.75.into())
    );
    assert_eq!(result["classes"][0]["id"], "n01443537");
    assert_eq!(result["classes"][2]["correct_top5"], 0);
    assert!(result.get("skipped").is_none());
    let table = eval(&model, &data, &[]);
    let lines: Vec<&str> = stdout(&table).lines().collect();
    assert!(lines[0].ends_with("images    top-1    top-5"), "{lines:?}");
    assert!(
        lines[1].starts_with("n01443537 goldfish, Carassius auratus"),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    assert_eq!(lines.last().unwrap(), &"accuracy: top-1 25.00 %, top-5 75.00 %");
}

#[test]
fn an_unknown_directory_is_an_error_or_skipped_or_mapped() {
    let root = tempfile::tempdir().unwrap();
    let model = imagenet_model(root.path(), &json!({}));
    let data = images(root.path(), &["n02099601", "golden_retreiver", "my fish"]);
    let eval = |more: &[&str]| eval(&model, &data, &[&["--json"], more].concat());
    let output = eval(&[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    for part in [
        "images/golden_retreiver: \"golden_retreiver\" is not one of the model's 1000 classes",
        "an id such as n01440764",
        "near it: \"golden retriever\"",
        "(and 1 more like it)",
        "--class-map",
        "--skip-unknown",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(text.lines().count(), 1, "{text}");

    let output = eval(&["--skip-unknown"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stderr(&output)
            .lines()
            .filter(|line| line.starts_with("note: skipped: "))
            .count(),
        2
    );
    let result: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&result["images"], &result["correct"]), (&1.into(), &1.into()));
    assert_eq!(result["skipped"].as_array().unwrap().len(), 2);

    let map = root.path().join("map.tsv");
    fs::write(
        &map,
        "golden_retreiver\t207\nmy fish\ttench\nn02099601\tn02099601\n",
    )
    .unwrap();
    let output = eval(&["--class-map", map.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&result["images"], &result["correct"]), (&3.into(), &2.into()));
    fs::write(&map, "my fish\ttench\nn02099601\tn02099601\n").unwrap();
    let output = eval(&["--class-map", map.to_str().unwrap()]);
    assert!(
        stderr(&output).contains("map.tsv does not have \"golden_retreiver\""),
        "{}",
        stderr(&output)
    );

    let heldout = at("assets/digits/heldout.safetensors");
    let output = hipvit(["eval", heldout.to_str().unwrap(), "--skip-unknown"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn inspect_says_where_the_labels_come_from() {
    let root = tempfile::tempdir().unwrap();
    let imagenet = imagenet_model(root.path(), &json!({}));
    let own: Vec<String> = (0..1000).map(|class| format!("own {class}")).collect();
    let named = imagenet_model(&root.path().join("named"), &json!({ "label_names": own }));
    let file = root.path().join("names.txt");
    fs::write(&file, own.join("\n")).unwrap();
    let inspect = |model: &Path, more: &[&str]| {
        let output = hipvit(["inspect", model.to_str().unwrap(), "--json"].iter().chain(more));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report: Value = serde_json::from_str(stdout(&output)).unwrap();
        report["labels"].as_str().unwrap_or("").to_owned()
    };
    let file = file.to_str().unwrap();
    assert_eq!(inspect(&imagenet, &[]), "ImageNet-1k's, in timm's order");
    assert_eq!(inspect(&named, &[]), "the model's own");
    assert_eq!(inspect(&imagenet, &["--labels", file]), file);
    assert_eq!(
        inspect(&at("tests/golden/timm_deit"), &[]),
        "none: the classes are numbered"
    );
    // A model without classes.
    assert_eq!(inspect(&at("tests/golden/hf_clip"), &[]), "");
    let refused = hipvit(["inspect", "--labels", file]);
    assert_eq!(refused.status.code(), Some(1));
    let text = stderr(&refused);
    assert!(
        text.contains("there are 1000 labels, but the model has 10 classes"),
        "{text}"
    );
}
