//! The micro-batches of a step.

use std::ops::Range;

use super::images::StepImages;
use super::step_queue::Compared;
use super::{StepReport, Targets};
use hipvit::error::{Error, Result};
use hipvit::exec::RunOutputs;
use hipvit::graph::OutputKind;

/// Intersection over union of a box that counts as found.
const LEAST_HIT: f32 = 0.5;

/// Images whose gradients one run adds to those of the step.
#[derive(Clone, Debug)]
pub(super) struct MicroBatch<'a> {
    /// Number of images.
    pub(super) len: usize,
    pub(super) images: StepImages<'a>,
    pub(super) targets: Targets<'a>,
    /// `[images, branches]`.
    pub(super) factors: &'a [f32],
    /// `[images, 2]`, or nothing without dropout.
    pub(super) keys: &'a [f32],
    /// Gradient of the step's loss with respect to the loss of an image, or of a token.
    pub(super) weight: f32,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

/// Returns the images of each of at most `count` micro-batches of equal size. The last one may be smaller.
pub(super) fn micro_batches(images: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    let size = images.div_ceil(count.max(1)).max(1);
    let starts = (0..images).step_by(size);
    starts.map(move |start| start..(start + size).min(images))
}

/// Figures of the micro-batches so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Images, tokens of texts, or objects.
    images: usize,
    loss_sum: f64,
    correct: usize,
    /// Norm of the gradients of the last run. NaN in the runs before.
    grad_norm: f32,
}

/// Figures of a [`Tally`] as a message: images, bits of the sum of losses, correct images, bits of the norm.
pub(super) type TallyMessage = (usize, u64, usize, u32);

impl Tally {
    /// Adds the outputs of a run. The largest logit of a row of pairs must be on the diagonal.
    pub(super) fn add(&mut self, outputs: &RunOutputs, compared: &Compared) -> Result<()> {
        let output = |name| {
            let found = outputs.get(name);
            found.ok_or_else(|| Error::internal("training", format!("a step has no output `{name}`")))
        };
        let losses = &output("loss")?.values;
        let grad_norm = output("gradient_norm")?.values.iter().copied().next();
        self.grad_norm = grad_norm.unwrap_or(f32::NAN);
        self.loss_sum += losses.iter().map(|&loss| f64::from(loss)).sum::<f64>();
        if let Compared::Tokens(counted) | Compared::Objects(counted) = *compared {
            self.images += counted;
            // It is the only output with a name of its own.
            let hits = outputs
                .iter()
                .find(|output| matches!(output.kind, OutputKind::Named(_)));
            let hits =
                hits.ok_or_else(|| Error::internal("training", "a step of texts or objects has no hits"))?;
            // Tokens have 0 or 1, boxes their overlap.
            self.correct += hits.values.iter().filter(|&&hit| hit >= LEAST_HIT).count();
            return Ok(());
        }
        self.images += losses.len();
        if matches!(compared, Compared::Maps) {
            return Ok(());
        }
        let logits = output("logits")?.values.iter().copied().collect::<Vec<f32>>();
        let width = (logits.len() / losses.len().max(1)).max(1);
        let rows = logits.chunks_exact(width).enumerate();
        let expected = |image: usize| match compared {
            Compared::Classes(targets) => largest(&targets[image * width..][..width]),
            _ => image,
        };
        self.correct += rows
            .filter(|(image, logits)| largest(logits) == expected(*image))
            .count();
        Ok(())
    }

    /// Returns the figures for the other ranks.
    pub(super) fn message(&self) -> TallyMessage {
        (
            self.images,
            self.loss_sum.to_bits(),
            self.correct,
            self.grad_norm.to_bits(),
        )
    }

    /// Returns the figures of all ranks, from those of each. All ranks have the same norm.
    pub(super) fn of_ranks(messages: Vec<TallyMessage>) -> Self {
        let mut all = Self::default();
        for (images, loss_sum, correct, grad_norm) in messages {
            all.images += images;
            all.loss_sum += f64::from_bits(loss_sum);
            all.correct += correct;
            all.grad_norm = f32::from_bits(grad_norm);
        }
        all
    }

    /// Returns the report of the step `step`.
    pub(super) fn report(self, step: u64) -> StepReport {
        StepReport {
            step,
            loss: (self.loss_sum / self.images.max(1) as f64) as f32,
            grad_norm: self.grad_norm,
            updated: self.grad_norm.is_finite(),
            correct: self.correct,
            counted: self.images,
        }
    }
}

/// Returns the index of the largest value, the first of equal ones.
fn largest(values: &[f32]) -> usize {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    // Lanes, so that the compiler uses vectors.
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, rest) = values.as_chunks();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip::<&[f32; 16]>(chunk) {
            *lane = larger(*lane, value);
        }
    }
    let all = lanes.iter().chain(rest).copied();
    let maximum = all.fold(f32::NEG_INFINITY, larger);
    let found = values.iter().position(|&value| value == maximum);
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_divided_into_equal_parts_of_which_the_last_may_be_smaller() {
        let sizes = |images, count| -> Vec<usize> {
            let parts = micro_batches(images, count);
            parts.map(|part| part.len()).collect()
        };
        assert_eq!(sizes(8, 1), [8]);
        assert_eq!(sizes(8, 4), [2; 4]);
        assert_eq!(sizes(7, 4), [2, 2, 2, 1]);
        assert_eq!(sizes(5, 4), [2, 2, 1]);
        assert_eq!(sizes(2, 4), [1, 1]);
    }
}
