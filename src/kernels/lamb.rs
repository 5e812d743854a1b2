//! `lamb_part`, `lamb_ratio` and `lamb`: a step of LAMB.

use std::borrow::Cow;

use hipvit_graph::op::Lamb;

use super::bindings::{LambArgs, LambPartArgs, LambRatioArgs, OPTIMIZER_ELEMENTS, OPTIMIZER_THREADS};
use super::lower::{Call, Lower, Lowering, shape_of};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};
use crate::graph::plan::{Plan, Step};

/// Number of blocks of an update.
fn parts(elements: usize) -> usize {
    elements.div_ceil((OPTIMIZER_ELEMENTS * OPTIMIZER_THREADS) as usize)
}

impl Lower for Lamb {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("lamb"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let elements: usize = step.shape.iter().product();
        // The ratio, and the sums behind it.
        let ratio = step.addresses.scratch;
        let sums = ratio.offset(size_of::<f32>());
        let (weight, rates, factor) = (step.address(0)?, step.address(4)?, step.address(5)?);
        let (new_first, new_second) = (step.result(1)?, step.result(2)?);
        let has_ratio = self.weight_decay != 0.0;
        let mut calls = vec![Call::from(LambPartArgs {
            weight,
            gradient: step.address(1)?,
            first: step.address(2)?,
            second: step.address(3)?,
            rates,
            factor,
            new_first,
            new_second,
            sums,
            elements: extent(elements)?,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            f32_gradient: self.f32_gradient.into(),
        })];
        if has_ratio {
            calls.push(Call::from(LambRatioArgs {
                sums,
                ratio,
                parts: extent(parts(elements))?,
                reserved: 0,
            }));
        }
        calls.push(Call::from(LambArgs {
            weight,
            first: new_first,
            second: new_second,
            rates,
            factor,
            ratio: if has_ratio { ratio } else { DeviceAddress::NULL },
            new_weight: step.result(0)?,
            rounded: if self.rounded {
                step.result(3)?
            } else {
                DeviceAddress::NULL
            },
            elements: extent(elements)?,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            rate_factor: self.rate_factor,
        }));
        Ok(calls)
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let weight = step.inputs.first().map(|&operand| shape_of(plan, operand));
        let elements = weight.map_or(0, |shape| shape.iter().product());
        (1 + 2 * parts(elements)) * size_of::<f32>()
    }
}

// SAFETY: see hip/lamb.hip. Threads access no element beyond the last one, and each block writes its two sums.
unsafe impl KernelArguments for LambPartArgs {
    const FILE: &'static str = "lamb";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("lamb_part".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.update(self.elements)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = bytes(single, &[self.elements]);
        let gradient = if self.f32_gradient == 1 {
            all
        } else {
            bytes(element, &[self.elements])
        };
        visit(Access::read("weight", self.weight, all));
        visit(Access::read("gradient", self.gradient, gradient));
        visit(Access::read("first", self.first, all));
        visit(Access::read("second", self.second, all));
        visit(Access::read("rates", self.rates, 3 * single));
        visit(Access::read("factor", self.factor, single));
        visit(Access::write("new_first", self.new_first, all));
        visit(Access::write("new_second", self.new_second, all));
        let sums = 2 * parts(self.elements as usize) * single;
        visit(Access::write("sums", self.sums, sums));
    }
}

// SAFETY: see hip/lamb.hip. One block reads all sums.
unsafe impl KernelArguments for LambRatioArgs {
    const FILE: &'static str = "lamb";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("lamb_ratio".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.blocks(1, OPTIMIZER_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        visit(Access::read("sums", self.sums, bytes(single, &[2, self.parts])));
        visit(Access::write("ratio", self.ratio, single));
    }
}

// SAFETY: see hip/lamb.hip. Threads access no element beyond the last one.
unsafe impl KernelArguments for LambArgs {
    const FILE: &'static str = "lamb";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.update(self.elements)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let all = bytes(single, &[self.elements]);
        visit(Access::read("weight", self.weight, all));
        visit(Access::read("first", self.first, all));
        visit(Access::read("second", self.second, all));
        visit(Access::read("rates", self.rates, 3 * single));
        visit(Access::read("factor", self.factor, single));
        visit(optional(Access::read("ratio", self.ratio, single)));
        visit(Access::write("new_weight", self.new_weight, all));
        let rounded = bytes(element, &[self.elements]);
        visit(optional(Access::write("rounded", self.rounded, rounded)));
    }
}
