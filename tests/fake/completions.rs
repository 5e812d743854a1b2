//! Completions of the shell, which list the GPUs that are there.

use std::ffi::OsStr;
use std::process::Command;

use crate::support::fake::Fake;
use crate::support::program::{stderr, stdout};

/// Returns bash's completions for the last of `words`.
fn completed(words: &[&str], provider: &OsStr) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .arg("--")
        .args(words)
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_IFS", "\n")
        .env("HIPVIT_PROVIDER", provider)
        .env("FAKE_DEVICES", "2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

#[test]
fn completions_know_the_gpus_that_are_there_and_the_dtypes() {
    let none = OsStr::new("/no/such/provider");
    assert_eq!(
        completed(&["hipvit", "classify", "--device", ""], none),
        ["auto", "cpu"]
    );
    assert_eq!(
        completed(&["hipvit", "classify", "--dtype", ""], none),
        ["auto", "f32", "f16", "bf16"]
    );
    assert!(completed(&["hipvit", "in"], none).contains(&"inspect".to_owned()));
    let fake = Fake::new("completions");
    for command in ["inspect", "validate", "classify", "bench", "tune"] {
        let several: &[&str] = match command {
            "inspect" | "validate" => &[],
            _ => &["hip:all"],
        };
        assert_eq!(
            completed(&["hipvit", command, "--device", "h"], fake.path.as_os_str()),
            [&["hip:0", "hip:1"], several].concat(),
            "{command}"
        );
    }
}
