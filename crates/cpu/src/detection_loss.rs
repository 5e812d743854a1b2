//! Loss of detected objects.

use hipvit_graph::op::detection_loss::LayerResults;
use hipvit_graph::op::{DetectionLoss, OpError};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for DetectionLoss {
    /// Threads share the layers of all images.
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (&[_, rows, classes], &[_, most, _]) = (operands.batched_shape(0)?, operands.batched_shape(2)?)
        else {
            return Err("takes logits and targets".into());
        };
        let [losses, dlogits, dboxes, overlaps] = results else {
            return Err("has four results".into());
        };
        let queries = rows / self.layers;
        let (logits, boxes, targets) = (operands.values(0)?, operands.values(1)?, operands.values(2)?);
        let gradients = dlogits
            .par_chunks_exact_mut(queries * classes)
            .zip(dboxes.par_chunks_exact_mut(4 * queries))
            .zip(overlaps.par_chunks_exact_mut(queries));
        losses.par_iter_mut().zip(gradients).enumerate().for_each(
            |(index, (loss, ((dlogits, dboxes), overlaps)))| {
                let results = LayerResults {
                    dlogits,
                    dboxes,
                    overlaps,
                };
                *loss = self.layer(
                    &logits[index * queries * classes..][..queries * classes],
                    &boxes[4 * index * queries..][..4 * queries],
                    &targets[index / self.layers * 5 * most..][..5 * most],
                    results,
                ) as f32;
            },
        );
        Ok(())
    }
}
