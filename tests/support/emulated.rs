//! Programs on emulated AMD GPUs (`sys/emu`), which execute the machine code of AMD GPUs.
//!
//! They need LLVM's disassembler, and a clang for AMD GPUs if the kernels were not compiled ahead of time.
//! Without them the tests are skipped with a message. With `HIPVIT_REQUIRE_EMU=1`, as in CI, they fail.
//! `HIPVIT_EMU_TESTS=all` also runs tests that take minutes, as `ci/emulated` does.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Instant;

use crate::support::program::{stderr, stdout};

/// Set in a process that a test started.
pub(crate) const MARK: &str = "HIPVIT_EMU_TEST";

/// Returns the library that Cargo built for these tests.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    folders
        .map(|folder| folder.join("libhip_emu.so"))
        .find(|file| file.exists())
        .expect("Cargo builds hip-emu's library for the tests")
}

/// Creates a command that sees these GPUs: `gfx1100`, `gfx942x2`.
pub(crate) fn command(program: impl Into<PathBuf>, gpus: &str) -> Command {
    let mut command = Command::new(program.into());
    if let Some(clang) = clang_of_gfx950().filter(|_| gpus.starts_with("gfx950")) {
        command.env("HIP_EMU_CLANG", clang);
    }
    command
        .env("HIPVIT_PROVIDER", library())
        .env("HIP_EMU_ARCH", gpus)
        // Compiled and disassembled code is shared between tests, including the library's, but not with the
        // user's cache.
        .env(
            "HIPVIT_CACHE_DIR",
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emu-cache"),
        );
    command
}

/// Returns `HIP_EMU_CLANG` or another clang in PATH that compiles for gfx950, if there is a matching
/// disassembler.
pub(crate) fn clang_of_gfx950() -> Option<&'static str> {
    static CLANG: OnceLock<Option<String>> = OnceLock::new();
    let compiles = |clang: &String| {
        Command::new(clang)
            .args([
                "--target=amdgcn-amd-amdhsa",
                "-mcpu=gfx950",
                "-nogpulib",
                "-x",
                "c",
                "-S",
            ])
            .args(["-o", "/dev/null", "/dev/null"])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    CLANG
        .get_or_init(|| {
            let versions = (20..=22).rev().map(|version| format!("clang++-{version}"));
            env::var("HIP_EMU_CLANG")
                .into_iter()
                .chain(versions)
                .find(compiles)
        })
        .as_deref()
}

pub(crate) fn hipvit(gpus: &str, arguments: &[&str]) -> Output {
    let mut command = command(env!("CARGO_BIN_EXE_hipvit"), gpus);
    command.args(arguments).output().unwrap()
}

/// Returns true if kernels can be compiled and executed here.
pub(crate) fn available() -> bool {
    if env::var_os(MARK).is_some() {
        return true;
    }
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let tried = [
            "validate", "--device", "hip", "--op", "pool", "--config", "micro", "--dtype", "f32",
        ];
        let output = hipvit("gfx942", &tried);
        let text = format!("{}{}", stdout(&output), stderr(&output));
        let tool = [
            "llvm-objdump was not found",
            "no clang that targets AMD GPUs was found",
        ];
        let missing = tool.iter().find_map(|tool| {
            let rest = &text[text.find(tool)?..];
            rest.lines().next().map(str::to_owned)
        });
        match &missing {
            Some(missing) => {
                assert!(
                    env::var_os("HIPVIT_REQUIRE_EMU").is_none_or(|v| v != "1"),
                    "{missing}"
                );
                // Write to the real standard error, because the harness hides the output of a test that
                // passes.
                let _ = writeln!(std::io::stderr(), "skipped: the emulated GPU's tests: {missing}");
            }
            None => assert_eq!(output.status.code(), Some(0), "{text}"),
        }
        missing
    });
    missing.is_none()
}

/// Returns true if tests that take minutes run too.
pub(crate) fn all() -> bool {
    env::var("HIPVIT_EMU_TESTS").is_ok_and(|v| v == "all")
}

/// Runs these tests of this binary on the first of `gpus`. Each must pass.
pub(crate) fn passes(gpus: &str, dtypes: &str, tests: &[&str]) {
    let begun = Instant::now();
    let mut command = command(env::current_exe().unwrap(), gpus);
    let output = command
        .args(tests)
        // One test measures the device's memory.
        .args(["--exact", "--nocapture", "--test-threads", "1"])
        .env("HIPVIT_TEST_DEVICE", "hip:0")
        .env("HIPVIT_TEST_DTYPES", dtypes)
        .env("HIPVIT_TEST_RUNS", "20")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert!(
        text.contains(&format!("test result: ok. {} passed", tests.len())),
        "{gpus}:\n{text}{}",
        stderr(&output)
    );
    // Standard error contains only the tests' output, no report of the emulated GPU.
    assert!(!stderr(&output).contains("hip-emu: "), "{}", stderr(&output));
    println!("{gpus} {dtypes} ({:.1?}):\n{text}", begun.elapsed());
}
