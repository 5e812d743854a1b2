use serde_json::json;

use super::*;

fn decoded(input: Value, no_texts: Option<&str>) -> Result<Decoded, Failure> {
    let request = read(
        json!({"model": "m", "input": input}).to_string().as_bytes(),
        Form::OpenAi,
    )?;
    request.decode_inputs(no_texts)
}

#[test]
fn images_and_texts_come_in_every_form_that_clients_send() {
    let url = "data:image/png;base64,aGk=";
    for input in [
        json!(url),
        json!([url]),
        json!([{"image": url}]),
        json!({"image": "aGk="}),
        json!({"image": "aG\nk="}),
        json!([{"image_url": url}]),
        json!([{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]),
        json!([{"type": "input_image", "image_url": url}]),
    ] {
        let decoded = decoded(input.clone(), Some("it takes none")).unwrap();
        assert_eq!(
            (decoded.images, decoded.is_text),
            (vec!["hi".into()], vec![false]),
            "{input}"
        );
    }
    let mixed = json!(["a cat", url, {"text": "http://a/b.png"}, {"type": "text", "text": "c"}]);
    let mixed = decoded(mixed, None).unwrap();
    let texts: Vec<Bytes> = ["a cat", "http://a/b.png", "c"].map(Bytes::from).to_vec();
    assert_eq!(mixed.texts, texts);
    assert_eq!(mixed.is_text, [true, false, true, true]);
    // The base64 of an image without a type.
    let png = encode_base64(&[&b"\x89PNG\r\n\x1a\n"[..], &[0; 50]].concat());
    assert_eq!(decoded(json!(png), None).unwrap().is_text, [false]);
}

#[test]
fn what_cannot_be_embedded_is_said() {
    let none = Some("the model takes no texts");
    for (input, no_texts, expected) in [
        (
            json!("a cat"),
            none,
            "`input`[0] is a text, but the model takes no texts. Send images",
        ),
        (
            json!(["a", {"image": "https://a/b.png"}]),
            None,
            "`input`[1] is a URL. The server fetches nothing",
        ),
        (
            json!("https://a/b.png"),
            None,
            "`input`[0] is a URL. The server fetches nothing",
        ),
        (
            json!([{"image_url": {"url": "file:///etc/passwd"}}]),
            None,
            "`input`[0] is a URL",
        ),
        (json!([{"image": "%"}]), None, "`input`[0] is not base64"),
        (
            json!([1, 2, 3]),
            None,
            "the request's JSON: `input` has token ids",
        ),
        (
            json!([[1, 2, 3]]),
            None,
            "the request's JSON: `input` has token ids",
        ),
        (
            json!([{"audio": "x"}]),
            None,
            "the request's JSON: `input`[0] has none of",
        ),
        (
            json!([{"text": "a", "image": "aGk="}]),
            None,
            "the request's JSON: `input`[0] has several of",
        ),
        (
            json!(vec!["a"; 2049]),
            None,
            "the request's JSON: `input` has more than 2048",
        ),
    ] {
        let error = decoded(input, no_texts).unwrap_err();
        assert!(error.message().starts_with(expected), "{error}");
    }
}

#[test]
fn keys_are_followed_or_refused_by_name() {
    let read = |key: &str, value: Value| {
        let mut body = json!({"model": "m", "input": "a", "user": "me", "my_own": {"a": [1]}});
        body[key] = value;
        super::read(body.to_string().as_bytes(), Form::OpenAi)
    };
    assert!(read("encoding_format", json!("base64")).unwrap().base64);
    assert!(!read("encoding_format", json!(null)).unwrap().base64);
    assert_eq!(read("dimensions", json!(8)).unwrap().dimensions, Some(8));
    assert!(read("normalized", json!(true)).unwrap().normalized);
    assert_eq!(
        read("priority", json!("bulk")).unwrap().parameters["priority"],
        "bulk"
    );
    assert!(read("prompt_name", json!(null)).is_ok());
    for (key, value) in [
        ("encoding_format", json!("int8")),
        ("messages", json!([{"role": "user", "content": "a"}])),
        ("task", json!("retrieval.query")),
        ("embedding_type", json!("binary")),
        ("truncate_prompt_tokens", json!(3)),
        ("truncation_direction", json!("Left")),
        ("embed_dtype", json!("float16")),
        ("mm_processor_kwargs", json!({"size": 7})),
        ("add_special_tokens", json!(false)),
    ] {
        let error = read(key, value).unwrap_err();
        assert!(error.message().contains(&format!("`{key}`")), "{error}");
    }
    let error = decoded(json!([1]), None).unwrap_err();
    assert_eq!(
        error.message(),
        "the request's JSON: `input` has token ids. Send the text: the server finds its tokens"
    );
    let error = super::read(b"{\"model\": \"m\"}", Form::OpenAi).unwrap_err();
    assert!(error.message().contains("missing field `input`"), "{error}");
}

#[test]
fn requests_of_tei_need_no_model_and_want_unit_length() {
    let read = |body: Value| super::read(body.to_string().as_bytes(), Form::Tei);
    let request =
        read(json!({"inputs": ["a", "b"], "truncate": true, "truncation_direction": "Right"})).unwrap();
    assert_eq!(
        (request.model.as_str(), request.inputs.len(), request.normalized),
        ("", 2, true)
    );
    assert_eq!(request.parameters["truncate"], true);
    assert!(
        !read(json!({"inputs": "a", "normalize": false}))
            .unwrap()
            .normalized
    );
    assert_eq!(read(json!({"inputs": "a", "model": "m"})).unwrap().model, "m");
    for (body, reason) in [
        (json!({"input": "a"}), "missing field `inputs`"),
        (json!({"inputs": [1]}), "`inputs` has token ids"),
        (json!({"inputs": [[]]}), "`inputs` has an empty list in a list"),
        (json!({"inputs": ["a", {}]}), "`inputs`[1] has none of"),
        (
            json!({"inputs": "a", "truncation_direction": "Left"}),
            "`truncation_direction` is not supported",
        ),
        (
            json!({"inputs": "a", "prompt_name": "query"}),
            "`prompt_name` is not supported",
        ),
    ] {
        let error = read(body).unwrap_err();
        assert!(error.message().contains(reason), "{}", error.message());
    }
}
