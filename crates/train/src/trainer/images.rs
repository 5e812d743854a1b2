//! The images of a step, on the host or on a GPU.

use std::ops::Range;

use hipvit::error::Result;
use hipvit::exec::InputData;
use hipvit::hip::ForeignMemory;
use hipvit::tensor::Input;

/// Images of a step, in the form of [`TrainOptions::input`](crate::TrainOptions::input).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StepImages<'a> {
    /// Elements in host memory.
    Host(Input<'a>),
    /// Elements in memory of the trainer's GPU, in the dtype of the input.
    Device(ForeignMemory),
}

impl<'a> From<Input<'a>> for StepImages<'a> {
    fn from(images: Input<'a>) -> Self {
        Self::Host(images)
    }
}

impl From<ForeignMemory> for StepImages<'_> {
    fn from(images: ForeignMemory) -> Self {
        Self::Device(images)
    }
}

impl<'a> From<StepImages<'a>> for InputData<'a> {
    fn from(images: StepImages<'a>) -> Self {
        match images {
            StepImages::Host(images) => images.into(),
            StepImages::Device(images) => Self::Device(images),
        }
    }
}

impl StepImages<'_> {
    /// Returns the images `part` of a batch.
    ///
    /// # Errors
    ///
    /// [`Error::Hip`](hipvit::error::Error::Hip) if memory on a GPU has fewer images.
    pub(super) fn rows(&self, batch: usize, part: &Range<usize>) -> Result<Self> {
        let elements = |length: usize| {
            let row = length / batch;
            // Elements beyond the last image are an error of the run.
            let end = if part.end == batch { length } else { part.end * row };
            part.start * row..end
        };
        Ok(match self {
            Self::Host(Input::Pixels(pixels)) => Input::Pixels(&pixels[elements(pixels.len())]).into(),
            Self::Host(Input::Values(values)) => Input::Values(&values[elements(values.len())]).into(),
            Self::Host(Input::Integers(values)) => Input::Integers(&values[elements(values.len())]).into(),
            Self::Device(images) => images.part(elements(images.bytes()))?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_batch_are_its_rows() {
        let values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let images = StepImages::from(Input::Values(&values));
        let rows = |part| match images.rows(3, &part).unwrap() {
            StepImages::Host(Input::Values(values)) => values.to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(rows(0..2), values[..4]);
        assert_eq!(rows(2..3), values[4..]);
    }
}
