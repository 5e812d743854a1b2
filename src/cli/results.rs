//! The results of images as a stream, in the order of the images, and the loop over them that all commands share.

use std::time::Duration;

use anyhow::{Result, bail};
use hipvit::Session;
use hipvit::hip::Connection;
use hipvit::pipeline::{self, Item};
use hipvit::timing::Timing;

use super::progress::Progress;
use super::ranks::Message;
use super::{report, warn_non_finite};

/// Why an image has no results, as it is reported. The others go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ImageError(String);

/// The results of images, in their order: of each batch from the rank whose turn it is.
pub struct Results {
    session: Session,
    /// This rank's, which is rank 0 or the only process.
    own: pipeline::Results,
    /// To rank 1 and so on, until all is received.
    others: Vec<Connection>,
    /// How long to wait for a result of another rank.
    timeout: Duration,
    ranks: usize,
    images: usize,
    /// The next image.
    index: usize,
}

impl Results {
    /// Of `images` images, of which this process has its share in `own`; waits `timeout` for each result of another rank.
    pub fn new(
        session: &Session,
        own: pipeline::Results,
        images: usize,
        others: Vec<Connection>,
        timeout: Duration,
    ) -> Self {
        Self {
            session: session.clone(),
            own,
            ranks: others.len() + 1,
            others,
            timeout,
            images,
            index: 0,
        }
    }

    /// The number of images.
    pub fn images(&self) -> usize {
        self.images
    }

    /// Calls `each` with the results of every image, beside a progress bar, and reports each image that has none. How many
    /// those are.
    pub fn visit(&mut self, mut each: impl FnMut(&Item) -> Result<()>) -> Result<usize> {
        let progress = Progress::images(self.images);
        let mut failed = 0;
        while let Some(result) = self.next()? {
            progress.step();
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
        Ok(failed)
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
        let rank = index / self.session.batch() % self.ranks;
        if rank > 0 {
            return Ok(Some(match self.receive(rank)? {
                Message::Results(parts) => Ok(Item::from_parts(&self.session, index, parts)?),
                Message::ImageFailed(text) => Err(ImageError(text)),
                Message::Complete | Message::Failed(_) => {
                    bail!("rank {rank} of {}: image {index} has no result", self.ranks)
                }
            }));
        }
        match self.own.next() {
            Some(Ok(item)) => Ok(Some(Ok(item.with_index(index)))),
            Some(Err(error)) if error.index().is_some() => Ok(Some(Err(ImageError(error.to_string())))),
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

    /// What `rank` sends next, unless it has failed.
    fn receive(&mut self, rank: usize) -> Result<Message> {
        match self.others[rank - 1].receive(self.timeout)? {
            Message::Failed(text) => bail!("rank {rank} of {}: {text}", self.ranks),
            message => Ok(message),
        }
    }
}
