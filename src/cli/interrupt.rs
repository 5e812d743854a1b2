//! Results are kept when a signal ends the process: Ctrl-C, `kill`, a terminal that is closed.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::output;
use super::partial::JournalFile;
use crate::signals::is_ignored;

/// Starts a thread that keeps the results in `file` when a signal ends the process. A second SIGINT or SIGTERM ends the process at once,
/// for a file system that hangs. A terminal that is closed may send SIGHUP twice, so a second SIGHUP does not.
///
/// # Errors
///
/// The handler or its thread cannot be started.
pub fn keep(file: &Arc<Mutex<JournalFile>>) -> Result<()> {
    let signals = [SIGINT, SIGTERM, SIGHUP];
    let signals = signals.into_iter().filter(|&signal| !is_ignored(signal));
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in signals.clone().filter(|&signal| signal != SIGHUP) {
        register_conditional_default(signal, interrupted.clone()).context("cannot handle signals")?;
    }
    let mut signals = Signals::new(signals).context("cannot handle signals")?;
    let file = file.clone();
    let wait = move || {
        for signal in &mut signals {
            interrupted.store(true, Ordering::SeqCst);
            let mut file = file.lock();
            let kept = file.keep();
            if std::io::stderr().is_terminal() {
                // Below the progress bar.
                output::say("");
            }
            if let Some(kept) = kept {
                output::say(&format!("interrupted: {}", super::one_line(&kept)));
            }
            // Ends the process as if there were no handler. Holding the lock, no result is written meanwhile.
            let _ = emulate_default_handler(signal);
        }
    };
    let thread = thread::Builder::new().name("hipvit-signals".into());
    thread.spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// The command line with `--resume`, as a shell takes it.
pub fn resume_command(args: impl Iterator<Item = OsString>) -> String {
    let mut words: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    if !words.iter().any(|word| word == "--resume") {
        // Behind the subcommand: an option at the end could follow `--`.
        let command = words
            .iter()
            .position(|word| word == "embed" || word == "classify");
        words.insert(command.map_or(words.len(), |at| at + 1), "--resume".into());
    }
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_resume_can_be_pasted() {
        let command = |args: &[&str]| resume_command(args.iter().map(OsString::from));
        assert_eq!(
            command(&["hipvit", "-q", "embed", "my photos", "-o", "e.npy"]),
            "hipvit -q embed --resume 'my photos' -o e.npy"
        );
        assert_eq!(
            command(&["hipvit", "classify", "--resume", "--", "a'b"]),
            r"hipvit classify --resume -- 'a'\''b'"
        );
    }
}
