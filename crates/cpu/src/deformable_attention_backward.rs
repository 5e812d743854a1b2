//! Derivative of attention to sampled points.

use hipvit_graph::op::deformable_attention::{Query, QueryGradients};
use hipvit_graph::op::{DeformableAttentionBackward, OpError};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for DeformableAttentionBackward {
    /// Threads share the images: the queries of an image add to the same values, in their order.
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (&[_, tokens, channels], &[_, queries, _]) =
            (operands.batched_shape(0)?, operands.batched_shape(1)?)
        else {
            return Err("takes tokens and boxes".into());
        };
        let [value, boxes, offsets, scores] = results else {
            return Err("has four results".into());
        };
        let points = self.0.points_of_query();
        let lens = [
            tokens * channels,
            4 * queries,
            2 * points * queries,
            points * queries,
        ];
        if lens.contains(&0) {
            value.fill(0.0);
            return Ok(());
        }
        let [of_value, of_boxes, of_offsets, of_scores] = [0, 1, 2, 3].map(|index| operands.values(index));
        let (of_value, of_boxes, of_offsets, of_scores) = (of_value?, of_boxes?, of_offsets?, of_scores?);
        let dy = operands.values(4)?;
        let images = value
            .par_chunks_mut(lens[0])
            .zip(boxes.par_chunks_mut(lens[1]))
            .zip(
                offsets
                    .par_chunks_mut(lens[2])
                    .zip(scores.par_chunks_mut(lens[3])),
            );
        images
            .enumerate()
            .for_each(|(image, ((value, boxes), (offsets, scores)))| {
                value.fill(0.0);
                for place in 0..queries {
                    let index = image * queries + place;
                    let query = Query {
                        value: &of_value[image * lens[0]..][..lens[0]],
                        of_box: &of_boxes[4 * index..][..4],
                        offsets: &of_offsets[2 * points * index..][..2 * points],
                        scores: &of_scores[points * index..][..points],
                    };
                    let gradients = QueryGradients {
                        value: &mut *value,
                        of_box: &mut boxes[4 * place..][..4],
                        offsets: &mut offsets[2 * points * place..][..2 * points],
                        scores: &mut scores[points * place..][..points],
                    };
                    let dy = &dy[channels * index..][..channels];
                    self.0.differentiate(query, dy, gradients);
                }
            });
        Ok(())
    }
}
