//! `--text` and what belongs to it: labels as texts, for commands that classify.

use std::path::PathBuf;

use hipvit::labels::Labels;
use hipvit::{Session, ZeroShot, ZeroShotOptions};

use super::output;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Zero-shot classification")]
pub struct TextArgs {
    /// Classify by these texts, with a model that has a text tower (CLIP, SigLIP). Takes all that follows up to the next option:
    /// name the images first
    #[arg(long, value_name = "TEXT", num_args = 1.., value_parser = not_blank)]
    text: Vec<String>,
    /// File with the texts: one per line, or JSON
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    text_file: Option<PathBuf>,
    /// What is written around a text, with {} in its place, as "a photo of a {}."; of several, the mean of the embeddings counts
    #[arg(long = "template", value_name = "TEMPLATE", value_parser = template)]
    templates: Vec<String>,
}

fn not_blank(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("must not be blank".into()),
        false => Ok(text.into()),
    }
}

fn template(text: &str) -> Result<String, String> {
    match text.contains("{}") {
        true => Ok(text.into()),
        false => Err("must have {} where the text goes".into()),
    }
}

impl TextArgs {
    /// Whether texts are to be the labels.
    pub fn is_given(&self) -> bool {
        !self.text.is_empty() || self.text_file.is_some()
    }

    /// Whether there are templates, which need texts.
    pub fn has_templates(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Reads the texts; before a model is loaded, so that what is wrong with them is said at once.
    pub fn read(&self) -> hipvit::Result<Option<Vec<String>>> {
        Ok(match &self.text_file {
            Some(file) => Some(Labels::from_file(file)?.iter().map(str::to_owned).collect()),
            None => (!self.text.is_empty()).then(|| self.text.clone()),
        })
    }

    /// Embeds the texts, and says which were cut.
    pub fn zero_shot(&self, session: &Session, texts: &[String]) -> hipvit::Result<ZeroShot> {
        let options = ZeroShotOptions::new().templates(&self.templates);
        let zero_shot = session.zero_shot_with(texts, &options)?;
        for text in zero_shot.truncated() {
            let context = session.info().text.as_ref().map_or(0, |text| text.context);
            output::warning(&format!(
                "longer than the model's {context} tokens, its end was left out: \"{text}\""
            ));
        }
        Ok(zero_shot)
    }
}
