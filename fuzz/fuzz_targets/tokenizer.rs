//! `tokenizer.json` of a text tower. A panic of the crate `tokenizers` becomes an error.

#![no_main]

use std::sync::LazyLock;

use hipvit_fuzz::{Texts, allow_caught_panics};
use libfuzzer_sys::fuzz_target;

static TEXTS: LazyLock<Texts> = LazyLock::new(|| Texts::new("hf_siglip2", &["tokenizer.json"]));

fuzz_target!(init: allow_caught_panics(), |data: &[u8]| TEXTS.embed("tokenizer.json", data));
