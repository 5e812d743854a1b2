//! Machine code as text, by LLVM's disassembler.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache::{Cache, Key};

/// A part of the cache's key, to be changed together with how code is disassembled.
const CACHE_VERSION: &[u8] = b"llvm-objdump -d 1";

/// Returns the possible paths of LLVM's disassembler: `GCNRUN_OBJDUMP` alone, or ROCm's and, in PATH, `llvm-objdump-22` … `-18`
/// and `llvm-objdump`, which is often older.
fn candidates() -> Vec<PathBuf> {
    if let Some(named) = env::var_os("GCNRUN_OBJDUMP") {
        return vec![named.into()];
    }
    let rocm = PathBuf::from(env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into()));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = (18..=22)
        .rev()
        .map(|version| format!("llvm-objdump-{version}"))
        .chain(["llvm-objdump".to_owned()])
        .flat_map(|name| env::split_paths(&path).map(move |directory| directory.join(&name)));
    [rocm.join("llvm/bin/llvm-objdump")]
        .into_iter()
        .chain(in_path)
        .filter(|tool| tool.is_file())
        .collect()
}

/// Returns the output of `llvm-objdump -d` for a code object, from the cache if it is there.
///
/// # Errors
/// Why there is none, and what to install.
pub(crate) fn disassemble(elf: &[u8], arch: &str) -> Result<String, String> {
    let mut error =
        "llvm-objdump was not found: install LLVM 18 or later (Debian's package llvm-19), or name one in \
                     GCNRUN_OBJDUMP"
            .to_owned();
    let cache = Cache::of_user("gcnrun");
    for tool in candidates() {
        let name = tool.as_os_str().as_encoded_bytes();
        let key = Key::of(&[CACHE_VERSION, name, arch.as_bytes(), elf]);
        if let Some(text) = cache.get(key).and_then(|kept| String::from_utf8(kept).ok()) {
            return Ok(text);
        }
        match run(&tool, elf, arch) {
            Ok(text) => {
                cache.put(key, text.as_bytes());
                return Ok(text);
            }
            // It may be too old for the architecture; try the next.
            Err(reason) => error = reason,
        }
    }
    Err(error)
}

fn run(tool: &Path, elf: &[u8], arch: &str) -> Result<String, String> {
    let failed = |reason: String| format!("{}: {reason}", tool.display());
    let mut child = Command::new(tool)
        .args(["-d", &format!("--mcpu={arch}"), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut input) = child.stdin.take() {
        // It reads everything before it writes. If it ends early, its own message says more than the broken pipe.
        let _ = input.write_all(elf);
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || message.contains("not a recognized processor") {
        let first = message.lines().next().unwrap_or("no message");
        return Err(failed(first.to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}
