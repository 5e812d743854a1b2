//! `--labels`, for commands that print classes.

use std::path::PathBuf;

use hipvit::{Labels, SessionBuilder};

#[derive(Debug, clap::Args)]
pub struct LabelArgs {
    /// File with the names of the classes [default: the model's]
    ///
    /// A text file with a name per line, or JSON: a list, or transformers' id2label. A model of 1,000 classes without names has
    /// ImageNet's.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    labels: Option<PathBuf>,
}

impl LabelArgs {
    pub fn apply(&self, builder: SessionBuilder) -> hipvit::Result<SessionBuilder> {
        Ok(match self.read()? {
            Some(labels) => builder.labels(labels),
            None => builder,
        })
    }

    /// Returns true if a file was named.
    pub fn is_given(&self) -> bool {
        self.labels.is_some()
    }

    /// Reads the labels of the file that was given.
    pub fn read(&self) -> hipvit::Result<Option<Labels>> {
        self.labels.as_ref().map(Labels::from_file).transpose()
    }
}
