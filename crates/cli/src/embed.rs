//! `hipvit embed`.

mod writer;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use anyhow::Result;
use hipvit::ndarray::{Array3, ArrayView2, ArrayViewD};
use hipvit::outputs::normalize;
use hipvit::pipeline::{Item, Source};
use hipvit::{ImageOutputs, Session};
use hipvit_search::{Description, Kind};
use serde::Serialize;

use self::writer::Writer;
use super::agreement;
use super::arrays::{Tensors, check_names_fit};
use super::format::{self, Format, Formats, OutputArgs};
use super::inputs::Inputs;
use super::launcher::DistributedArgs;
use super::model_args::{RunArgs, report_fallback};
use super::outcome::{Outcome, Usage};
use super::output::Sink;
use super::partial::ResumeArgs;
use super::ranks::{Ranks, Work};
use super::record::{self, Record};
use super::texts::{Texts, warn_of_truncated};

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    model: RunArgs,
    #[command(flatten)]
    texts: Texts,
    /// Scale each embedding to unit length
    #[arg(long, help_heading = "Output")]
    normalize: bool,
    /// Add the tokens after the final norm
    ///
    /// Written to JSON or safetensors. `tokens` contains the patch tokens, `prefix_tokens` the class, distillation and
    /// register tokens.
    #[arg(long, help_heading = "Output")]
    tokens: bool,
    /// Add all tokens after these blocks, counted from 0
    ///
    /// Written to JSON, or to safetensors as `layers.N`. No norm is applied: block N is hidden_states[N + 1] in
    /// transformers.
    #[arg(
        long,
        alias = "layer",
        value_name = "N,…",
        value_delimiter = ',',
        help_heading = "Output"
    )]
    layers: Vec<usize>,
    /// Shape the patch tokens as feature maps
    ///
    /// The shape is [rows, columns, channels]. --layers then leaves out the tokens before the patches.
    #[arg(long, help_heading = "Output")]
    dense: bool,
    /// Write shards of N rows each: NAME-00000.npy, NAME-00001.npy, …
    #[arg(long, value_name = "N", requires = "output", help_heading = "Output")]
    shard_rows: Option<NonZeroUsize>,
    #[command(flatten)]
    output: OutputArgs<Vectors>,
    #[command(flatten)]
    resume: ResumeArgs,
    /// Print the time of each phase (phases overlap)
    #[arg(long, help_heading = "Output")]
    timing: bool,
    #[command(flatten)]
    distributed: DistributedArgs,
}

const EXAMPLES: &str = "\
Examples:
  hipvit embed photos/ -m MODEL --normalize -o embeddings.npy    # row names in embeddings.names.txt
  hipvit embed photos/ -m MODEL -o embeddings.npy --resume
  hipvit embed cat.jpg -m MODEL --tokens --layers 5,11 -o tokens.safetensors
  hipvit embed photos/ -m MODEL --shard-rows 1000000 -o index/photos.npy    # a directory for `hipvit search`
  hipvit embed -m openai/clip-vit-base-patch32 --text \"a cat\" \"a dog\" -o texts.npy
  hipvit embed -m openai/clip-vit-base-patch32 --text-file captions.csv --text-column caption -o captions.parquet";

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
    /// Tokens by block index.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    layers: BTreeMap<usize, Tokens>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Tokens {
    Rows(Vec<Vec<f32>>),
    /// Tokens by row and column of patches.
    Map(Vec<Vec<Vec<f32>>>),
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        self.distributed.run(&self.model, |ranks| self.run_at(ranks))
    }

    fn run_at(&self, ranks: &mut Ranks) -> Result<Outcome> {
        if self.texts.is_given() {
            return self.run_texts(ranks);
        }
        self.inputs.require()?;
        let (format, sink) = self.output.open_at(ranks)?;
        self.check_shards(format)?;
        let sidecars = self.sidecars(format, sink.as_ref())?;
        if (self.tokens || !self.layers.is_empty()) && !matches!(format, Format::Json | Format::Safetensors) {
            let name = format.name();
            let text = format!("{name} holds embeddings only: use json or safetensors for tokens and layers");
            return Err(Usage(text).into());
        }
        if self.dense && !self.tokens && self.layers.is_empty() {
            return Err(Usage("--dense needs tokens: add --tokens or --layers".to_owned()).into());
        }
        let partial = self.resume.open(sink.as_ref())?;
        let images = self.inputs.list_at(ranks)?;
        self.inputs.check_outputs(&images, sink.iter().chain(&sidecars))?;
        let (sources, unlisted) = images.into_sources();
        if format == Format::Safetensors {
            check_names_fit(sources.iter().map(Source::name))?;
        }
        let model = self.model.at(ranks)?;
        let builder = model.builder().tokens(self.tokens);
        let session = model.load_with(builder.hidden_layers(self.layers.iter().copied()))?;
        if session.info().dim == 0 {
            let text = "this model has no embedding: its logits are not computed by a linear layer from a vector per image, and none of its \
                        outputs has an embedding's name. `hipvit run` returns all of its outputs";
            return Err(Usage(text.to_owned()).into());
        }
        if self.dense && session.info().patch_grid().is_none() {
            let text = "--dense: images of this model differ in their patch grids; leave it out";
            return Err(Usage(text.to_owned()).into());
        }
        let work = Work::new("embed", &session, &model, sources, &self.inputs.decode);
        let results = ranks.results(work.timed(self.timing).resumable(partial))?;
        let Some((mut results, sink)) = results.zip(sink) else {
            return Ok(Outcome::Complete);
        };
        let description = self.describe(format, &session, &model, Kind::Image)?;
        let described = (Kind::Image, description);
        let mut writer = Writer::new(format, sink, sidecars, described, self.shard_rows)?;
        let (mut embedded, mut width) = (0, 0);
        let failed = results.visit(|item| {
            if embedded == 0 {
                model.note_embedded();
            }
            embedded += 1;
            width = item.embedding().len();
            if let Some(out) = writer.json() {
                return record::write(out, &Record::new(&session, item.name(), self.embedded(item)));
            }
            let outputs = item.outputs();
            writer.row(item.name(), &self.embedding(&outputs))?;
            match writer.tensors() {
                Some(tensors) => self.push_tokens(tensors, &outputs),
                None => Ok(()),
            }
        })?;
        let timed = self.timing.then(|| (results.timing(), session.hip_graphs()));
        let files = writer.finish(timed)?;
        report_fallback(&session);
        let outcome = format::finish(files, Outcome::of(failed + unlisted), embedded)?;
        results.complete()?;
        self.output.wrote(&format::shape(&[embedded, width]));
        Ok(outcome)
    }

    fn embedded(&self, item: &Item) -> Embedded {
        let outputs = item.outputs();
        let layer = |&block: &usize| {
            let tokens = if self.dense {
                Tokens::Map(map(&outputs.hidden_feature_map(block)?))
            } else {
                Tokens::Rows(rows(outputs.hidden_layer(block)?))
            };
            Some((block, tokens))
        };
        let tokens = if self.dense {
            outputs.feature_map().map(|tokens| Tokens::Map(map(&tokens)))
        } else {
            outputs.tokens().map(|tokens| Tokens::Rows(rows(tokens)))
        };
        Embedded {
            embedding: self.embedding(&outputs),
            prefix_tokens: outputs.prefix_tokens().map(rows),
            tokens,
            layers: self.layers.iter().filter_map(layer).collect(),
        }
    }

    fn embedding(&self, outputs: &ImageOutputs<'_>) -> Vec<f32> {
        self.scaled(outputs.embedding().to_vec())
    }

    fn scaled(&self, mut embedding: Vec<f32>) -> Vec<f32> {
        if self.normalize {
            normalize(&mut embedding);
        }
        embedding
    }

    /// Embeds texts instead of images.
    fn run_texts(&self, ranks: &mut Ranks) -> Result<Outcome> {
        self.check_texts(ranks)?;
        let (format, sink) = self.output.open_at(ranks)?;
        self.check_shards(format)?;
        let sidecars = self.sidecars(format, sink.as_ref())?;
        let Some((sink, texts)) = sink.zip(self.texts.read(false)?) else {
            return Ok(Outcome::Complete);
        };
        let model = self.model.at(ranks)?;
        let session = model.load_with(model.builder())?;
        let embedded = session.embed_texts(&texts)?;
        warn_of_truncated(
            &session,
            embedded.truncated.iter().filter_map(|&index| texts.get(index)),
        );
        let description = self.describe(format, &session, &model, Kind::Text)?;
        let described = (Kind::Text, description);
        let mut writer = Writer::new(format, sink, sidecars, described, self.shard_rows)?;
        for (text, embedding) in texts.iter().zip(embedded.embeddings.rows()) {
            let embedding = self.scaled(embedding.to_vec());
            match writer.json() {
                Some(out) => {
                    let embedded = Embedded {
                        embedding,
                        prefix_tokens: None,
                        tokens: None,
                        layers: BTreeMap::new(),
                    };
                    record::write(out, &Record::for_text(&session, text, embedded))?;
                }
                None => writer.row(text, &embedding)?,
            }
        }
        let outcome = format::finish(writer.finish(None)?, Outcome::Complete, texts.len())?;
        self.output.wrote(&format::shape(embedded.embeddings.shape()));
        Ok(outcome)
    }

    /// Describes the embeddings in a format of arrays, so that `hipvit search` finds the model.
    fn describe(
        &self,
        format: Format,
        session: &Session,
        model: &RunArgs,
        kind: Kind,
    ) -> Result<Option<Description>> {
        if !has_rows(format) {
            return Ok(None);
        }
        let path = model.model.model.as_deref();
        Ok(Some(Description {
            model: session.name().to_owned(),
            source: path.map(|path| path.display().to_string()),
            digest: agreement::model(path)?,
            kind,
            normalized: self.normalize,
            shard: None,
        }))
    }

    /// Rejects shards of formats that are one text.
    fn check_shards(&self, format: Format) -> Result<()> {
        if self.shard_rows.is_some() && (!has_rows(format) || self.output.file().is_none()) {
            let text = "--shard-rows needs a file for the shards: add --output FILE.npy, FILE.safetensors or FILE.parquet";
            return Err(Usage(text).into());
        }
        Ok(())
    }

    /// Opens the files beside a NumPy array. Shards have their own.
    fn sidecars(&self, format: Format, sink: Option<&Sink>) -> Result<Vec<Sink>> {
        let array = sink
            .and_then(Sink::path)
            .filter(|_| format == Format::Npy && self.shard_rows.is_none());
        array.map_or(Ok(Vec::new()), writer::sidecars)
    }

    /// Rejects options that apply to images only.
    fn check_texts(&self, ranks: &Ranks) -> Result<()> {
        let options = [
            (!self.inputs.is_empty(), "images"),
            (self.tokens, "--tokens"),
            (!self.layers.is_empty(), "--layers"),
            (self.dense, "--dense"),
            (self.resume.is_given(), "--resume"),
            (self.timing, "--timing"),
        ];
        if let Some((_, option)) = options.iter().find(|(given, _)| *given) {
            let text = format!(
                "--text and {option} exclude each other: a command embeds either texts or images. Leave one out"
            );
            return Err(Usage(text).into());
        }
        if ranks.world().is_some() {
            return Err(Usage(
                "--text needs a single process: leave out the launcher, or add --distributed off",
            )
            .into());
        }
        Ok(())
    }

    /// Adds the requested tokens.
    fn push_tokens(&self, tensors: &mut Tensors, outputs: &ImageOutputs<'_>) -> Result<()> {
        let mut push = |name: String, tokens: Option<ArrayViewD<'_, f32>>| {
            tokens.map_or(Ok(()), |tokens| {
                let values: Vec<f32> = tokens.iter().copied().collect();
                tensors.push(name, tokens.shape(), &values)
            })
        };
        push(
            "prefix_tokens".into(),
            outputs.prefix_tokens().map(ArrayView2::into_dyn),
        )?;
        if self.dense {
            let mut push =
                |name, map: Option<Array3<f32>>| push(name, map.as_ref().map(|map| map.view().into_dyn()));
            push("tokens".into(), outputs.feature_map())?;
            for &block in &self.layers {
                push(format!("layers.{block}"), outputs.hidden_feature_map(block))?;
            }
            return Ok(());
        }
        push("tokens".into(), outputs.tokens().map(ArrayView2::into_dyn))?;
        for &block in &self.layers {
            let tokens = outputs.hidden_layer(block);
            push(format!("layers.{block}"), tokens.map(ArrayView2::into_dyn))?;
        }
        Ok(())
    }
}

/// Returns true for a format of arrays, which `hipvit search` and databases read.
fn has_rows(format: Format) -> bool {
    matches!(format, Format::Npy | Format::Safetensors | Format::Parquet)
}

fn map(tokens: &Array3<f32>) -> Vec<Vec<Vec<f32>>> {
    tokens.outer_iter().map(rows).collect()
}

fn rows(tokens: ArrayView2<'_, f32>) -> Vec<Vec<f32>> {
    tokens.rows().into_iter().map(|row| row.to_vec()).collect()
}
