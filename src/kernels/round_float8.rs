//! `round_float8`: rounding to FP8 in training.

use std::borrow::Cow;

use hipvit_graph::op::{Float8, RoundFloat8};

use super::bindings::{
    Float8Code, ROUND_FLOAT8_PART, ROUND_FLOAT8_THREADS, RoundFloat8Args, RoundFloat8Stage,
};
use super::lower::{Call, Lower, Lowering, shape_of};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::graph::plan::{Plan, Step};

/// Bytes of the scale in the scratch memory, aligned as buffers are.
const SCALE_BYTES: usize = 16;

const STAGES: [RoundFloat8Stage; 4] = [
    RoundFloat8Stage::Largest,
    RoundFloat8Stage::Scale,
    RoundFloat8Stage::Round,
    RoundFloat8Stage::Rate,
];

/// Number of parts of a tensor.
fn parts(elements: usize) -> usize {
    elements.div_ceil(ROUND_FLOAT8_PART as usize)
}

impl Lower for RoundFloat8 {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("round_float8"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let format = match self.format {
            Float8::E4M3 => Float8Code::E4M3,
            Float8::E5M2 => Float8Code::E5M2,
            Float8::E4M3Fnuz | Float8::E5M2Fnuz => {
                return Err(KernelError::unsupported("rounds to FNUZ, which no kernel does"));
            }
        };
        let elements: usize = step.shape.iter().product();
        let scale = step.addresses.scratch;
        let largest = scale.offset(SCALE_BYTES);
        let args = RoundFloat8Args {
            x: step.address(0)?,
            out: step.out,
            on: step.address(1)?.offset(self.column * size_of::<f32>()),
            largest,
            scale,
            counts: largest.offset(parts(elements) * size_of::<f32>()),
            rate: step.result(1)?,
            elements: extent(elements)?,
            format: format as u32,
            stage: 0,
            reserved: 0,
        };
        let calls = STAGES.map(|stage| {
            Call::from(RoundFloat8Args {
                stage: stage as u32,
                ..args
            })
        });
        Ok(calls.into())
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let elements = step
            .inputs
            .first()
            .map_or(0, |&x| shape_of(plan, x).iter().product());
        SCALE_BYTES + 2 * parts(elements) * size_of::<f32>()
    }
}

impl RoundFloat8Args {
    fn is(&self, stage: RoundFloat8Stage) -> bool {
        self.stage == stage as u32
    }

    /// Returns true if a block takes a part, and false if one block takes all.
    fn is_of_parts(&self) -> bool {
        self.is(RoundFloat8Stage::Largest) || self.is(RoundFloat8Stage::Round)
    }
}

// SAFETY: see hip/round_float8.hip. A block takes a part, and exactly as many blocks are launched; or one block takes all parts.
unsafe impl KernelArguments for RoundFloat8Args {
    const FILE: &'static str = "round_float8";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(if self.is(RoundFloat8Stage::Largest) {
            "round_float8_largest".into()
        } else if self.is(RoundFloat8Stage::Scale) {
            "round_float8_scale".into()
        } else if self.is(RoundFloat8Stage::Round) {
            "round_float8".into()
        } else {
            "round_float8_rate".into()
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.elements == 0 {
            return Err("x has no elements".into());
        }
        let blocks = if self.is_of_parts() {
            parts(self.elements as usize) as u64
        } else {
            1
        };
        target.blocks(blocks, ROUND_FLOAT8_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = size_of::<f32>();
        let (all, parts) = (
            bytes(element, &[self.elements]),
            parts(self.elements as usize) * single,
        );
        if self.is(RoundFloat8Stage::Largest) {
            visit(Access::read("x", self.x, all));
            visit(Access::write("largest", self.largest, parts));
        } else if self.is(RoundFloat8Stage::Scale) {
            visit(Access::read("largest", self.largest, parts));
            visit(Access::write("scale", self.scale, single));
        } else if self.is(RoundFloat8Stage::Round) {
            visit(Access::read("x", self.x, all));
            visit(Access::read("on", self.on, single));
            visit(Access::read("scale", self.scale, single));
            visit(Access::write("out", self.out, all));
            visit(Access::write("counts", self.counts, parts));
        } else {
            visit(Access::read("counts", self.counts, parts));
            visit(Access::write("rate", self.rate, single));
        }
    }
}
