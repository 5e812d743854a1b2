//! Attention to a few sampled points of several maps.

use hipvit_graph::op::deformable_attention::Query;
use hipvit_graph::op::{DeformableAttention, OpError};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for DeformableAttention {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (&[_, tokens, channels], &[_, queries, _]) =
            (operands.batched_shape(0)?, operands.batched_shape(1)?)
        else {
            return Err("takes tokens and boxes".into());
        };
        if results[0].is_empty() {
            return Ok(());
        }
        let (value, boxes) = (operands.values(0)?, operands.values(1)?);
        let (offsets, scores) = (operands.values(2)?, operands.values(3)?);
        let points = self.points_of_query();
        let out = results[0].par_chunks_mut(channels).enumerate();
        out.for_each_item(|(index, out)| {
            let query = Query {
                value: &value[index / queries * tokens * channels..][..tokens * channels],
                of_box: &boxes[4 * index..][..4],
                offsets: &offsets[2 * points * index..][..2 * points],
                scores: &scores[points * index..][..points],
            };
            out.fill(0.0);
            self.attend(query, out);
        });
        Ok(())
    }
}
