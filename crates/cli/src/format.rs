//! Output formats that all commands share. `--format` selects the format; the default depends on the extension of
//! `--output`.

use std::io::{IsTerminal, Write, stdout};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use serde_json::Value;

use super::arrays::names_path;
use super::output::{self, Sink};
use super::ranks::Ranks;
use super::{Outcome, Usage};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Csv,
    Md,
    Npy,
    Safetensors,
    Parquet,
}

use Format::{Csv, Json, Md, Npy, Parquet, Safetensors, Text};

impl Format {
    const ALL: [Self; 7] = [Text, Json, Csv, Md, Npy, Safetensors, Parquet];

    pub fn name(self) -> &'static str {
        match self {
            Text => "text",
            Json => "json",
            Csv => "csv",
            Md => "md",
            Npy => "npy",
            Safetensors => "safetensors",
            Parquet => "parquet",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Text => "Human-readable, as wide as the terminal",
            Json => "JSON; several results are one object per line",
            Csv => "Comma-separated values with a header",
            Md => "A Markdown table",
            Npy => "One NumPy array with a row per image; FILE.names.txt has the row names",
            Safetensors => "Named arrays; the metadata `images` has the row names",
            Parquet if cfg!(feature = "parquet") => "Table with the columns image and embedding",
            Parquet => "Needs a build with the feature `parquet`",
        }
    }

    fn endings(self) -> &'static [&'static str] {
        match self {
            Text => &["txt"],
            Json => &["json", "jsonl"],
            Csv => &["csv"],
            Md => &["md"],
            Npy => &["npy"],
            Safetensors => &["safetensors"],
            Parquet => &["parquet"],
        }
    }

    fn by_ending(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|format| format.endings().contains(&ending.as_str()))
    }

    fn is_text(self) -> bool {
        matches!(self, Text | Json | Csv | Md)
    }
}

/// Formats that a command supports. The first one is the default.
pub trait Formats: Clone + std::fmt::Debug + Send + Sync + 'static {
    const FORMATS: &'static [Format];
}

/// Destination and format of the results.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs<F: Formats> {
    /// Output format [default: by the extension of --output]
    #[arg(long, value_name = "FORMAT", value_parser = parser(F::FORMATS))]
    format: Option<Format>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format", hide = !F::FORMATS.contains(&Json))]
    json: bool,
    /// Write the results to a file
    ///
    /// The extension selects the format. The file is created or replaced when the results are complete. Symbolic links
    /// are followed; permissions are kept.
    #[arg(long, short, value_name = "FILE|-")]
    output: Option<PathBuf>,
    #[arg(skip)]
    formats: PhantomData<F>,
}

fn parser(formats: &'static [Format]) -> impl TypedValueParser<Value = Format> {
    let values = formats.iter().map(|format| {
        let value = PossibleValue::new(format.name()).help(format.help());
        // A former name of the format.
        match format {
            Text => value.alias("table"),
            _ => value,
        }
    });
    PossibleValuesParser::new(values).map(|name| {
        let named = |format: &Format| format.name() == name;
        Format::ALL.into_iter().find(named).unwrap_or(Text)
    })
}

impl<F: Formats> OutputArgs<F> {
    /// Returns the format and the sink. Opens the output file, so that an unwritable folder fails before the work.
    pub fn open(&self) -> Result<(Format, Sink)> {
        let format = self.format()?;
        Ok((format, self.sink(format)?))
    }

    /// Returns the format. Returns the sink in the process that writes; `None` in the others.
    pub fn open_at(&self, ranks: &Ranks) -> Result<(Format, Option<Sink>)> {
        let format = self.format()?;
        let sink = ranks.writes().then(|| self.sink(format)).transpose()?;
        Ok((format, sink))
    }

    /// Opens the file with the row names of the array in `sink`. Only NumPy's format needs one.
    ///
    /// # Errors
    ///
    /// Returns [`hipvit::Error::Io`] if the file cannot be written.
    pub fn open_names(&self, format: Format, sink: Option<&Sink>) -> Result<Option<Sink>> {
        let array = sink.and_then(Sink::path).filter(|_| format == Npy);
        Ok(array.map(|path| Sink::file(&names_path(path))).transpose()?)
    }

    fn sink(&self, format: Format) -> Result<Sink> {
        Ok(match self.file() {
            Some(path) => Sink::file(path)?,
            None if format == Csv => Sink::values(),
            None if format.is_text() => Sink::Text(output::stdout()),
            None if stdout().is_terminal() => {
                let text = format!(
                    "{} cannot be printed on a terminal: name a file with --output",
                    format.name()
                );
                return Err(Usage(text).into());
            }
            None => Sink::Binary(stdout().lock()),
        })
    }

    /// Returns the format and a sink for standard output, for commands whose --output has a different purpose.
    pub fn open_printed(&self) -> (Format, Sink) {
        let format = if self.json {
            Json
        } else {
            self.format.unwrap_or(F::FORMATS[0])
        };
        let sink = if format == Csv {
            Sink::values()
        } else {
            Sink::Text(output::stdout())
        };
        (format, sink)
    }

    /// Returns the maximum width of text on standard output; `None` for a file.
    pub fn width(&self) -> Option<usize> {
        self.file().map_or_else(output::width, |_| None)
    }

    /// Prints `what` was written on the terminal, if the results went to a file.
    pub fn wrote(&self, what: &str) {
        if let Some(path) = self.file() {
            output::wrote(path, what);
        }
    }

    /// Returns the path of the output file.
    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new("-"))
    }

    fn format(&self) -> Result<Format> {
        if self.json {
            return if F::FORMATS.contains(&Json) {
                Ok(Json)
            } else {
                Err(Usage(format!("--json: this command only writes {}", names::<F>())).into())
            };
        }
        let format = match (self.format, self.file()) {
            (Some(format), _) => format,
            (None, None) => F::FORMATS[0],
            (None, Some(path)) => match Format::by_ending(path) {
                Some(format) if F::FORMATS.contains(&format) => format,
                _ => return Err(Usage(unknown_ending::<F>(path)).into()),
            },
        };
        if format == Parquet && cfg!(not(feature = "parquet")) {
            return Err(no_parquet());
        }
        Ok(format)
    }
}

/// Returns the error of a build without the `parquet` feature.
pub fn no_parquet() -> anyhow::Error {
    Usage(
        "parquet: this hipvit was built without the feature `parquet` (cargo install --locked --path . --features parquet); npy, safetensors, \
         csv and json need none",
    )
    .into()
}

fn names<F: Formats>() -> String {
    let names: Vec<&str> = F::FORMATS.iter().map(|format| format.name()).collect();
    names.join(" or ")
}

fn unknown_ending<F: Formats>(path: &Path) -> String {
    let endings = F::FORMATS.iter().flat_map(|format| format.endings());
    let endings: Vec<String> = endings.map(|ending| format!(".{ending}")).collect();
    let named = F::FORMATS.iter().find(|format| path == Path::new(format.name()));
    let is_directory = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let path = path.display();
    match named {
        _ if is_directory => format!("--output {path}: this is a directory. Name a file in it"),
        Some(format) => format!(
            "--output {path}: this is a file name. To print the results, use --format {}",
            format.name()
        ),
        None => format!(
            "--output {path}: unknown extension. Use {}, or add --format",
            endings.join(", ")
        ),
    }
}

/// Finishes the files of a command that writes results while it runs. The files appear together, and only if at least
/// one input has a result.
pub fn finish(files: Vec<Sink>, outcome: Outcome, results: usize) -> Result<Outcome> {
    if results > 0 || outcome == Outcome::Complete {
        Sink::finish_all(files)?;
    }
    Ok(outcome)
}

/// Formats the shape of an array.
pub fn shape(extents: &[usize]) -> String {
    let extents: Vec<String> = extents.iter().map(ToString::to_string).collect();
    extents.join(" × ")
}

/// Writes a header with `fields`, then one line per row with the values of these fields in the row's JSON. `a.b` is
/// field `b` of `a`.
pub fn csv<R: Serialize>(out: impl Write, fields: &[&str], rows: impl IntoIterator<Item = R>) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    written(writer.write_record(fields))?;
    for row in rows {
        let row = serde_json::to_value(row)?;
        let cell = |field: &&str| {
            let pointer = format!("/{}", field.replace('.', "/"));
            match row.pointer(&pointer) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            }
        };
        written(writer.write_record(fields.iter().map(cell)))?;
    }
    writer.flush()?;
    Ok(())
}

/// Unwraps the I/O error of the output, so that a closed pipe can be recognised.
pub fn written(result: csv::Result<()>) -> Result<()> {
    result.map_err(|error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        other => anyhow::anyhow!("{other:?}"),
    })
}
