//! Norms of models.

/// Kind of a norm, and its epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Norm {
    pub(super) kind: NormKind,
    /// Value added to the variance, or to the mean square.
    pub(super) epsilon: f64,
}

impl Norm {
    /// PyTorch's `LayerNorm` with its default epsilon.
    pub(super) const PYTORCH: Self = Self {
        kind: NormKind::Layer,
        epsilon: 1e-5,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormKind {
    /// LayerNorm with a weight and a bias.
    Layer,
    /// RMSNorm with a weight.
    Rms,
    /// No norm, only a weight and a bias, named alpha and beta (ResMLP).
    Affine,
}
