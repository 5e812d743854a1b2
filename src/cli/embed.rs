//! `hipvit embed`.

use std::collections::BTreeMap;

use anyhow::Result;
use hipvit::ndarray::{Array3, ArrayView2, ArrayViewD};
use hipvit::pipeline::Item;
use hipvit::timing::Timing;
use hipvit::{ImageOutputs, Replays};
use serde::Serialize;
use serde_json::json;

use super::arrays::{Npy, Tensors, write_parquet};
use super::format::{self, Format, Formats, OutputArgs};
use super::inputs::Inputs;
use super::launcher::DistributedArgs;
use super::output::{self, Sink};
use super::ranks::{Ranks, Work};
use super::record::{self, Record};
use super::{Outcome, RunArgs, Usage, report_fallback};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: RunArgs,
    /// Scale each embedding to a Euclidean norm of 1
    #[arg(long)]
    normalize: bool,
    /// Print the tokens after the final norm too: `tokens`, one per patch, and `prefix_tokens` (class, distillation,
    /// registers); as JSON or safetensors
    #[arg(long)]
    tokens: bool,
    /// Print all tokens after these blocks too, counted from 0 and without a norm (after block N, transformers' hidden_states[N + 1] before
    /// any final norm); as JSON or safetensors (`layers.N`)
    #[arg(long, visible_alias = "layer", value_name = "N,…", value_delimiter = ',')]
    layers: Vec<usize>,
    /// Give the patches' tokens, of --tokens and --layers, as feature maps, [rows, columns, channels], and those of --layers without
    /// the tokens before the patches
    #[arg(long)]
    dense: bool,
    #[command(flatten)]
    output: OutputArgs<Vectors>,
    /// Print the time of each phase, in JSON as the last line. Phases overlap: their sum may exceed the wall time
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    distributed: DistributedArgs,
}

#[derive(Clone, Debug)]
struct Vectors;

impl Formats for Vectors {
    const FORMATS: &'static [Format] = &[
        Format::Json,
        Format::Csv,
        Format::Npy,
        Format::Safetensors,
        Format::Parquet,
    ];
}

#[derive(Serialize)]
struct Embedded {
    embedding: Vec<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_tokens: Option<Vec<Vec<f32>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Tokens>,
    /// By the index of the block.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    layers: BTreeMap<usize, Tokens>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Tokens {
    Rows(Vec<Vec<f32>>),
    /// By row and column of patches.
    Map(Vec<Vec<Vec<f32>>>),
}

/// What an image's results are written to.
enum Writer {
    Json(Sink),
    /// And whether the line of names is written.
    Csv(Box<csv::Writer<Sink>>, bool),
    Npy(Npy<Sink>),
    Safetensors(Sink, Tensors),
    Parquet(Sink, Vec<String>, Vec<Vec<f32>>),
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        self.distributed.run(&self.model, |ranks| self.run_at(ranks))
    }

    fn run_at(&self, ranks: &mut Ranks) -> Result<Outcome> {
        self.inputs.require()?;
        let (format, sink) = self.output.open_at(ranks)?;
        if (self.tokens || !self.layers.is_empty()) && !matches!(format, Format::Json | Format::Safetensors) {
            let name = format.name();
            let text = format!("{name} has embeddings alone: tokens and layers need json or safetensors");
            return Err(Usage(text).into());
        }
        if self.dense && !self.tokens && self.layers.is_empty() {
            return Err(Usage("--dense shapes tokens: give --tokens or --layers too".to_owned()).into());
        }
        let images = self.inputs.list_at(ranks)?;
        let model = self.model.at(ranks)?;
        let builder = model.builder().tokens(self.tokens);
        let session = model.load_with(builder.hidden_layers(self.layers.iter().copied()))?;
        if self.dense && session.info().patch_grid().is_none() {
            let text = "--dense: the model's images have patches in grids of their own; leave it out";
            return Err(Usage(text.to_owned()).into());
        }
        let (sources, unlisted) = images.into_sources();
        let work = Work::new("embed", &session, &model, sources, &self.inputs.decode);
        let results = ranks.results(work.timed(self.timing))?;
        let Some((mut results, sink)) = results.zip(sink) else {
            return Ok(Outcome::Complete);
        };
        let mut writer = match format {
            Format::Csv => Writer::Csv(Box::new(csv::Writer::from_writer(sink)), false),
            Format::Npy => Writer::Npy(Npy::new(sink, results.images())),
            Format::Safetensors => Writer::Safetensors(sink, Tensors::default()),
            Format::Parquet => Writer::Parquet(sink, Vec::new(), Vec::new()),
            _ => Writer::Json(sink),
        };
        let mut embedded = 0;
        let failed = results.visit(|item| {
            if embedded == 0 {
                model.note_embedded();
            }
            embedded += 1;
            if let Writer::Json(out) = &mut writer {
                return record::write(out, &Record::new(&session, item.name(), self.embedded(item)));
            }
            self.write(&mut writer, item)
        })?;
        let timed = self.timing.then(|| (results.timing(), session.hip_graphs()));
        let sink = writer.finish(timed)?;
        report_fallback(&session);
        format::finish(sink, Outcome::of(failed + unlisted), embedded)
    }

    fn embedded(&self, item: &Item) -> Embedded {
        let outputs = item.outputs();
        let layer = |&block: &usize| {
            let tokens = match self.dense {
                true => Tokens::Map(map(&outputs.hidden_feature_map(block)?)),
                false => Tokens::Rows(rows(outputs.hidden_layer(block)?)),
            };
            Some((block, tokens))
        };
        let tokens = match self.dense {
            true => outputs.feature_map().map(|tokens| Tokens::Map(map(&tokens))),
            false => outputs.tokens().map(|tokens| Tokens::Rows(rows(tokens))),
        };
        Embedded {
            embedding: self.embedding(&outputs),
            prefix_tokens: outputs.prefix_tokens().map(rows),
            tokens,
            layers: self.layers.iter().filter_map(layer).collect(),
        }
    }

    fn embedding(&self, outputs: &ImageOutputs<'_>) -> Vec<f32> {
        let mut embedding = outputs.embedding().to_vec();
        if self.normalize {
            normalize(&mut embedding);
        }
        embedding
    }

    fn write(&self, writer: &mut Writer, item: &Item) -> Result<()> {
        let outputs = item.outputs();
        let embedding = self.embedding(&outputs);
        match writer {
            // As records.
            Writer::Json(_) => {}
            Writer::Csv(out, begun) => {
                if !std::mem::replace(begun, true) {
                    let names = (0..embedding.len()).map(|index| format!("e{index}"));
                    format::written(out.write_record(std::iter::once("image".to_owned()).chain(names)))?;
                }
                let values = embedding.iter().map(ToString::to_string);
                format::written(out.write_record(std::iter::once(item.name().to_owned()).chain(values)))?;
            }
            Writer::Npy(npy) => npy.push(item.index(), &[embedding.len()], &embedding)?,
            Writer::Safetensors(_, tensors) => {
                tensors.image(item.name());
                tensors.push("embeddings", &[embedding.len()], &embedding);
                let mut push = |name: String, tokens: Option<ArrayViewD<'_, f32>>| {
                    if let Some(tokens) = tokens {
                        let values: Vec<f32> = tokens.iter().copied().collect();
                        tensors.push(name, tokens.shape(), &values);
                    }
                };
                push(
                    "prefix_tokens".into(),
                    outputs.prefix_tokens().map(ArrayView2::into_dyn),
                );
                if self.dense {
                    let mut push = |name, map: Option<Array3<f32>>| {
                        push(name, map.as_ref().map(|map| map.view().into_dyn()));
                    };
                    push("tokens".into(), outputs.feature_map());
                    for &block in &self.layers {
                        push(format!("layers.{block}"), outputs.hidden_feature_map(block));
                    }
                } else {
                    push("tokens".into(), outputs.tokens().map(ArrayView2::into_dyn));
                    for &block in &self.layers {
                        let tokens = outputs.hidden_layer(block);
                        push(format!("layers.{block}"), tokens.map(ArrayView2::into_dyn));
                    }
                }
            }
            Writer::Parquet(_, names, embeddings) => {
                names.push(item.name().to_owned());
                embeddings.push(embedding);
            }
        }
        Ok(())
    }
}

impl Writer {
    /// The time of the phases is the last line of JSON; otherwise it goes to standard error.
    fn finish(self, timed: Option<(&Timing, Option<Replays>)>) -> Result<Sink> {
        if let Self::Json(mut sink) = self {
            if let Some((timing, hip_graphs)) = timed {
                record::write(&mut sink, &json!({ "timing": timing, "hip_graphs": &hip_graphs }))?;
            }
            return Ok(sink);
        }
        if let Some((timing, hip_graphs)) = timed {
            output::say(&timing.to_string());
            hip_graphs
                .into_iter()
                .for_each(|graphs| output::say(&graphs.to_string()));
        }
        match self {
            Self::Json(sink) => Ok(sink),
            Self::Csv(writer, _) => Ok(writer.into_inner().map_err(csv::IntoInnerError::into_error)?),
            Self::Npy(npy) => Ok(npy.finish()?),
            Self::Safetensors(mut sink, tensors) => {
                tensors.write(&mut sink)?;
                Ok(sink)
            }
            Self::Parquet(mut sink, names, embeddings) => {
                write_parquet(&mut sink, &names, &embeddings)?;
                Ok(sink)
            }
        }
    }
}

fn map(tokens: &Array3<f32>) -> Vec<Vec<Vec<f32>>> {
    tokens.outer_iter().map(rows).collect()
}

fn rows(tokens: ArrayView2<'_, f32>) -> Vec<Vec<f32>> {
    tokens.rows().into_iter().map(|row| row.to_vec()).collect()
}

/// Scales to a norm of 1; zeros stay.
fn normalize(values: &mut [f32]) {
    let squares: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
    let norm = squares.sqrt();
    if norm > 0.0 {
        for value in values {
            *value = (f64::from(*value) / norm) as f32;
        }
    }
}
