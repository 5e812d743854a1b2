//! File of the partial results of a run in progress, kept when the run is interrupted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

/// File of a run in progress.
#[derive(Debug)]
pub(crate) struct JournalFile {
    pub(crate) path: PathBuf,
    /// `None` after the run has ended with a complete output.
    pub(crate) out: Option<BufWriter<File>>,
    pub(crate) recorded: usize,
    pub(crate) images: usize,
    pub(crate) flushed: Instant,
}

impl JournalFile {
    /// Closes the file, and removes it if it has no results. Returns a message on how to continue.
    pub(crate) fn keep(&mut self) -> Option<String> {
        let mut out = self.out.take()?;
        let written = out.flush();
        if self.recorded == 0 {
            let _ = fs::remove_file(&self.path);
            return None;
        }
        // Results that could not be written are computed again.
        let part = if written.is_ok() { "" } else { "a part of " };
        Some(format!(
            "{}: contains {part}the results of {} of {} images. To continue: {}",
            self.path.display(),
            self.recorded,
            self.images,
            resume_command(std::env::args_os())
        ))
    }
}

/// Returns the command line with `--resume`, quoted for a shell.
fn resume_command(args: impl Iterator<Item = OsString>) -> String {
    let mut words: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    if !words.iter().any(|word| word == "--resume") {
        // Insert it after the subcommand, because the end can be behind `--`.
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
