//! The message of an inference over gRPC. Decoding takes no more memory than the message is charged with.

#![no_main]

use hipvit_fuzz::within;
use hipvit_serve::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(size) = fuzzing::message_size(data) else {
        return;
    };
    // The message's copy, what is decoded, and the request that is made of it.
    within((64 << 10) + (data.len() + 2 * size) as u64, || {
        fuzzing::infer_message(data);
    });
});
