//! `--labels`, for commands that print classes.

use std::path::PathBuf;

use hipvit::{Labels, SessionBuilder};

#[derive(Debug, clap::Args)]
pub(crate) struct LabelArgs {
    /// File with the class names [default: the model's]
    ///
    /// A text file with one name per line, or JSON: a list, or the id2label of transformers. A model with 1,000 unnamed
    /// classes uses the names of ImageNet.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    labels: Option<PathBuf>,
}

impl LabelArgs {
    pub(crate) fn apply(&self, builder: SessionBuilder) -> hipvit::Result<SessionBuilder> {
        Ok(match self.read()? {
            Some(labels) => builder.labels(labels),
            None => builder,
        })
    }

    /// Returns true if a file was given.
    pub(crate) fn is_given(&self) -> bool {
        self.labels.is_some()
    }

    /// Reads the labels, if a file was given.
    pub(crate) fn read(&self) -> hipvit::Result<Option<Labels>> {
        self.labels.as_ref().map(Labels::from_file).transpose()
    }
}
