//! The body of an inference over HTTP: JSON, and after the first zero byte, which JSON cannot have, binary tensors.
//! Reading it takes no more memory than it is charged with.

#![no_main]

use hipvit_fuzz::within;
use hipvit_serve::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == 0);
    let (json, tail) = data.split_at(end.unwrap_or(data.len()));
    let body = [json, tail.get(1..).unwrap_or_default()].concat();
    // The body's copy, what is parsed, and the tensors that are made of its binary part.
    let size = fuzzing::json_size(json) + 4 * body.len();
    within((64 << 10) + (body.len() + 2 * size) as u64, || {
        fuzzing::infer_json(&body, end.map(|end| end.min(body.len())));
    });
});
