//! `l2_norm_part` and `l2_norm`: the norm of all gradients together, and the factor that clips them.

use std::borrow::Cow;

use hipvit_graph::op::L2Norm;
use hipvit_graph::op::l2_norm::CLIP_EPSILON;

use super::bindings::{L2_NORM_PART, L2_NORM_THREADS, L2NormArgs, L2NormPartArgs};
use super::lower::{Call, Lower, Lowering, shape_of};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::graph::plan::{Plan, Step};

/// Number of parts of a gradient.
fn parts(elements: usize) -> usize {
    elements.div_ceil(L2_NORM_PART as usize)
}

impl Lower for L2Norm {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("l2_norm"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let sums = step.addresses.scratch;
        let mut calls: Vec<Call> = Vec::with_capacity(step.step.inputs.len());
        let mut end = 0;
        for index in 1..step.step.inputs.len() {
            let elements: usize = step.shape_of(index)?.iter().product();
            calls.push(Call::from(L2NormPartArgs {
                x: step.address(index)?,
                out: sums.offset(end * size_of::<f32>()),
                elements: extent(elements)?,
                f32_gradient: self.f32_gradients.into(),
            }));
            end += parts(elements);
        }
        calls.push(Call::from(L2NormArgs {
            sums,
            scale: step.address(0)?,
            norm: step.result(0)?,
            factor: step.result(1)?,
            parts: extent(end)?,
            maximum: self.maximum.unwrap_or(f32::INFINITY),
            epsilon: CLIP_EPSILON,
            reserved: 0,
        }));
        Ok(calls)
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let gradients = step.inputs.iter().skip(1);
        let sums = gradients.map(|&operand| parts(shape_of(plan, operand).iter().product()));
        sums.sum::<usize>() * size_of::<f32>()
    }
}

// SAFETY: see hip/l2_norm.hip. A block takes a part, and exactly as many blocks are launched.
unsafe impl KernelArguments for L2NormPartArgs {
    const FILE: &'static str = "l2_norm";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("l2_norm_part".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.elements == 0 {
            return Err("a gradient has no elements".into());
        }
        target.blocks(parts(self.elements as usize) as u64, L2_NORM_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let parts = parts(self.elements as usize) * size_of::<f32>();
        let element = if self.f32_gradient == 1 {
            size_of::<f32>()
        } else {
            element
        };
        visit(Access::read("x", self.x, bytes(element, &[self.elements])));
        visit(Access::write("out", self.out, parts));
    }
}

// SAFETY: see hip/l2_norm.hip. One block reads all sums.
unsafe impl KernelArguments for L2NormArgs {
    const FILE: &'static str = "l2_norm";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.blocks(1, L2_NORM_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        visit(Access::read("sums", self.sums, bytes(single, &[self.parts])));
        visit(Access::read("scale", self.scale, single));
        visit(Access::write("norm", self.norm, single));
        visit(Access::write("factor", self.factor, single));
    }
}
