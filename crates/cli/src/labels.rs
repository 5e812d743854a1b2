//! The option `--labels` of commands that print class names.

use std::path::PathBuf;

use hipvit::{Labels, SessionBuilder};

#[derive(Debug, clap::Args)]
pub(crate) struct LabelArgs {
    /// File with class names [default: the model's]
    ///
    /// A text file with one name per line, or a JSON file with a list or with the id2label of transformers. For a model
    /// with 1,000 classes and no names, the default is the ImageNet names.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    labels: Option<PathBuf>,
}

impl LabelArgs {
    /// Sets the class names of `builder`, if a file was given.
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

    /// Reads the class names, if a file was given.
    pub(crate) fn read(&self) -> hipvit::Result<Option<Labels>> {
        self.labels.as_ref().map(Labels::from_file).transpose()
    }
}
