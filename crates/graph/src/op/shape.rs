//! Shapes of tensors.

/// Extents of a tensor, outermost first.
pub type Shape = Vec<usize>;
