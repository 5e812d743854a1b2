//! `paged_attention_pattern`: attention over pages whose score and mask are a pattern's, in a program that is generated for it.

use std::borrow::Cow;

use hipvit_graph::op::PagedPatternAttention;

use super::bindings::PagedAttentionPatternArgs;
use super::call::Call;
use super::generated_call::GeneratedCall;
use super::lower::{Lower, Lowering, one};
use super::paged_attention::arguments;
use super::pattern_attention::call::{is_generated, visit_captured};
use super::pattern_attention::source::paged_source;
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit};
use crate::graph::plan::{Plan, Step};

const FILE: &str = "paged_attention_pattern";

fn unit(op: &PagedPatternAttention) -> Unit {
    Unit::generated(FILE, paged_source(&op.program))
}

impl Lower for PagedPatternAttention {
    fn unit(&self) -> Option<Unit> {
        Some(unit(self))
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        self.attention.scratch_bytes(plan, step)
    }

    fn counter_bytes(&self, plan: &Plan, step: &Step) -> usize {
        self.attention.counter_bytes(plan, step)
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (rows, keys) = (step.shape[0], step.shape_of(2)?[1] * self.attention.page);
        let arguments = PagedAttentionPatternArgs {
            attention: arguments(&self.attention, step)?,
            pattern: step.pattern(
                (&self.program, &self.scalars),
                Self::OPERANDS,
                [rows, self.attention.heads, keys, keys],
            )?,
        };
        one(GeneratedCall::new(&unit(self), arguments))
    }
}

// SAFETY: see hip/attention/paged_pattern.hpp. The accesses are those of `paged_attention`. Indices of captured tensors are clamped to their
// extents, which are the arguments'.
unsafe impl KernelArguments for PagedAttentionPatternArgs {
    const FILE: &'static str = FILE;

    fn unit(&self) -> Result<Unit, KernelError> {
        is_generated()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.attention.are_few() {
            "paged_attention_pattern_few"
        } else {
            FILE
        }
        .into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.attention.plan(target)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        self.attention.accesses(element, visit);
        visit_captured(&self.pattern, visit);
    }
}
