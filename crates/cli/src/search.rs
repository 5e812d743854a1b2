//! `hipvit search`.

mod html;
mod method;
mod query;

use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;

use anstyle::Style;
use anyhow::Result;
use clap::ValueEnum;
use hipvit::run_config::parsers::positive;
use hipvit::{RunConfig, Session};
use hipvit_search::{Index, Kind, Metric, Pair};
use serde::Serialize;

use self::method::Method;
use self::query::Query;
use super::agreement;
use super::decode_args::DecodeArgs;
use super::escape::one_line;
use super::format::{self, Format, Formats, OutputArgs};
use super::inputs::source;
use super::model_args::ModelArgs;
use super::outcome::{Outcome, Usage};
use super::output::Sink;
use super::record::{self, Record};
use super::texts::{Texts, warn_of_truncated};

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// File or directory of embeddings that `hipvit embed` wrote
    ///
    /// A .npy or .safetensors file, or a directory with shards. Its rows are images or texts.
    #[arg(value_name = "INDEX", value_hint = clap::ValueHint::AnyPath, help_heading = "Input")]
    index: PathBuf,
    /// Images to search for
    #[arg(long, value_name = "FILE|-", num_args = 1.., help_heading = "Input")]
    image: Vec<PathBuf>,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    texts: Texts,
    /// Find pairs of rows whose cosine is at least T
    #[arg(
        long,
        value_name = "T",
        value_parser = similarity,
        conflicts_with_all = ["image", "text", "text_file", "metric", "model"],
        help_heading = "Input"
    )]
    duplicates: Option<f64>,
    /// Number of rows to show
    #[arg(long, short = 'k', default_value_t = 10, value_name = "K", value_parser = positive, help_heading = "Output")]
    top: usize,
    /// How rows are compared
    #[arg(long, default_value = "cosine", value_name = "METRIC", help_heading = "Input")]
    metric: By,
    /// Write a page with thumbnails
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Output")]
    html: Option<PathBuf>,
    /// Model directory, or ORG/NAME on the hub [default: the index's]
    ///
    /// It must be the model that the index was made with.
    #[arg(long, short, value_name = "MODEL", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    config: RunConfig,
    #[command(flatten)]
    method: Method,
    #[command(flatten)]
    output: OutputArgs<Lines>,
}

const EXAMPLES: &str = "\
Examples:
  hipvit embed photos/ -m openai/clip-vit-base-patch32 -o photos.npy
  hipvit search photos.npy --image query.jpg --html results.html
  hipvit search photos.npy --text \"a dog on a beach\" -k 20
  hipvit search photos.npy --duplicates 0.95 -o duplicates.csv
  hipvit search photos.npy --build-graph && hipvit search photos.npy --approximate --image query.jpg";

/// Maximum number of pairs of near-duplicates.
const MAX_PAIRS: usize = 1_000_000;

/// A metric.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Cosine of the angle between the embeddings
    Cosine,
    /// Inner product of the embeddings
    InnerProduct,
    /// Euclidean distance of the embeddings, smallest first
    L2,
}

#[derive(Clone, Debug)]
struct Lines;

impl Formats for Lines {
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Csv];
}

const NAME: Style = Style::new().bold();

/// Results of a query in its line of JSON.
#[derive(Serialize)]
struct Found<'a> {
    results: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    rank: usize,
    row: usize,
    name: Cow<'a, str>,
    score: f64,
}

/// Line of JSON for a pair of near-duplicates.
#[derive(Serialize)]
struct Similar<'a> {
    first: Cow<'a, str>,
    second: Cow<'a, str>,
    rows: [usize; 2],
    similarity: f64,
}

fn similarity(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("must be above 0 and at most 1".into()),
    }
}

impl From<By> for Metric {
    fn from(by: By) -> Self {
        match by {
            By::Cosine => Self::Cosine,
            By::InnerProduct => Self::InnerProduct,
            By::L2 => Self::L2,
        }
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let has_queries = !self.image.is_empty() || self.texts.is_given();
        if !has_queries && self.duplicates.is_none() && !self.method.builds() {
            let text = "what to search for is required: --image FILE, --text TEXT, --text-file FILE or --duplicates T";
            return Err(Usage(text).into());
        }
        let (format, sink) = self.output.open()?;
        let page = self.html.as_deref().map(Sink::file).transpose()?;
        let index = Index::open(&self.index)?;
        if let Some(threshold) = self.duplicates {
            let pairs = index.duplicates(threshold, MAX_PAIRS)?;
            let page = page.map(|page| (page, html::duplicates(&index, &pairs)));
            return finish(write_pairs(format, sink, &index, &pairs)?, page);
        }
        if self.method.builds() {
            self.method.build(&index, self.metric.into())?;
            if !has_queries {
                return Ok(Outcome::Complete);
            }
        }
        let texts = self.texts.read(!self.image.is_empty())?.unwrap_or_default();
        let session = self.session(&index)?;
        let queries = self.queries(&session, &index, texts)?;
        let page = page.map(|page| (page, html::results(&index, &session, &queries)));
        finish(write_hits(format, sink, &index, &session, &queries)?, page)
    }

    /// Loads the model that the index was made with.
    fn session(&self, index: &Index) -> Result<Session> {
        let named = index.description();
        let path = match (&self.model, named) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(description)) => description.source.clone().map(PathBuf::from),
            (None, None) => {
                let index = self.index.display();
                let text = format!(
                    "{index}: does not say which model computed it, since `hipvit embed` did not write it. Name the model with -m"
                );
                return Err(Usage(text).into());
            }
        };
        let model = ModelArgs {
            model: path.clone(),
            config: self.config.clone(),
        };
        let digest = agreement::model(path.as_deref())?;
        if let Some(description) = named.filter(|description| description.digest != digest) {
            let index = self.index.display();
            let given = path
                .as_deref()
                .map_or("the embedded model".into(), |path| path.display().to_string());
            let made = match &description.source {
                Some(source) => format!("{} ({source})", description.model),
                None => format!("{}, the embedded model", description.model),
            };
            let text = if self.model.is_some() {
                format!(
                    "{index}: was made with {made}, not with {given}. Leave -m out, or run `hipvit embed` again"
                )
            } else {
                format!(
                    "{index}: was made with {made}, whose files have changed since. Run `hipvit embed` again"
                )
            };
            return Err(Usage(text).into());
        }
        Ok(model.load()?)
    }

    /// Embeds the images and texts, and finds the nearest rows.
    fn queries(&self, session: &Session, index: &Index, texts: Vec<String>) -> Result<Vec<Query>> {
        let mut queries = Vec::new();
        let mut embeddings: Vec<f32> = Vec::new();
        if !self.image.is_empty() {
            session.check_takes_images()?;
            let mut pictures = Vec::new();
            for path in &self.image {
                let source = source(path)?;
                pictures.push(source.decode(self.decode.options())?);
                queries.push(Query {
                    kind: Kind::Image,
                    name: source.name(),
                    picture: None,
                    hits: Vec::new(),
                });
            }
            embeddings.extend(session.run(&pictures)?.embeddings());
            if self.html.is_some() {
                for (query, picture) in queries.iter_mut().zip(pictures) {
                    query.picture = Some(picture);
                }
            }
        }
        if !texts.is_empty() {
            let embedded = session.embed_texts(&texts)?;
            let truncated = embedded.truncated.iter();
            warn_of_truncated(session, truncated.filter_map(|&index| texts.get(index)));
            embeddings.extend(&embedded.embeddings);
            queries.extend(texts.into_iter().map(|name| Query {
                kind: Kind::Text,
                name,
                picture: None,
                hits: Vec::new(),
            }));
        }
        let width = embeddings.len() / queries.len();
        if width != index.width() {
            let text = format!(
                "{}: has rows of {} values, but embeddings of {} have {width}. Name the model that made the index with -m",
                self.index.display(),
                index.width(),
                session.name()
            );
            return Err(Usage(text).into());
        }
        let (metric, device) = (self.metric.into(), session.device());
        let hits = self.method.search(index, &embeddings, self.top, metric, device)?;
        for (query, hits) in queries.iter_mut().zip(hits) {
            query.hits = hits;
        }
        Ok(queries)
    }
}

/// Finishes the results and the page together.
fn finish(results: Sink, page: Option<(Sink, Result<String>)>) -> Result<Outcome> {
    let mut files = vec![results];
    if let Some((mut sink, page)) = page {
        sink.write_all(page?.as_bytes())?;
        files.push(sink);
    }
    Sink::finish_all(files)?;
    Ok(Outcome::Complete)
}

/// Returns the rows found for a query, in their order.
fn rows<'a>(index: &'a Index, query: &'a Query) -> impl Iterator<Item = Row<'a>> {
    query.hits.iter().enumerate().map(|(rank, hit)| Row {
        rank: rank + 1,
        row: hit.row,
        name: index.name(hit.row),
        score: hit.score,
    })
}

/// Writes the results of the queries. Returns the destination, which is still to be finished.
fn write_hits(
    format: Format,
    mut sink: Sink,
    index: &Index,
    session: &Session,
    queries: &[Query],
) -> Result<Sink> {
    match format {
        Format::Csv => {
            let cells = |query: &Query, row: Row<'_>| {
                let [rank, number, score] =
                    [row.rank.to_string(), row.row.to_string(), row.score.to_string()];
                [query.name.clone(), rank, number, row.name.into_owned(), score]
            };
            let lines = queries
                .iter()
                .flat_map(|query| rows(index, query).map(move |row| cells(query, row)));
            write_csv(sink, ["query", "rank", "row", "name", "score"], lines)
        }
        Format::Json => {
            for query in queries {
                let found = Found {
                    results: rows(index, query).collect(),
                };
                let found = match query.kind {
                    Kind::Image => Record::new(session, &query.name, found),
                    Kind::Text => Record::for_text(session, &query.name, found),
                };
                record::write(&mut sink, &found)?;
            }
            Ok(sink)
        }
        _ => {
            for query in queries {
                writeln!(sink, "{NAME}{}{NAME:#}", one_line(&query.name))?;
                for row in rows(index, query) {
                    writeln!(
                        sink,
                        "  {:>3}  {:>8.4}  {}",
                        row.rank,
                        row.score,
                        one_line(&row.name)
                    )?;
                }
            }
            Ok(sink)
        }
    }
}

/// Writes pairs of near-duplicates. Returns the destination, which is still to be finished.
fn write_pairs(format: Format, mut sink: Sink, index: &Index, pairs: &[Pair]) -> Result<Sink> {
    let similar = |pair: &Pair| Similar {
        first: index.name(pair.first),
        second: index.name(pair.second),
        rows: [pair.first, pair.second],
        similarity: pair.similarity,
    };
    let similar = pairs.iter().map(similar);
    match format {
        Format::Csv => {
            let cells = similar.map(|pair| {
                let [first, second] = pair.rows.map(|row| row.to_string());
                let names = [pair.first.into_owned(), pair.second.into_owned()];
                let [first_name, second_name] = names;
                [
                    first_name,
                    second_name,
                    first,
                    second,
                    pair.similarity.to_string(),
                ]
            });
            write_csv(
                sink,
                ["first", "second", "first_row", "second_row", "similarity"],
                cells,
            )
        }
        Format::Json => {
            for pair in similar {
                record::write(&mut sink, &pair)?;
            }
            Ok(sink)
        }
        _ => {
            for pair in similar {
                let names = [&pair.first, &pair.second].map(|name| one_line(name));
                writeln!(sink, "{:.4}  {}  {}", pair.similarity, names[0], names[1])?;
            }
            Ok(sink)
        }
    }
}

/// Writes a table as CSV. Returns the destination.
fn write_csv(sink: Sink, header: [&str; 5], lines: impl Iterator<Item = [String; 5]>) -> Result<Sink> {
    let mut writer = csv::Writer::from_writer(sink);
    format::written(writer.write_record(header))?;
    for line in lines {
        format::written(writer.write_record(line))?;
    }
    Ok(writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
}
