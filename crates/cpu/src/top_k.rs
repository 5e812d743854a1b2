//! The largest or smallest elements of rows.

use hipvit_graph::op::{OpError, TopK};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for TopK {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, length) = (operands.values(0)?, operands.channels(0)?);
        let [values, indices] = results else {
            return Err("has two results".into());
        };
        if self.k == 0 {
            return Ok(());
        }
        let results = values.par_chunks_mut(self.k).zip(indices.par_chunks_mut(self.k));
        let rows = x.par_chunks(length).zip(results);
        rows.for_each_init(Vec::new, |order, (row, (values, indices))| {
            self.select(row, order);
            for ((value, index), &at) in values.iter_mut().zip(indices).zip(&*order) {
                *value = row[at];
                *index = at as f32;
            }
        });
        Ok(())
    }
}
