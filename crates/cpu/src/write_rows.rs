//! Rows that are replaced, as in a cache of keys and values.

use hipvit_graph::op::{OpError, WriteRows, write_rows};

use super::rows::Source;
use super::{CpuOp, Operands};

impl CpuOp for WriteRows {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (rows, slots) = (operands.values(1)?, operands.values(2)?);
        let [result] = results else {
            return Err("has one result".into());
        };
        if let Source::At(x) = operands.source(0)? {
            result.copy_from_slice(x);
        }
        let (stride, each) = write_rows::extents(operands.shape(1)?, operands.shape(0)?[1]);
        for (image, &slot) in rows.chunks_exact(stride).zip(slots) {
            if let Some(place) = write_rows::place(slot, result.len() / each) {
                result[place * each..][..each].copy_from_slice(&image[stride - each..]);
            }
        }
        Ok(())
    }
}
