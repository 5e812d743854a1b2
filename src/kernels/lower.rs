//! Lowering of a plan's step to the calls that compute it on a GPU: kernels or GEMMs with their addresses. Pure functions, independent of a
//! device.

use std::collections::HashMap;

use hipvit_graph::for_each_op;
use hipvit_graph::op::{Normalize, Op, PatchConv};

use super::KernelError;
pub(crate) use super::call::Call;
pub(crate) use super::in_place::InPlace;
use super::linear::call::SparseForm;
use super::unit::Unit;
use crate::graph::ValueId;
use crate::graph::plan::{BufferId, Operand, Plan, Step};
use crate::hip::{self, DeviceAddress};
use crate::tensor::DType;

/// Alignment of FP8 scales. With 8 bytes, cuBLASLt 13 rejects GEMMs (NOT_SUPPORTED).
pub(crate) const FACTOR_ALIGNMENT: usize = 16;

/// An op that a GPU can compute.
pub(crate) trait Lower {
    /// The kernel that the op needs besides the libraries, if any.
    fn unit(&self) -> Option<Unit> {
        None
    }

    /// Returns the calls that compute a step, in order.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if the GPU does not support the op, or an extent exceeds 32 bits.
    fn lower(&self, _step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let reason = "is not computed on a GPU as it is; the passes of `optimize` make it another op";
        Err(KernelError::unsupported(reason))
    }

    /// Returns true if results that become states may be written to the memory of these states: no thread reads an element of the states that
    /// another one has written.
    fn updates_in_place(&self) -> bool {
        false
    }

    /// Bytes that a step needs outside the arena.
    fn scratch_bytes(&self, _plan: &Plan, _step: &Step) -> usize {
        0
    }

    /// Bytes of counters that are 0 before and after each launch of a step.
    fn counter_bytes(&self, _plan: &Plan, _step: &Step) -> usize {
        0
    }
}

impl Lower for Normalize {}
impl Lower for PatchConv {}

macro_rules! dispatch {
    ($($module:ident: $Op:ident,)*) => {
        impl Lower for Op {
            fn unit(&self) -> Option<Unit> {
                match self {
                    $(Self::$Op(op) => op.unit(),)*
                }
            }

            fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
                match self {
                    $(Self::$Op(op) => op.lower(step),)*
                }
            }

            fn updates_in_place(&self) -> bool {
                match self {
                    $(Self::$Op(op) => op.updates_in_place(),)*
                }
            }

            fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
                match self {
                    $(Self::$Op(op) => op.scratch_bytes(plan, step),)*
                }
            }

            fn counter_bytes(&self, plan: &Plan, step: &Step) -> usize {
                match self {
                    $(Self::$Op(op) => op.counter_bytes(plan, step),)*
                }
            }
        }
    };
}
for_each_op!(dispatch);

/// Addresses of all operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses<'a> {
    /// Memory of all inputs.
    pub(crate) inputs: DeviceAddress,
    pub(crate) constants: &'a HashMap<ValueId, DeviceAddress>,
    /// Parameters and states. `None` if the graph has none.
    pub(crate) states: Option<&'a HashMap<ValueId, DeviceAddress>>,
    /// Address of each FP8 scale by its bits: an f32, followed by its reciprocal.
    pub(crate) steps: &'a HashMap<u32, DeviceAddress>,
    /// FP8 encoding of the device, if it has FP8 GEMMs.
    pub(crate) float8: Option<hip::DType>,
    /// 2:4 sparse weights whose zeros the device can skip.
    pub(crate) sparse: &'a HashMap<ValueId, SparseForm>,
    pub(crate) arena: DeviceAddress,
    /// Buffers outside the arena.
    pub(crate) elsewhere: Elsewhere<'a>,
    /// Results that are written to the states that they update. The others are in the arena.
    pub(crate) in_place: &'a InPlace,
    /// Results of the step. `None` if they are at their own places.
    pub(crate) results: Option<&'a [DeviceAddress]>,
    /// Memory of [`scratch_bytes`].
    pub(crate) scratch: DeviceAddress,
    /// Memory of [`counter_bytes`].
    pub(crate) counters: DeviceAddress,
}

/// Buffers of a plan in memory other than the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere<'a> {
    pub(crate) base: DeviceAddress,
    /// Each buffer, and its offset in that memory.
    pub(crate) offsets: &'a [(BufferId, usize)],
}

impl Elsewhere<'_> {
    /// No buffer is outside the arena.
    pub(crate) const NONE: Self = Self {
        base: DeviceAddress::NULL,
        offsets: &[],
    };

    fn buffer(&self, id: BufferId) -> Option<DeviceAddress> {
        let (_, offset) = self.offsets.iter().find(|(other, _)| *other == id)?;
        Some(self.base.offset(*offset))
    }
}

impl Addresses<'_> {
    /// Returns the address of a buffer.
    pub(crate) fn buffer(&self, plan: &Plan, id: BufferId) -> DeviceAddress {
        if let Some(address) = self.elsewhere.buffer(id) {
            return address;
        }
        let state = self.in_place.state(plan.buffer(id).value);
        let state = state.and_then(|state| self.states?.get(&state).copied());
        state.unwrap_or_else(|| self.arena.offset(plan.buffer(id).offset))
    }
}

/// Returns the maximum bytes that a step needs outside the arena. A GEMM before an activation and an in-place residual needs some, as do
/// the 8-bit operands and sums of linear layers and the scores of unfused attention.
pub(crate) fn scratch_bytes(plan: &Plan) -> usize {
    let bytes = |step: &Step| plan.node(step).op.scratch_bytes(plan, step);
    plan.steps().iter().map(bytes).max().unwrap_or(0)
}

/// Returns the maximum bytes of counters that a step needs. Its launches find zeros there, and leave zeros.
pub(crate) fn counter_bytes(plan: &Plan) -> usize {
    let bytes = |step: &Step| plan.node(step).op.counter_bytes(plan, step);
    plan.steps().iter().map(bytes).max().unwrap_or(0)
}

/// Returns true if the input `id` is images, which kernels read in their own dtype.
fn is_image(plan: &Plan, id: ValueId) -> bool {
    id == plan.graph().input() && plan.graph().takes_images()
}

/// Returns the operand's extents, at batch 1 for images and constants.
pub(super) fn shape_of(plan: &Plan, operand: Operand) -> &[usize] {
    let graph = plan.graph();
    match operand {
        Operand::Input(id) => match plan.input(id) {
            Some(input) if !is_image(plan, id) => &input.shape,
            _ => &graph.value(id).shape,
        },
        Operand::Constant(id) | Operand::State(id) => &graph.value(id).shape,
        Operand::Buffer(id) => &plan.buffer(id).shape,
    }
}

/// Returns the calls that compute `step`, in order.
///
/// # Errors
///
/// The GPU does not support the step, or an extent exceeds 32 bits.
pub(crate) fn lower(plan: &Plan, step: &Step, addresses: Addresses<'_>) -> Result<Vec<Call>, KernelError> {
    plan.node(step).op.lower(&Lowering::new(plan, step, addresses))
}

pub(super) fn one(call: impl Into<Call>) -> Result<Vec<Call>, KernelError> {
    Ok(vec![call.into()])
}

/// A step that is being lowered.
pub(crate) struct Lowering<'a> {
    pub(super) plan: &'a Plan,
    pub(super) step: &'a Step,
    pub(super) addresses: Addresses<'a>,
    /// Address of the first result.
    pub(super) out: DeviceAddress,
    /// Extents of the first result.
    pub(super) shape: &'a [usize],
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(plan: &'a Plan, step: &'a Step, addresses: Addresses<'a>) -> Self {
        let output = plan.buffer(step.output());
        Self {
            plan,
            step,
            addresses,
            out: match addresses.results {
                Some([first, ..]) => *first,
                _ => addresses.buffer(plan, step.output()),
            },
            shape: &output.shape,
        }
    }

    /// Returns the address of result `index`.
    pub(super) fn result(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        let id = self.step.outputs.get(index);
        let id = id.ok_or_else(|| KernelError::internal("has no such result"))?;
        if let Some(&result) = self.addresses.results.and_then(|results| results.get(index)) {
            return Ok(result);
        }
        Ok(self.addresses.buffer(self.plan, *id))
    }

    pub(super) fn operand(&self, index: usize) -> Result<Operand, KernelError> {
        let operand = self.step.inputs.get(index).copied();
        operand.ok_or_else(|| format!("its operand {index} is missing").into())
    }

    pub(super) fn shape_of(&self, index: usize) -> Result<&'a [usize], KernelError> {
        Ok(shape_of(self.plan, self.operand(index)?))
    }

    /// Returns the address of an operand in the dtype in which the op reads it.
    pub(super) fn address(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        match self.operand(index)? {
            Operand::Input(id) if is_image(self.plan, id) => {
                let reason = "reads the image, which only patch_extract does on a GPU";
                Err(KernelError::unsupported(reason))
            }
            Operand::Input(id) => {
                let (address, dtype) = self.input(id)?;
                self.check_dtype(index, id, dtype)?;
                Ok(address)
            }
            Operand::Constant(id) => self.constant(id),
            Operand::State(id) => {
                self.check_dtype(index, id, self.plan.state_dtype(id))?;
                self.state(id)
            }
            Operand::Buffer(id) => {
                let buffer = self.plan.buffer(id);
                let is_float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
                if is_float(buffer.dtype) {
                    self.check_dtype(index, buffer.value, buffer.dtype)?;
                }
                Ok(self.addresses.buffer(self.plan, id))
            }
        }
    }

    /// Returns the address of an operand of integers.
    pub(super) fn integers(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        match self.operand(index)? {
            Operand::Input(id) => Ok(self.input(id)?.0),
            _ => self.address(index),
        }
    }

    /// Returns the dtype of an operand in memory.
    pub(super) fn dtype_of(&self, index: usize) -> Result<DType, KernelError> {
        Ok(match self.operand(index)? {
            Operand::Buffer(id) => self.plan.buffer(id).dtype,
            Operand::Input(id) => self.input(id)?.1,
            Operand::Constant(id) if self.plan.graph().value(id).dtype == DType::I32 => DType::I32,
            Operand::Constant(_) => self.plan.dtype(),
            Operand::State(id) => self.plan.state_dtype(id),
        })
    }

    /// Returns the address of an input, and the dtype of its elements.
    pub(super) fn input(&self, id: ValueId) -> Result<(DeviceAddress, DType), KernelError> {
        let input = self.plan.input(id);
        let input =
            input.ok_or_else(|| KernelError::internal("reads an input that the plan does not have"))?;
        Ok((self.addresses.inputs.offset(input.offset), input.dtype))
    }

    /// Returns the address of a parameter or state, whose elements have the dtype [`Plan::state_dtype`].
    pub(super) fn state(&self, id: ValueId) -> Result<DeviceAddress, KernelError> {
        let address = self.addresses.states.and_then(|states| states.get(&id).copied());
        address.ok_or_else(|| "the plan is of another graph than the executor".into())
    }

    /// Checks that operand `index`, the value `id` whose elements are in `dtype`, is in the dtype in which the op reads it.
    fn check_dtype(&self, index: usize, id: ValueId, dtype: DType) -> Result<(), KernelError> {
        let op = &self.plan.node(self.step).op;
        // The plan gave the result the dtype of the operand that is moved. Operands with a dtype of their own are not moved.
        let of_op = op.operand_dtype(index, self.plan.dtype());
        let expected = match op.keeps_dtype_of() {
            Some(_) if of_op == self.plan.dtype() => self.plan.buffer(self.step.output()).dtype,
            _ => of_op,
        };
        if dtype == expected {
            return Ok(());
        }
        let name = &self.plan.graph().value(id).name;
        let reason = format!("reads `{name}` in {expected}, which is kept in {dtype}");
        Err(KernelError::unsupported(reason))
    }

    /// Returns the addresses of an FP8 scale and its reciprocal.
    pub(super) fn step_of_float8(&self, step: f32) -> Result<[DeviceAddress; 2], KernelError> {
        let address = self.addresses.steps.get(&step.to_bits()).copied();
        let address = address.ok_or("the plan is of another graph than the executor")?;
        Ok([address, address.offset(FACTOR_ALIGNMENT)])
    }

    pub(super) fn constant(&self, id: ValueId) -> Result<DeviceAddress, KernelError> {
        let address = self.addresses.constants.get(&id).copied();
        address.ok_or_else(|| "the plan is of another graph than the executor".into())
    }

    /// Returns the FP8 scale of the result. `None` if it is not stored in FP8.
    pub(super) fn float8(&self) -> Option<f32> {
        self.plan.buffer(self.step.output()).float8()
    }

    pub(super) fn element(&self) -> usize {
        self.plan.dtype().size()
    }

    /// Returns the size of an element of the first result, which an op may have moved without computing.
    pub(super) fn moved_element(&self) -> usize {
        self.plan.buffer(self.step.output()).dtype.size()
    }

    /// Returns the result as a matrix: rows and channels.
    pub(super) fn matrix(&self) -> Result<[usize; 2], KernelError> {
        let channels = self.shape.last().ok_or("its result is a scalar")?;
        Ok([rows(self.shape)?, *channels])
    }
}

/// Returns the number of rows of a tensor, whose last extent is a row.
pub(super) fn rows(shape: &[usize]) -> Result<usize, KernelError> {
    let (_, outer) = shape.split_last().ok_or("an operand is a scalar")?;
    Ok(outer.iter().product())
}
