//! `hipvit completions`, and the completions that its scripts request. A shell runs the program at each completion, so
//! that it offers the GPUs that are present.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::env::{CompleteEnv, Shells};

use super::outcome::Outcome;
use super::{options, output};

/// Environment variable in which the scripts pass the shell's name.
const VARIABLE: &str = "COMPLETE";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
bash:  echo 'source <(hipvit completions bash)' >> ~/.bashrc
zsh:   echo 'source <(hipvit completions zsh)' >> ~/.zshrc
fish:  echo 'hipvit completions fish | source' >> ~/.config/fish/config.fish")]
pub(crate) struct Args {
    /// Shell to print the script for
    shell: clap_complete::Shell,
}

impl Args {
    /// Prints the script. `program` is the name under which the program was called.
    pub(crate) fn run(&self, program: Option<OsString>) -> Result<Outcome> {
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

/// If this is a completion request for the command line `C`, answers it and exits.
pub(crate) fn answer<C: CommandFactory>() {
    CompleteEnv::with_factory(options::command::<C>)
        .var(VARIABLE)
        .complete();
}
