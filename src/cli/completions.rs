//! `hipvit completions`.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;

use super::{Cli, Outcome, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shell to generate the script for
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        // Into memory first: the generator panics on write errors.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "hipvit", &mut script);
        output::stdout().write_all(&script)?;
        Ok(Outcome::Complete)
    }
}
