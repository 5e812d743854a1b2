//! The CPU executor against the reference implementation, in memory that reveals missing and stray writes.

mod backward;
mod graphs;
mod kernels;
mod states;

use super::CpuExecutor;
use super::arena::Arena;
use crate::cpu::range;
use crate::graph::plan::Plan;
use crate::tensor::Input;

/// Runs `plan` in memory filled with NaN, with large margins around the plan's buffers. Checks that nothing was written to the margins.
/// Returns the result of the last step.
fn run_guarded(executor: &CpuExecutor, plan: &Plan, input: Input<'_>) -> Vec<f32> {
    const SENTINEL: u32 = 0x7fc0_beef;
    const MARGIN: usize = 500;
    let mut arena = Arena::with_margin(plan, MARGIN, f32::from_bits(SENTINEL)).unwrap();
    executor.run(plan, input, &mut arena, None).unwrap();
    let values = arena.with_margins(plan);
    let ranges: Vec<_> = plan
        .buffers()
        .iter()
        .map(|b| range(b).unwrap())
        .map(|r| MARGIN + r.start..MARGIN + r.end)
        .collect();
    for (i, value) in values.iter().enumerate() {
        let inside = ranges.iter().any(|r| r.contains(&i));
        assert!(
            inside || value.to_bits() == SENTINEL,
            "element {i} was overwritten"
        );
    }
    values[ranges.last().unwrap().clone()].to_vec()
}
