//! `spiece.model` of a text tower: a SentencePiece model.

#![no_main]

use std::sync::LazyLock;

use hipvit_fuzz::{Texts, allow_caught_panics};
use libfuzzer_sys::fuzz_target;

static TEXTS: LazyLock<Texts> =
    LazyLock::new(|| Texts::new("hf_siglip", &["tokenizer.json"]).with_sentence_piece());

fuzz_target!(init: allow_caught_panics(), |data: &[u8]| TEXTS.embed("spiece.model", data));
