//! The protocol over HTTP/REST.

use hipvit::image::{Limits, decode};
use hipvit::{Device, Session};
use serde_json::{Value, json};

use crate::support::server::{Running, base64, expected, floats, options, request, sample, samples, tensor};

#[test]
fn health_and_metadata() {
    let running = Running::digits();
    for path in [
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/digits/ready",
        "/v2/models/digits/versions/1/ready",
    ] {
        assert_eq!(running.get(path).status, 200, "{path}");
    }
    // KServe's client reads these.
    assert_eq!(running.get("/v2/health/live").json(), json!({"live": true}));
    assert_eq!(running.get("/v2/health/ready").json(), json!({"ready": true}));
    let ready = running.get("/v2/models/digits/ready").json();
    assert_eq!(ready, json!({"name": "digits", "ready": true}));
    let server = running.get("/v2").json();
    assert_eq!(server["name"], "hipvit");
    assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        server["extensions"]
            .as_array()
            .unwrap()
            .contains(&"binary_tensor_data".into())
    );
    let model = running.get("/v2/models/digits").json();
    assert_eq!(
        model,
        json!({
            "name": "digits",
            "versions": ["1"],
            "platform": "hipvit_timm",
            "inputs": [
                {"name": "image", "datatype": "BYTES", "shape": [-1]},
                {"name": "pixels", "datatype": "UINT8", "shape": [-1, -1, -1, 3]},
            ],
            "outputs": [
                {"name": "logits", "datatype": "FP32", "shape": [-1, 10]},
                {"name": "top", "datatype": "BYTES", "shape": [-1, -1]},
                {"name": "embedding", "datatype": "FP32", "shape": [-1, model["outputs"][2]["shape"][1]]},
            ],
        })
    );
}

#[test]
fn encoded_images_give_the_sessions_bits() {
    let running = Running::digits();
    let digits = [7, 0, 3];
    let expected = expected(&digits);
    let mut body = samples(&digits);
    body["id"] = "my request".into();
    let response = running.infer(&body);
    assert_eq!(response.status, 200, "{}", response.text());
    let response = response.json();
    assert_eq!(
        (
            &response["id"],
            &response["model_name"],
            &response["model_version"]
        ),
        (&json!("my request"), &json!("digits"), &json!("1"))
    );
    assert_eq!(
        floats(&response, "logits"),
        expected.logits().unwrap().as_slice().unwrap()
    );
    assert_eq!(
        floats(&response, "embedding"),
        expected.embeddings().as_slice().unwrap()
    );
    let top = tensor(&response, "top");
    assert_eq!(
        (&top["datatype"], &top["shape"]),
        (&json!("BYTES"), &json!([3, 5]))
    );
    for (row, label) in ["seven", "zero", "three"].into_iter().enumerate() {
        let best = &expected.image(row).top(1)[0];
        let text = format!("{}:{}:{label}", best.probability, best.index);
        assert_eq!(top["data"][5 * row], text);
    }
}

/// Tensors are sent and received as by Triton's and KServe's clients.
#[test]
fn binary_tensors_give_the_same_bits() {
    let running = Running::digits();
    let image = sample(4);
    let data = [&(image.len() as u32).to_le_bytes()[..], &image].concat();
    let head = json!({
        "inputs": [{
            "name": "image", "shape": [1, 1], "datatype": "BYTES",
            "parameters": {"binary_data_size": data.len()},
        }],
        "outputs": [
            {"name": "logits", "parameters": {"binary_data": true}},
            {"name": "top", "parameters": {"k": 2}},
        ],
    })
    .to_string();
    let length = head.len().to_string();
    let response = running.post(
        "/v2/models/digits/versions/1/infer",
        &[("Inference-Header-Content-Length", &length)],
        &[head.as_bytes(), &data].concat(),
    );
    assert_eq!(
        response.status,
        200,
        "{}",
        String::from_utf8_lossy(&response.body)
    );
    assert_eq!(response.header("content-type"), Some("application/octet-stream"));
    let length: usize = response
        .header("inference-header-content-length")
        .unwrap()
        .parse()
        .unwrap();
    let (head, tail) = response.body.split_at(length);
    let head: Value = serde_json::from_slice(head).unwrap();
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], 40);
    let expected = expected(&[4]);
    let bytes: Vec<u8> = expected
        .logits()
        .unwrap()
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    assert_eq!(&tail[..40], bytes);
}

#[test]
fn a_body_without_json_is_an_image() {
    let running = Running::digits();
    let headers = [("Inference-Header-Content-Length", "0")];
    let response = running.post("/v2/models/digits/infer", &headers, &sample(9));
    assert_eq!(response.status, 200, "{}", response.text());
    let top = tensor(&response.json(), "top")["data"][0].clone();
    assert!(top.as_str().unwrap().ends_with(":9:nine"), "{top}");
}

#[test]
fn pixels_and_pixel_values_give_the_same_bits() {
    let mut options = options();
    options.pixel_values = true;
    options.tokens = true;
    let running = Running::new(options);
    let image = decode("sample", &sample(5), Limits::default()).unwrap();
    let session = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    let resized = session.preprocess().apply(&image).unwrap();
    let mut values = vec![0f32; resized.data.len()];
    session
        .preprocess()
        .normalize(&resized.data, &mut values)
        .unwrap();
    let input = |name, datatype, shape: Value, data: Value| json!({"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}]});
    let expected = expected(&[5]);
    let expected = expected.logits().unwrap().as_slice().unwrap();
    let shape = json!([1, image.height, image.width, 3]);
    let pixels = running.infer(&input("pixels", "UINT8", shape, json!(image.data)));
    assert_eq!(pixels.status, 200, "{}", pixels.text());
    assert_eq!(floats(&pixels.json(), "logits"), expected);
    let tokens = tensor(&pixels.json(), "patch_tokens")["shape"].clone();
    let info = session.info();
    assert_eq!(tokens, json!([1, info.tokens - info.prefix_tokens, info.dim]));

    let [height, width] = info.image_size;
    let normalised = running.infer(&input(
        "pixel_values",
        "FP32",
        json!([1, 3, height, width]),
        json!(values),
    ));
    assert_eq!(normalised.status, 200, "{}", normalised.text());
    // Folded into the weights, or not: not the same bits.
    let largest = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    for (got, expected) in floats(&normalised.json(), "logits").iter().zip(expected) {
        assert!((got - expected).abs() <= 2e-5 * largest, "{got} {expected}");
    }
}

#[test]
fn explanations_are_the_explainers() {
    let mut options = options();
    options.explanation = true;
    options.pixel_values = true;
    let running = Running::new(options);
    let session = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    let image = decode("sample", &sample(5), Limits::default()).unwrap();
    let explain = |class| {
        let attribution = hipvit_explain::explain(&session, &image, class)
            .unwrap()
            .attribution;
        let parts: Vec<f32> = attribution.by_pixel().iter().map(|&part| part as f32).collect();
        parts
    };

    let mut body = samples(&[5]);
    assert!(
        running.infer(&body).json()["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|output| output["name"] != "explanation"),
        "only those who name it get it"
    );
    body["outputs"] = json!([{"name": "explanation"}]);
    let alone = running.infer(&body);
    assert_eq!(alone.status, 200, "{}", alone.text());
    let [height, width] = session.info().image_size;
    assert_eq!(
        tensor(&alone.json(), "explanation")["shape"],
        json!([1, height, width])
    );
    assert_eq!(floats(&alone.json(), "explanation"), explain(None));

    body["outputs"] = json!([{"name": "logits"}, {"name": "explanation", "parameters": {"class": 3}}]);
    let both = running.infer(&body).json();
    assert_eq!(floats(&both, "explanation"), explain(Some(3)));
    assert_eq!(
        floats(&both, "logits"),
        expected(&[5]).logits().unwrap().as_slice().unwrap()
    );

    let resized = session.preprocess().apply(&image).unwrap();
    let mut values = vec![0f32; resized.data.len()];
    session
        .preprocess()
        .normalize(&resized.data, &mut values)
        .unwrap();
    let values = running.infer(&json!({
        "inputs": [{"name": "pixel_values", "datatype": "FP32", "shape": [1, 3, height, width], "data": values}],
        "outputs": [{"name": "explanation"}],
    }));
    assert_eq!(floats(&values.json(), "explanation"), explain(None));

    body["outputs"] = json!([{"name": "explanation", "parameters": {"class": 10}}]);
    assert_eq!(
        running.infer(&body).error(),
        (
            400,
            "output `explanation`: parameter `class`: 10 is not one of the model's 10, counted from 0".into()
        )
    );
    // Explanations count on their own.
    assert_eq!(running.metric("hipvit_images_total"), 2.0);
    assert_eq!(
        running.metric(r#"hipvit_stage_duration_seconds_count{model="digits",stage="explain"}"#),
        3.0
    );
}

#[test]
fn errors_have_the_protocols_form_and_name_the_tensor() {
    let running = Running::digits();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = samples(&[1]);
        change(&mut body);
        running.infer(&body).error()
    };
    assert_eq!(
        with(&|body| body["inputs"][0]["shape"] = json!([2])),
        (
            400,
            "input `image`: shape [2] has 2 elements, the data has 1".into()
        )
    );
    assert_eq!(
        with(&|body| body["inputs"][0]["datatype"] = "FP32".into()),
        (400, "input `image`: is FP32, expected BYTES".into())
    );
    assert_eq!(
        with(&|body| body["inputs"][0]["name"] = "input_0".into()).1,
        "input `input_0`: the model has no such input; it has `image`, `pixels`"
    );
    assert_eq!(
        with(&|body| body["outputs"] = json!([{"name": "probs"}])).1,
        "output `probs`: the model has no such output; it has `logits`, `top`, `embedding`"
    );
    let (status, message) = with(&|body| body["inputs"][0]["data"][0] = base64(&sample(1)[..200]).into());
    assert_eq!(status, 400);
    assert!(message.starts_with("input `image`, image 0: "), "{message}");
    assert_eq!(
        with(&|body| body["parameters"] = json!({"timeout": "soon"})).0,
        400
    );
    assert_eq!(running.post("/v2/models/digits/infer", &[], b"{").error().0, 400);

    for (path, message) in [
        (
            "/v2/models/cats",
            "there is no model `cats`; the server has `digits`",
        ),
        (
            "/v2/models/digits/versions/2",
            "model `digits` has no version `2`",
        ),
        (
            "/v2/models/digits/versions/x",
            "model `digits` has no version `x`",
        ),
    ] {
        assert_eq!(running.get(path).error(), (404, message.into()));
    }
    assert_eq!(
        running.get("/v2/models/digits/infer").error(),
        (
            405,
            "/v2/models/digits/infer does not accept GET. Use POST".into()
        )
    );
    for (headers, body, reason) in [
        (
            &[("Accept", "*/*")][..],
            &b"\xff\xd8\xff\xe0"[..],
            "the body is not JSON. For an image",
        ),
        (
            &[("Content-Type", "multipart/form-data; boundary=x")],
            b"--x",
            "multipart bodies are not supported",
        ),
    ] {
        let (status, message) = running.post("/v2/models/digits/infer", headers, body).error();
        assert_eq!(status, 400, "{message}");
        assert!(message.starts_with(reason), "{message}");
        let header = "Inference-Header-Content-Length: 0";
        assert!(message.ends_with(header), "{message}");
    }
    let path = "/v2/models/digits/config";
    let deleted = request(running.address, "DELETE", path, &[], b"");
    assert_eq!(
        deleted.error(),
        (405, format!("{path} does not accept DELETE. Use GET"))
    );
    // The error of a wrong path lists the paths.
    let (status, message) = running.get("/v3").error();
    assert_eq!(status, 404);
    assert!(
        message.starts_with("there is no /v3. There are /v2,"),
        "{message}"
    );
    assert!(message.contains("/v1/embeddings"), "{message}");
    let headers = [("Content-Encoding", "gzip")];
    assert_eq!(
        running.post("/v2/models/digits/infer", &headers, b"x").error().0,
        501
    );
}

#[test]
fn images_are_embedded() {
    let running = Running::digits();
    let uri = format!("data:image/png;base64,{}", base64(&sample(2)));
    let body = json!({"model": "digits", "input": [uri, {"image": base64(&sample(6))}]});
    let response = running.post("/v1/embeddings", &[], body.to_string().as_bytes());
    assert_eq!(response.status, 200, "{}", response.text());
    let response = response.json();
    let expected = expected(&[2, 6]);
    for (index, row) in expected.embeddings().rows().into_iter().enumerate() {
        let embedding = response["data"][index]["embedding"].as_array().unwrap();
        let embedding: Vec<f32> = embedding.iter().map(|x| x.to_string().parse().unwrap()).collect();
        assert_eq!(embedding, row.to_vec());
    }
    let wrong = json!({"model": "digits", "input": "a cat"});
    let response = running.post("/v1/embeddings", &[], wrong.to_string().as_bytes());
    assert_eq!(response.status, 400);
    assert_eq!(
        response.json()["error"]["message"],
        "`input`[0] is a text, but the model takes no texts: it has no text tower. Send images as data: URLs"
    );
}

#[test]
fn metrics_count_what_happened() {
    let running = Running::digits();
    running.infer(&samples(&[1, 2, 3]));
    running.infer(&json!({"inputs": []}));
    running.get("/v2/models/digits/infer");
    assert_eq!(running.metric("hipvit_images_total{model=\"digits\"}"), 3.0);
    let requests = |outcome| {
        running.metric(&format!(
            "hipvit_requests_total{{model=\"digits\",protocol=\"http\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!((requests("ok"), requests("invalid_argument")), (1.0, 1.0));
    for stage in ["queue", "decode", "resize", "compute"] {
        let name = format!("hipvit_stage_duration_seconds_count{{model=\"digits\",stage=\"{stage}\"}}");
        assert!(running.metric(&name) >= 1.0, "{stage}");
    }
    assert_eq!(
        running.metric("hipvit_instances{model=\"digits\",device=\"cpu\"}"),
        1.0
    );
    // A client can send any name, so unknown names are no labels.
    running.post("/v2/models/cats/infer", &[], samples(&[1]).to_string().as_bytes());
    let text = running.get("/metrics").text();
    assert!(!text.contains("cats"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}
