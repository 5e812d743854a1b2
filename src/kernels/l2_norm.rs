//! `l2_norm_part` and `l2_norm`: the norm of all gradients together, and the factor that clips them.

use std::borrow::Cow;

use hipvit_graph::op::L2Norm;
use hipvit_graph::op::l2_norm::CLIP_EPSILON;

use super::bindings::{
    L2_NORM_PART, L2_NORM_TENSORS, L2_NORM_THREADS, L2NormArgs, L2NormPartArgs, L2NormTensor,
};
use super::lower::{Call, Lower, Lowering, shape_of};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
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
        let mut tensors = Vec::with_capacity(step.step.inputs.len());
        for index in 1..step.step.inputs.len() {
            let elements = extent(step.shape_of(index)?.iter().product())?;
            tensors.push((step.address(index)?, elements));
        }
        let mut calls: Vec<Call> = Vec::new();
        let mut end = 0;
        for tensors in tensors.chunks(L2_NORM_TENSORS as usize) {
            let out = sums.offset(end * size_of::<f32>());
            let arguments = L2NormPartArgs::new(tensors, out, self.f32_gradients)?;
            end += arguments.parts() as usize;
            calls.push(arguments.into());
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

impl L2NormPartArgs {
    /// Creates the arguments for up to [`L2_NORM_TENSORS`] gradients, each with its number of elements.
    fn new(
        gradients: &[(DeviceAddress, u32)],
        out: DeviceAddress,
        f32_gradient: bool,
    ) -> Result<Self, KernelError> {
        let unused = L2NormTensor {
            x: DeviceAddress::NULL,
            elements: 0,
            first_part: 0,
        };
        let mut tensors = [unused; L2_NORM_TENSORS as usize];
        let mut first_part = 0;
        for (tensor, &(x, elements)) in tensors.iter_mut().zip(gradients) {
            if elements == 0 {
                return Err("a gradient has no elements".into());
            }
            *tensor = L2NormTensor {
                x,
                elements,
                first_part,
            };
            first_part += extent(parts(elements as usize))?;
        }
        Ok(Self {
            tensors,
            out,
            count: extent(gradients.len())?,
            f32_gradient: f32_gradient.into(),
        })
    }

    fn used(&self) -> &[L2NormTensor] {
        &self.tensors[..self.count as usize]
    }

    /// Returns the number of parts of all gradients.
    fn parts(&self) -> u32 {
        let last = self.used().last();
        last.map_or(0, |last| last.first_part + parts(last.elements as usize) as u32)
    }
}

// SAFETY: see hip/l2_norm.hip. A block takes a part, and exactly as many blocks are launched.
unsafe impl KernelArguments for L2NormPartArgs {
    const FILE: &'static str = "l2_norm";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("l2_norm_part".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.blocks(self.parts().into(), L2_NORM_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let element = if self.f32_gradient == 1 {
            size_of::<f32>()
        } else {
            element
        };
        for tensor in self.used() {
            visit(Access::read("x", tensor.x, bytes(element, &[tensor.elements])));
        }
        visit(Access::write(
            "out",
            self.out,
            bytes(size_of::<f32>(), &[self.parts()]),
        ));
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
