//! Elements of a tensor that are replaced or combined with others, by indices of their own.

use hipvit_graph::op::{OpError, ScatterElements};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for ScatterElements {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (indices, updates) = (operands.values(1)?, operands.values(2)?);
        let places = self.places(operands.batched_shape(0)?, operands.batched_shape(1)?);
        results[0].copy_from_slice(operands.values(0)?);
        let slabs = results[0].par_chunks_mut(places.slab().max(1)).enumerate();
        slabs.for_each_item(|(index, slab)| places.apply(index, slab, indices, updates));
        Ok(())
    }
}
