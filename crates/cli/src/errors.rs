//! Error messages on standard error: fatal errors, and failures of single inputs.

use std::io;

use anstyle::{AnsiColor, Style};
use anyhow::Error;

use super::escape::{lines, one_line};
use super::outcome::Usage;
use super::{environment, output};

/// Prints the error that stopped the command. Returns the exit code.
pub(crate) fn failed(error: &Error) -> u8 {
    if is_broken_pipe(error) {
        return 0;
    }
    say_error(error);
    let is_gpu_error = matches!(error.downcast_ref(), Some(hipvit::Error::Hip(_)));
    environment::print_origins(&with_causes(error), is_gpu_error);
    if let Some(hipvit::Error::Hip(hipvit::hip::Error::Provider { .. })) = error.downcast_ref()
        && let Some(advice) = gpu_libraries()
    {
        output::note(&format!("{advice}; --device cpu needs no GPU libraries"));
    }
    let usage = error.is::<Usage>() || error.is::<Usage<String>>();
    if usage { 2 } else { 1 }
}

/// Returns the variables that locate GPU libraries, unless HIPVIT_PROVIDER is set.
pub(crate) fn gpu_libraries() -> Option<&'static str> {
    let named = std::env::var_os("HIPVIT_PROVIDER").is_some_and(|value| !value.is_empty());
    (!named).then_some(if cfg!(windows) {
        "install AMD's driver and its HIP SDK, or set HIP_PATH to the folder of the SDK"
    } else {
        "set ROCM_PATH to ROCm's folder; for an NVIDIA GPU set HIPVIT_PROVIDER=cuda to use CUDA's libraries"
    })
}

/// Prints the failure of one input in one line. The other inputs go on.
pub(crate) fn report(error: impl Into<Error>) {
    if !output::is_left_to_rank_0() {
        say_error(&error.into());
    }
}

/// Prints an error and its causes on standard error: in one line, unless it lists the nodes of an ONNX model.
fn say_error(error: &Error) {
    const RED: Style = AnsiColor::Red.on_default().bold();
    let text = with_causes(error);
    let text = match error.downcast_ref() {
        Some(hipvit::Error::Onnx(_)) => lines(&text),
        _ => one_line(&text),
    };
    output::say(&format!("{RED}error{RED:#}: {text}"));
}

/// Returns the messages of an error and its causes, each once. Many errors include the message of their source.
pub(crate) fn with_causes(error: &Error) -> String {
    let mut messages: Vec<String> = Vec::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if messages.iter().any(|message| message.contains(&cause)) {
            continue;
        }
        match messages.last_mut() {
            Some(last) if cause.starts_with(last.as_str()) => *last = cause,
            _ => messages.push(cause),
        }
    }
    messages.join(": ")
}

/// Returns true if standard output was closed by its reader (`hipvit classify … | head`).
pub(crate) fn is_broken_pipe(error: &Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn every_cause_is_printed_once() {
        let refused = || io::Error::other("no such host");
        let error = Error::from(refused()).context("http://h").context("top");
        assert_eq!(with_causes(&error), "top: http://h: no such host");
        // The library's message includes its source.
        let error = hipvit::Error::Io {
            path: "a.png".into(),
            source: refused(),
        };
        assert_eq!(with_causes(&error.into()), "a.png: no such host");
        let lost: anyhow::Result<()> = Err(anyhow!("rank 1: lost"));
        let error = lost.context("rank 1").unwrap_err();
        assert_eq!(with_causes(&error), "rank 1: lost");
    }
}
