//! `hipvit completions`, and the completions that its scripts request. A shell runs the program at each completion, so
//! that it offers the GPUs that are present.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use anyhow::{Context, Result};
use clap::builder::StyledStr;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use hipvit::hip::Runtime;

use super::{Outcome, options, output};

/// Environment variable in which the scripts pass the shell's name.
const VARIABLE: &str = "COMPLETE";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
bash:  echo 'source <(hipvit completions bash)' >> ~/.bashrc
zsh:   echo 'source <(hipvit completions zsh)' >> ~/.zshrc
fish:  echo 'hipvit completions fish | source' >> ~/.config/fish/config.fish")]
pub struct Args {
    /// Shell to print the script for
    shell: clap_complete::Shell,
}

impl Args {
    /// Prints the script. `program` is the name under which the program was called.
    pub fn run(&self, program: Option<OsString>) -> Result<Outcome> {
        let shells = Shells::builtins();
        let shell = shells
            .completer(&self.shell.to_string())
            .context("no script for this shell")?;
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, "hipvit", "hipvit", &command(program), &mut script)?;
        output::stdout().write_all(&script)?;
        Ok(Outcome::Complete)
    }
}

/// Returns the command that a script runs: a name that is found in PATH, or an absolute path.
fn command(program: Option<OsString>) -> String {
    let called = program.unwrap_or_else(|| "hipvit".into());
    if called == OsStr::new("hipvit") {
        "hipvit".into()
    } else {
        std::path::absolute(&called).map_or_else(|_| "hipvit".into(), |path| path.display().to_string())
    }
}

/// If this is a completion request, answers it and exits.
pub fn answer() {
    CompleteEnv::with_factory(options::command)
        .var(VARIABLE)
        .complete();
}

fn candidate(name: String, help: String) -> CompletionCandidate {
    CompletionCandidate::new(name).help(Some(StyledStr::from(help)))
}

/// Returns the devices of this machine, and the set of all GPUs if there are several.
pub fn device_sets() -> Vec<CompletionCandidate> {
    let mut sets = devices();
    // Behind auto and cpu.
    if sets.len() > 3 {
        let count = sets.len() - 2;
        sets.push(candidate("hip:all".into(), format!("all {count} GPUs")));
    }
    sets
}

/// Returns the devices of this machine.
pub fn devices() -> Vec<CompletionCandidate> {
    let mut devices = vec![
        candidate("auto".into(), "the first GPU, or the CPU if there is none".into()),
        candidate("cpu".into(), "the CPU".into()),
    ];
    let gpus = Runtime::open()
        .and_then(|runtime| runtime.devices())
        .unwrap_or_default();
    devices.extend(gpus.iter().map(|gpu| {
        let properties = gpu.properties();
        let help = format!("{}, {}", properties.name, properties.target);
        candidate(format!("hip:{}", gpu.ordinal()), help)
    }));
    devices
}
