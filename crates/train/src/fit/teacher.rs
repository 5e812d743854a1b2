//! The teacher of a distillation.

use std::path::Path;

use hipvit::error::Error;
use hipvit::model::InputKind;
use hipvit::{RunInput, RunOptions, Session};
use hipvit_data::Batch;

use super::error::FitError;
use super::from_recipe::input_kind;
use super::options::FitOptions;
use crate::recipe::Recipe;
use crate::trainer::Trainer;

/// A model whose logits the steps compare with.
#[derive(Debug)]
pub(super) struct Teacher {
    session: Session,
    input: InputKind,
}

impl Teacher {
    /// Opens the teacher of a recipe, if it has one. The teacher takes images of the student's size.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if it has other classes than the student. The errors of loading a model.
    pub(super) fn open(
        recipe: &Recipe,
        options: &FitOptions,
        student: &Trainer,
    ) -> Result<Option<Self>, FitError> {
        let name = &recipe.distillation.teacher;
        if name.is_empty() {
            return Ok(None);
        }
        let (width, height) = student.preprocess().output_size();
        let input = input_kind(recipe);
        let mut builder = Session::builder()
            .device(options.device)
            .dtype(options.dtype)
            .batch(recipe.micro_batch())
            .image_size([height, width])
            .input(input);
        if let Some(threads) = options.threads {
            builder = builder.threads(threads);
        }
        let session = builder.load(Path::new(name))?;
        let (found, expected) = (session.info().classes, student.classes());
        if found != expected {
            let reason = format!(
                "`{name}` has {found} classes, but the student has {expected}. Take a teacher that was trained on the classes of \
                 the data"
            );
            return Err(Error::argument("teacher", reason).into());
        }
        Ok(Some(Self { session, input }))
    }

    /// Returns the logits for a batch as the student sees it, with the teacher's own normalisation.
    ///
    /// # Errors
    ///
    /// The errors of the device.
    pub(super) fn logits(&self, batch: &Batch) -> Result<Vec<f32>, FitError> {
        let planes;
        let input = match self.input {
            InputKind::PixelValues => {
                planes = batch.planes(self.session.preprocess())?;
                RunInput::Values(&planes)
            }
            _ => RunInput::Pixels(&batch.pixels),
        };
        let outputs = self.session.run_with(input, RunOptions::new())?;
        let logits = outputs.logits().map(|logits| logits.iter().copied().collect());
        logits.ok_or_else(|| Error::internal("distillation", "the teacher has no logits").into())
    }
}
