//! The results of images as a stream, in the order of the images, and the loop over them that all commands share.

use std::time::Duration;

use anyhow::{Result, bail};
use hipvit::Session;
use hipvit::hip::Connection;
use hipvit::pipeline::{self, Item, Source};
use hipvit::timing::Timing;

use super::partial::{ImageResult, Journal, Recorded, Stamp};
use super::progress::Progress;
use super::ranks::{Message, Run};
use super::{output, report, warn_non_finite};

/// Why an image has no results, as it is reported. The others go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ImageError(String);

/// The results of images, in their order. The results of an interrupted run come first. The ranks then compute batches in turn.
pub struct Results {
    session: Session,
    /// Images whose results the journal gets.
    recorded: std::vec::IntoIter<Source>,
    /// Finished results, and the file that keeps new ones.
    journal: Option<Journal>,
    /// This rank's, which is rank 0 or the only process.
    own: pipeline::Results,
    /// To rank 1 and so on, until all is received.
    others: Vec<Connection>,
    /// How long to wait for a result of another rank.
    timeout: Duration,
    ranks: usize,
    images: usize,
    /// Number of images that an interrupted run has finished.
    finished: usize,
    /// The next image.
    index: usize,
}

impl Results {
    /// The results of `run`, whose other parts come from `others`. Waits `timeout` for each of them.
    pub fn new(
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

    /// Calls `each` with the results of every image, beside a progress bar. Reports each image that failed, and then how many did.
    /// Returns their number.
    pub fn visit(&mut self, mut each: impl FnMut(&Item) -> Result<()>) -> Result<usize> {
        let progress = Progress::images(self.images);
        let mut failed = 0;
        while let Some(result) = self.next()? {
            progress.step();
            if self.index == self.finished {
                progress.forget_speed();
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
    /// [`hipvit::Error::Io`] if the file cannot be removed.
    pub fn complete(mut self) -> Result<()> {
        self.journal.take().map_or(Ok(()), Journal::complete)
    }

    /// The time of each phase, in this process.
    pub fn timing(&self) -> &Timing {
        self.own.timing()
    }

    /// The results of the next image, or why it has none; `None` after the last.
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

    /// The result of an image that no earlier run has finished. Another rank sends the image's stamp too.
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

    /// Makes sure that no rank has more results.
    fn finish(&mut self) -> Result<()> {
        // The time of this rank ends here, with that of the others.
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

    /// Receives the next message of `rank`, unless it has failed.
    fn receive(&mut self, rank: usize) -> Result<Message> {
        match self.others[rank - 1].receive(self.timeout)? {
            Message::Failed(text) => bail!("rank {rank} of {}: {text}", self.ranks),
            message => Ok(message),
        }
    }
}

/// Notes how many images of several failed.
pub fn note_failed(failed: usize, images: usize) {
    if failed > 0 && images > 1 {
        output::note(&format!("{failed} of {images} images failed and are left out"));
    }
}
