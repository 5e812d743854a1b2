//! `recurrence`: an LSTM or GRU.

use hipvit_graph::op::{Recurrence, RecurrentCell};

use super::bindings::{RECURRENCE_ROWS, RECURRENCE_THREADS, RECURRENCE_UNITS, RecurrenceArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

// SAFETY: see hip/recurrence.hip. Blocks beyond the last row return. Each thread has units of its own, and `plan` limits their number to those
// that LDS has.
unsafe impl KernelArguments for RecurrenceArgs {
    const FILE: &'static str = "recurrence";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.steps, self.rows, self.units].contains(&0) || !matches!(self.gate_count, 3 | 4) {
            return Err("has no steps, rows or units".into());
        }
        if self.units > RECURRENCE_UNITS {
            let reason = format!("has {} units, the kernel at most {RECURRENCE_UNITS}", self.units);
            return Err(KernelError::Unsupported(reason));
        }
        target.blocks(self.rows.div_ceil(RECURRENCE_ROWS).into(), RECURRENCE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let Self {
            steps,
            rows,
            units,
            gate_count,
            ..
        } = *self;
        let state = bytes(element, &[rows, units]);
        let width = bytes(element, &[units, gate_count, units]);
        visit(Access::read(
            "gates",
            self.gates,
            bytes(element, &[steps, rows, gate_count, units]),
        ));
        visit(Access::read("weight", self.weight, width));
        for (name, address, len) in [
            ("bias", self.bias, bytes(element, &[units])),
            ("first_hidden", self.first_hidden, state),
            ("first_cell", self.first_cell, state),
        ] {
            if !address.is_null() {
                visit(Access::read(name, address, len));
            }
        }
        visit(Access::write(
            "out",
            self.out,
            bytes(element, &[steps, rows, units]),
        ));
        visit(Access::write("last_hidden", self.last_hidden, state));
        if gate_count == 4 {
            visit(Access::write("last_cell", self.last_cell, state));
        }
    }
}

impl Lower for Recurrence {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("recurrence"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[steps, rows, units] = step.shape else {
            return Err("has a result without steps".into());
        };
        let is_lstm = self.cell == RecurrentCell::Lstm;
        let optional = |index: Option<usize>| match index {
            Some(index) => step.address(index),
            None => Ok(DeviceAddress::NULL),
        };
        let hidden = self.first_state();
        one(RecurrenceArgs {
            gates: step.address(0)?,
            weight: step.address(1)?,
            bias: optional(self.cell.has_bias().then_some(2))?,
            first_hidden: optional(hidden)?,
            first_cell: optional(hidden.filter(|_| is_lstm).map(|index| index + 1))?,
            out: step.out,
            last_hidden: step.result(1)?,
            last_cell: if is_lstm {
                step.result(2)?
            } else {
                DeviceAddress::NULL
            },
            steps: extent(steps)?,
            rows: extent(rows)?,
            units: extent(units)?,
            gate_count: extent(self.cell.gates())?,
            reverse: self.reverse.into(),
            reset_first: (self.cell == RecurrentCell::Gru { reset_after: false }).into(),
        })
    }
}
