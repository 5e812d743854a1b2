//! `hipvit embed`.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::inputs::Inputs;
use super::record::{self, Record};
use super::{Outcome, RunArgs, Usage, output, report_fallback};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: RunArgs,
}

#[derive(Serialize)]
struct Embedded {
    embedding: Vec<f32>,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        if self.inputs.is_empty() {
            return Err(Usage("name an image, a directory, a glob pattern or -").into());
        }
        let images = self.inputs.list()?;
        let session = self.model.load()?;
        let mut out = output::stdout();
        let limits = self.inputs.limits.limits();
        let (_, outcome) = images.run(&session, limits, false, |name, outputs, row| {
            let embedding = outputs.embeddings().row(row).to_vec();
            record::write(&mut out, &Record::new(&session, name, Embedded { embedding }))
        })?;
        report_fallback(&session);
        out.flush()?;
        Ok(outcome)
    }
}
