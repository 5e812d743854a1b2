//! Stream of results in the order of the images, and the loop over them that all commands share.

use std::time::Duration;

use anyhow::{Result, bail};
use hipvit::Session;
use hipvit::hip::Connection;
use hipvit::pipeline::{self, Item, ItemParts, Source};
use hipvit::timing::Timing;
use serde::{Deserialize, Serialize};

use super::errors::report;
use super::output;
use super::partial::{ImageResult, Journal, Recorded, Stamp};
use super::progress::Progress;

/// Error message of an image without results. The other images go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ImageError(String);

/// Message to rank 0.
#[derive(Serialize, Deserialize)]
pub(crate) enum Message {
    /// Results of the next image of the sender's share, and the stamp of its file.
    Results(ItemParts, Option<Stamp>),
    /// Error of the next image.
    ImageFailed(String, Option<Stamp>),
    /// The share is complete.
    Complete,
    /// The sender failed for this reason.
    Failed(String),
}

/// Numbers of images of a run, known before its first result.
pub(crate) struct Run {
    /// Number of all images.
    pub(crate) images: usize,
    /// Number of images that an interrupted run has finished. They come first.
    pub(crate) finished: usize,
    /// The other images. Their results go to the journal.
    pub(crate) recorded: Vec<Source>,
    pub(crate) journal: Option<Journal>,
}

/// Results in the order of the images. Results of an interrupted run come first; then the ranks take turns, one batch
/// each.
pub(crate) struct Results {
    session: Session,
    /// Images whose results go to the journal.
    recorded: std::vec::IntoIter<Source>,
    /// Finished results of an earlier run, and the file for new ones.
    journal: Option<Journal>,
    /// Results of this process, which is rank 0 or the only one.
    own: pipeline::Results,
    /// Connections to ranks 1, 2, …, until all results are received.
    others: Vec<Connection>,
    /// Timeout for a result of another rank.
    timeout: Duration,
    ranks: usize,
    images: usize,
    /// Number of images that an interrupted run has finished.
    finished: usize,
    /// Index of the next image.
    index: usize,
}

impl Results {
    /// Creates the stream of `run`'s results. The results of other ranks come from `others`, each within `timeout`.
    pub(crate) fn new(
        session: &Session,
        run: Run,
        own: pipeline::Results,
        others: Vec<Connection>,
        timeout: Duration,
    ) -> Self {
        Self {
            session: session.clone(),
            images: run.images,
            finished: run.finished,
            recorded: run.recorded.into_iter(),
            journal: run.journal,
            own,
            ranks: others.len() + 1,
            others,
            timeout,
            index: 0,
        }
    }

    /// Calls `each` with the results of every image, and shows a progress bar. Reports each image that failed, and the
    /// number of failures. Returns this number.
    pub(crate) fn visit(&mut self, mut each: impl FnMut(&Item) -> Result<()>) -> Result<usize> {
        let progress = Progress::images(self.images);
        let mut failed = 0;
        while let Some(result) = self.next()? {
            progress.step();
            if self.index == self.finished {
                progress.reset_speed();
            }
            match result {
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
        drop(progress);
        note_failed(failed, self.images);
        Ok(failed)
    }

    /// Removes the file of partial results, because the output is complete.
    ///
    /// # Errors
    ///
    /// Returns [`hipvit::Error::Io`] if the file cannot be removed.
    pub(crate) fn complete(mut self) -> Result<()> {
        self.journal.take().map_or(Ok(()), Journal::complete)
    }

    /// Returns the time of each phase in this process.
    pub(crate) fn timing(&self) -> &Timing {
        self.own.timing()
    }

    /// Returns the results or the error of the next image; `None` after the last image.
    fn next(&mut self) -> Result<Option<Result<Item, ImageError>>> {
        let index = self.index;
        if index == self.images {
            return self.finish().map(|()| None);
        }
        self.index += 1;
        if let Some(recorded) = self.journal.as_mut().map(Journal::read).transpose()?.flatten() {
            return Ok(Some(match recorded.result {
                ImageResult::Parts(parts) => Ok(Item::from_parts(&self.session, index, parts)?),
                ImageResult::Failed(text) => Err(ImageError(text)),
            }));
        }
        let (result, stamp) = self.compute(index)?;
        if let (Some(journal), Some(source)) = (&self.journal, self.recorded.next()) {
            journal.record(&Recorded {
                name: source.name(),
                stamp: stamp.or_else(|| Stamp::of(&source)),
                result: match &result {
                    Ok(item) => ImageResult::Parts(item.parts()),
                    Err(ImageError(text)) => ImageResult::Failed(text.clone()),
                },
            })?;
        }
        Ok(Some(result))
    }

    /// Computes or receives the result of an image that no earlier run has finished. Another rank also sends the
    /// image's stamp.
    fn compute(&mut self, index: usize) -> Result<(Result<Item, ImageError>, Option<Stamp>)> {
        let rank = (index - self.finished) / self.session.batch() % self.ranks;
        if rank > 0 {
            return Ok(match self.receive(rank)? {
                Message::Results(parts, stamp) => (Ok(Item::from_parts(&self.session, index, parts)?), stamp),
                Message::ImageFailed(text, stamp) => (Err(ImageError(text)), stamp),
                Message::Complete | Message::Failed(_) => {
                    bail!("rank {rank} of {}: image {index} has no result", self.ranks)
                }
            });
        }
        match self.own.next() {
            Some(Ok(item)) => Ok((Ok(item.with_index(index)), None)),
            Some(Err(error)) if error.index().is_some() => Ok((Err(ImageError(error.to_string())), None)),
            Some(Err(error)) => Err(hipvit::Error::from(error).into()),
            None => bail!("image {index} has no result"),
        }
    }

    /// Checks that no rank has more results.
    fn finish(&mut self) -> Result<()> {
        // Reaching the end here ends the timing of this rank together with the others.
        if self.own.next().is_some() {
            bail!("there are more results than images");
        }
        for rank in 1..=self.others.len() {
            if !matches!(self.receive(rank)?, Message::Complete) {
                bail!("rank {rank} of {}: has more results than images", self.ranks);
            }
        }
        self.others.clear();
        Ok(())
    }

    /// Receives the next message of `rank`. Returns an error if the rank has failed.
    fn receive(&mut self, rank: usize) -> Result<Message> {
        match self.others[rank - 1].receive(self.timeout)? {
            Message::Failed(text) => bail!("rank {rank} of {}: {text}", self.ranks),
            message => Ok(message),
        }
    }
}

/// Prints a note with the number of failed images, if there were several images.
pub(crate) fn note_failed(failed: usize, images: usize) {
    if failed > 0 && images > 1 {
        output::note(&format!("{failed} of {images} images failed and are left out"));
    }
}

/// Warns if an image's results have NaN or infinite values.
fn warn_non_finite(item: &Item, progress: &Progress) {
    if let Some(results) = item.outputs().non_finite() {
        progress.report(|| output::warning(&format!("{}: {results}", item.name())));
    }
}
