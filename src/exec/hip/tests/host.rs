//! A plan in host memory, with its calls as plain loops.

use std::collections::HashMap;

use half::{bf16, f16};

use super::kernels::{self, Memory as _, OnHost};
use crate::exec::hip::constants::HostConstants;
use crate::exec::hip::elements::unpack;
use crate::exec::hip::lower::{Addresses, Call, Elsewhere, InPlace, Unfused, lower, rotation, scratch_bytes};
use crate::graph::plan::{Operand, Plan, Step};
use crate::graph::{OutputKind, ValueId};
use crate::hip::{Access, DeviceAddress, Matrix};
use crate::kernels::{KernelCall, PatchExtractArgs, PatchExtractChwArgs};
use crate::tensor::{DType, Input};

impl OnHost for PatchExtractArgs {
    fn run(&self, memory: &mut impl kernels::Memory) {
        kernels::patch_extract(memory, self, false);
    }
}

impl OnHost for PatchExtractChwArgs {
    fn run(&self, memory: &mut impl kernels::Memory) {
        kernels::patch_extract(memory, &self.0, true);
    }
}

/// Runs a kernel on the host. Supports the kernels that models call.
fn run(kernel: &KernelCall, memory: &mut Memory) {
    match kernel {
        KernelCall::Add(arguments) => arguments.run(memory),
        KernelCall::Attention(arguments) => arguments.run(memory),
        KernelCall::AttentionBias(arguments) => arguments.run(memory),
        KernelCall::AttentionStatistics(arguments) => arguments.run(memory),
        KernelCall::AttentionRope(arguments) => arguments.run(memory),
        KernelCall::BiasActivation(arguments) => arguments.run(memory),
        KernelCall::LayerNorm(arguments) => arguments.run(memory),
        KernelCall::PatchExtract(arguments) => arguments.run(memory),
        KernelCall::PatchExtractChw(arguments) => arguments.run(memory),
        KernelCall::Pool(arguments) => arguments.run(memory),
        KernelCall::Rope(arguments) => arguments.run(memory),
        KernelCall::Softmax(arguments) => arguments.run(memory),
        KernelCall::SwiGlu(arguments) => arguments.run(memory),
        KernelCall::SwiGluNorm(arguments) => arguments.run(memory),
        KernelCall::Tokens(arguments) => arguments.run(memory),
        KernelCall::Transpose(arguments) => arguments.run(memory),
        #[allow(unreachable_patterns, reason = "kernels that no model here calls")]
        other => panic!("{other:?} has no loops on the host"),
    }
}

/// Memory of the GPU: address `a` is byte `a`.
pub(super) struct Memory {
    bytes: Vec<u8>,
    dtype: DType,
}

impl kernels::Memory for Memory {
    fn get(&self, address: DeviceAddress, index: usize) -> f32 {
        let size = self.dtype.size();
        let at = address.as_u64() as usize + index * size;
        unpack(&self.bytes[at..at + size], self.dtype)[0]
    }

    fn set(&mut self, address: DeviceAddress, index: usize, value: f32) {
        let size = self.dtype.size();
        let at = address.as_u64() as usize + index * size;
        let to = &mut self.bytes[at..at + size];
        match self.dtype {
            DType::F16 => to.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
            DType::BF16 => to.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
            _ => to.copy_from_slice(&value.to_ne_bytes()),
        }
    }

    fn pixel(&self, address: DeviceAddress, index: usize) -> u8 {
        self.bytes[address.as_u64() as usize + index]
    }

    fn set_value(&mut self, address: DeviceAddress, index: usize, value: f32) {
        let at = address.as_u64() as usize + 4 * index;
        self.bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn value(&self, address: DeviceAddress, index: usize) -> f32 {
        let at = address.as_u64() as usize + 4 * index;
        f32::from_ne_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn erf(&self, x: f32) -> f32 {
        libm::erff(x)
    }
}

impl Memory {
    pub(super) fn call(&mut self, call: &Call) {
        match call {
            Call::Kernel(kernel) => run(kernel, self),
            Call::Gemm { gemm, a, b, c } => {
                let at = |transposed, stride, row: usize, column: usize| {
                    if transposed {
                        column * stride + row
                    } else {
                        row * stride + column
                    }
                };
                let at = |matrix: &Matrix, image: usize, row, column| {
                    image * matrix.batch_stride + at(matrix.transposed, matrix.stride, row, column)
                };
                assert!(!gemm.c.transposed);
                for index in 0..gemm.batch * gemm.m * gemm.n {
                    let (image, i, j) = (index / gemm.n / gemm.m, index / gemm.n % gemm.m, index % gemm.n);
                    let products = (0..gemm.k).map(|k| {
                        self.get(*a, at(&gemm.a, image, i, k)) * self.get(*b, at(&gemm.b, image, k, j))
                    });
                    let sum: f32 = products.sum();
                    let to = at(&gemm.c, image, i, j);
                    let before = match gemm.beta {
                        0.0 => 0.0,
                        beta => beta * self.get(*c, to),
                    };
                    self.set(*c, to, gemm.alpha * sum + before);
                }
            }
            Call::AllReduce(_) | Call::Collective(_) | Call::AwaitCollective(_) | Call::RankPart(_) => {
                panic!("{call:?} needs all ranks")
            }
            Call::Zero { to, bytes } => {
                let to = to.as_u64() as usize;
                self.bytes[to..to + bytes].fill(0);
            }
            Call::Custom(_) => panic!("{call:?} is of another crate"),
            Call::Generated(_) | Call::PatternAttention(_) => panic!("{call:?} is of a generated program"),
            Call::Linear(_) | Call::Patches(_) | Call::Projection(_) | Call::Attention(_) | Call::Conv(_) => {
                panic!("{call:?} is other calls on the host")
            }
            Call::CopyRows(copy) => {
                for row in 0..copy.rows {
                    let from = copy.from.as_u64() as usize + row * copy.from_stride;
                    let to = copy.to.as_u64() as usize + row * copy.to_stride;
                    self.bytes.copy_within(from..from + copy.bytes, to);
                }
            }
        }
    }
}

/// Replaces library calls other than GEMMs: a linear layer becomes a GEMM and a kernel.
fn unfused(call: Call) -> Vec<Call> {
    call.own().unwrap().into_iter().flat_map(unfused_linear).collect()
}

fn unfused_linear(call: Call) -> Vec<Call> {
    let Call::Linear(linear) = call else {
        return vec![call];
    };
    let Unfused { gemm, c, kernel } = linear.unfused().unwrap();
    let (a, b) = (linear.x, linear.weight);
    let gemm = Call::Gemm { gemm, a, b, c };
    [gemm].into_iter().chain(kernel.map(Call::from)).collect()
}

/// Returns all ranges of memory that a call's kernel may access.
fn accesses(call: &Call, element: usize) -> Vec<Access> {
    let mut all = Vec::new();
    if let Call::Kernel(kernel) = call {
        kernel.accesses(element, &mut |access| all.push(access));
    }
    all
}

/// A model's graph in host memory.
pub(super) struct Host {
    pub(super) memory: Memory,
    constants: HashMap<ValueId, DeviceAddress>,
    input: DeviceAddress,
    arena: DeviceAddress,
    scratch: DeviceAddress,
}

impl Host {
    pub(super) fn new(plan: &Plan, input: Input<'_>) -> Self {
        let HostConstants {
            bytes: weights,
            offsets,
            ..
        } = HostConstants::new(plan.graph(), plan.dtype(), None, None);
        let mut bytes = vec![0; 256];
        let mut region = |contents: &[u8]| {
            bytes.resize(bytes.len().next_multiple_of(256), 0);
            bytes.extend_from_slice(contents);
            DeviceAddress::from_raw((bytes.len() - contents.len()) as u64)
        };
        let weights = region(&weights);
        let input = match input {
            Input::Pixels(pixels) => region(pixels),
            Input::Values(values) => region(bytemuck::cast_slice(values)),
            Input::Integers(values) => region(bytemuck::cast_slice(values)),
        };
        // A pattern of all ones is a NaN in each of the dtypes.
        let arena = region(&vec![0xff; plan.arena_bytes()]);
        let scratch = region(&vec![0xff; scratch_bytes(plan)]);
        Self {
            memory: Memory {
                bytes,
                dtype: plan.dtype(),
            },
            constants: offsets
                .into_iter()
                .map(|(id, o)| (id, weights.offset(o)))
                .collect(),
            input,
            arena,
            scratch,
        }
    }

    /// Returns true if the range is within the step's operands, or within its result if it is written.
    fn belongs(&self, plan: &Plan, step: &Step, access: &Access) -> bool {
        let within = |start: DeviceAddress, bytes: usize| {
            access.address >= start && access.address.offset(access.bytes) <= start.offset(bytes)
        };
        let buffer = |id| {
            let buffer = plan.buffer(id);
            within(self.arena.offset(buffer.offset), buffer.bytes)
        };
        let operand = |operand: &Operand| match *operand {
            Operand::Input(id) => {
                let input = plan.input(id).unwrap();
                within(self.input.offset(input.offset), input.bytes)
            }
            Operand::Constant(id) => {
                let len = plan.graph().value(id).constant.as_ref().unwrap().len();
                within(self.constants[&id], len * plan.dtype().size())
            }
            Operand::State(_) => panic!("no model here has states"),
            Operand::Buffer(id) => buffer(id),
        };
        // Attention with rotation reads the table of the previous step.
        let rope = rotation(plan, step).map_or(&[][..], |(step, _)| &step.inputs[..]);
        access.bytes == 0
            || step.outputs.iter().any(|&id| buffer(id))
            || within(self.scratch, scratch_bytes(plan))
            || (!access.written && step.inputs.iter().chain(rope).any(operand))
    }

    pub(super) fn run(mut self, plan: &Plan) -> Vec<(OutputKind, Vec<f32>)> {
        for step in plan.steps() {
            for call in self.calls(plan, step) {
                self.memory.call(&call);
            }
        }
        self.outputs(plan)
    }

    /// Returns the calls of a step. Checks that they only access the step's operands and result.
    pub(super) fn calls(&self, plan: &Plan, step: &Step) -> Vec<Call> {
        let addresses = Addresses {
            inputs: self.input,
            constants: &self.constants,
            states: None,
            steps: &HashMap::new(),
            float8: None,
            sparse: &HashMap::new(),
            arena: self.arena,
            elsewhere: Elsewhere::NONE,
            in_place: &InPlace::default(),
            results: None,
            scratch: self.scratch,
            // No model here has counters.
            counters: DeviceAddress::NULL,
        };
        let calls = lower(plan, step, addresses).unwrap().into_iter();
        let calls: Vec<Call> = calls.flat_map(unfused).collect();
        for call in &calls {
            for access in accesses(call, plan.dtype().size()) {
                assert!(self.belongs(plan, step, &access), "{call:?}: {access:?}");
            }
        }
        calls
    }

    pub(super) fn outputs(&self, plan: &Plan) -> Vec<(OutputKind, Vec<f32>)> {
        let values = |&(kind, _, id): &(OutputKind, _, _)| {
            let buffer = plan.buffer(id);
            let at = self.arena.offset(buffer.offset).as_u64() as usize;
            (
                kind,
                unpack(&self.memory.bytes[at..at + buffer.bytes], buffer.dtype),
            )
        };
        plan.outputs().iter().map(values).collect()
    }
}
