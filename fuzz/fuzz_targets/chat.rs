//! The body of `/v1/chat/completions`.

#![no_main]

use hipvit_serve::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::chat(data));
