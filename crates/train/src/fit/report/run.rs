//! The report of a run: its facts, its log, its last evaluation.

use std::io::Write;

use hipvit::error::Result;
use hipvit::image::{Filter, RgbImage, resize};
use hipvit::model::{Checkpoint, replace_file};
use hipvit_data::LoaderOptions;
use hipvit_report::page::data_url;

use super::super::{Event, Fit, Progress};
use super::{Report, duration};

/// Maximum height and width of a picture in the report, in pixels.
const MAX_SIDE: usize = 160;

impl Fit {
    /// Writes the report of the run so far.
    pub(in super::super) fn write_report(&self) -> Result<()> {
        let events = self.log.events()?;
        let worst = self.evaluation.iter().flat_map(|evaluation| &evaluation.worst);
        let report = Report {
            name: self.run.name(),
            facts: self.facts(&events),
            recipe: self.recipe.to_toml(),
            events: &events,
            // Captions of the two sets differ.
            classes: self
                .splits
                .validation
                .as_ref()
                .unwrap_or(&self.splits.train)
                .classes(),
            evaluation: self.evaluation.as_ref(),
            pictures: worst.map(|image| self.picture(image.index)).collect(),
        };
        let page = report.page();
        replace_file(&self.run.report(), |out| out.write_all(page.as_bytes()))
    }

    /// Returns a validation image, as the model gets it, as a `data:` URL. `None` if it cannot be read.
    fn picture(&self, index: usize) -> Option<String> {
        let validation = self.splits.validation.as_ref()?;
        let image = validation.decode(index, LoaderOptions::default().decode).ok()?;
        let image = self.trainer.preprocess().apply(&image).ok()?;
        data_url(&thumbnail(image)?).ok()
    }

    /// Returns what the report says about the run.
    fn facts(&self, events: &[Event]) -> Vec<(&'static str, String)> {
        let epochs = events.iter().filter_map(Event::as_epoch);
        let training: f64 = epochs.clone().map(|event| event.train_seconds).sum();
        let validation: f64 = epochs.filter_map(|event| event.val_seconds).sum();
        let Progress {
            step, epoch, skipped, ..
        } = self.progress;
        let images = self.splits.validation.as_ref().map_or(0, |set| set.len());
        let has_captions = self.splits.train.has_captions();
        let classes = if has_captions { "captions" } else { "classes" };
        vec![
            (
                "position",
                format!(
                    "epoch {epoch} of {}, step {step} of {}",
                    self.recipe.epochs,
                    self.steps()
                ),
            ),
            ("model", architecture(self.trainer.checkpoint())),
            ("trained parameters", self.trainer.parameters().to_string()),
            ("training images", self.splits.train.len().to_string()),
            ("validation images", images.to_string()),
            ("skipped images", skipped.to_string()),
            (classes, self.splits.train.classes().len().to_string()),
            ("device", self.options.device_name.clone()),
            ("dtype", self.options.dtype.to_string()),
            ("time of training", duration(training + self.progress.seconds)),
            ("time of evaluation", duration(validation)),
        ]
    }
}

/// Returns the name of a checkpoint's architecture in timm or transformers, or `open_clip`.
fn architecture(checkpoint: &Checkpoint) -> String {
    let config = checkpoint.config();
    let name = config["architecture"]
        .as_str()
        .or_else(|| config["architectures"][0].as_str());
    let unnamed = if checkpoint.is_open_clip() {
        "open_clip"
    } else {
        "unknown"
    };
    name.unwrap_or(unnamed).to_owned()
}

/// Shrinks the image to at most [`MAX_SIDE`].
fn thumbnail(image: RgbImage) -> Option<RgbImage> {
    let side = image.width.max(image.height);
    if side <= MAX_SIDE {
        return Some(image);
    }
    let [width, height] = [image.width, image.height].map(|length| (length * MAX_SIDE / side).max(1));
    resize(&image, width, height, Filter::Bicubic).ok()
}
