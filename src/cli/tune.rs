//! `hipvit tune`: measures which kernel or library is fastest for each linear layer, the patch embedding and the attention of a
//! model, and keeps the result for later runs.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use hipvit::exec::{Executor, Tuned};

use super::{ModelArgs, Outcome, output, record};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// As --model
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    positional: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Batch sizes to measure for [default: that of --batch]
    #[arg(long, value_name = "N,N…", value_delimiter = ',', value_parser = super::positive)]
    batches: Vec<usize>,
    /// Print one JSON object for each shape
    #[arg(long)]
    json: bool,
    /// Measure only; keep nothing
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let session = self.model.clone().or_model(self.positional.as_ref()).load()?;
        let degrees = session.degrees();
        if degrees.data * degrees.shards() > 1 {
            bail!(
                "device: one GPU is measured at a time; GPUs of the same name share the result: name one by --device hip:N"
            );
        }
        let Executor::Hip { executor: gpu, .. } = session.executor() else {
            bail!(
                "device: the model runs on the CPU, where there is nothing to select; name a GPU by --device"
            );
        };
        let batches = match &self.batches[..] {
            [] => &[session.batch()],
            batches => batches,
        };
        let mut out = output::stdout();
        let mut written = Ok(());
        for &batch in batches {
            let plan = session.plan(batch)?;
            if !self.json {
                let name = super::one_line(session.name());
                writeln!(out, "{name}: batch {batch}, {}", session.dtype())?;
            }
            let store = gpu.tune(&plan, |tuned| {
                let line = match self.json {
                    true => record::write(&mut out, tuned),
                    false => row(&mut out, tuned),
                };
                if written.is_ok() {
                    written = line;
                }
            })?;
            // Kept after each batch, so that an interruption loses little.
            if !self.dry_run {
                let path = store.save()?;
                output::note(&format!("{}: kept {} shapes", path.display(), store.len()));
            }
        }
        written?;
        Ok(Outcome::Complete)
    }
}

fn row(out: &mut impl Write, tuned: &Tuned) -> Result<()> {
    let Tuned {
        shape,
        steps,
        candidates,
        best,
        rule_us,
        best_us,
        ..
    } = tuned;
    writeln!(out, "{steps:>3} × {shape}")?;
    writeln!(
        out,
        "      {:<26} {best_us:>9.1} µs  {:>6.1} TFLOP/s  {:.2}× the rule's {rule_us:.1} µs, of {candidates}",
        best.to_string(),
        shape.flops() / best_us / 1e6,
        rule_us / best_us,
    )?;
    Ok(())
}
