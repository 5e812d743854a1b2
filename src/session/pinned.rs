//! Input in pinned memory, which the caller writes.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use super::{RunOptions, Session};
use crate::error::{Error, Result};
use crate::exec::{InputData, Staging, Submission};
use crate::outputs::Outputs;
use crate::tensor::Input;

/// Pixels for [`Session::run_pinned`]: bytes `[images, H, W, 3]` of RGB images of the model's size, initially zero. Created by
/// [`Session::pinned_input`].
///
/// It dereferences to a slice of bytes in page-locked memory, near a GPU of the session if the host has several NUMA nodes. On the CPU the
/// memory is ordinary.
#[derive(Debug)]
pub struct PinnedInput {
    /// `None` after a failed run, since a copy may still use the memory.
    memory: Option<Staging>,
    images: usize,
}

impl PinnedInput {
    /// Returns the number of images.
    pub fn images(&self) -> usize {
        self.images
    }
}

impl Deref for PinnedInput {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl DerefMut for PinnedInput {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

impl Session {
    /// Allocates memory for the pixels of `images` images, 1 to [`batch`](Self::batch), that a GPU can copy from directly. With input
    /// written there, [`run_pinned`](Self::run_pinned) needs no copy on the host. Page-locking takes about 0.3 ms/MB, so allocate once per
    /// thread and reuse the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for no images or more than a batch, or if the session takes [pixel
    /// values](crate::model::InputKind::PixelValues). Fails if the host has no more memory to page-lock.
    pub fn pinned_input(&self, images: usize) -> Result<PinnedInput> {
        if !(1..=self.batch()).contains(&images) {
            let reason = format!("is {images}; a batch has from 1 to {} images", self.batch());
            return Err(Error::argument("images", reason));
        }
        self.check_input(Input::Pixels(&[]))?;
        let mut memory = self.stage(images, images)?;
        // The caller may keep the memory for long. It may come from an earlier run.
        memory.detach();
        memory.fill(0);
        Ok(PinnedInput {
            memory: Some(memory),
            images,
        })
    }

    /// Runs the model on the pixels in `input`, which can then be written again.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::{RunOptions, Session};
    ///
    /// let session = Session::tinyvit32()?;
    /// let mut input = session.pinned_input(2)?;
    /// for brightness in [0, 128, 255] {
    ///     input.fill(brightness); // u8, [2, 32, 32, 3]
    ///     let outputs = session.run_pinned(&mut input, RunOptions::new())?;
    ///     assert_eq!(outputs.len(), 2);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for the input of another session with a different image size. After any other error, such as a device error,
    /// `input` is empty and cannot be used again.
    pub fn run_pinned(&self, input: &mut PinnedInput, options: RunOptions<'_>) -> Result<Outputs> {
        let begin = Instant::now();
        if input.memory.is_none() {
            let reason = "lost its memory to a run that failed; make another";
            return Err(Error::argument("input", reason));
        }
        self.check_input(Input::Pixels(input))?;
        if input.len() != input.images * self.image_bytes() || input.images > self.batch() {
            return Err(Error::argument(
                "input",
                "is of a session with another image or batch size",
            ));
        }
        let Some(memory) = input.memory.take() else {
            return self.no_outputs();
        };
        let mut timing = options.timing;
        let how = Submission {
            timed: timing.is_some(),
            sleeps: false,
            ..Submission::default()
        };
        let run = self.submit(InputData::Staged(memory), input.images, how, Err)?;
        let (outputs, memory) = self.finish_with_memory(run, timing.as_deref_mut())?;
        input.memory = memory;
        self.check_finite(&outputs, 0)?;
        if let Some(timing) = timing {
            timing.add_wall(begin.elapsed());
        }
        Ok(outputs)
    }
}
