//! Running a model: executors take a graph and an input, and give its outputs. The CPU's computes with the kernels that
//! lie beside the shape rules in [`crate::ops`]; the GPU's speaks to the device through [`crate::hip`].

mod arena;
mod cpu;
mod executor;
mod hip;
mod step;

pub use arena::Arena;
pub use cpu::{CpuExecutor, Observer};
pub use executor::Executor;
pub use hip::{HipExecutor, Stage, StageObserver};

use std::ops::Range;

use crate::error::{Error, Result};
use crate::graph::{DType, Graph};

/// A batch of images as a graph takes them, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// u8 pixels `[B,H,W,3]`.
    Pixels(&'a [u8]),
    /// Normalised f32 values `[B,3,H,W]`.
    Values(&'a [f32]),
}

impl Input<'_> {
    /// The element type of the graph input that this fits.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Pixels(_) => DType::U8,
            Self::Values(_) => DType::F32,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Pixels(pixels) => pixels.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements `range`, which are there.
    ///
    /// # Panics
    ///
    /// If they are not.
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Pixels(pixels) => Self::Pixels(&pixels[range]),
            Self::Values(values) => Self::Values(&values[range]),
        }
    }

    /// Whether this is what `graph` takes for `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the element type or the number of elements is another.
    pub fn check(&self, graph: &Graph, batch: usize) -> Result<()> {
        let expected = graph.value(graph.input());
        if self.dtype() != expected.dtype {
            let reason = format!("is {}, expected {}", self.dtype(), expected.dtype);
            return Err(Error::argument("input", reason));
        }
        let image: usize = expected.shape.iter().skip(1).product();
        if batch == 0 || batch.checked_mul(image) != Some(self.len()) {
            let reason = format!(
                "has {} elements, expected {batch} × {image}, at least one image",
                self.len()
            );
            return Err(Error::argument("input", reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
