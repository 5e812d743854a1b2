//! The message of an inference over gRPC.

#![no_main]

use hipvit::serve::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::infer_message(data));
