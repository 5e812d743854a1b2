//! The results of images as a stream, in the order of the images, and the loop over them that all commands share.

use anyhow::Result;
use hipvit::Session;
use hipvit::image::DecodeOptions;
use hipvit::pipeline::{self, Item, Pipeline, Source};
use hipvit::timing::Timing;

use super::progress::Progress;
use super::{report, warn_non_finite};

/// Why an image has no results, as it is reported. The others go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ImageError(String);

/// The results of images, in their order. An error outside ends the stream.
pub struct Results {
    pipeline: pipeline::Results,
    images: usize,
}

impl Results {
    /// Runs `sources`; the device's phases are measured if `timed`.
    pub fn start(
        session: &Session,
        sources: Vec<Source>,
        options: DecodeOptions,
        timed: bool,
    ) -> Result<Self> {
        let images = sources.len();
        let pipeline = Pipeline::new(session).decode_options(options).timed(timed);
        Ok(Self {
            pipeline: pipeline.run(sources)?,
            images,
        })
    }

    /// Calls `each` with the results of every image, beside a progress bar, and reports each image that has none. How many
    /// those are.
    pub fn visit(&mut self, mut each: impl FnMut(&Item) -> Result<()>) -> Result<usize> {
        let progress = Progress::images(self.images);
        let mut failed = 0;
        for result in self {
            progress.step();
            match result? {
                Ok(item) => {
                    warn_non_finite(&item, &progress);
                    progress.print(|| each(&item))?;
                }
                Err(error) => {
                    failed += 1;
                    progress.report(|| report(error));
                }
            }
        }
        Ok(failed)
    }

    /// The time of each phase.
    pub fn timing(&self) -> &Timing {
        self.pipeline.timing()
    }
}

impl Iterator for Results {
    type Item = Result<Result<Item, ImageError>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.pipeline.next()? {
            Ok(item) => Ok(Ok(item)),
            Err(error) if error.index().is_some() => Ok(Err(ImageError(error.to_string()))),
            Err(error) => Err(hipvit::Error::from(error).into()),
        })
    }
}
