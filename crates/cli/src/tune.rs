//! `hipvit tune`: selects the fastest kernel or library for each linear layer, patch embedding and attention of a
//! model, and the fastest tile of attention with a pattern. Stores the result for later runs. 2:4 sparse weights stay packed only if the whole model is faster.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use hipvit::RunConfig;
use hipvit::exec::Tuned;
use hipvit::exec::select::{PackedLayer, SelectOptions, Store, WholeModel};
use hipvit::run_config::parsers::positive;

use super::model_args::NamedModel;
use super::outcome::Outcome;
use super::{output, record};

/// Duration of a turn of the whole model's runs. A GPU at its power limit changes its clock within milliseconds.
const TURN: Duration = Duration::from_millis(400);

const EXAMPLES: &str = "\
Examples:
  hipvit tune MODEL --device hip --dtype bf16 --batches 1,64
  hipvit tune MODEL --device hip --dry-run --json";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    model: NamedModel,
    #[command(flatten)]
    config: RunConfig,
    /// Batch sizes to measure for [default: --batch]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = positive, help_heading = "Device")]
    batches: Vec<usize>,
    /// Print one JSON object per shape
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Measure only; do not store the results
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let session = self.model.with(&self.config).load()?;
        let degrees = session.degrees();
        if degrees.data * degrees.shards() > 1 {
            bail!(
                "device: tune needs a single GPU: select it with --device hip:N. GPUs of the same name share the results"
            );
        }
        let Some(gpu) = session.executor().hip() else {
            bail!(
                "device: the model runs on the CPU, which has no kernels to tune; select a GPU with --device"
            );
        };
        let batches = match &self.batches[..] {
            [] => &[session.batch()],
            batches => batches,
        };
        let mut out = output::stdout();
        let mut written = Ok(());
        let (mut all, mut packed) = (gpu.cached_store(), Vec::new());
        for &batch in batches {
            let plan = session.plan(batch)?;
            if !self.json {
                let name = super::escape::one_line(session.name());
                writeln!(out, "{name}: batch {batch}, {}", session.dtype())?;
            }
            let mut store = gpu.tune(&plan, |tuned| {
                let line = if self.json {
                    record::write(&mut out, tuned)
                } else {
                    row(&mut out, tuned)
                };
                if written.is_ok() {
                    written = line;
                }
                packed.extend(tuned.packed_layer(batch));
            })?;
            all.extend(&store);
            // Store after each batch, so that little is lost on an interruption. Store packed weights only after the
            // whole model confirms them.
            store.set_packed(&packed, false);
            self.keep(&store, "shapes")?;
        }
        written?;
        let stay = all.packed(&packed);
        if stay.is_empty() {
            if !packed.is_empty() {
                output::note("no weight is fastest packed at every batch size: all stay dense");
            }
            return Ok(Outcome::Complete);
        }
        let whole = self.measure_whole(&all, &packed, batches)?;
        let mut store = gpu.store();
        let is_packed = store.settle(&stay, &whole);
        for of in &whole {
            if self.json {
                record::write(&mut out, &WholeRecord::of(of, is_packed))?;
            } else {
                whole_row(&mut out, of)?;
            }
        }
        if !self.json {
            let weights = if is_packed {
                "stay packed: this makes the whole model faster"
            } else {
                "stay dense: the whole model is not faster with packed weights at every batch size"
            };
            writeln!(out, "2:4 sparse weights {weights}")?;
        }
        self.keep(&store, "shapes with 2:4 sparse weights")?;
        Ok(Outcome::Complete)
    }

    fn keep(&self, store: &Store, what: &str) -> Result<()> {
        if !self.dry_run {
            let path = store.save()?;
            output::note(&format!("{}: kept {} {what}", path.display(), store.len()));
        }
        Ok(())
    }

    /// Measures the whole model with the choices in `tuned`, and again with the weights in `packed` dense.
    fn measure_whole(
        &self,
        tuned: &Store,
        packed: &[PackedLayer],
        batches: &[usize],
    ) -> Result<Vec<WholeModel>> {
        let model = self.model.with(&self.config);
        let load = |tuned: &Store| {
            // What was measured decides, whatever the command line wants of other runs.
            let builder = model.builder().select(SelectOptions::default());
            let builder = builder.tuned(tuned.clone());
            match &model.model {
                Some(path) => builder.load(path),
                None => builder.tinyvit32(),
            }
        };
        let mut dense = tuned.clone();
        dense.set_packed(packed, false);
        let [packed, dense] = [load(tuned)?, load(&dense)?];
        let of_batch = |&batch: &usize| {
            let plans = [packed.plan(batch)?, dense.plan(batch)?];
            let time = |is_packed: bool, time: Duration| {
                let (session, plan) = if is_packed {
                    (&packed, &plans[0])
                } else {
                    (&dense, &plans[1])
                };
                session.executor().time_runs(plan, time)
            };
            // Load code, capture graphs, and warm up the GPU.
            for is_packed in [true, false] {
                for _ in 0..2 {
                    time(is_packed, Duration::ZERO)?;
                }
                time(is_packed, TURN)?;
            }
            WholeModel::measure(batch, |is_packed| Ok(1e6 * time(is_packed, TURN)?.as_secs_f64()))
        };
        batches.iter().map(of_batch).collect()
    }
}

/// Times of the whole model, and the resulting choice.
#[derive(serde::Serialize)]
struct WholeRecord<'a> {
    whole_model: &'a WholeModel,
    faster: bool,
    kept: &'static str,
}

impl<'a> WholeRecord<'a> {
    fn of(whole_model: &'a WholeModel, is_packed: bool) -> Self {
        Self {
            whole_model,
            faster: whole_model.is_faster(),
            kept: if is_packed { "packed" } else { "dense" },
        }
    }
}

fn whole_row(out: &mut impl Write, of: &WholeModel) -> Result<()> {
    let WholeModel {
        images,
        packed_us,
        dense_us,
        gain_us,
        noise_us,
    } = of;
    writeln!(
        out,
        "whole model, batch {images}: {packed_us:.1} µs with packed weights, {dense_us:.1} with dense ones, gain {gain_us:.1}, noise {noise_us:.1}"
    )?;
    Ok(())
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
