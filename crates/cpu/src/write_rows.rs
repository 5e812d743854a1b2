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
        let each = rows.len() / slots.len().max(1);
        for (image, &slot) in rows.chunks_exact(each.max(1)).zip(slots) {
            if let Some(place) = write_rows::place(slot, result.len() / each) {
                result[place * each..][..each].copy_from_slice(image);
            }
        }
        Ok(())
    }
}
