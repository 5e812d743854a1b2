//! Chats with prompts, beams and guesses.

use hipvit::Device;
use serde_json::json;

use crate::support::at;
use crate::support::generation::{case, tiled};
use crate::support::server::chats::{NAME, answer, chat, check_beams, check_prompts, check_tiled, running};

#[test]
fn the_text_of_a_message_is_the_prompt() {
    check_prompts(Device::Cpu, usize::MAX);
}

#[test]
fn images_are_divided_into_tiles() {
    check_tiled(Device::Cpu, usize::MAX);
}

#[test]
fn beams_are_those_of_transformers() {
    check_beams(Device::Cpu, usize::MAX);
}

/// A conversation is written by the chat template, whatever the order of its parts. The expected prompts are those of `apply_chat_template` of transformers.
#[test]
fn conversations_follow_the_chat_template() {
    let case = tiled().remove(0);
    let running = running(&case.path(), Device::Cpu);
    let file = std::fs::read(at("tests/golden/images/wide.png")).unwrap();
    let image = chat(&file, None, json!({}))["messages"][0]["content"][0].clone();
    let of_messages = json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is the thing?"}, image]},
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": [{"type": "text", "text": "Read it, please"}]},
    ]});
    let found = answer(&running, &chat(&file, None, of_messages));
    let whole = "<|im_start|>System: Be brief.<end_of_utterance>\nUser: What is the thing?<image><end_of_utterance>\nAssistant: a cat<end_of_utterance>\nUser: Read it, please<end_of_utterance>\nAssistant:";
    let body = json!({
        "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [crate::support::server::base64(&file)]}],
        "parameters": {"max_tokens": 24, "prompt": whole},
    });
    let response = running.post(
        &format!("/v2/models/{NAME}/infer"),
        &[],
        body.to_string().as_bytes(),
    );
    assert_eq!(response.status, 200, "{}", response.text());
    let expected = response.json();
    let expected = &crate::support::server::tensor(&expected, "text")["data"][0];
    assert_eq!(&found["choices"][0]["message"]["content"], expected);
    // An image in the text as well is one too many.
    let twice = chat(&file, Some("And <image>?"), json!({}));
    let response = running.post("/v1/chat/completions", &[], twice.to_string().as_bytes());
    assert_eq!(response.status, 400);
    assert!(
        response
            .text()
            .contains("`messages`: the prompt has `<image>` more than once"),
        "{}",
        response.text()
    );
}

/// More beams than the cache has pages for at once, beside texts of one beam: each waits for its turn.
#[test]
fn beams_wait_for_pages_beside_other_texts() {
    let case = case("trocr_base");
    let running = running(&case.path(), Device::Cpu);
    let alone: Vec<serde_json::Value> = (0..24).map(|number| ask(&running, &case, number)).collect();
    std::thread::scope(|scope| {
        for (number, alone) in alone.iter().enumerate() {
            let (running, case) = (&running, &case);
            scope.spawn(move || assert_eq!(ask(running, case, number), *alone, "{number}"));
        }
    });
    let pages = running.metric(&format!("hipvit_cache_pages{{model=\"{NAME}\""));
    // Eight searches of four beams of two pages do not fit at once.
    assert!(pages < 64.0, "{pages}");
    assert_eq!(
        running.metric(&format!("hipvit_cache_pages_used{{model=\"{NAME}\"")),
        0.0
    );
}

fn ask(
    running: &crate::support::server::Running,
    case: &crate::support::generation::Case,
    number: usize,
) -> serde_json::Value {
    let beams = [1, 4, 2][number % 3];
    let body = chat(
        &case.file(number % 4),
        None,
        json!({"beams": beams, "max_tokens": 24 - number % 5}),
    );
    answer(running, &body)["choices"][0]["message"]["content"].clone()
}
