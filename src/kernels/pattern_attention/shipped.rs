//! Programs of patterns that `build.rs` compiles ahead of time, in `hip/patterns`.
//!
//! A pattern whose program has the same text is not compiled at run time on the GPUs that hipvit was built for. Sizes that are scalars of
//! the run do not change the text, so one program serves each of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use hipvit_graph::op::{AttentionOperands, Op, PatternAttention, PatternAttentionBackward};
use hipvit_graph::pattern::{Pattern, floats, ints, masks, scores};

use crate::kernels::device_code;
use crate::kernels::lower::Lower as _;

/// Head size of the shipped programs, which most vision transformers have.
const HEAD_DIM: usize = 64;

/// Returns the patterns and the names of their files.
fn patterns() -> [(&'static str, Pattern); 8] {
    let masked = |mask| Pattern::new().with_mask(mask);
    let scored = |score| Pattern::new().with_score(score);
    [
        ("alibi", scored(scores::alibi(scores::score()))),
        ("bias", scored(scores::bias(scores::score(), "bias"))),
        ("causal", masked(masks::causal())),
        ("documents", masked(masks::documents("documents"))),
        ("key_padding", masked(masks::key_padding("keys"))),
        (
            "prefix",
            masked(masks::prefix(ints::scalar("count")) | masks::causal()),
        ),
        (
            "soft_cap",
            scored(scores::soft_cap(scores::score(), floats::scalar("cap"))),
        ),
        (
            "window",
            masked(masks::window(ints::scalar("left"), ints::scalar("right"))),
        ),
    ]
}

/// Returns the files of `hip/patterns` with their contents.
fn files() -> impl Iterator<Item = (String, String)> {
    patterns().into_iter().flat_map(|(name, pattern)| {
        let op = PatternAttention::new((1, HEAD_DIM), 1.0, AttentionOperands::PackedQkv, &pattern).unwrap();
        let forward = Op::from(op.clone());
        [("", forward), ("_backward", PatternAttentionBackward(op).into())].map(|(suffix, op)| {
            let source = op.unit().unwrap().source.unwrap();
            (format!("{name}_{HEAD_DIM}{suffix}.hip"), source.to_string())
        })
    })
}

/// Compares the files with the code generation. With HIPVIT_WRITE_PATTERNS=1, writes them first.
#[test]
fn the_shipped_programs_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("hip/patterns");
    let writes = env::var_os("HIPVIT_WRITE_PATTERNS").is_some();
    let mut expected = BTreeSet::new();
    for (name, text) in files() {
        if writes {
            fs::write(folder.join(&name), &text).unwrap();
        }
        let found = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(
            found == text,
            "hip/patterns/{name} is not current: run this test with HIPVIT_WRITE_PATTERNS=1"
        );
        // What was written is not part of this build.
        assert!(writes || device_code::file_of(&text) == name.strip_suffix(".hip"));
        expected.insert(name);
    }
    let found = fs::read_dir(folder).unwrap();
    let names = found.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), expected);
}
