//! The body of an inference over HTTP: JSON, and after the first zero byte, which JSON cannot have, binary tensors.

#![no_main]

use hipvit::serve::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == 0);
    let (json, tail) = data.split_at(end.unwrap_or(data.len()));
    let body = [json, tail.get(1..).unwrap_or_default()].concat();
    fuzzing::infer_json(&body, end.map(|end| end.min(body.len())));
});
