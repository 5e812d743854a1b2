//! `hipvit embed`.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use hipvit::ndarray::ArrayView2;
use hipvit::pipeline::Item;
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
    /// Print the tokens after the final norm too: `tokens`, one per patch, and `prefix_tokens` (class, distillation,
    /// registers)
    #[arg(long)]
    tokens: bool,
    /// Print all tokens after block N too, counted from 0 and without a norm (transformers' hidden_states[N + 1] before any final norm); may be
    /// given several times
    #[arg(long = "layer", value_name = "N")]
    layers: Vec<usize>,
}

#[derive(Serialize)]
struct Embedded {
    embedding: Vec<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_tokens: Option<Vec<Vec<f32>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<Vec<f32>>>,
    /// By the index of the block.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    layers: BTreeMap<usize, Vec<Vec<f32>>>,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        if self.inputs.is_empty() {
            return Err(Usage("an image, a directory, a glob pattern or - is required").into());
        }
        let images = self.inputs.list()?;
        let builder = self.model.builder().tokens(self.tokens);
        let session = self
            .model
            .load_with(builder.hidden_layers(self.layers.iter().copied()))?;
        let mut out = output::stdout();
        let limits = self.inputs.limits.limits();
        let (_, outcome) = images.run(&session, limits, false, |item| {
            record::write(&mut out, &Record::new(&session, item.name(), self.embedded(item)))
        })?;
        report_fallback(&session);
        out.flush()?;
        Ok(outcome)
    }

    fn embedded(&self, item: &Item) -> Embedded {
        let outputs = item.outputs();
        let layer = |&block: &usize| Some((block, rows(outputs.hidden_layer(block)?)));
        Embedded {
            embedding: outputs.embedding().to_vec(),
            prefix_tokens: outputs.prefix_tokens().map(rows),
            tokens: outputs.tokens().map(rows),
            layers: self.layers.iter().filter_map(layer).collect(),
        }
    }
}

fn rows(tokens: ArrayView2<'_, f32>) -> Vec<Vec<f32>> {
    tokens.rows().into_iter().map(|row| row.to_vec()).collect()
}
