//! Models that make texts of images, by the Open Inference Protocol and as OpenAI's chats.

use hipvit_serve::ModelSource;
use serde_json::{Value, json};

use crate::support::at;
use crate::support::generation::{CHAT, Case, LENGTH, cases, chat, data_url};
use crate::support::server::chats::{content, events, open_stream};
use crate::support::server::grpc::{block_on, client, infer};
use crate::support::server::{Response, Running, base64, options, sample, tensor};

/// Serves the golden models of texts beside the classifier of digits.
fn texts() -> Running {
    let mut options = options();
    options.repository = Some(at("tests/golden/generation"));
    options.limits.max_tokens = Some(39);
    options.max_batch = 4;
    Running::new(options)
}

fn trocr() -> Case {
    let case = cases().into_iter().next().unwrap();
    assert!(case.path().ends_with("trocr_base"));
    case
}

fn post(running: &Running, body: &Value) -> Response {
    running.post(CHAT, &[], body.to_string().as_bytes())
}

/// Returns status and message of an error in OpenAI's form.
fn error(response: &Response) -> (u16, String) {
    let error = &response.json()["error"];
    assert!(error["type"].is_string() && error["code"].is_null() | error["code"].is_string());
    (response.status, error["message"].as_str().unwrap().to_owned())
}

#[test]
fn the_protocol_gives_the_texts_of_transformers() {
    let running = texts();
    // Those with prompts are asked by chats.
    for case in cases().into_iter().filter(|case| case.prompt.is_none()) {
        let name = case.path().file_name().unwrap().to_str().unwrap().to_owned();
        let files: Vec<Vec<u8>> = (0..case.texts.len()).map(|index| case.file(index)).collect();
        let images: Vec<String> = files.iter().map(|file| base64(file)).collect();
        let image = json!({"name": "image", "shape": [images.len()], "datatype": "BYTES", "data": images});
        let body = json!({"inputs": [image], "parameters": {"max_tokens": LENGTH}});
        let response = running.post(
            &format!("/v2/models/{name}/infer"),
            &[],
            body.to_string().as_bytes(),
        );
        assert_eq!(response.status, 200, "{}", response.text());
        let response = response.json();
        let expected: Vec<&str> = case.texts.iter().map(|text| text.text.as_str()).collect();
        assert_eq!(tensor(&response, "text")["data"], json!(expected), "{name}");
        assert_eq!(tensor(&response, "text")["datatype"], "BYTES");
        let counts: Vec<usize> = case.texts.iter().map(|text| text.tokens.len()).collect();
        assert_eq!(tensor(&response, "tokens")["data"], json!(counts));
        let reason = |ended: bool| if ended { "stop" } else { "length" };
        let reasons: Vec<&str> = case.texts.iter().map(|text| reason(text.ended)).collect();
        assert_eq!(tensor(&response, "finish_reason")["data"], json!(reasons));
        block_on(async {
            let mut request = infer(&[]);
            request.model_name = name;
            request.inputs[0].shape = vec![files.len() as i64];
            let contents = request.inputs[0].contents.as_mut().unwrap();
            contents.bytes_contents = files.into_iter().map(Into::into).collect();
            let response = client(running.address).await.model_infer(request).await.unwrap();
            let response = response.into_inner();
            assert_eq!(response.outputs[0].datatype, "BYTES");
            // The default length, which is shorter. Each element follows its length.
            let mut raw = &response.raw_output_contents[0][..];
            for text in expected {
                let (length, rest) = raw.split_first_chunk().unwrap();
                let (found, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
                assert!(
                    text.starts_with(std::str::from_utf8(found).unwrap().trim()),
                    "{text}"
                );
                raw = rest;
            }
            assert!(raw.is_empty());
        });
    }
    // The classifier beside them works.
    let body = crate::support::server::samples(&[3]);
    assert_eq!(running.infer(&body).status, 200);
    let metadata = running.get("/v2/models/trocr_base").json();
    let names = |key: &str| -> Vec<String> {
        let tensors = metadata[key].as_array().unwrap().iter();
        tensors
            .map(|tensor| tensor["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("inputs"), ["image", "pixels"]);
    assert_eq!(names("outputs"), ["text", "finish_reason", "tokens"]);
    assert!(running.metric("hipvit_generated_tokens_total{model=\"trocr_base\"}") > 96.0);
    assert!(running.metric("hipvit_cache_pages{model=\"blip\"") >= 4.0);
    let statistics = running.get("/v2/models/trocr_base/stats").json();
    assert_eq!(statistics["model_stats"][0]["inference_count"], 8);
}

#[test]
fn chats_answer_whole_or_token_by_token() {
    let running = texts();
    let case = trocr();
    let file = case.file(0);
    let text = &case.texts[0];
    let whole = post(
        &running,
        &chat(
            &file,
            json!({"max_tokens": LENGTH, "user": "me", "temperature": 0}),
        ),
    );
    assert_eq!(whole.status, 200, "{}", whole.text());
    assert_eq!(whole.header("content-type"), Some("application/json"));
    let whole = whole.json();
    assert_eq!(
        (&whole["object"], &whole["model"]),
        (&json!("chat.completion"), &json!("trocr_base"))
    );
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["content"], text.text);
    assert_eq!(
        (&choice["message"]["role"], &choice["finish_reason"]),
        (&json!("assistant"), &json!("length"))
    );
    let usage = json!({"prompt_tokens": 0, "completion_tokens": LENGTH, "total_tokens": LENGTH});
    assert_eq!(whole["usage"], usage);
    let body = chat(
        &file,
        json!({"max_completion_tokens": LENGTH, "stream": true, "stream_options": {"include_usage": true}}),
    );
    let (status, reader) = open_stream(running.address, &body);
    assert_eq!(status, 200);
    let events = events(reader);
    assert_eq!(content(&events), text.text);
    // The role, a part for each token that ends a character, the reason, the usage.
    assert!(events.len() > LENGTH / 2 + 3, "{events:?}");
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let [.., last, tokens] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!((&tokens["choices"], &tokens["usage"]), (&json!([]), &usage));
    for event in &events {
        assert_eq!(
            (&event["object"], &event["id"]),
            (&json!("chat.completion.chunk"), &events[0]["id"])
        );
    }
    // Samples depend on their seed.
    let sampled = |seed: u64| {
        let more = json!({"temperature": 1.5, "top_p": 0.9, "top_k": 30, "seed": seed, "max_tokens": 39});
        let response = post(&running, &chat(&file, more)).json();
        response["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(sampled(1), sampled(1));
    assert_ne!(sampled(1), sampled(2));
    assert_eq!(
        running.metric("hipvit_requests_total{model=\"trocr_base\",protocol=\"chat\",outcome=\"ok\"}"),
        6.0
    );
    assert_eq!(
        running.metric("hipvit_cache_pages_used{model=\"trocr_base\""),
        0.0
    );
}

#[test]
fn requests_that_a_model_cannot_follow_are_refused() {
    let mut options = options();
    let path = trocr().path();
    options.models.push(ModelSource::new("trocr_base", &path));
    options.limits.max_tokens = Some(30);
    let running = Running::new(options);
    let image = sample(1);
    let part = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    let url = |url: &str| part(json!({"type": "image_url", "image_url": {"url": url}}));
    let two = json!({"type": "image_url", "image_url": data_url(&image)});
    for (more, expected) in [
        (
            json!({"max_tokens": 31}),
            "parameter `max_tokens`: 31; a text has at most 30 tokens",
        ),
        (
            json!({"max_tokens": 0}),
            "parameter `max_tokens`: 0; a text has at least one token",
        ),
        (
            json!({"temperature": -1}),
            "parameter temperature: is -1, and must be above 0",
        ),
        (json!({"top_p": 2}), "parameter top p: is 2"),
        (
            json!({"top_k": "x"}),
            "parameter `top_k`: \"x\" is not a whole number",
        ),
        (
            json!({"n": 2}),
            "the request's JSON: `n` is not 1: a request gets one text",
        ),
        (
            json!({"logprobs": true}),
            "the request's JSON: `logprobs` is not supported",
        ),
        (
            json!({"repetition_penalty": 1.1}),
            "the request's JSON: `repetition_penalty` is not supported",
        ),
        (
            json!({"tools": [{}]}),
            "the request's JSON: `tools` is not supported",
        ),
        (json!({"messages": []}), "`messages` has no image"),
        (
            json!({"messages": [{"role": "user", "content": "What is it?"}]}),
            "`messages` has no image",
        ),
        (
            json!({"messages": [{"role": "system", "content": "Read."}, {"role": "user", "content": [two]}]}),
            "`messages`[0] has the role `system`, and the model continues one text",
        ),
        (
            json!({"messages": [{"role": "user", "content": [two]}, {"role": "user", "content": "And?"}]}),
            "`messages`[1] has the role `user`, and the model continues one text",
        ),
        (
            json!({"messages": [{"role": "tool", "content": "Read."}]}),
            "`messages`[0] has the role `tool`, which is not one of user, assistant, system",
        ),
        (
            json!({"messages": [{"role": "user", "content": [two, {"type": "text", "text": "a ".repeat(40)}]}]}),
            "`messages`: the prompt has ",
        ),
        (
            json!({"messages": [{"role": "user", "content": [two, {"type": "text", "text": data_url(&image)}]}]}),
            "`messages`[0].content[1] is an image as text",
        ),
        (json!({"beams": 17}), "parameter `beams`: 17; the maximum is 16"),
        (
            json!({"beams": 2, "speculate": 2}),
            "parameter beams: exclude a random choice",
        ),
        (
            json!({"speculate": 33}),
            "parameter `speculate`: 33; the maximum is 32",
        ),
        (
            json!({"speculate": 2, "temperature": 1.0}),
            "parameter `speculate`: guesses need the most likely tokens",
        ),
        (
            json!({"use_beam_search": true}),
            "the request's JSON: `use_beam_search` needs `best_of`",
        ),
        (
            json!({"best_of": 2}),
            "the request's JSON: `best_of` is for `use_beam_search`",
        ),
        (
            json!({"messages": [{"role": "user", "content": [two, two]}]}),
            "`messages`[0].content[1] is a second image",
        ),
        (
            url("https://example.com/cat.png"),
            "`messages`[0].content[0] is a URL. The server fetches nothing",
        ),
        (url("data:image/png;base64,AAAA"), "input `messages`, image 0: "),
        (
            part(json!({"type": "input_audio", "input_audio": {}})),
            "`messages`[0].content[0] has the type `input_audio`",
        ),
        (json!({"model": "digits"}), "model `digits` makes no texts"),
    ] {
        for stream in [false, true] {
            let mut body = chat(&image, more.clone());
            body["stream"] = stream.into();
            let (status, message) = error(&post(&running, &body));
            assert_eq!(status, 400, "{more} {message}");
            assert!(message.starts_with(expected), "{more}: {message}");
        }
    }
    // Neutral values have no effect.
    let neutral = json!({"n": 1, "logprobs": false, "frequency_penalty": 0, "repetition_penalty": 1.0, "stop": null, "seed": -3});
    assert_eq!(post(&running, &chat(&image, neutral)).status, 200);
    let unknown = post(&running, &chat(&image, json!({"model": "cats"})));
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["code"]),
        (404, &json!("model_not_found"))
    );
    for stream in [false, true] {
        let late = post(&running, &chat(&image, json!({"timeout": 1, "stream": stream})));
        assert_eq!(late.status, 504, "{}", late.text());
    }
    let (status, message) = error(
        &running.post(
            "/v1/embeddings",
            &[],
            json!({"model": "trocr_base", "input": data_url(&image)})
                .to_string()
                .as_bytes(),
        ),
    );
    assert_eq!(status, 400);
    assert!(
        message.starts_with("model `trocr_base` makes texts of images, and has no embeddings"),
        "{message}"
    );
    let infer = |model: &str, key: &str, value: Value| {
        let image = json!({"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64(&image)]});
        let mut body = json!({"inputs": [image]});
        body[key] = value;
        let response = running.post(
            &format!("/v2/models/{model}/infer"),
            &[],
            body.to_string().as_bytes(),
        );
        response.error()
    };
    for (model, key, value, expected) in [
        (
            "trocr_base",
            "outputs",
            json!([{"name": "logits"}]),
            "output `logits`: the model makes texts of images",
        ),
        (
            "trocr_base",
            "outputs",
            json!([{"name": "text", "parameters": {"k": 1}}]),
            "output `text`: parameter `k` is for",
        ),
        (
            "trocr_base",
            "parameters",
            json!({"template": "a {}"}),
            "parameter `template`",
        ),
        (
            "trocr_base",
            "parameters",
            json!({"max_tokens": "many"}),
            "parameter `max_tokens`: \"many\" is not",
        ),
        (
            "trocr_base",
            "inputs",
            json!([{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]),
            "input `text`: the model takes no texts",
        ),
        (
            "trocr_base",
            "inputs",
            json!([{"name": "pixel_values", "shape": [1], "datatype": "FP32", "data": [1.0]}]),
            "input `pixel_values`: the model makes texts",
        ),
        (
            "digits",
            "parameters",
            json!({"max_tokens": 3}),
            "parameter `max_tokens` is for models that make texts",
        ),
    ] {
        let (status, message) = infer(model, key, value);
        assert_eq!(status, 400, "{message}");
        assert!(message.starts_with(expected), "{message}");
    }
}

/// With --no-texts, the model is its encoder.
#[test]
fn encoders_are_served_without_their_decoders() {
    let mut options = options();
    options.models = vec![ModelSource::new("trocr_base", trocr().path())];
    options.texts = false;
    let running = Running::new(options);
    let body = json!({"model": "trocr_base", "input": data_url(&sample(1))}).to_string();
    assert_eq!(running.post("/v1/embeddings", &[], body.as_bytes()).status, 200);
    let (status, message) = error(&post(&running, &chat(&sample(1), json!({}))));
    assert_eq!(status, 400);
    assert!(
        message.starts_with("model `trocr_base` makes no texts"),
        "{message}"
    );
}
