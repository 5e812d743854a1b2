//! Order of a dataset's images in an epoch, divided into batches and among ranks.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::{Draw, Purpose, Stream};

/// What happens to images that do not fill the last batch of all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remainder {
    /// The epoch ends before them.
    #[default]
    Drop,
    /// The epoch's first images fill the batch.
    Pad,
    /// The last batch is smaller, and ranks may have different numbers of batches. For evaluation.
    Keep,
}

/// An image's place in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sample {
    /// Index of the image in the dataset.
    pub index: usize,
    /// Number of times that the image occurred before in the epoch.
    pub repeat: u8,
}

/// A place in training from which it can resume: the next batch of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Number of the epoch, counted from 0.
    pub epoch: u32,
    /// Number of the rank's batch in the epoch, counted from 0.
    pub batch: usize,
}

/// Selects the images of each batch.
///
/// The order of an epoch depends only on the seed and the epoch. Batch `n` of rank `r` consists of the places from
/// `(n × ranks + r) × batch`. Hence several ranks see the images that one rank sees in as many consecutive batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampler {
    images: usize,
    batch: usize,
    seed: u64,
    shuffled: bool,
    rank: usize,
    ranks: usize,
    remainder: Remainder,
    repeats: u8,
}

impl Sampler {
    /// Creates a sampler of one rank that shuffles `images` images with `seed`, into batches of `batch` images.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there are no images or the batch is empty.
    pub fn new(images: usize, batch: usize, seed: u64) -> Result<Self> {
        if images == 0 || batch == 0 {
            let reason = format!("{images} images in batches of {batch}: both must be at least 1");
            return Err(Error::argument("sampler", reason));
        }
        Ok(Self {
            images,
            batch,
            seed,
            shuffled: true,
            rank: 0,
            ranks: 1,
            remainder: Remainder::Drop,
            repeats: 1,
        })
    }

    /// Creates a sampler that visits each image once, in the dataset's order. For evaluation.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::new`].
    pub fn sequential(images: usize, batch: usize) -> Result<Self> {
        Ok(Self {
            shuffled: false,
            remainder: Remainder::Keep,
            ..Self::new(images, batch, 0)?
        })
    }

    /// Selects the batches of one of several ranks.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] unless `rank` is less than `ranks`.
    pub fn rank(mut self, rank: usize, ranks: usize) -> Result<Self> {
        if rank >= ranks {
            let reason = format!("rank {rank} is not one of {ranks} ranks");
            return Err(Error::argument("sampler", reason));
        }
        (self.rank, self.ranks) = (rank, ranks);
        Ok(self)
    }

    /// Sets what happens to images that do not fill the last batch.
    pub fn remainder(mut self, remainder: Remainder) -> Self {
        self.remainder = remainder;
        self
    }

    /// Repeats each image in succession (repeated augmentation, Hoffer et al. 2020). The epoch keeps its length, so it
    /// has fewer different images.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if `repeats` is 0.
    pub fn repeats(mut self, repeats: u8) -> Result<Self> {
        if repeats == 0 {
            return Err(Error::argument("repeats", "must be at least 1"));
        }
        self.repeats = repeats;
        Ok(self)
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of images in a full batch.
    pub fn batch_size(&self) -> usize {
        self.batch
    }

    /// Returns true if the last batch may be smaller.
    pub(crate) fn keeps_remainder(&self) -> bool {
        self.remainder == Remainder::Keep
    }

    /// Returns the number of batches that this rank has in each epoch.
    pub fn batches(&self) -> usize {
        let all = self.batch * self.ranks;
        match self.remainder {
            Remainder::Drop => self.images / all,
            Remainder::Pad => self.images.div_ceil(all),
            Remainder::Keep => {
                let batches = self.images.div_ceil(self.batch);
                batches.saturating_sub(self.rank).div_ceil(self.ranks)
            }
        }
    }

    /// Returns the first place in the epoch of this rank's batch `batch`. It identifies the batch among all ranks.
    pub fn first_place(&self, batch: usize) -> usize {
        (batch * self.ranks + self.rank) * self.batch
    }

    /// Computes the order of an epoch's images.
    pub fn order(&self, epoch: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.images).collect();
        if self.shuffled {
            let draw = Draw {
                purpose: Purpose::Shuffle,
                epoch,
                index: 0,
                repeat: 0,
            };
            Stream::new(self.seed, draw).shuffle(&mut order);
        }
        order
    }

    /// Returns the images of this rank's batch `batch` in an epoch with the given order. It is empty after the last
    /// batch.
    pub fn batch(&self, order: &[usize], batch: usize) -> Vec<Sample> {
        if batch >= self.batches() {
            return Vec::new();
        }
        let first = self.first_place(batch);
        let end = first + self.batch;
        let end = if self.keeps_remainder() {
            end.min(self.images)
        } else {
            end
        };
        let repeats = usize::from(self.repeats);
        let sample = |place: usize| {
            let place = place % self.images;
            Sample {
                index: order[place / repeats],
                repeat: (place % repeats) as u8,
            }
        };
        (first..end).map(sample).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn images(sampler: &Sampler, epoch: u32) -> Vec<usize> {
        let order = sampler.order(epoch);
        let batches = (0..sampler.batches()).flat_map(|batch| sampler.batch(&order, batch));
        batches.map(|sample| sample.index).collect()
    }

    fn sorted(mut images: Vec<usize>) -> Vec<usize> {
        images.sort_unstable();
        images
    }

    #[test]
    fn epochs_are_different_permutations() {
        let sampler = Sampler::new(120, 8, 5).unwrap();
        let (first, second) = (images(&sampler, 0), images(&sampler, 1));
        assert_ne!(first, second);
        assert_eq!(first, images(&sampler, 0));
        assert_ne!(first, images(&Sampler::new(120, 8, 6).unwrap(), 0));
        assert_eq!(sorted(first), (0..120).collect::<Vec<_>>());
        assert_eq!(sorted(second), (0..120).collect::<Vec<_>>());
    }

    #[test]
    fn ranks_divide_the_batches_of_one_rank() {
        let one = Sampler::new(97, 4, 1).unwrap();
        let order = one.order(3);
        for ranks in [2, 3, 5] {
            let mut seen = Vec::new();
            for rank in 0..ranks {
                let sampler = one.clone().rank(rank, ranks).unwrap();
                assert_eq!(sampler.batches(), 97 / (4 * ranks));
                for batch in 0..sampler.batches() {
                    assert_eq!(
                        sampler.batch(&order, batch),
                        one.batch(&order, batch * ranks + rank)
                    );
                    seen.extend(sampler.batch(&order, batch));
                }
            }
            let count = seen.len();
            seen.sort_unstable_by_key(|sample| sample.index);
            seen.dedup();
            assert_eq!(seen.len(), count, "ranks overlap");
        }
    }

    #[test]
    fn the_remainder_is_dropped_padded_or_kept() {
        let sampler = Sampler::new(10, 4, 0).unwrap();
        assert_eq!(images(&sampler, 0).len(), 8);
        let padded = images(&sampler.clone().remainder(Remainder::Pad), 0);
        assert_eq!(padded.len(), 12);
        assert_eq!(padded[10..], padded[..2]);
        // Padding repeats a dataset that is smaller than a batch.
        let small = Sampler::new(3, 8, 0).unwrap().remainder(Remainder::Pad);
        assert_eq!(images(&small, 0).len(), 8);
        let sequential = Sampler::sequential(10, 4).unwrap();
        assert_eq!(images(&sequential, 7), (0..10).collect::<Vec<_>>());
        let shards: Vec<usize> = (0..3)
            .flat_map(|rank| images(&sequential.clone().rank(rank, 3).unwrap(), 0))
            .collect();
        assert_eq!(sorted(shards), (0..10).collect::<Vec<_>>());
        let last = sequential.rank(3, 4).unwrap();
        assert_eq!((last.batches(), last.batch(&last.order(0), 0)), (0, Vec::new()));
    }

    #[test]
    fn repeats_are_in_succession() {
        let sampler = Sampler::new(12, 6, 2).unwrap().repeats(3).unwrap();
        let batch = sampler.batch(&sampler.order(0), 0);
        assert_eq!(batch[0].index, batch[2].index);
        assert_ne!(batch[0].index, batch[3].index);
        assert_eq!(
            batch.iter().map(|sample| sample.repeat).collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2]
        );
        assert_eq!(images(&sampler, 0).len(), 12);
    }

    #[test]
    fn impossible_arguments_are_refused() {
        assert!(Sampler::new(0, 1, 0).is_err());
        assert!(Sampler::new(1, 0, 0).is_err());
        let sampler = Sampler::new(1, 1, 0).unwrap();
        assert!(sampler.clone().rank(2, 2).is_err());
        assert!(sampler.repeats(0).is_err());
    }
}
