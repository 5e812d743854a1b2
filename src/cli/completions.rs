//! `hipvit completions`.

use anyhow::Result;
use clap::CommandFactory;

use super::{Cli, Outcome};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell that will read the script
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        clap_complete::generate(self.shell, &mut Cli::command(), "hipvit", &mut std::io::stdout());
        Ok(Outcome::Complete)
    }
}
