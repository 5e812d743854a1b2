//! Recurrent layers: LSTM and GRU.

use hipvit_graph::op::recurrence::RecurrentWeights;
use hipvit_graph::op::{OpError, Recurrence};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for Recurrence {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (gates, weight) = (operands.values(0)?, operands.values(1)?);
        let (&[steps, rows, channels], &[units, _]) = (operands.batched_shape(0)?, operands.shape(1)?) else {
            return Err("has no gates for each step".into());
        };
        let weights = RecurrentWeights {
            weight,
            bias: operands.optional(self.cell.has_bias(), 2)?.unwrap_or_default(),
        };
        let (y, states) = results.split_first_mut().ok_or("has no results")?;
        for (index, state) in states.iter_mut().enumerate() {
            match self.first_state() {
                Some(first) => state.copy_from_slice(operands.values(first + index)?),
                None => state.fill(0.0),
            }
        }
        let [hidden, cell @ ..] = states else {
            return Err("has no states".into());
        };
        // GRU has no cells.
        let mut none = Vec::new();
        let cells = match cell {
            [cell] => &mut **cell,
            _ => {
                none.resize(rows, 0.0);
                &mut none
            }
        };
        let of_row = cells.len() / rows;
        for step in 0..steps {
            let step = if self.reverse { steps - 1 - step } else { step };
            let of_step = &gates[step * rows * channels..][..rows * channels];
            let y = &mut y[step * rows * units..][..rows * units];
            let states = hidden.par_chunks_mut(units).zip(cells.par_chunks_mut(of_row));
            let rows = y
                .par_chunks_mut(units)
                .zip(of_step.par_chunks(channels))
                .zip(states);
            let scratch = || (vec![0.0; channels], vec![0.0; units]);
            rows.for_each_init(scratch, |(sums, candidate), ((y, gates), (hidden, cell))| {
                weights.advance(self.cell, gates, [sums, candidate], hidden, cell);
                y.copy_from_slice(hidden);
            });
        }
        Ok(())
    }
}
