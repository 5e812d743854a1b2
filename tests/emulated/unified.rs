//! An emulated APU, whose kernels access inputs and results in the host's memory.

use std::process::Output;

use crate::support::at;
use crate::support::emulated::{available, command};
use crate::support::profile::{read, text};
use crate::support::program::{stderr, stdout};

/// Images and options of `hipvit classify`.
type Runs<'a> = &'a [&'a str];

const ONE: Runs<'_> = &["assets/samples/7.png", "--resize", "host"];

/// Three runs without a graph.
const THREE: Runs<'_> = &[
    "assets/samples/7.png",
    "assets/samples/3.png",
    "assets/samples/1.png",
    "--resize",
    "host",
    "--batch",
    "1",
    "--hip-graphs",
    "off",
];

const RESIZED: Runs<'_> = &["assets/samples/7.png", "--resize", "device"];

/// Classifies images. The `fail`th copy fails, if there are that many.
fn classify(arch: &str, unified: &str, runs: Runs<'_>, fail: u64) -> Output {
    command(env!("CARGO_BIN_EXE_hipvit"), arch)
        .args(["classify", "--device", "hip", "--json"])
        .args(runs)
        .current_dir(at(""))
        .env("HIPVIT_UNIFIED_MEMORY", unified)
        .env("HIP_EMU_FAIL_COPY", fail.to_string())
        .output()
        .unwrap()
}

/// Returns the number of copies of loading a model and of these runs, and the output.
fn copies(arch: &str, unified: &str, runs: Runs<'_>) -> (u64, String) {
    for fail in 1..20 {
        let output = classify(arch, unified, runs, fail);
        if output.status.success() {
            return (fail - 1, stdout(&output).to_owned());
        }
        assert!(stderr(&output).contains("hipErrorUnknown"), "{}", stderr(&output));
    }
    panic!("twenty copies");
}

#[test]
fn runs_of_an_apu_copy_nothing() {
    if !available() {
        return;
    }
    let (one, expected) = copies("gfx1151", "", ONE);
    let (copied, output) = copies("gfx1151", "0", ONE);
    assert_eq!(output, expected);
    assert_eq!(copied, one + 2, "the input and the logits");
    let (three, expected) = copies("gfx1151", "", THREE);
    assert_eq!(three, one, "only weights");
    let (copied, output) = copies("gfx1151", "0", THREE);
    assert_eq!(output, expected);
    assert_eq!(copied, three + 6);
    // A GPU with memory of its own can access the host's too.
    let (copied, expected) = copies("gfx1100", "", ONE);
    let (one, output) = copies("gfx1100", "1", ONE);
    assert_eq!(output, expected);
    assert_eq!(copied, one + 2);
}

#[test]
fn an_apu_resizes_images_in_the_hosts_memory() {
    if !available() {
        return;
    }
    let (shared, expected) = copies("gfx1151", "", RESIZED);
    let (copied, output) = copies("gfx1151", "0", RESIZED);
    assert_eq!(output, expected);
    assert_eq!(copied, shared + 2, "the image and the logits");
}

#[test]
fn a_timeline_of_an_apu_has_no_copies() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let arguments = "profile --device hip --batch 2 --batches 2 --in-flight 1 -o";
    let output = command(env!("CARGO_BIN_EXE_hipvit"), "gfx1151")
        .args(arguments.split(' '))
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let trace = read(&text(&file));
    assert!(!trace.of("attention").is_empty());
    let copies = trace.slices.iter().filter(|slice| slice.name.contains("copy"));
    assert_eq!(copies.count(), 0);
}
