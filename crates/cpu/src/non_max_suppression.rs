//! The best boxes that do not overlap.

use hipvit_graph::op::{NonMaxSuppression, OpError};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for NonMaxSuppression {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (boxes, scores) = (operands.values(0)?, operands.values(1)?);
        let &[_, classes, length] = operands.batched_shape(1)? else {
            return Err("has no scores for each class".into());
        };
        let [rows, count] = results else {
            return Err("has two results".into());
        };
        let select = |(pair, scores): (usize, &[f32])| {
            let mut selected = Vec::new();
            let of_image = &boxes[pair / classes * length * 4..][..length * 4];
            self.select(of_image, scores, &mut selected);
            selected
        };
        let selected: Vec<Vec<usize>> = scores.par_chunks(length).enumerate().map(select).collect();
        rows.fill(0.0);
        let mut free = rows.chunks_exact_mut(3);
        let mut found = 0;
        for (pair, selected) in selected.iter().enumerate() {
            for (&index, row) in selected.iter().zip(&mut free) {
                row.copy_from_slice(&[pair / classes, pair % classes, index].map(|number| number as f32));
                found += 1;
            }
        }
        count.fill(found as f32);
        Ok(())
    }
}
