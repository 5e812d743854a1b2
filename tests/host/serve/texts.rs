//! CLIP and SigLIP with both towers: embeddings of texts, and images classified by texts, equal those of the
//! reference libraries.

use hipvit::ndarray::{Array2, ArrayView2, s};
use hipvit::{Device, Session};
use hipvit_serve::{ModelSource, ServerOptions};
use serde_json::{Value, json};

use crate::support::at;
use crate::support::server::grpc::{block_on, client};
use crate::support::server::{Response, Running, base64, floats, options, tensor};
use crate::support::zero_shot::{Golden, directory, expected as golden_value, golden};

const CASES: [&str; 4] = ["hf_clip", "open_clip", "hf_siglip", "hf_siglip2"];

fn server(case: &str, change: impl FnOnce(&mut ServerOptions)) -> Running {
    let mut options = options();
    options.models = vec![ModelSource::new("clip", directory(case))];
    change(&mut options);
    Running::new(options)
}

fn text_input(texts: &[impl AsRef<str>]) -> Value {
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    json!({"name": "text", "shape": [texts.len()], "datatype": "BYTES", "data": texts})
}

fn image_input(golden: &Golden) -> Value {
    let file = |name: &String| base64(&std::fs::read(at("tests/golden/images").join(name)).unwrap());
    let images: Vec<String> = golden.images.iter().map(file).collect();
    json!({"name": "image", "shape": [images.len()], "datatype": "BYTES", "data": images})
}

fn infer(running: &Running, body: &Value) -> Response {
    running.post("/v2/models/clip/infer", &[], body.to_string().as_bytes())
}

fn matrix(response: &Value, name: &str) -> Array2<f32> {
    let shape = &tensor(response, name)["shape"];
    let side = |index: usize| shape[index].as_u64().unwrap() as usize;
    Array2::from_shape_vec((side(0), side(1)), floats(response, name)).unwrap()
}

/// Checks that the differences are within `tolerance` of the largest value.
#[track_caller]
fn check(case: &str, got: ArrayView2<'_, f32>, expected: ArrayView2<'_, f64>, tolerance: f64) {
    assert_eq!(got.dim(), expected.dim(), "{case}");
    let largest = expected
        .iter()
        .fold(0.0_f64, |largest, value| largest.max(value.abs()));
    for (got, expected) in got.iter().zip(&expected) {
        let error = (f64::from(*got) - expected).abs() / largest;
        assert!(error <= tolerance, "{case}: {got}, expected {expected}");
    }
}

#[test]
fn embeddings_of_texts_are_those_of_the_libraries() {
    for case in CASES {
        let running = server(case, |options| options.max_batch = 2);
        let golden = golden(case);
        let expected = golden_value(case, "text_embeds");
        let response = infer(&running, &json!({"inputs": [text_input(&golden.texts)]}));
        assert_eq!(response.status, 200, "{}", response.text());
        let response = response.json();
        check(case, matrix(&response, "embedding").view(), expected.view(), 2e-5);
        // The last text is longer than the context.
        let last = golden.texts.len() - 1;
        let truncated = response["parameters"]["truncated"].as_str().unwrap();
        assert_eq!(
            truncated.rsplit(',').next(),
            Some(last.to_string().as_str()),
            "{case}"
        );
        // A text alone has the same embedding, though fewer tokens run.
        let alone = infer(&running, &json!({"inputs": [text_input(&golden.texts[..1])]})).json();
        check(
            case,
            matrix(&alone, "embedding").view(),
            expected.slice(s![..1, ..]),
            2e-5,
        );
        assert!(alone.get("parameters").is_none(), "{case}: {alone}");

        let body = json!({"model": "clip", "input": golden.texts});
        let response = running.post("/v1/embeddings", &[], body.to_string().as_bytes());
        assert_eq!(response.status, 200, "{}", response.text());
        let response = response.json();
        let rows = response["data"].as_array().unwrap().iter();
        let values = rows.flat_map(|row| row["embedding"].as_array().unwrap());
        let values: Vec<f32> = values.map(|x| x.to_string().parse().unwrap()).collect();
        let values = Array2::from_shape_vec(expected.dim(), values).unwrap();
        check(case, values.view(), expected.view(), 2e-5);
        assert!(response["usage"]["prompt_tokens"].as_u64().unwrap() > last as u64);
        assert_eq!(
            response["truncated"].as_array().unwrap().last(),
            Some(&json!(last))
        );
        let count = 2.0 * golden.texts.len() as f64 + 1.0;
        assert_eq!(running.metric(r#"hipvit_texts_total{model="clip"}"#), count);
        assert_eq!(running.metric(r#"hipvit_images_total{model="clip"}"#), 0.0);
    }
}

#[test]
fn images_are_classified_by_texts() {
    for case in CASES {
        let running = server(case, |_| {});
        let golden = golden(case);
        let expected = golden_value(case, "logits_per_image");
        let body = json!({"inputs": [image_input(&golden), text_input(&golden.texts)]});
        let response = infer(&running, &body);
        assert_eq!(response.status, 200, "{}", response.text());
        let response = response.json();
        let logits = matrix(&response, "logits");
        check(case, logits.view(), expected.view(), 1e-4);
        let probabilities = matrix(&response, "probabilities");
        for (row, logits) in probabilities.rows().into_iter().zip(logits.rows()) {
            let exp = logits.mapv(|x| f64::from(x).exp());
            let sum: f64 = exp.sum();
            for ((got, exp), logit) in row.iter().zip(&exp).zip(&logits) {
                let wanted = if case.contains("siglip") {
                    1.0 / (1.0 + (-f64::from(*logit)).exp())
                } else {
                    exp / sum
                };
                assert!((f64::from(*got) - wanted).abs() < 1e-6, "{case}: {got} {wanted}");
            }
        }
        let top = tensor(&response, "top");
        let k = golden.texts.len().min(5);
        assert_eq!(top["shape"], json!([golden.images.len(), k]));
        let best = top["data"][0]
            .as_str()
            .unwrap()
            .splitn(3, ':')
            .collect::<Vec<_>>();
        let row = logits.row(0);
        let largest = row.iter().fold(f32::MIN, |a, &b| a.max(b));
        let index = row.iter().position(|&x| x == largest).unwrap();
        assert_eq!(
            (best[1], best[2]),
            (index.to_string().as_str(), golden.texts[index].as_str())
        );
        check(
            case,
            matrix(&response, "text_embedding").view(),
            golden_value(case, "text_embeds").view(),
            2e-5,
        );
        assert_eq!(tensor(&response, "embedding")["shape"][0], golden.images.len());
    }
}

/// The server gives the bits of the library.
#[test]
fn templates_are_ensembled_as_by_the_session() {
    let case = "hf_clip";
    let running = server(case, |_| {});
    let golden = golden(case);
    let body = json!({
        "inputs": [text_input(&golden.labels), image_input(&golden)],
        "parameters": {"template": golden.templates.join("\n")},
        "outputs": [{"name": "logits"}, {"name": "text_embedding"}],
    });
    let response = infer(&running, &body);
    assert_eq!(response.status, 200, "{}", response.text());
    let response = response.json();
    let session = Session::builder()
        .device(Device::Cpu)
        .load(directory(case))
        .unwrap();
    let options = hipvit::ZeroShotOptions::new().templates(&golden.templates);
    let zero_shot = session.zero_shot_with(&golden.labels, &options).unwrap();
    // Both towers are one instance.
    let instances = "hipvit_instances{model=\"clip\",device=\"cpu\"}";
    assert_eq!(running.metric(instances), 1.0);
    let logits = zero_shot
        .classify(crate::support::zero_shot::images(&golden))
        .unwrap();
    let logits = logits.logits().unwrap().mapv(f64::from);
    check(case, matrix(&response, "logits").view(), logits.view(), 1e-5);
    let embeddings = zero_shot.embeddings().mapv(f64::from);
    check(
        case,
        matrix(&response, "text_embedding").view(),
        embeddings.view(),
        1e-5,
    );
}

#[test]
fn texts_and_images_of_one_embeddings_request_keep_their_order() {
    let running = server("hf_clip", |_| {});
    let golden = golden("hf_clip");
    let file = std::fs::read(at("tests/golden/images").join(&golden.images[0])).unwrap();
    let image = format!("data:image/png;base64,{}", base64(&file));
    let one = |input: Value| {
        let body = json!({"model": "clip", "input": input});
        let response = running.post("/v1/embeddings", &[], body.to_string().as_bytes());
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()["data"].clone()
    };
    let mixed = one(json!([golden.texts[0], {"image_url": {"url": image}}, {"text": golden.texts[1]}]));
    assert_eq!(mixed.as_array().unwrap().len(), 3);
    for (index, input) in [json!(golden.texts[0]), json!(image), json!(golden.texts[1])]
        .into_iter()
        .enumerate()
    {
        assert_eq!(mixed[index]["index"], index);
        let alone = one(input);
        let floats = |value: &Value| -> Vec<f64> {
            value["embedding"]
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_f64().unwrap())
                .collect()
        };
        for (together, alone) in floats(&mixed[index]).iter().zip(floats(&alone[0])) {
            assert!((together - alone).abs() < 1e-4, "{index}: {together} {alone}");
        }
    }
}

#[test]
fn metadata_has_texts_where_the_model_takes_them() {
    let running = server("hf_siglip", |_| {});
    let model = running.get("/v2/models/clip").json();
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|tensor| tensor["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&model["inputs"]), ["image", "pixels", "text"]);
    let outputs = ["logits", "probabilities", "top", "embedding", "text_embedding"];
    assert_eq!(names(&model["outputs"]), outputs);

    let without = server("hf_siglip", |options| options.texts = false);
    let model = without.get("/v2/models/clip").json();
    assert_eq!(names(&model["inputs"]), ["image", "pixels"]);
    let (status, message) = infer(&without, &json!({"inputs": [text_input(&["a"])]})).error();
    assert_eq!(
        (status, message.as_str()),
        (400, "input `text`: the server was started with --no-texts")
    );
}

/// A folder with only the files for images is served as before.
#[test]
fn a_model_without_a_tokenizer_takes_images() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "preprocessor_config.json"] {
        std::fs::copy(directory("hf_clip").join(file), folder.path().join(file)).unwrap();
    }
    let mut options = options();
    options.models = vec![ModelSource::new("clip", folder.path())];
    let running = Running::new(options);
    let golden = golden("hf_clip");
    assert_eq!(
        infer(&running, &json!({"inputs": [image_input(&golden)]})).status,
        200
    );
    let (status, message) = infer(&running, &json!({"inputs": [text_input(&["a"])]})).error();
    assert_eq!(status, 400);
    assert!(
        message.starts_with("input `text`: the model takes no texts: ") && message.contains("tokenizer"),
        "{message}"
    );
}

#[test]
fn wrong_texts_are_refused_by_name() {
    let running = server("hf_clip", |options| options.queue = 8);
    let golden = golden("hf_clip");
    let error = |body: Value| infer(&running, &body).error();
    let with = |inputs: Vec<Value>, more: Value| {
        let mut body = json!({"inputs": inputs});
        more.as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| body[key] = value.clone());
        error(body)
    };
    for (inputs, more, expected) in [
        (
            vec![text_input(&["a"])],
            json!({"outputs": [{"name": "logits"}]}),
            "output `logits`: needs images and",
        ),
        (
            vec![image_input(&golden)],
            json!({"outputs": [{"name": "text_embedding"}]}),
            "output `text_embedding`: needs the",
        ),
        (
            vec![image_input(&golden)],
            json!({"outputs": [{"name": "top"}]}),
            "output `top`: needs images and",
        ),
        (
            vec![text_input(&["a"])],
            json!({"parameters": {"template": "a {}"}}),
            "parameter `template` is for requests",
        ),
        (
            vec![image_input(&golden)],
            json!({"parameters": {"template": "a {}"}}),
            "parameter `template` is for requests",
        ),
        (
            vec![image_input(&golden), text_input(&["a"])],
            json!({"parameters": {"template": "no place"}}),
            "input `text`: template: ",
        ),
        (
            vec![image_input(&golden), text_input(&["a", " "])],
            json!({}),
            "input `text`: labels: label 1",
        ),
        (vec![text_input(&["a"; 9])], json!({}), "the request has 9 "),
        (
            vec![image_input(&golden), text_input(&["a"; 5])],
            json!({"parameters": {"template": "{} a\n{} b"}}),
            "input `text`: texts times templates are 10, which exceeds the queue of 8",
        ),
        (
            vec![image_input(&golden), text_input(&[&"a".repeat(1000)])],
            json!({"parameters": {"template": format!("a {{}}\n{}", "{}".repeat(5))}}),
            "input `text`: template 1, filled with the longest text, has more than 4096 bytes",
        ),
        (
            vec![text_input(&[&"a".repeat(5000)])],
            json!({}),
            "input `text`: text 0 has 5000 bytes",
        ),
        (
            vec![text_input(&[golden.texts.last().unwrap()])],
            json!({"parameters": {"truncate": false}}),
            "input `text`: text 0 is longer than the model's ",
        ),
        (
            vec![text_input(&["a"]), text_input(&["b"])],
            json!({}),
            "input `text`: is one of several",
        ),
    ] {
        let (status, message) = with(inputs, more);
        assert_eq!(status, 400, "{message}");
        assert!(message.starts_with(expected), "{message}, not {expected}");
    }
    // A classifier takes no texts.
    let digits = Running::digits();
    let (_, message) = digits.infer(&json!({"inputs": [text_input(&["a"])]})).error();
    assert_eq!(
        message,
        "input `text`: the model takes no texts: it has no text tower"
    );
}

#[test]
fn texts_go_over_grpc() {
    use hipvit_serve::proto::model_infer_request::InferInputTensor;
    use hipvit_serve::proto::{InferTensorContents, ModelInferRequest};
    let running = server("open_clip", |_| {});
    let golden = golden("open_clip");
    let texts = golden.texts.iter().map(|text| text.clone().into_bytes().into());
    let input = InferInputTensor {
        name: "text".into(),
        datatype: "BYTES".into(),
        shape: vec![golden.texts.len() as i64],
        contents: Some(InferTensorContents {
            bytes_contents: texts.collect(),
            ..InferTensorContents::default()
        }),
        ..InferInputTensor::default()
    };
    let request = ModelInferRequest {
        model_name: "clip".into(),
        inputs: vec![input],
        ..ModelInferRequest::default()
    };
    let response = block_on(async {
        let response = client(running.address).await.model_infer(request).await;
        response.unwrap().into_inner()
    });
    assert!(response.parameters.contains_key("truncated"));
    let values = response.raw_output_contents[0].as_chunks().0.iter();
    let values: Vec<f32> = values.map(|&b| f32::from_le_bytes(b)).collect();
    let expected = golden_value("open_clip", "text_embeds");
    let values = Array2::from_shape_vec(expected.dim(), values).unwrap();
    check("open_clip", values.view(), expected.view(), 2e-5);
}
