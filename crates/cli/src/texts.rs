//! `--text` and related options, for commands that embed texts or use them as labels.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hipvit::labels::Labels;
use hipvit::{Session, ZeroShot, ZeroShotOptions};
use hipvit_files::regular_file;

use super::inputs::is_image;
use super::outcome::{Usage, refused};
use super::output;

/// Texts that the command line names.
#[derive(Debug, clap::Args)]
pub(crate) struct Texts {
    /// Texts to embed, or to use as labels
    ///
    /// The option takes all arguments that follow, so put images before it.
    #[arg(long, value_name = "TEXT", num_args = 1.., value_parser = not_blank, help_heading = "Texts")]
    text: Vec<String>,
    /// File with the texts, one per line or as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "text", help_heading = "Texts")]
    text_file: Option<PathBuf>,
    /// Column of the texts, if --text-file is CSV with a header
    #[arg(long, value_name = "NAME", requires = "text_file", help_heading = "Texts")]
    text_column: Option<String>,
}

/// Texts as labels.
#[derive(Debug, clap::Args)]
pub(crate) struct TextArgs {
    #[command(flatten)]
    texts: Texts,
    /// Prompt template with {} for the text; repeatable
    ///
    /// The embeddings of several templates are averaged.
    #[arg(long = "template", value_name = "TEMPLATE", value_parser = template, help_heading = "Texts")]
    templates: Vec<String>,
}

fn not_blank(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must not be blank".into());
    }
    Ok(text.into())
}

fn template(text: &str) -> Result<String, String> {
    if text.contains("{}") {
        return Ok(text.into());
    }
    Err("must contain {} in place of the text".into())
}

impl Texts {
    /// Returns true if there are texts.
    pub(crate) fn is_given(&self) -> bool {
        !self.text.is_empty() || self.text_file.is_some()
    }

    /// Reads the texts before a model is loaded. `has_images` is true if the command line also names images.
    ///
    /// # Errors
    ///
    /// Returns [`Usage`] if `--text` consumed the images of the command line. Returns an error if the file cannot be
    /// read.
    pub(crate) fn read(&self, has_images: bool) -> Result<Option<Vec<String>>> {
        if let Some(taken) = self.text.iter().find(|text| is_image_file(Path::new(text))) {
            let reason = format!("--text took `{taken}` as a text. Put images before --text");
            if !has_images {
                return Err(Usage(reason).into());
            }
            output::note(&reason);
        }
        Ok(match (&self.text_file, &self.text_column) {
            (Some(file), Some(name)) => Some(column(file, name)?),
            (Some(file), None) => Some(Labels::from_file(file)?.iter().map(str::to_owned).collect()),
            (None, _) => (!self.text.is_empty()).then(|| self.text.clone()),
        })
    }
}

/// Reads the column `name` of a CSV file.
///
/// # Errors
///
/// Returns [`hipvit::Error::Io`] if the file cannot be read, and [`Usage`] if it is not CSV, has no such column, or has a
/// blank text.
fn column(file: &Path, name: &str) -> Result<Vec<String>> {
    let wrong = |reason: String| Usage(format!("{}: {reason}", file.display()));
    let opened = regular_file::open(file).map_err(refused(file))?;
    let mut reader = csv::Reader::from_reader(opened);
    let header = reader
        .headers()
        .map_err(|error| wrong(format!("is not CSV: {error}")))?;
    let Some(index) = header
        .iter()
        .position(|column| column.trim_start_matches('\u{feff}') == name)
    else {
        let columns: Vec<&str> = header.iter().collect();
        let reason = format!("has no column `{name}`. Its columns are: {}", columns.join(", "));
        return Err(wrong(reason).into());
    };
    let mut texts = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| wrong(format!("is not CSV: {error}")))?;
        let text = row.get(index).unwrap_or_default();
        if text.trim().is_empty() {
            let reason = format!(
                "row {} has no text in the column `{name}`. Fill or remove it",
                texts.len() + 1
            );
            return Err(wrong(reason).into());
        }
        texts.push(text.to_owned());
    }
    if texts.is_empty() {
        return Err(wrong("has no rows below its header".to_owned()).into());
    }
    Ok(texts)
}

/// Returns true for an existing file with the extension of an image.
fn is_image_file(path: &Path) -> bool {
    is_image(path) && path.is_file()
}

/// Warns about texts that were truncated to the model's context length.
pub(crate) fn warn_of_truncated<'a>(session: &Session, texts: impl IntoIterator<Item = &'a String>) {
    for text in texts {
        let context = session.info().text.as_ref().map_or(0, |text| text.context);
        output::warning(&format!("truncated to the model's {context} tokens: \"{text}\""));
    }
}

impl TextArgs {
    /// Returns true if texts are used as labels.
    pub(crate) fn is_given(&self) -> bool {
        self.texts.is_given()
    }

    /// Returns true if there are templates, which require texts.
    pub(crate) fn has_templates(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Reads the texts. See [`Texts::read`].
    pub(crate) fn read(&self, has_images: bool) -> Result<Option<Vec<String>>> {
        self.texts.read(has_images)
    }

    /// Embeds the texts. Warns about texts that were truncated.
    pub(crate) fn zero_shot(&self, session: &Session, texts: &[String]) -> hipvit::Result<ZeroShot> {
        let options = ZeroShotOptions::new().templates(&self.templates);
        let zero_shot = session.zero_shot_with(texts, &options)?;
        warn_of_truncated(session, zero_shot.truncated());
        Ok(zero_shot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_csv_has_texts_with_commas_and_line_breaks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("captions.csv");
        let read = |text: &str, name: &str| {
            std::fs::write(&file, text).unwrap();
            column(&file, name).map_err(|error| error.to_string())
        };
        let text = "\u{feff}caption,id\n\"a cat, asleep\",1\n\"two\nlines\",2\n";
        assert_eq!(read(text, "caption").unwrap(), ["a cat, asleep", "two\nlines"]);
        assert_eq!(read(text, "id").unwrap(), ["1", "2"]);
        for (text, reason) in [
            (text, "has no column `text`. Its columns are: "),
            ("text,id\na,1\n ,2\n", "row 2 has no text"),
            ("text\n", "has no rows"),
            ("text,id\na\n", "is not CSV"),
        ] {
            let error = read(text, "text").unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
