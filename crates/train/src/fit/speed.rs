//! The speed of training.

use std::time::Instant;

/// Measures images per second since its creation.
#[derive(Debug)]
pub(super) struct Speed {
    start: Instant,
    images: u64,
}

impl Speed {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            images: 0,
        }
    }

    /// Adds images, and returns the speed.
    pub(super) fn add(&mut self, images: u64) -> f64 {
        self.images += images;
        self.images as f64 / self.start.elapsed().as_secs_f64().max(1e-9)
    }
}
