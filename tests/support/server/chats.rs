//! Chats with prompts, beams and guesses on a device, beside the texts of transformers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use hipvit::{Device, Session};
use hipvit_generate::{GenerateOptions, Generator};
use hipvit_serve::ModelSource;
use serde_json::{Value, json};

use super::{Running, base64, connect, options, tensor};
use crate::support::at;
use crate::support::generation::{CHAT, LENGTH, case, cases, data_url, prompted, searched, tiled};

/// Name of the served model.
pub(crate) const NAME: &str = "model";

/// Serves a model of texts on a device.
pub(crate) fn running(path: &Path, device: Device) -> Running {
    let mut options = options();
    options.models = vec![ModelSource::new(NAME, path)];
    options.instances = vec![Session::builder().device(device)];
    options.limits.max_tokens = Some(LENGTH);
    options.max_batch = 4;
    options.backlog = 64;
    Running::new(options)
}

/// Returns a chat about an image, with a text and more keys.
pub(crate) fn chat(file: &[u8], text: Option<&str>, more: Value) -> Value {
    let mut content = vec![json!({"type": "image_url", "image_url": {"url": data_url(file)}})];
    content.extend(text.map(|text| json!({"type": "text", "text": text})));
    let mut body =
        json!({"model": NAME, "max_tokens": LENGTH, "messages": [{"role": "user", "content": content}]});
    let more = more.as_object().unwrap().iter();
    more.for_each(|(key, value)| body[key] = value.clone());
    body
}

/// Returns the answer to a chat.
pub(crate) fn answer(running: &Running, body: &Value) -> Value {
    let response = running.post(CHAT, &[], body.to_string().as_bytes());
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// Returns the texts of tokens by the tokenizer of the model at `path`.
fn texts(path: &Path, tokens: &[Vec<u32>]) -> Vec<String> {
    let builder = Session::builder().device(Device::Cpu).batch(1);
    let generator = Generator::load(path, &builder, &GenerateOptions::default()).unwrap();
    let detokenizer = generator.detokenizer();
    tokens
        .iter()
        .map(|tokens| detokenizer.text(tokens).unwrap())
        .collect()
}

/// The text of a message is the prompt, and so is the parameter `prompt`. Checks the first `most` models.
pub(crate) fn check_prompts(device: Device, most: usize) {
    let own = cases().into_iter().filter_map(|case| {
        let texts = case.texts.iter().map(|text| text.text.clone()).collect();
        Some((case.name.clone(), case.prompt?, texts))
    });
    let given = prompted().into_iter().map(|prompted| {
        let texts = texts(&case(&prompted.name).path(), &prompted.tokens);
        (prompted.name, prompted.prompt, texts)
    });
    let all: Vec<(String, String, Vec<String>)> = own.chain(given).collect();
    assert!(all.len() > 3);
    for (name, prompt, expected) in all.into_iter().take(most) {
        let case = case(&name);
        let running = running(&case.path(), device);
        for (index, expected) in expected.iter().enumerate() {
            // Guessed tokens change nothing.
            let more = json!({"speculate": if index % 2 == 0 { 0 } else { 5 }});
            let answer = answer(&running, &chat(&case.file(index), Some(&prompt), more));
            assert_eq!(text(&answer), expected, "{name} {index}");
            let usage = &answer["usage"];
            assert!(usage["prompt_tokens"].as_u64().unwrap() > 0, "{usage}");
        }
        let files: Vec<String> = (0..expected.len())
            .map(|index| base64(&case.file(index)))
            .collect();
        let image = json!({"name": "image", "shape": [files.len()], "datatype": "BYTES", "data": files});
        let body = json!({"inputs": [image], "parameters": {"max_tokens": LENGTH, "prompt": prompt}});
        let response = running.post(
            &format!("/v2/models/{NAME}/infer"),
            &[],
            body.to_string().as_bytes(),
        );
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(
            tensor(&response.json(), "text")["data"],
            json!(expected),
            "{name}"
        );
    }
}

/// Models that divide images into tiles, with and without beams and guesses. Checks the first `most` models.
pub(crate) fn check_tiled(device: Device, most: usize) {
    for case in tiled().into_iter().take(most) {
        let running = running(&case.path(), device);
        let beams: Vec<Vec<u32>> = case.texts.iter().map(|text| text.beams.clone()).collect();
        let beams = texts(&case.path(), &beams);
        for ((expected, by_beams), index) in case.texts.iter().zip(beams).zip(0..) {
            let file = fs::read(at("tests/golden/images").join(&expected.image)).unwrap();
            let ask = |more: Value| answer(&running, &chat(&file, case.prompt.as_deref(), more));
            for speculate in [0, 4] {
                let answer = ask(json!({"speculate": speculate}));
                assert_eq!(text(&answer), expected.text, "{} {index}", case.name);
                assert_eq!(answer["usage"]["completion_tokens"], expected.tokens.len());
            }
            let answer = ask(json!({"use_beam_search": true, "best_of": 3}));
            assert_eq!(text(&answer), by_beams, "{} {index} by beams", case.name);
        }
        let pages = format!("hipvit_cache_pages_used{{model=\"{NAME}\"");
        assert_eq!(running.metric(&pages), 0.0);
    }
}

/// Beams of each kind of model, with the rules of its files, for several images at once. Checks the first `most` searches.
pub(crate) fn check_beams(device: Device, most: usize) {
    for search in searched().into_iter().take(most) {
        let case = case(&search.name);
        if search.name == "blip" || search.name == "donut_wide" {
            // The files of BLIP have no rules, and donut_wide differs from donut in the encoder.
            continue;
        }
        let model = search.model(&case);
        let running = running(model.path(), device);
        let expected = texts(&case.path(), &search.tokens);
        let more = json!({"beams": search.num_beams});
        std::thread::scope(|scope| {
            for (index, expected) in expected.iter().enumerate() {
                let (running, case, more) = (&running, &case, &more);
                scope.spawn(move || {
                    let body = chat(&case.file(index), case.prompt.as_deref(), more.clone());
                    let answer = answer(running, &body);
                    assert_eq!(text(&answer), expected, "{} {index}", case.name);
                });
            }
        });
    }
}

/// Sends a chat by HTTP/1.0, whose answer is not divided into chunks. Returns a reader after its head.
pub(crate) fn open_stream(address: SocketAddr, body: &Value) -> (u16, BufReader<TcpStream>) {
    let mut stream = connect(address);
    let body = body.to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    (status, reader)
}

/// Returns the events of a stream. The last one is `[DONE]`.
pub(crate) fn events(mut reader: impl Read) -> Vec<Value> {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let mut events: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(events.pop(), Some(""));
    assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
    let parse = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
    events.into_iter().map(parse).collect()
}

/// Returns the text of a stream's parts.
pub(crate) fn content(events: &[Value]) -> String {
    let parts = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    parts.collect()
}
