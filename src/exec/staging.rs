//! Memory of the host for a batch of pixels, which several threads can fill.

use std::ops::{Deref, DerefMut};

use crate::error::Result;
use crate::hip::{PinnedBuffer, PinnedPart};

/// Pixels of a batch: pinned where a GPU copies from it.
#[derive(Debug)]
pub enum Staging {
    Host(Vec<u8>),
    Pinned(PinnedBuffer<u8>),
}

/// The pixels of one image of a batch.
#[derive(Debug)]
pub enum StagingPart {
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
        Ok(if pinned.is_empty() {
            Self::Host(pixels)
        } else {
            Self::Pinned(PinnedPart::join(pinned)?)
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
