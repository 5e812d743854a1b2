//! Output formats of all commands. `--format` selects the format. The default depends on the extension of `--output`.

use std::io::{IsTerminal, Write, stdout};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use serde_json::Value;

use super::arrays::{names_path, no_parquet};
use super::outcome::{Outcome, Usage};
use super::output::{self, Sink};
use super::ranks::Ranks;

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
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

    /// Returns the name that `--format` accepts.
    pub(crate) fn name(self) -> &'static str {
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

    /// Returns the description for `--help`.
    fn help(self) -> &'static str {
        match self {
            Text => "Text that fits the width of the terminal",
            Json => "JSON, with one object per line for several results",
            Csv => "Comma-separated values with a header",
            Md => "Markdown table",
            Npy => "NumPy array with a row per image, and row names in NAME.names.txt",
            Safetensors => "Named arrays, with row names in the metadata `images`",
            Parquet if cfg!(feature = "parquet") => "Table with the columns image and embedding",
            Parquet => "Not available: hipvit was built without the feature `parquet`",
        }
    }

    /// Returns the extensions of files in this format, without the dot.
    fn extensions(self) -> &'static [&'static str] {
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

    /// Returns the format of a file with the extension of `path`. Case is ignored.
    fn from_extension(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|format| format.extensions().contains(&extension.as_str()))
    }

    /// Returns true if a terminal can show the format.
    fn is_text(self) -> bool {
        matches!(self, Text | Json | Csv | Md)
    }
}

/// Formats that a command supports. The first one is the default.
pub(crate) trait Formats: Clone + std::fmt::Debug + Send + Sync + 'static {
    const FORMATS: &'static [Format];
}

/// Destination and format of the results.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs<F: Formats> {
    /// Output format [default: by the extension of --output]
    #[arg(long, value_name = "FORMAT", value_parser = parser(F::FORMATS))]
    format: Option<Format>,
    /// Alias of --format json
    #[arg(long, conflicts_with = "format", hide = !F::FORMATS.contains(&Json))]
    json: bool,
    /// Write the results to a file
    ///
    /// The extension selects the format. The file is created or replaced when the results are complete. If FILE is a
    /// symbolic link, its target is replaced. The permissions of an existing file are kept.
    #[arg(long, short, value_name = "FILE|-")]
    output: Option<PathBuf>,
    #[arg(skip)]
    formats: PhantomData<F>,
}

/// Returns a parser that accepts the names of `formats`.
fn parser(formats: &'static [Format]) -> impl TypedValueParser<Value = Format> {
    let values = formats.iter().map(|format| {
        let value = PossibleValue::new(format.name()).help(format.help());
        // Accept the former name of the format.
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
    /// Returns the format and an open sink. A directory that is not writable fails here, before the work starts.
    pub(crate) fn open(&self) -> Result<(Format, Sink)> {
        let format = self.format()?;
        Ok((format, self.sink(format)?))
    }

    /// Returns the format and, in the process that writes the results, an open sink. The sink is `None` in other processes.
    pub(crate) fn open_at(&self, ranks: &Ranks) -> Result<(Format, Option<Sink>)> {
        let format = self.format()?;
        let sink = ranks.writes().then(|| self.sink(format)).transpose()?;
        Ok((format, sink))
    }

    /// Opens the file for the row names of the array in `sink`. Returns `None` for formats other than NumPy's, and for
    /// standard output.
    ///
    /// # Errors
    ///
    /// Returns [`hipvit::Error::Io`] if the file cannot be written.
    pub(crate) fn open_names(&self, format: Format, sink: Option<&Sink>) -> Result<Option<Sink>> {
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
                    "{} is a binary format, which a terminal cannot show. Write it to a file with --output",
                    format.name()
                );
                return Err(Usage(text).into());
            }
            None => Sink::Binary(stdout().lock()),
        })
    }

    /// Returns the format and a sink for standard output. Used by commands whose `--output` has a different purpose.
    pub(crate) fn open_printed(&self) -> (Format, Sink) {
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

    /// Returns the maximum width of printed text in columns. Returns `None` if the results go to a file.
    pub(crate) fn width(&self) -> Option<usize> {
        self.file().map_or_else(output::width, |_| None)
    }

    /// If the results went to a file, reports on the terminal that `what` was written to it.
    pub(crate) fn wrote(&self, what: &str) {
        if let Some(path) = self.file() {
            output::wrote(path, what);
        }
    }

    /// Returns the path of the output file. Returns `None` for standard output.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new("-"))
    }

    fn format(&self) -> Result<Format> {
        if self.json {
            return if F::FORMATS.contains(&Json) {
                Ok(Json)
            } else {
                Err(Usage(format!(
                    "--json: this command cannot write JSON. Use --format {}",
                    names::<F>()
                ))
                .into())
            };
        }
        let format = match (self.format, self.file()) {
            (Some(format), _) => format,
            (None, None) => F::FORMATS[0],
            (None, Some(path)) => match Format::from_extension(path) {
                Some(format) if F::FORMATS.contains(&format) => format,
                _ => return Err(Usage(unknown_extension::<F>(path)).into()),
            },
        };
        if format == Parquet && cfg!(not(feature = "parquet")) {
            return Err(no_parquet());
        }
        Ok(format)
    }
}

/// Returns the names of the command's formats, joined by "or".
fn names<F: Formats>() -> String {
    let names: Vec<&str> = F::FORMATS.iter().map(|format| format.name()).collect();
    names.join(" or ")
}

/// Returns the error for a path whose extension is not one of the command's formats.
fn unknown_extension<F: Formats>(path: &Path) -> String {
    let extensions = F::FORMATS.iter().flat_map(|format| format.extensions());
    let extensions: Vec<String> = extensions.map(|extension| format!(".{extension}")).collect();
    let named = F::FORMATS.iter().find(|format| path == Path::new(format.name()));
    let is_directory = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let path = path.display();
    match named {
        _ if is_directory => format!("--output {path}: this is a directory. Name a file in it"),
        Some(format) => format!(
            "--output {path}: this is a format, not a file name. To print the results in it, use --format {}",
            format.name()
        ),
        None => format!(
            "--output {path}: the extension is not that of a supported format. Use {}, or add --format",
            extensions.join(", ")
        ),
    }
}

/// Finishes the output files of a command that writes results while it runs.
///
/// The files appear together. They are discarded if inputs failed and no input has a result.
pub(crate) fn finish(files: Vec<Sink>, outcome: Outcome, results: usize) -> Result<Outcome> {
    if results > 0 || outcome == Outcome::Complete {
        Sink::finish_all(files)?;
    }
    Ok(outcome)
}

/// Formats the shape of an array, such as `2 × 768`.
pub(crate) fn shape(extents: &[usize]) -> String {
    let extents: Vec<String> = extents.iter().map(ToString::to_string).collect();
    extents.join(" × ")
}

/// Writes `rows` as CSV with the header `fields`.
///
/// A field names a value in the JSON of a row: `a.b` is the member `b` of the object `a`. Missing values and nulls are
/// empty cells.
pub(crate) fn csv<R: Serialize>(
    out: impl Write,
    fields: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> Result<()> {
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

/// Converts a CSV error to its I/O error, so that the caller can recognise a closed pipe.
pub(crate) fn written(result: csv::Result<()>) -> Result<()> {
    result.map_err(|error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        other => anyhow::anyhow!("{other:?}"),
    })
}
