//! Images as base64 text in the forms of common encoders (tests/cases/20_base64_wrapped), and URLs.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::support::server::{MODEL, Running, expected, floats, sample};

/// A sample whose base64 contains both characters that differ between the alphabets.
const DIGIT: usize = 7;

fn wrapped(text: &str, width: usize, end: &str) -> String {
    let lines = text.as_bytes().chunks(width);
    lines
        .map(|line| format!("{}{end}", std::str::from_utf8(line).unwrap()))
        .collect()
}

fn input(text: &str) -> Value {
    json!({"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [text]}]})
}

#[test]
fn every_form_of_base64_gives_the_same_bits() {
    let running = Running::digits();
    let bytes = sample(DIGIT);
    let standard = STANDARD.encode(&bytes);
    let expected = expected(&[DIGIT]);
    let forms = [
        wrapped(&standard, 76, "\n"),
        wrapped(&standard, 64, "\r\n"),
        format!("{standard}\n"),
        STANDARD_NO_PAD.encode(&bytes),
        URL_SAFE.encode(&bytes),
        URL_SAFE_NO_PAD.encode(&bytes),
        wrapped(&URL_SAFE.encode(&bytes), 76, "\n"),
        format!("data:image/png;base64,{standard}"),
        format!("data:image/png;base64,{}", URL_SAFE_NO_PAD.encode(&bytes)),
        format!(
            "data:;base64,{}",
            standard
                .replace('+', "%2B")
                .replace('/', "%2F")
                .replace('=', "%3D")
        ),
    ];
    for text in &forms {
        let response = running.infer(&input(text));
        assert_eq!(response.status, 200, "{text}: {}", response.text());
        assert_eq!(
            floats(&response.json(), "logits"),
            expected.logits().unwrap().as_slice().unwrap()
        );
        let body = json!({"model": MODEL, "input": [{"image": text}]});
        let response = running.post("/v1/embeddings", &[], body.to_string().as_bytes());
        assert_eq!(response.status, 200, "{text}: {}", response.text());
    }
}

#[test]
fn what_is_not_an_image_says_what_to_send() {
    let running = Running::digits();
    for (text, expected) in [
        (
            "https://example.com/cat.jpg",
            "image 0 is a URL. The server fetches nothing: send the file itself",
        ),
        (
            "file:///tmp/cat.jpg",
            "image 0 is a URL. The server fetches nothing",
        ),
        (
            "cat.jpg",
            "image 0 is not base64: byte 3 is '.'. Send the bytes of the file as base64",
        ),
        (
            "data:image/svg+xml,<svg/>",
            "image 0 is a data: URL without base64",
        ),
        // Encoded twice.
        (
            &STANDARD.encode(STANDARD.encode(sample(1))),
            "image 0 is base64 where the bytes",
        ),
    ] {
        let (status, message) = running.infer(&input(text)).error();
        assert_eq!(status, 400);
        assert!(
            message.starts_with(&format!("input `image`: {expected}")),
            "{message}"
        );
    }
    // Base64 in a binary tensor, as clients send it that encode what need not be encoded.
    let text = STANDARD.encode(sample(1));
    let data = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let head = json!({"inputs": [{
        "name": "image", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": data.len()},
    }]})
    .to_string();
    let length = head.len().to_string();
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    let body = [head.as_bytes(), &data].concat();
    let (status, message) = running.post("/v2/models/digits/infer", &headers, &body).error();
    assert_eq!(status, 400);
    assert!(
        message.contains("is base64 where the bytes of the file are expected"),
        "{message}"
    );
}
