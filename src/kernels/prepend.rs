//! Prefix tokens: the `tokens` kernel, after copies that gather several prefixes.

use hipvit_graph::op::Prepend;

use super::bindings::TokensArgs;
use super::call::CopyRows;
use super::lower::{Call, Lower, Lowering, rows, shape_of};
use super::{DeviceAddress, KernelError, Unit};
use crate::graph::plan::{Operand, Plan, Step};

/// Returns the operands before x.
fn prefixes(step: &Step) -> &[Operand] {
    step.inputs.split_last().map_or(&[], |(_, prefixes)| prefixes)
}

impl Lower for Prepend {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("tokens"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let x = prefixes(step.step).len();
        let &[images, tokens, channels] = step.shape_of(x)? else {
            return Err("takes tokens".into());
        };
        let mut calls = Vec::with_capacity(x + 1);
        let mut count = 0;
        for index in 0..x {
            let rows = rows(step.shape_of(index)?)?;
            if x > 1 {
                let bytes = rows * channels * step.element();
                calls.push(Call::CopyRows(CopyRows {
                    from: step.address(index)?,
                    from_stride: bytes,
                    to: step.addresses.scratch.offset(count * channels * step.element()),
                    to_stride: bytes,
                    bytes,
                    rows: 1,
                }));
            }
            count += rows;
        }
        let prefix = match x {
            0 => DeviceAddress::NULL,
            1 => step.address(0)?,
            _ => step.addresses.scratch,
        };
        let addresses = [step.address(x)?, prefix, DeviceAddress::NULL, step.out];
        calls.push(TokensArgs::new(addresses, [images, tokens, channels], count)?.into());
        Ok(calls)
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        match prefixes(step) {
            [] | [_] => 0,
            prefixes => {
                let elements = |&prefix| shape_of(plan, prefix).iter().product::<usize>();
                prefixes.iter().map(elements).sum::<usize>() * plan.dtype().size()
            }
        }
    }
}
