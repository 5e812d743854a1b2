//! `--labels`, for commands that print classes.

use std::path::PathBuf;

use hipvit::{Labels, SessionBuilder};

#[derive(Debug, clap::Args)]
pub struct LabelArgs {
    /// Names of the classes: a text file with a name per line, or JSON (a list, or transformers' id2label) [default: the
    /// model's own; if it has none and 1,000 classes, ImageNet's]
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
}

impl LabelArgs {
    pub fn apply(&self, builder: SessionBuilder) -> hipvit::Result<SessionBuilder> {
        Ok(match self.read()? {
            Some(labels) => builder.labels(labels),
            None => builder,
        })
    }

    /// Whether a file was named.
    pub fn is_given(&self) -> bool {
        self.labels.is_some()
    }

    /// The labels in the file that was given.
    pub fn read(&self) -> hipvit::Result<Option<Labels>> {
        self.labels.as_ref().map(Labels::from_file).transpose()
    }
}
