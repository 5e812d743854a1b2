//! Attributes of contrastive losses.

use std::fmt;

use super::super::OpError;
use super::super::operands::{exactly, expect};

/// `(similarity [B,B], log_scale [1] f32, bias [1] f32 in Sigmoid) → loss [B,1] f32`: the losses of pairs of images and texts. Row i of the
/// similarities is of image i, column i of its text. The logits are `e^log_scale · similarity + bias`. The loss of the batch is the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContrastiveLoss(pub ContrastiveKind);

/// Function of the logits of images and texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContrastiveKind {
    /// InfoNCE as CLIP has it: half the sum of the cross-entropies of the image among the images of its text, and of the text among the
    /// texts of its image. It has no bias. <https://arxiv.org/abs/2103.00020>
    #[default]
    InfoNce,
    /// Sum over the texts of `−ln σ(±logit)`, with a plus for the text of the image, as SigLIP has it.
    /// <https://arxiv.org/abs/2303.15343>
    Sigmoid,
}

impl ContrastiveKind {
    /// All kinds.
    pub(in crate::op) const ALL: [Self; 2] = [Self::InfoNce, Self::Sigmoid];

    /// Returns true if the logits have a bias.
    pub fn has_bias(self) -> bool {
        self == Self::Sigmoid
    }

    /// Returns the number of pairs for these operands.
    pub(in crate::op) fn pairs(self, operands: &[&[usize]]) -> Result<usize, OpError> {
        let (similarity, log_scale) = if self.has_bias() {
            let [similarity, log_scale, bias] = exactly(operands)?;
            expect("bias", bias, &[1])?;
            (similarity, log_scale)
        } else {
            let [similarity, log_scale] = exactly(operands)?;
            (similarity, log_scale)
        };
        expect("logarithm of the scale", log_scale, &[1])?;
        match *similarity {
            [images, texts] if images == texts => Ok(images),
            _ => Err(OpError::layout("the similarity", similarity, "[B, B]")),
        }
    }
}

impl fmt::Display for ContrastiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InfoNce => "info_nce",
            Self::Sigmoid => "sigmoid",
        })
    }
}
