//! `adamw`: a step of AdamW on several tensors.

use hipvit_graph::op::AdamW;

use super::bindings::{ADAMW_ELEMENTS, ADAMW_TENSORS, AdamWArgs, AdamWTensor, OPTIMIZER_THREADS};
use super::lower::{Call, Lower, Lowering, one};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent, optional,
};

impl Lower for AdamW {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("adamw"))
    }

    fn updates_in_place(&self) -> bool {
        true
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let tensor = AdamWTensor {
            weight: step.address(0)?,
            gradient: step.address(1)?,
            first: step.address(2)?,
            second: step.address(3)?,
            new_weight: step.result(0)?,
            new_first: step.result(1)?,
            new_second: step.result(2)?,
            rounded: if self.rounded {
                step.result(3)?
            } else {
                DeviceAddress::NULL
            },
            elements: extent(step.shape.iter().product())?,
            first_block: 0,
        };
        one(AdamWArgs {
            tensors: [tensor; ADAMW_TENSORS as usize],
            rates: step.address(4)?,
            factor: step.address(5)?,
            count: 1,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            rate_factor: self.rate_factor,
            f32_gradient: self.f32_gradient.into(),
            reserved: 0,
        })
    }
}

impl AdamWTensor {
    fn blocks(&self) -> u32 {
        self.elements.div_ceil(ADAMW_ELEMENTS)
    }
}

impl AdamWArgs {
    /// Adds the tensors of `other`, so that one launch updates all. Returns false, and changes nothing, if it cannot.
    pub(crate) fn merge(&mut self, other: &Self) -> bool {
        let with_options = |arguments: &Self| Self {
            tensors: self.tensors,
            count: self.count,
            ..*arguments
        };
        let (count, more) = (self.count as usize, other.used());
        let Some(places) = self.tensors.get(count..count + more.len()) else {
            return false;
        };
        if places.is_empty() || with_options(other) != *self {
            return false;
        }
        let mut first_block = self.blocks();
        for (place, tensor) in self.tensors[count..].iter_mut().zip(more) {
            *place = AdamWTensor {
                first_block,
                ..*tensor
            };
            first_block += tensor.blocks();
        }
        self.count += other.count;
        true
    }

    fn used(&self) -> &[AdamWTensor] {
        &self.tensors[..self.count as usize]
    }

    /// Returns the number of blocks of all tensors.
    fn blocks(&self) -> u32 {
        self.used()
            .last()
            .map_or(0, |last| last.first_block + last.blocks())
    }
}

// SAFETY: see hip/adamw.hip. Threads access no element beyond the last one of their block's tensor.
unsafe impl KernelArguments for AdamWArgs {
    const FILE: &'static str = "adamw";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.blocks(self.blocks().into(), OPTIMIZER_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        for tensor in self.used() {
            let all = bytes(single, &[tensor.elements]);
            let rounded = bytes(element, &[tensor.elements]);
            let gradient = if self.f32_gradient == 1 { all } else { rounded };
            visit(Access::read("weight", tensor.weight, all));
            visit(Access::read("gradient", tensor.gradient, gradient));
            visit(Access::read("first", tensor.first, all));
            visit(Access::read("second", tensor.second, all));
            visit(Access::write("new_weight", tensor.new_weight, all));
            visit(Access::write("new_first", tensor.new_first, all));
            visit(Access::write("new_second", tensor.new_second, all));
            visit(optional(Access::write("rounded", tensor.rounded, rounded)));
        }
        visit(Access::read("rates", self.rates, 3 * single));
        visit(Access::read("factor", self.factor, single));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(elements: u32, weight_decay: f32) -> AdamWArgs {
        let address = |index: u64| DeviceAddress::from_raw((index + 1) << 20);
        let tensor = AdamWTensor {
            weight: address(0),
            gradient: address(1),
            first: address(2),
            second: address(3),
            new_weight: address(0),
            new_first: address(2),
            new_second: address(3),
            rounded: address(4),
            elements,
            first_block: 0,
        };
        AdamWArgs {
            tensors: [tensor; ADAMW_TENSORS as usize],
            rates: address(5),
            factor: address(6),
            count: 1,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay,
            rate_factor: 1.0,
            f32_gradient: 0,
            reserved: 0,
        }
    }

    #[test]
    fn tensors_with_equal_options_are_merged_up_to_the_capacity_of_a_launch() {
        let mut merged = arguments(ADAMW_ELEMENTS + 1, 0.05);
        assert!(merged.merge(&arguments(7, 0.05)));
        assert!(!merged.merge(&arguments(7, 0.0)));
        let blocks: Vec<u32> = merged.used().iter().map(|tensor| tensor.first_block).collect();
        assert_eq!((blocks, merged.blocks()), (vec![0, 2], 3));
        while merged.count < ADAMW_TENSORS {
            assert!(merged.merge(&arguments(1, 0.05)));
        }
        let full = merged;
        assert!(!merged.merge(&arguments(1, 0.05)));
        assert_eq!(merged, full);
        let mut written = 0;
        merged.accesses(2, &mut |access| {
            written += usize::from(access.written) * access.bytes;
        });
        assert_eq!(written, (ADAMW_ELEMENTS as usize + 1 + 7 + 14) * (3 * 4 + 2));
    }
}
