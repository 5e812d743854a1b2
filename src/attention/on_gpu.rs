//! Attention with a pattern on the caller's memory on a GPU.

use std::collections::HashMap;
use std::sync::Arc;

use hipvit_graph::op::{Op, PatternAttention, PatternAttentionBackward};
use hipvit_graph::pattern::Type;

use crate::error::{Error, Result};
use crate::graph::plan::Plan;
use crate::graph::{Graph, Role, ValueId};
use crate::hip::{Device, DeviceAddress, Operand, Stream};
use crate::kernels::call::Call;
use crate::kernels::lower::{Addresses, Lower as _, lower, scratch_bytes};
use crate::kernels::{Kernels, Unit};
use crate::tensor::{DType, Tensor};

/// Attention with a pattern and its derivative, compiled for a GPU and some shapes. It computes on the caller's memory.
#[derive(Debug)]
pub struct GpuAttention {
    forward: OnGpu,
    /// Set if the op has `log_sum_exp`.
    backward: Option<OnGpu>,
}

impl GpuAttention {
    /// Compiles attention with activations in `dtype`. `shapes` are those of the op's operands: queries, keys and values in its layout, then
    /// the captured tensors. With [`PatternAttention::log_sum_exp`] the derivative is compiled too.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the shapes do not fit the op. Errors of the compiler and the driver.
    pub fn new(device: &Device, dtype: DType, op: &PatternAttention, shapes: &[&[usize]]) -> Result<Self> {
        let integers = op.program.tensors().iter().map(|tensor| tensor.ty == Type::Int);
        let floats = std::iter::repeat_n(false, op.operands.count());
        let mut operands: Vec<(Vec<usize>, bool)> = shapes
            .iter()
            .map(|shape| shape.to_vec())
            .zip(floats.chain(integers))
            .collect();
        let forward = OnGpu::new(device, dtype, op.clone().into(), &operands)?;
        let backward = if op.log_sum_exp {
            let results = forward.result_shapes();
            let after = [&results[0], &results[1], &results[0]].map(|shape| (shape.clone(), false));
            operands.extend(after);
            let op = PatternAttentionBackward(op.clone());
            Some(OnGpu::new(device, dtype, op.into(), &operands)?)
        } else {
            None
        };
        Ok(Self { forward, backward })
    }

    /// Returns the extents of the result, and of `ln Σ e^s` if it is one.
    pub fn result_shapes(&self) -> Vec<Vec<usize>> {
        self.forward.result_shapes()
    }

    /// Submits attention. `operands` are row-major, in the order of the shapes; captured integers are i32. `results` is the result, followed
    /// by f32 `ln Σ e^s` if the op has it. All are memory of the stream, or frozen.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are more or fewer of them. [`Error::Hip`] if one is too small, or if the driver fails.
    pub fn forward(&self, stream: &Stream, operands: &[Operand<'_>], results: &[Operand<'_>]) -> Result<()> {
        self.forward.run(stream, operands, results)
    }

    /// Submits the derivative. `operands` are those of [`forward`](Self::forward), its two results, and the gradient of the first one.
    /// `gradients` are of the operands, without captured integers.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the op has no `log_sum_exp`, or if there are more or fewer operands. [`Error::Hip`] if one is too small, or if
    /// the driver fails.
    pub fn backward(
        &self,
        stream: &Stream,
        operands: &[Operand<'_>],
        gradients: &[Operand<'_>],
    ) -> Result<()> {
        let reason = "has no `log_sum_exp`, which the derivative reads";
        let backward = self.backward.as_ref();
        let backward = backward.ok_or_else(|| Error::argument("attention", reason))?;
        backward.run(stream, operands, gradients)
    }
}

/// An op whose operands and results are the caller's memory.
#[derive(Debug)]
struct OnGpu {
    /// A graph of the op alone, whose operands are constants without contents.
    plan: Plan,
    kernels: Kernels,
    operands: Vec<ValueId>,
}

impl OnGpu {
    /// `operands` are the shapes, each with true for integers.
    fn new(device: &Device, dtype: DType, op: Op, operands: &[(Vec<usize>, bool)]) -> Result<Self> {
        let units = [op.unit(), Some(Unit::of("attention_backward_rows"))];
        let units = units.into_iter().flatten();
        let is_forward = matches!(op, Op::PatternAttention(_));
        let kernels = Kernels::load(device, dtype, units.take(if is_forward { 1 } else { 2 }))?;
        let mut graph = Graph::new("attention", [1, 1, 1, 3], DType::U8);
        let operands = operands.iter().enumerate().map(|(index, (shape, is_int))| {
            let dtype = if *is_int { DType::I32 } else { DType::F32 };
            let size = shape
                .iter()
                .try_fold(dtype.size(), |size, &extent| size.checked_mul(extent));
            // Zeroed memory that nothing touches takes none.
            let bytes = vec![0u8; size.unwrap_or(0)];
            let range = 0..bytes.len();
            let tensor = Tensor::view(shape.clone(), dtype, Arc::new(bytes), range);
            let reason = || Error::argument("shapes", format!("{shape:?} has too many elements"));
            Ok(graph.constant(format!("operand {index}"), tensor.ok_or_else(reason)?))
        });
        let operands = operands.collect::<Result<Vec<ValueId>>>()?;
        graph.push(Role::Other, op.name(), op, operands.clone())?;
        Ok(Self {
            plan: Plan::new(Arc::new(graph), 1, dtype)?,
            kernels,
            operands,
        })
    }

    fn result_shapes(&self) -> Vec<Vec<usize>> {
        let steps = self.plan.steps().iter();
        let outputs = steps.flat_map(|step| &step.outputs);
        outputs.map(|&id| self.plan.buffer(id).shape.clone()).collect()
    }

    fn run(&self, stream: &Stream, operands: &[Operand<'_>], results: &[Operand<'_>]) -> Result<()> {
        let Some(step) = self.plan.steps().first() else {
            return Ok(());
        };
        let expect = |what, found: usize, expected: usize| {
            if found == expected {
                return Ok(());
            }
            Err(Error::argument(what, format!("are {found}, expected {expected}")))
        };
        expect("operands", operands.len(), self.operands.len())?;
        expect("results", results.len(), step.outputs.len())?;
        let mut scratch = stream.allocate::<u8>(scratch_bytes(&self.plan).max(1))?;
        let addresses: Vec<DeviceAddress> = results.iter().map(Operand::address).collect();
        let of_operands = operands.iter().map(Operand::address);
        let constants: HashMap<_, _> = self.operands.iter().copied().zip(of_operands).collect();
        let addresses = Addresses {
            inputs: DeviceAddress::NULL,
            constants: &constants,
            states: None,
            steps: &HashMap::new(),
            float8: None,
            sparse: &HashMap::new(),
            arena: DeviceAddress::NULL,
            results: Some(&addresses),
            scratch: scratch.address(),
        };
        let node = self.plan.node(step);
        let refused = |reason| Error::op(node, Some(self.kernels.device().name()), reason);
        let calls = lower(&self.plan, step, addresses).map_err(refused)?;
        let memory: Vec<Operand<'_>> = operands
            .iter()
            .chain(results)
            .copied()
            .chain([scratch.writing()])
            .collect();
        for call in calls {
            match call {
                Call::Kernel(call) => call.launch(&self.kernels, stream, &memory)?,
                Call::Pattern(call) => call.launch(&self.kernels, stream, &memory)?,
                _ => {
                    return Err(Error::internal(
                        "attention",
                        "is lowered to other calls than kernels",
                    ));
                }
            }
        }
        Ok(())
    }
}
