//! `hipvit validate` on the fake GPU, whose row copies can be made wrong.

use std::process::{Command, Output};

use crate::support::at;
use crate::support::fake::Fake;
use crate::support::program::{json, stderr, stdout};

/// Runs on the first GPU of a provider.
fn provider(path: &str, arguments: &[&str], wrong: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    command
        .args(["validate", "--device", "hip"])
        .args(arguments)
        .env("HIPVIT_PROVIDER", path)
        .env("FAKE_DEVICES", "1");
    if wrong {
        command.env("FAKE_WRONG_ROWS", "1");
    }
    command.output().unwrap()
}

#[test]
fn a_gpu_that_copies_passes_and_one_that_errs_fails() {
    let fake = Fake::new("validate");
    let path = fake.path.to_str().unwrap();
    let arguments = ["--op", "concat", "--config", "micro,awkward"];
    let right = provider(path, &arguments, false);
    assert_eq!(
        right.status.code(),
        Some(0),
        "{}{}",
        stdout(&right),
        stderr(&right)
    );
    let text = stdout(&right);
    assert!(text.starts_with("hip:0: Fake Instinct, gfx942"), "{text}");
    // 1 and 6 sizes in four forms and three dtypes; its GEMMs are of f32 alone.
    assert!(text.ends_with("84 passed, 0 failed, 0 skipped\n"), "{text}");
    assert!(
        text.contains("in f32 by a GEMM of") && text.contains("no peak: GEMM in f16"),
        "{text}"
    );

    let wrong = provider(path, &arguments, true);
    assert_eq!(wrong.status.code(), Some(1), "{}", stdout(&wrong));
    let text = stdout(&wrong);
    assert!(text.contains("FAIL  concat"), "{text}");
    assert!(text.ends_with("0 passed, 84 failed, 0 skipped\n"), "{text}");
    let complaint = text
        .lines()
        .find(|line| line.starts_with("FAIL concat axis 1 of 1×32, 1×7 in f32"));
    let complaint = complaint.unwrap_or_else(|| panic!("{text}"));
    assert!(
        complaint.contains("differs too much from the reference; worst at index "),
        "{complaint}"
    );
    assert!(
        complaint.contains(": got ") && complaint.contains(", want "),
        "{complaint}"
    );
}

#[test]
fn an_op_that_does_not_run_fails_and_the_others_go_on() {
    let fake = Fake::new("validate-missing");
    let path = fake.path.to_str().unwrap();
    let arguments = [
        "--op",
        "concat,pool,normalize",
        "--config",
        "micro",
        "--dtype",
        "f16",
    ];
    let output = provider(path, &arguments, false);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    // The provider has the crate's kernels in f32 alone.
    assert!(text.contains("FAIL  pool mean"), "{text}");
    assert!(
        text.contains("skip  normalize") && text.contains("GPU plans have patch_extract"),
        "{text}"
    );
    assert!(text.ends_with("4 passed, 6 failed, 1 skipped\n"), "{text}");
}

#[test]
fn what_validates_nothing_is_no_success() {
    let fake = Fake::new("validate-nothing");
    let path = fake.path.to_str().unwrap();
    let output = provider(path, &["--op", "normalize", "--config", "micro"], false);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.ends_with("0 passed, 0 failed, 3 skipped\n"), "{text}");
}

#[test]
fn a_provider_that_errs_is_named_at_its_layer() {
    let fake = Fake::new("validate-model");
    let path = fake.path.to_str().unwrap();
    // The head of this model joins the class token and the mean of the patches, which the provider copies row by row.
    let model = at("tests/golden/hf_dinov2");
    let compared = |wrong: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
        command
            .args([
                "validate",
                "--device",
                "cpu",
                "--against",
                path,
                "--json",
                "--model",
            ])
            .arg(&model)
            .env("FAKE_DEVICES", "1");
        if wrong {
            command.env("FAKE_WRONG_ROWS", "1");
        }
        let output = command.output().unwrap();
        (output.status.code(), json(stdout(&output)))
    };
    let (code, right) = compared(false);
    assert_eq!((code, &right["failed"]), (Some(0), &0.into()), "{right}");
    assert_eq!(right["against"], path);
    let (code, wrong) = compared(true);
    assert_eq!(
        (code, &wrong["first_beyond"]),
        (Some(1), &"embedding".into()),
        "{wrong}"
    );

    // As the candidate, it replays what it is served.
    let report = provider(path, &["--against", "cpu", "--json"], false);
    let report = json(stdout(&report));
    assert_eq!(report["failed"], 0, "{report}");
    assert!(
        report["candidate"]["replayed_runs"].as_u64() >= Some(1),
        "{report}"
    );
}
