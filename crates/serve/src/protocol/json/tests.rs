use super::*;
use crate::protocol::OutputTensor;

fn read(json: Value) -> Result<InferRequest, Failure> {
    read_request("m", "", json.to_string().into(), None)
}

fn input(input: Value) -> Result<InputTensor, Failure> {
    let mut request = read(json!({ "inputs": [input] }))?;
    Ok(request.inputs.remove(0))
}

#[test]
fn data_is_flat_or_nested() {
    for data in [json!([1, 2.5, 3, 4, 5, 6]), json!([[1, 2.5, 3], [4, 5, 6]])] {
        let tensor = input(json!({"name": "x", "shape": [2, 3], "datatype": "FP32", "data": data})).unwrap();
        assert_eq!(tensor.data, Data::Numbers(vec![1.0, 2.5, 3.0, 4.0, 5.0, 6.0]));
    }
    let tensor = input(json!({"name": "x", "shape": [2], "datatype": "BYTES", "data": ["é", "b"]})).unwrap();
    assert_eq!(tensor.data, Data::Bytes(vec!["é".into(), "b".into()]));
}

#[test]
fn wrong_data_is_an_error_that_says_what() {
    for (data, expected) in [
        (
            json!([[1, 2, 3], [4, 5]]),
            "lists of the lengths 3 and 2 at depth 1",
        ),
        (json!([[1, 2], 3]), "both lists and elements"),
        (json!([1, [2, 3]]), "both elements and lists"),
        (
            json!([[[1, 2, 3], [4, 5, 6]]]),
            "input `x`: shape [2, 3], but the data has shape [1, 2, 3]",
        ),
        (json!([1, "a"]), "input `x`: has both numbers and strings"),
        (json!(7), "`data` is"),
        (json!([{"a": 1}]), "numbers, booleans, strings, or lists"),
        (json!([null]), "numbers, booleans, strings, or lists"),
    ] {
        let wrong = json!({"name": "x", "shape": [2, 3], "datatype": "FP32", "data": data});
        let error = input(wrong).unwrap_err();
        assert!(error.message().contains(expected), "{error}, not {expected}");
    }
    let error = input(json!({"name": "x", "shape": [1], "datatype": "FP32"})).unwrap_err();
    assert_eq!(
        error.message(),
        "input `x`: has neither `data` nor `binary_data_size`. Send one of them"
    );
    let error = read(json!({"outputs": []})).unwrap_err();
    assert!(
        error
            .message()
            .starts_with("the request's JSON: missing field `inputs`"),
        "{error}"
    );
}

#[test]
fn what_json_becomes_is_bounded_by_its_text() {
    let list = |element: &str, count: usize| format!("[{}]", vec![element; count].join(","));
    let data = |element: &str, count| {
        let data = list(element, count);
        format!(r#"{{"inputs": [{{"name": "image", "shape": [1], "datatype": "BYTES", "data": {data}}}]}}"#)
    };
    for (body, at_least) in [
        (data(r#""""#, 10_000), 10_000 * ELEMENT_BYTES),
        (data("0", 10_000), 9_999 * NUMBER_BYTES),
        (data(r#""aGVsb\"G8=,,,,,,,,,,""#, 1), 30),
    ] {
        let bound = decoded_size(body.as_bytes());
        assert!(
            bound >= at_least && bound < 2 * at_least + 5000,
            "{bound} {at_least}"
        );
        let counted = allocation_counter::measure(|| {
            let _ = read_request("m", "", body.clone().into(), None);
        });
        // The copy of the body that this test makes.
        assert!(
            counted.bytes_max <= (bound + body.len()) as u64,
            "{counted:?} {bound}"
        );
    }
    // Skipped values take no memory at any depth.
    let nested = format!(
        r#"{{"parameters": {{"a": {}}}, "inputs": []}}"#,
        list(r#"{"": 0}"#, 10_000)
    );
    let counted = allocation_counter::measure(|| drop(read_request("m", "", nested.clone().into(), None)));
    assert!(counted.bytes_max < nested.len() as u64 + 10_000, "{counted:?}");
    for wrong in [
        format!(
            r#"{{"inputs": {}}}"#,
            list(r#"{"name": "", "shape": [], "datatype": ""}"#, 17)
        ),
        format!(r#"{{"inputs": [], "outputs": {}}}"#, list(r#"{"name": ""}"#, 17)),
        format!(r#"{{"inputs": [{{"shape": {}}}]}}"#, list("1", 17)),
    ] {
        let failure = read_request("m", "", wrong.into(), None).unwrap_err();
        assert!(
            failure.message().contains("a list of at most 16 elements"),
            "{failure}"
        );
    }
    let id = json!({"id": "7".repeat(1025), "inputs": []});
    assert!(read(id).unwrap_err().message().starts_with("`id` has 1025 bytes"));
}

#[test]
fn encoded_images_are_base64_or_data_uris() {
    for text in ["aGVsbG8=", "aGVsbG8", "data:image/png;base64,aGVsbG8="] {
        let tensor = input(json!({"name": "image", "shape": [1], "datatype": "BYTES", "data": [text]}));
        assert_eq!(tensor.unwrap().data, Data::Bytes(vec!["hello".into()]));
    }
    for text in ["data:image/png,abc", "%%%", "https://example.com/cat.png"] {
        let tensor = input(json!({"name": "image", "shape": [1], "datatype": "BYTES", "data": ["", text]}));
        let error = tensor.unwrap_err();
        assert!(
            error.message().starts_with("input `image`: image 1 is "),
            "{error}"
        );
    }
}

#[test]
fn binary_tensors_follow_the_json() {
    let head = json!({
        "id": "7",
        "inputs": [
            {"name": "a", "shape": [2], "datatype": "UINT8", "parameters": {"binary_data_size": 2}},
            {"name": "b", "shape": [1], "datatype": "FP32", "data": [1]},
            {"name": "c", "shape": [3], "datatype": "UINT8", "parameters": {"binary_data_size": 3}},
        ],
    })
    .to_string();
    let body = |tail: &[u8]| Bytes::from([head.as_bytes(), tail].concat());
    let request = read_request("m", "2", body(b"xxyyy"), Some(head.len())).unwrap();
    assert_eq!((request.id.as_str(), request.version.as_str()), ("7", "2"));
    let data: Vec<_> = request.inputs.into_iter().map(|input| input.data).collect();
    assert_eq!(
        data,
        [
            Data::Raw("xx".into()),
            Data::Numbers(vec![1.0]),
            Data::Raw("yyy".into())
        ]
    );
    let error = |tail: &[u8]| read_request("m", "", body(tail), Some(head.len())).unwrap_err();
    assert_eq!(
        error(b"xxyy").message(),
        "input `c`: `binary_data_size` is 3, and the body has 2 bytes left"
    );
    assert_eq!(
        error(b"xxyyyz").message(),
        "1 bytes at the end of the body belong to no input"
    );
    let error = read_request("m", "", Bytes::from_static(b"{}"), Some(3)).unwrap_err();
    assert_eq!(
        error.message(),
        "Inference-Header-Content-Length is 3, and the body has 2 bytes"
    );
}

#[test]
fn without_json_the_body_is_an_image() {
    let request = read_request("m", "", Bytes::from_static(b"\xff\xd8"), Some(0)).unwrap();
    assert_eq!(request.inputs[0].name, "image");
    assert_eq!(
        request.inputs[0].data,
        Data::Bytes(vec![Bytes::from_static(b"\xff\xd8")])
    );
}

#[test]
fn outputs_are_json_or_binary_as_asked() {
    let response = InferResponse {
        model: "m".into(),
        version: "1".into(),
        id: String::new(),
        truncated: Vec::new(),
        text_tokens: 0,
        outputs: vec![
            OutputTensor {
                name: "logits".into(),
                shape: vec![1, 2],
                data: OutputData::Fp32(vec![0.1, -3.0]),
            },
            OutputTensor {
                name: "top".into(),
                shape: vec![1, 1],
                data: OutputData::Bytes(vec!["1:0:cat".into()]),
            },
        ],
    };
    let request = read(json!({
        "inputs": [],
        "parameters": {"binary_data_output": true},
        "outputs": [{"name": "logits"}, {"name": "top", "parameters": {"binary_data": false}}],
    }));
    let (body, length) = write_response(&response, &binary_outputs(&request.unwrap()).unwrap()).unwrap();
    let (head, tail) = body.split_at(length.unwrap());
    let head: Value = serde_json::from_slice(head).unwrap();
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], 8);
    assert!(head["outputs"][0].get("data").is_none());
    assert_eq!(head["outputs"][1]["data"], json!(["1:0:cat"]));
    assert_eq!(tail, [0.1f32.to_le_bytes(), (-3.0f32).to_le_bytes()].concat());

    let request = read(json!({"inputs": []})).unwrap();
    let (body, length) = write_response(&response, &binary_outputs(&request).unwrap()).unwrap();
    assert_eq!(length, None);
    let body: Value = serde_json::from_slice(&body).unwrap();
    // The shortest decimals that are these floats.
    assert!(body.to_string().contains("[0.1,-3.0]"), "{body}");
}
