//! `contrastive_loss_backward_logs`, `contrastive_loss_backward` and `contrastive_loss_backward_totals`: the derivatives of the losses of
//! pairs of images and texts.

use std::borrow::Cow;

use hipvit_graph::op::ContrastiveLossBackward;

use super::bindings::{
    CONTRASTIVE_THREADS, ContrastiveLogsArgs, ContrastiveLossBackwardArgs, ContrastiveTotalsArgs,
};
use super::contrastive_loss::{bias, plan};
use super::lower::{Call, Lower, Lowering, shape_of};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};
use crate::graph::plan::{Plan, Step};

impl Lower for ContrastiveLossBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("contrastive_loss_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [pairs, _] = step.matrix()?;
        let scratch = step.addresses.scratch;
        let (similarity, log_scale) = (step.address(0)?, step.address(1)?);
        let sums = scratch.offset(2 * pairs * size_of::<f32>());
        let pairs = extent(pairs)?;
        let mut calls = Vec::with_capacity(3);
        let has_bias = self.0.has_bias();
        if !has_bias {
            calls.push(Call::from(ContrastiveLogsArgs {
                similarity,
                log_scale,
                out: scratch,
                pairs,
                reserved: 0,
            }));
        }
        calls.push(Call::from(ContrastiveLossBackwardArgs {
            similarity,
            log_scale,
            bias: bias(self.0, step)?,
            gradient: step.address(if has_bias { 3 } else { 2 })?,
            logs: if has_bias { DeviceAddress::NULL } else { scratch },
            out: step.result(0)?,
            sums,
            pairs,
            reserved: 0,
        }));
        calls.push(Call::from(ContrastiveTotalsArgs {
            sums,
            log_scale: step.result(1)?,
            bias: if has_bias {
                step.result(2)?
            } else {
                DeviceAddress::NULL
            },
            pairs,
            reserved: 0,
        }));
        Ok(calls)
    }

    /// Two logarithms and two sums for each pair.
    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let similarity = step.inputs.first().map(|&operand| shape_of(plan, operand));
        4 * similarity.map_or(0, |shape| shape[0]) * size_of::<f32>()
    }
}

// SAFETY: see hip/contrastive_loss_backward.hip. A block takes a pair, and exactly as many blocks are launched.
unsafe impl KernelArguments for ContrastiveLogsArgs {
    const FILE: &'static str = "contrastive_loss_backward";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("contrastive_loss_backward_logs".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        plan(self.pairs, target)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let matrix = bytes(element, &[self.pairs, self.pairs]);
        visit(Access::read("similarity", self.similarity, matrix));
        visit(Access::read("log_scale", self.log_scale, single));
        visit(Access::write("out", self.out, bytes(single, &[2, self.pairs])));
    }
}

// SAFETY: see hip/contrastive_loss_backward.hip. A block takes a row, and exactly as many blocks are launched.
unsafe impl KernelArguments for ContrastiveLossBackwardArgs {
    const FILE: &'static str = "contrastive_loss_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        plan(self.pairs, target)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let matrix = bytes(element, &[self.pairs, self.pairs]);
        let two = bytes(single, &[2, self.pairs]);
        visit(Access::read("similarity", self.similarity, matrix));
        visit(Access::read("log_scale", self.log_scale, single));
        visit(optional(Access::read("bias", self.bias, single)));
        let gradient = bytes(single, &[self.pairs]);
        visit(Access::read("gradient", self.gradient, gradient));
        visit(optional(Access::read("logs", self.logs, two)));
        visit(Access::write("out", self.out, matrix));
        visit(Access::write("sums", self.sums, two));
    }
}

// SAFETY: see hip/contrastive_loss_backward.hip. One block reads all sums.
unsafe impl KernelArguments for ContrastiveTotalsArgs {
    const FILE: &'static str = "contrastive_loss_backward";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("contrastive_loss_backward_totals".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.blocks(1, CONTRASTIVE_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let sums = bytes(size_of::<f32>(), &[2, self.pairs]);
        visit(Access::read("sums", self.sums, sums));
        visit(Access::write("log_scale", self.log_scale, element));
        visit(optional(Access::write("bias", self.bias, element)));
    }
}
