//! `hipvit embed`.

use std::io::Write;

use anyhow::{Result, bail};
use hipvit::pipeline::Pipeline;
use serde_json::json;

use super::inputs::Inputs;
use super::progress::Progress;
use super::{ModelArgs, Outcome, report};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: ModelArgs,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        if self.inputs.is_empty() {
            bail!("name an image, a directory, a glob pattern or -");
        }
        let (sources, unlisted) = self.inputs.sources();
        unlisted.iter().for_each(report);
        let session = self.model.load()?;
        let mut out = std::io::stdout().lock();
        let progress = Progress::images(sources.len());
        let mut failed = unlisted.len();
        Pipeline::new(&session)
            .limits(self.inputs.limits.limits())
            .run(sources, |item| {
                progress.step();
                match item.result {
                    Ok((outputs, row)) => {
                        let line = json!({
                            "image": item.name,
                            "model": session.name(),
                            "device": session.device().to_string(),
                            "dtype": session.dtype().to_string(),
                            "embedding": outputs.embeddings().row(row).to_vec(),
                        });
                        progress.print(|| writeln!(out, "{line}"))?;
                    }
                    Err(error) => {
                        failed += 1;
                        progress.report(|| report(error));
                    }
                }
                anyhow::Ok(())
            })?;
        Ok(if failed == 0 {
            Outcome::Complete
        } else {
            Outcome::SomeFailed
        })
    }
}
