//! Texts of images.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hipvit::pipeline::Source;
use hipvit::{Error, Session};
use hipvit_generate::{GenerateOptions, Generator};

use crate::images::decode;

/// Decoded images in memory, as a multiple of the batch size.
const BATCHES_IN_MEMORY: usize = 4;

/// The decoder of a model.
#[derive(Debug)]
pub struct Generation {
    /// Path of the model; `None` for the embedded one.
    path: Option<PathBuf>,
    /// `None` until the first text is made. One call at a time uses it.
    loaded: Mutex<Option<Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    generator: Generator,
    draft_model: Option<PathBuf>,
}

impl Generation {
    pub fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            loaded: Mutex::default(),
        }
    }

    /// Drops the decoder after the last call has ended.
    pub fn close(&self) {
        drop(self.loaded.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Makes the texts of images. `draft_model` guesses tokens. An error has the position of its image.
    pub fn texts(
        &self,
        session: &Session,
        sources: Vec<Source>,
        options: &GenerateOptions,
        draft_model: Option<PathBuf>,
    ) -> Result<Vec<String>, (Error, Option<usize>)> {
        let whole = |error| (error, None);
        options.check().map_err(whole)?;
        let embedded = || {
            Error::argument(
                "model",
                "is the embedded one, which makes no texts. Load another one",
            )
        };
        let path: &Path = self.path.as_deref().ok_or_else(embedded).map_err(whole)?;
        let mut held = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = held.as_ref().map(|held| held.generator.has_room(options));
        if !has_room.transpose().map_err(whole)?.unwrap_or(false) {
            // Free the smaller cache first.
            *held = None;
            *held = Some(Loaded {
                generator: Generator::of_session(session.clone(), path, options).map_err(whole)?,
                draft_model: None,
            });
        }
        let unloaded = || Error::internal("decoder", "is not loaded");
        let held = held.as_mut().ok_or_else(unloaded).map_err(whole)?;
        let generator = &mut held.generator;
        if draft_model != held.draft_model {
            generator.remove_draft_model();
            held.draft_model = None;
            if let Some(path) = &draft_model {
                generator.load_draft_model(path, options).map_err(whole)?;
            }
            held.draft_model = draft_model;
        }
        let mut texts = Vec::with_capacity(sources.len());
        let mut sources = sources.into_iter();
        loop {
            let first_index = texts.len();
            let together: Vec<Source> = sources
                .by_ref()
                .take(BATCHES_IN_MEMORY * session.batch())
                .collect();
            if together.is_empty() {
                return Ok(texts);
            }
            let images =
                decode(together).map_err(|(error, index)| (error, index.map(|index| first_index + index)))?;
            let options = GenerateOptions {
                first_index,
                ..options.clone()
            };
            let generated = generator
                .generate(&images, &options, &mut |_, _| {})
                .map_err(whole)?;
            texts.extend(generated.into_iter().map(|text| text.text));
        }
    }
}
