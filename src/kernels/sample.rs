//! `sample`: the choice of a token of each row.

use hipvit_graph::op::Sample;

use super::bindings::{SAMPLE_THREADS, SampleArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::ops::sample::RULES;

impl SampleArgs {
    /// Creates the arguments for `logits` `[rows, length]`, `rules`, `top_k`, `values` and `tokens`. Logits are f32 if `single`, and have the
    /// model's dtype otherwise.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [logits, rules, top_k, values, tokens]: [DeviceAddress; 5],
        [rows, length]: [usize; 2],
        single: bool,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            logits,
            rules,
            top_k,
            values,
            tokens,
            rows: extent(rows)?,
            length: extent(length)?,
            kind: single.into(),
            reserved: 0,
        })
    }
}

impl Lower for Sample {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("sample"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[rows, length] = step.shape_of(0)? else {
            return Err(KernelError::internal("has logits of another shape"));
        };
        let addresses = [
            step.address(0)?,
            step.address(1)?,
            step.integers(2)?,
            step.out,
            step.result(1)?,
        ];
        let single = step.plan.buffer(step.step.output()).dtype != step.plan.dtype();
        one(SampleArgs::new(addresses, [rows, length], single)?)
    }
}

// SAFETY: see hip/sample.hip. Blocks beyond the last row return. Tokens are indices of the row.
unsafe impl KernelArguments for SampleArgs {
    const FILE: &'static str = "sample";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.rows, self.length].contains(&0) || self.length as usize > Sample::MAX_TOKENS {
            return Err("has no token, or too many".into());
        }
        target.blocks(self.rows.into(), SAMPLE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let of_logits = if self.kind == 0 { element } else { 4 };
        let logits = bytes(of_logits, &[self.rows, self.length]);
        visit(Access::read("logits", self.logits, logits));
        visit(Access::read("rules", self.rules, bytes(4 * RULES, &[self.rows])));
        visit(Access::read("top_k", self.top_k, bytes(4, &[self.rows])));
        visit(Access::write(
            "values",
            self.values,
            bytes(of_logits, &[self.rows]),
        ));
        visit(Access::write("tokens", self.tokens, bytes(4, &[self.rows])));
    }
}
