//! Targets of a batch that are maps.

/// Targets of a batch.
#[derive(Debug, Default)]
pub(super) struct DenseBatch {
    /// Pixel values of the images, if the model takes no bytes.
    pub(super) planes: Option<Vec<f32>>,
    /// `[images, pixels]`.
    pub(super) values: Vec<f32>,
    /// Prompts: see [`Prompts`](crate::Prompts).
    pub(super) positions: Vec<f32>,
    pub(super) kinds: Vec<i32>,
}
