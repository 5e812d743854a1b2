//! Images between their preparation and their batch.

use std::sync::Arc;

use hipvit_image::RgbImage;

use crate::augment::Drawn;

/// A prepared image, or one that a device prepares.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    Image(RgbImage),
    Drawn(Arc<Drawn>),
}

impl Prepared {
    /// Returns height and width of the prepared image.
    pub(super) fn size(&self) -> [usize; 2] {
        match self {
            Self::Image(image) => [image.height, image.width],
            Self::Drawn(drawn) => {
                let [width, height] = drawn.output();
                [height, width]
            }
        }
    }
}
