//! Resampling of one image.

use std::fmt;

use hipvit::image::Filter;

/// Resampling of one image. Sizes are width and height.
#[derive(Clone, Copy, Debug)]
pub(in crate::validate) struct Resize {
    pub(in crate::validate) input: [usize; 2],
    pub(in crate::validate) output: [usize; 2],
    pub(in crate::validate) filter: Filter,
}

impl Resize {
    /// Returns the shape of the result, `[H,W,3]`.
    pub(super) fn result(&self) -> Vec<usize> {
        vec![self.output[1], self.output[0], 3]
    }
}

impl fmt::Display for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = match (self.input[0] != self.output[0], self.input[1] != self.output[1]) {
            (true, false) => " horizontal",
            (false, true) => " vertical",
            _ => "",
        };
        write!(f, "resize {}{axes}", self.filter)
    }
}
