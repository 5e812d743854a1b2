//! The body of `/v1/embeddings`.

#![no_main]

use hipvit_serve::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::embeddings(data));
