//! Memory of the host for a batch of pixels, which several threads can fill.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::hip::Pieces;
use crate::error::Result;
use crate::hip::{PinnedBuffer, PinnedPart};
use crate::image::RgbImage;

/// Pixels of a batch: pinned where a GPU copies from it.
#[derive(Debug)]
pub(crate) enum Staging {
    Host(Vec<u8>),
    Pinned(PinnedBuffer<u8>),
}

/// A decoded image in pinned memory, for a GPU that resizes it.
#[derive(Debug)]
pub(crate) struct StagedImage {
    pub(super) size: [usize; 2],
    /// Its bytes, one piece after the other.
    pub(super) pieces: Vec<PinnedBuffer<u8>>,
    /// Where the pieces go back to, whichever GPU they were copied to.
    pub(super) pool: Arc<Pieces>,
}

/// A decoded image that a GPU resizes.
pub(crate) enum ImageFeed<'a> {
    /// In any memory.
    Pageable(&'a RgbImage),
    /// In pinned memory, which the run takes.
    Staged(&'a mut StagedImage),
}

impl ImageFeed<'_> {
    /// Width and height.
    pub(super) fn size(&self) -> [usize; 2] {
        match self {
            Self::Pageable(image) => [image.width, image.height],
            Self::Staged(image) => image.size,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Pageable(image) => image.data.len(),
            Self::Staged(image) => image.pieces.iter().map(|piece| piece.len()).sum(),
        }
    }
}

/// The pixels of one image of a batch.
#[derive(Debug)]
pub(crate) enum StagingPart {
    Host(Vec<u8>),
    Pinned(PinnedPart<u8>),
}

impl Staging {
    /// Splits it into images of `each` bytes.
    pub(crate) fn split(self, each: usize) -> Result<Vec<StagingPart>> {
        Ok(match self {
            Self::Host(pixels) => pixels
                .chunks(each)
                .map(|part| StagingPart::Host(part.to_vec()))
                .collect(),
            Self::Pinned(memory) => memory.split(each)?.into_iter().map(StagingPart::Pinned).collect(),
        })
    }

    /// Puts all images together again.
    pub(crate) fn join(parts: Vec<StagingPart>) -> Result<Self> {
        let (mut pixels, mut pinned) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                StagingPart::Host(part) => pixels.extend_from_slice(&part),
                StagingPart::Pinned(part) => pinned.push(part),
            }
        }
        Ok(match pinned.is_empty() {
            true => Self::Host(pixels),
            false => Self::Pinned(PinnedPart::join(pinned)?),
        })
    }

    /// Makes it `bytes` bytes long, if it is longer.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        match self {
            Self::Host(pixels) => pixels.truncate(bytes),
            Self::Pinned(memory) => memory.truncate(bytes),
        }
    }
}

impl Deref for Staging {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Host(pixels) => pixels,
            Self::Pinned(memory) => memory,
        }
    }
}

impl DerefMut for Staging {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Host(pixels) => pixels,
            Self::Pinned(memory) => memory,
        }
    }
}

impl Deref for StagingPart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Host(pixels) => pixels,
            Self::Pinned(part) => part,
        }
    }
}

impl DerefMut for StagingPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Host(pixels) => pixels,
            Self::Pinned(part) => part,
        }
    }
}
