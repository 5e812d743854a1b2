use std::sync::Arc;

use ndarray::array;

use super::*;
use crate::scheduler::{BatchResults, Explained};
use hipvit::image::RgbImage;
use hipvit::labels::Labels;
use hipvit::outputs::{self, Scores};

fn model() -> (Outputs, Vec<ImageResult>) {
    let labels = Labels::from_iter(["cat", "dog", "a:b"]);
    let results = outputs::Outputs {
        labels,
        scores: Scores::Sigmoid,
        prefix_tokens: 1,
        grid: None,
        embeddings: array![[1.0, 2.0], [3.0, 4.0]],
        logits: Some(array![[0.0, 3.0, -1.0], [5.0, 1.0, 2.5]]),
        tokens: None,
        hidden_layers: Vec::new(),
        attention_statistics: Vec::new(),
    };
    let results = Arc::new(BatchResults::Outputs(Box::new(results)));
    let model = Outputs {
        classes: Some(3),
        embedding: 2,
        patch_tokens: None,
        explanation: None,
        texts: false,
    };
    // Results out of order, as in batches.
    let images = [1, 0].map(|row| ImageResult::new(results.clone(), row));
    (model, images.to_vec())
}

const IMAGES: Given = Given {
    images: true,
    texts: false,
};

fn of(images: &[ImageResult]) -> Results<'_> {
    Results {
        images,
        ..Results::default()
    }
}

fn none() -> Parameters {
    Parameters::default()
}

fn requested(name: &str, parameters: serde_json::Value) -> RequestedOutput {
    let serde_json::Value::Object(map) = parameters else {
        panic!()
    };
    RequestedOutput {
        name: name.into(),
        parameters: map.into(),
    }
}

#[test]
fn without_names_all_outputs_are_written() {
    let (model, images) = model();
    let tensors = model.write(&model.select(&[], &none(), IMAGES).unwrap(), of(&images));
    let names: Vec<_> = tensors.iter().map(|t| (&*t.name, t.shape.clone())).collect();
    assert_eq!(
        names,
        [
            ("logits", vec![2, 3]),
            ("top", vec![2, 3]),
            ("embedding", vec![2, 2])
        ]
    );
    assert_eq!(
        tensors[0].data,
        OutputData::Fp32(vec![5.0, 1.0, 2.5, 0.0, 3.0, -1.0])
    );
    assert_eq!(tensors[2].data, OutputData::Fp32(vec![3.0, 4.0, 1.0, 2.0]));
}

#[test]
fn classes_are_written_as_tritons_classification_extension_has_them() {
    let (model, images) = model();
    let wanted = [
        requested("logits", serde_json::json!({"classification": 2})),
        requested("top", serde_json::json!({"k": 1})),
    ];
    let tensors = model.write(&model.select(&wanted, &none(), IMAGES).unwrap(), of(&images));
    let OutputData::Bytes(classes) = &tensors[0].data else {
        panic!()
    };
    assert_eq!(classes, &["5:0:cat", "2.5:2:a:b", "3:1:dog", "0:0:cat"]);
    assert_eq!(tensors[0].shape, [2, 2]);
    let OutputData::Bytes(top) = &tensors[1].data else {
        panic!()
    };
    assert_eq!(top.len(), 2);
    assert!(
        top[0].starts_with("0.9933") && top[0].ends_with(":0:cat"),
        "{top:?}"
    );
    // A number above the number of classes selects all.
    let all = [requested("top", serde_json::json!({"k": 99}))];
    assert_eq!(
        model.write(&model.select(&all, &none(), IMAGES).unwrap(), of(&images))[0].shape,
        [2, 3]
    );
}

#[test]
fn explanations_are_written_for_those_who_name_them() {
    let (mut model, images) = model();
    model.explanation = Some([1, 2]);
    let explained = |map, grey| Explained {
        map,
        resized: Some(RgbImage::new(2, 1, vec![grey; 6]).unwrap()),
    };
    let explanations = vec![
        explained(array![[1.0, 2.0]], 10),
        explained(array![[3.0, 4.0]], 20),
    ];
    let batch = Arc::new(BatchResults::Explanations(explanations));
    let explained_images = [1, 0].map(|row| ImageResult::new(batch.clone(), row));

    assert!(
        model
            .select(&[], &none(), IMAGES)
            .unwrap()
            .iter()
            .all(|output| output.name != EXPLANATION)
    );
    let wanted = [
        requested(
            "explanation",
            serde_json::json!({"class": 2, "method": "conservative"}),
        ),
        requested("embedding", serde_json::json!({})),
    ];
    let selected = model.select(&wanted, &none(), IMAGES).unwrap();
    let options = |selected: &Selected| match selected.to_explain() {
        Some(Explain::Pixels(options)) => (options.class, options.method),
        other => panic!("{other:?}"),
    };
    assert_eq!(options(&selected[0]), (Some(2), Method::Conservative));
    assert!(selected[1].to_explain().is_none());
    let tensors = model.write(
        &selected,
        Results {
            explained: &explained_images,
            ..of(&images)
        },
    );
    assert_eq!(tensors[0].shape, [2, 1, 2]);
    assert_eq!(tensors[0].data, OutputData::Fp32(vec![3.0, 4.0, 1.0, 2.0]));
    assert_eq!(tensors[1].data, OutputData::Fp32(vec![3.0, 4.0, 1.0, 2.0]));

    let resized = requested("resized", serde_json::json!({}));
    let alone = model.select(std::slice::from_ref(&resized), &none(), IMAGES);
    assert_eq!(
        alone.unwrap_err().message(),
        "output `resized`: comes with the output `explanation`. Name that, too"
    );
    let rollout = requested("explanation", serde_json::json!({"method": "rollout"}));
    let selected = model.select(&[rollout, resized], &none(), IMAGES).unwrap();
    assert!(matches!(selected[0].to_explain(), Some(Explain::Rollout)));
    let tensors = model.write(
        &selected,
        Results {
            explained: &explained_images,
            ..of(&images)
        },
    );
    assert_eq!(tensors[1].shape, [2, 1, 2, 3]);
    assert_eq!(tensors[1].data, OutputData::Uint8([[20; 6], [10; 6]].concat()));

    let of_request = serde_json::json!({"class": 1, "method": "conservative"});
    let serde_json::Value::Object(of_request) = of_request else {
        panic!()
    };
    let output = requested("explanation", serde_json::json!({"method": "attnlrp"}));
    let selected = model.select(&[output], &of_request.into(), IMAGES).unwrap();
    assert_eq!(options(&selected[0]), (Some(1), Method::AttnLrp));
    let twice = [&wanted[0], &wanted[0]].map(Clone::clone);
    let twice = model.select(&twice, &none(), IMAGES).unwrap_err();
    assert!(twice.message().contains("more than once"), "{twice}");
    let error = |model: &Outputs, parameters| {
        let failure = model.select(&[requested("explanation", parameters)], &none(), IMAGES);
        failure.unwrap_err().message().to_owned()
    };
    assert_eq!(
        error(&model, serde_json::json!({"class": 3})),
        "output `explanation`: parameter `class`: 3 is not one of the model's 3, counted from 0"
    );
    assert_eq!(
        error(&model, serde_json::json!({"method": "integrated-gradients"})),
        "output `explanation`: parameter `method`: \"integrated-gradients\" is not one of attnlrp, conservative, rollout"
    );
    assert_eq!(
        error(&model, serde_json::json!({"method": "rollout", "class": 1})),
        "output `explanation`: parameter `class`: attention rollout is the same for all classes. Leave the class out"
    );
    model.classes = None;
    assert_eq!(
        error(&model, serde_json::json!({"class": 0})),
        "output `explanation`: parameter `class`: the model has no classification head"
    );
    model.explanation = None;
    assert!(error(&model, serde_json::json!({})).contains("--explanation"));
}

#[test]
fn an_unknown_output_is_named() {
    let (model, _) = model();
    let error = |name, parameters| {
        model
            .select(&[requested(name, parameters)], &none(), IMAGES)
            .unwrap_err()
    };
    assert_eq!(
        error("logit", serde_json::json!({})).message(),
        "output `logit`: the model has no such output; it has `logits`, `top`, `embedding`"
    );
    assert!(
        error("patch_tokens", serde_json::json!({}))
            .message()
            .contains("--tokens")
    );
    assert_eq!(
        error("top", serde_json::json!({"k": "all"})).message(),
        "output `top`: parameter `k`: \"all\" is not a whole number, at least 0"
    );
}

#[test]
fn parameters_of_other_outputs_are_refused_by_name() {
    let (model, _) = model();
    for (name, parameters, expected) in [
        (
            "embedding",
            serde_json::json!({"classification": 2}),
            "parameter `classification` is for",
        ),
        (
            "logits",
            serde_json::json!({"k": 2}),
            "parameter `k` is for the output `top`",
        ),
        (
            "top",
            serde_json::json!({"class": 2}),
            "parameter `class` is for the output `explanation`",
        ),
        (
            "top",
            serde_json::json!({"shared_memory_region": "r"}),
            "parameter `shared_memory_region`",
        ),
    ] {
        let error = model
            .select(&[requested(name, parameters)], &none(), IMAGES)
            .unwrap_err();
        let expected = format!("output `{name}`: {expected}");
        assert!(error.message().starts_with(&expected), "{error}");
    }
    // tritonclient's way to request no classification.
    let zero = requested(
        "embedding",
        serde_json::json!({"classification": 0, "binary_data": true}),
    );
    assert!(model.select(&[zero], &none(), IMAGES).is_ok());
    let many = vec![requested("embedding", serde_json::json!({})); MAX_TENSORS + 1];
    let error = model.select(&many, &none(), IMAGES).unwrap_err();
    assert!(error.message().contains("names 17 outputs"), "{error}");
}

#[test]
fn outputs_of_texts_need_texts() {
    let (mut model, _) = model();
    model.classes = None;
    model.texts = true;
    let names = |given| {
        let selected = model.select(&[], &none(), given).unwrap();
        selected.iter().map(|output| output.name).collect::<Vec<_>>()
    };
    assert_eq!(names(IMAGES), ["embedding"]);
    let texts = Given {
        images: false,
        texts: true,
    };
    assert_eq!(names(texts), ["embedding"]);
    let both = Given {
        images: true,
        texts: true,
    };
    assert_eq!(
        names(both),
        ["logits", "probabilities", "top", "embedding", "text_embedding"]
    );
    for (name, given) in [
        ("text_embedding", IMAGES),
        ("logits", IMAGES),
        ("probabilities", IMAGES),
        ("top", texts),
    ] {
        let wanted = [requested(name, serde_json::json!({}))];
        let error = model.select(&wanted, &none(), given).unwrap_err();
        assert!(
            error.message().starts_with(&format!("output `{name}`: needs")),
            "{error}"
        );
    }
    let labels = vec!["a".repeat(1000); 10];
    let all = [requested("top", serde_json::json!({"k": 10}))];
    let selected = model.select(&all, &none(), both).unwrap();
    let check = |selected: &[Selected], images| {
        let rows = Rows {
            images,
            texts: 10,
            labels: Some(&labels),
        };
        model.check_size(selected, rows, 30_000)
    };
    assert!(check(&selected, 2).is_ok());
    assert!(check(&selected, 3).is_err());
    // Each output is small enough, but not both together.
    let second = [requested("logits", serde_json::json!({"classification": 10}))];
    let selected = model.select(&[all, second].concat(), &none(), both).unwrap();
    assert!(check(&selected, 2).is_err());
}

#[test]
fn an_output_is_named_once() {
    let (model, _) = model();
    let wanted = ["logits", "embedding", "logits"].map(|name| requested(name, serde_json::json!({})));
    let failure = model.select(&wanted, &none(), IMAGES).unwrap_err();
    assert_eq!(
        failure.message(),
        "output `logits`: is named more than once. Name each output once"
    );
    let unknown = vec![requested("x", serde_json::json!({})); 16];
    let failure = model.select(&unknown, &none(), IMAGES).unwrap_err();
    assert!(failure.message().contains("more than once"), "{failure}");
}

#[test]
fn every_output_counts_before_it_is_computed() {
    let (mut model, _) = model();
    model.patch_tokens = Some([100, 10]);
    model.explanation = Some([30, 20]);
    let size = |name: &str, most: usize| {
        let selected = model.select(&[requested(name, serde_json::json!({}))], &none(), IMAGES);
        let rows = Rows {
            images: 7,
            ..Rows::default()
        };
        model.check_size(&selected.unwrap(), rows, most)
    };
    for (name, bytes) in [
        ("logits", 7 * 3 * 4),
        ("embedding", 7 * 2 * 4),
        ("patch_tokens", 7 * 1000 * 4),
        ("explanation", 7 * 600 * 4),
    ] {
        assert_eq!(size(name, bytes), Ok(bytes));
        let failure = size(name, bytes - 1).unwrap_err();
        assert!(
            failure
                .message()
                .starts_with(&format!("output `{name}`: the outputs")),
            "{failure}"
        );
    }
}
