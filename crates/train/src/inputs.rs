//! Names of the inputs of a step beside the images.

/// f32 `[images, classes]`, or `[images, channels]` for the embeddings of texts.
pub(crate) const TARGETS: &str = "targets";
/// i32 `[images, tokens]`: the token that follows each token of a text, or -100 for one that the loss leaves out.
pub(crate) const LABELS: &str = "labels";
/// f32 `[images, classes]`: the logits of a teacher.
pub(crate) const TEACHER: &str = "teacher";
/// f32 `[images, 1]`, or `[images, tokens]` for texts: the gradient of each loss.
pub(crate) const IMAGE_WEIGHTS: &str = "image_weights";
/// f32 `[images, branches]`: the factor of each residual branch.
pub(crate) const BRANCH_FACTORS: &str = "branch_factors";
/// f32 `[images, 2]`: the keys of the random numbers of dropout.
pub(crate) const DROPOUT_KEYS: &str = "dropout_keys";
/// f32: see [`OptimizerOptions::rates`](crate::OptimizerOptions::rates).
pub(crate) const RATES: &str = "rates";
/// f32 `[1]`: factor of all gradients. NaN in a run that updates no weights.
pub(crate) const GRADIENT_SCALE: &str = "gradient_scale";
/// f32 `[1]`: 0 in the run that starts the sums of gradients, 1 in the others.
pub(crate) const KEEP_SUMS: &str = "keep_sums";
