//! Image encoders with a text decoder that training on texts starts from.

use std::fs;
use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::model::{self, Checkpoint, Detokenizer};
use hipvit_files::regular_file;
use hipvit_generate::TextDecoder;

use super::pairs::tokenizer_files;
use super::{InitialModel, Start, contents};

/// File with the rules of generation.
const GENERATION_CONFIG: &str = "generation_config.json";

impl InitialModel {
    /// Reads a model that makes texts, with its tokenizer.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a model without weights, and the errors of [`new`](Self::new), of the decoder and of the tokenizer.
    pub(crate) fn of_texts(start: Start<'_>) -> Result<Self> {
        let Start::Checkpoint(path) = start else {
            let (Start::Config(place) | Start::Checkpoint(place)) = start else {
                return Err(Error::argument(
                    "model",
                    "is the name of an architecture without a decoder",
                ));
            };
            let reason = format!(
                "{} has no weights. Write random ones with transformers: `VisionEncoderDecoderModel(config).save_pretrained(…)`",
                place.display()
            );
            return Err(Error::argument("model", reason));
        };
        let directory = model::directory(path)?;
        let checkpoint = Checkpoint::open(Some(path))?;
        TextDecoder::open(&directory, checkpoint.config())?;
        Detokenizer::load(&directory)?;
        let mut files = tokenizer_files(&directory)?;
        files.extend(optional_file(&directory, GENERATION_CONFIG)?);
        Ok(Self {
            config: checkpoint.config().clone(),
            preprocessor: checkpoint.preprocessor().cloned(),
            tensors: contents(&checkpoint, |_| true),
            new: Vec::new(),
            names: checkpoint.file_names(),
            files,
        })
    }
}

/// Reads a file that a directory may have.
fn optional_file(directory: &Path, name: &'static str) -> Result<Option<(&'static str, Vec<u8>)>> {
    let file = directory.join(name);
    if fs::metadata(&file).is_err() {
        return Ok(None);
    }
    let bytes = regular_file::read(&file).map_err(|error| Error::io(&file, error))?;
    Ok(Some((name, bytes)))
}
