//! Attention with a pattern on the caller's memory on a GPU.

use std::collections::HashMap;
use std::sync::Arc;

use hipvit_graph::op::{Op, PatternAttention, PatternAttentionBackward};
use hipvit_graph::pattern::Type;

use crate::error::{Error, Result};
use crate::exec::select;
use crate::graph::plan::Plan;
use crate::graph::{Graph, Role, ValueId};
use crate::hip::{Device, DeviceAddress, Operand, Stream};
use crate::kernels::call::Call;
use crate::kernels::lower::{Addresses, Elsewhere, InPlace, Lowering, scratch_bytes};
use crate::kernels::pattern_attention::LowerGenerated;
use crate::kernels::pattern_attention::tile::AttentionTile;
use crate::kernels::{Kernels, Unit};
use crate::tensor::{DType, Tensor};

/// Attention with a pattern and its derivative, compiled for a GPU and some shapes. It computes on the caller's memory.
#[derive(Debug)]
pub struct GpuAttention {
    forward: OnGpu<PatternAttention>,
    /// Set if the op has `log_sum_exp`.
    backward: Option<OnGpu<PatternAttentionBackward>>,
}

impl GpuAttention {
    /// Compiles attention with activations in `dtype`. `shapes` are those of the op's operands: queries, keys and values in its layout, then
    /// the captured tensors. With [`PatternAttention::log_sum_exp`] the derivative is compiled too. The tile is the one that `hipvit tune` has
    /// stored for this pattern and these shapes on this GPU model, otherwise the default one.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the shapes do not fit the op. Errors of the compiler and the driver.
    pub fn new(device: &Device, dtype: DType, op: &PatternAttention, shapes: &[&[usize]]) -> Result<Self> {
        Self::compile(device, dtype, op, shapes, None)
    }

    /// Compiles attention as [`new`](Self::new), but with a tile of [`tiles`](Self::tiles). The derivative has its own tiles.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the code does not support the tile on this device, for this dtype and these channels per head. The errors of
    /// [`new`](Self::new).
    pub fn with_tile(
        device: &Device,
        dtype: DType,
        op: &PatternAttention,
        shapes: &[&[usize]],
        tile: AttentionTile,
    ) -> Result<Self> {
        let arch = device.properties().arch();
        if !AttentionTile::supported(arch, dtype.size(), op.head_dim).any(|supported| supported == tile) {
            let channels = op.head_dim;
            let reason =
                format!("{tile} is not supported on {arch} in {dtype} for heads of {channels} channels");
            return Err(Error::argument("tile", reason));
        }
        Self::compile(device, dtype, op, shapes, Some(tile))
    }

    fn compile(
        device: &Device,
        dtype: DType,
        op: &PatternAttention,
        shapes: &[&[usize]],
        tile: Option<AttentionTile>,
    ) -> Result<Self> {
        let forward = Shaped::new(op.clone(), dtype, &operands(op, shapes))?;
        let generated = forward.generate()?;
        let tile = match tile {
            Some(tile) => Some(tile),
            None => forward.stored_tile(&generated, device)?,
        };
        let forward = forward.compile(generated, device, tile, None)?;
        let backward = if op.log_sum_exp {
            let rows = Unit::of("attention_backward_rows");
            let shaped = forward.derivative(dtype, shapes)?;
            let generated = shaped.generate()?;
            Some(shaped.compile(generated, device, None, Some(rows))?)
        } else {
            None
        };
        Ok(Self { forward, backward })
    }

    /// Returns attention with the same code for other shapes, scalars, heads or another scale. It compiles nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `op` has a different pattern or different channels per head, or if only `op` has `log_sum_exp`.
    /// [`Error::Graph`] if the shapes do not fit the op.
    pub fn adapted(&self, op: &PatternAttention, shapes: &[&[usize]]) -> Result<Self> {
        let dtype = self.forward.shaped.plan.dtype();
        let forward = Shaped::new(op.clone(), dtype, &operands(op, shapes))?.adapt(&self.forward.code)?;
        let backward = match &self.backward {
            Some(backward) if op.log_sum_exp => {
                Some(forward.derivative(dtype, shapes)?.adapt(&backward.code)?)
            }
            None if op.log_sum_exp => return Err(Error::argument("attention", NO_DERIVATIVE)),
            _ => None,
        };
        Ok(Self { forward, backward })
    }

    /// Returns the tile of the attention.
    ///
    /// # Errors
    ///
    /// The tile cannot be read from the device.
    pub fn tile(&self) -> Result<AttentionTile> {
        let Code {
            kernels,
            generated,
            tile,
        } = &*self.forward.code;
        match tile {
            Some(tile) => Ok(*tile),
            None => AttentionTile::of_code(generated, kernels),
        }
    }

    /// Returns the tiles that [`with_tile`](Self::with_tile) supports for this attention, without its own. Which one is the fastest depends
    /// on the device, the extents and the mask.
    ///
    /// # Errors
    ///
    /// The errors of [`tile`](Self::tile).
    pub fn tiles(&self) -> Result<Vec<AttentionTile>> {
        let own = self.tile()?;
        let kernels = &self.forward.code.kernels;
        let arch = kernels.device().properties().arch();
        let head_dim = self.forward.shaped.op.head_dim;
        let supported = AttentionTile::supported(arch, kernels.dtype().size(), head_dim);
        Ok(supported.filter(|&tile| tile != own).collect())
    }

    /// Returns the extents of the result, and of `ln Σ e^s` if it is one.
    pub fn result_shapes(&self) -> Vec<Vec<usize>> {
        self.forward.shaped.result_shapes()
    }

    /// Submits attention. `operands` are row-major, in the order of the shapes; captured integers are i32. `results` is the result, followed
    /// by f32 `ln Σ e^s` if the op has it. All are memory of the stream, or frozen.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if there are more or fewer of them. [`Error::Hip`] if one is too small, or if the driver fails.
    pub fn forward(&self, stream: &Stream, operands: &[Operand<'_>], results: &[Operand<'_>]) -> Result<()> {
        let results: Vec<_> = results.iter().copied().map(Some).collect();
        self.forward.run(stream, operands, &results)
    }

    /// Submits the derivative. `operands` are those of [`forward`](Self::forward), its two results, and the gradient of the first one.
    /// `gradients` are of the operands, without captured integers. `None` leaves out the gradient of a captured tensor, which saves its
    /// time.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the op has no `log_sum_exp`, if there are more or fewer operands, or if a gradient of queries, keys or values
    /// is left out. [`Error::Hip`] if one is too small, or if the driver fails.
    pub fn backward<'a, G>(&self, stream: &Stream, operands: &[Operand<'_>], gradients: &[G]) -> Result<()>
    where
        G: Copy + Into<Option<Operand<'a>>>,
    {
        let backward = self.backward.as_ref();
        let backward = backward.ok_or_else(|| Error::argument("attention", NO_DERIVATIVE))?;
        let gradients: Vec<Option<Operand<'a>>> = gradients.iter().map(|&gradient| gradient.into()).collect();
        let attended = self.forward.shaped.op.operands.count();
        if gradients.iter().take(attended).any(Option::is_none) {
            let reason = "of queries, keys and values cannot be left out";
            return Err(Error::argument("gradients", reason));
        }
        backward.run(stream, operands, &gradients)
    }
}

const NO_DERIVATIVE: &str = "has no `log_sum_exp`, which the derivative reads";

/// Returns the shapes of the op's operands, each with true for integers.
fn operands(op: &PatternAttention, shapes: &[&[usize]]) -> Vec<(Vec<usize>, bool)> {
    let integers = op.program.tensors().iter().map(|tensor| tensor.ty == Type::Int);
    let floats = std::iter::repeat_n(false, op.operands.count());
    let shapes = shapes.iter().map(|shape| shape.to_vec());
    shapes.zip(floats.chain(integers)).collect()
}

/// An op with the shapes of its operands.
#[derive(Debug)]
struct Shaped<O> {
    op: O,
    /// A graph of the op alone, whose operands are constants without contents.
    plan: Plan,
    operands: Vec<ValueId>,
    scratch_bytes: usize,
}

/// The kernels of an op, for any shapes.
#[derive(Debug)]
struct Code<G> {
    kernels: Kernels,
    generated: G,
    /// Tile of the forward pass. `None` for the default one of the code.
    tile: Option<AttentionTile>,
}

/// An op whose operands and results are the caller's memory.
#[derive(Debug)]
struct OnGpu<O: LowerGenerated> {
    shaped: Shaped<O>,
    code: Arc<Code<O::Generated>>,
}

impl<O: LowerGenerated + Clone + Into<Op>> Shaped<O> {
    /// `operands` are the shapes, each with true for integers.
    fn new(op: O, dtype: DType, operands: &[(Vec<usize>, bool)]) -> Result<Self> {
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
        let node: Op = op.clone().into();
        graph.push(Role::Other, node.name(), node, operands.clone())?;
        let plan = Plan::new(Arc::new(graph), 1, dtype)?;
        Ok(Self {
            op,
            scratch_bytes: scratch_bytes(&plan),
            plan,
            operands,
        })
    }

    fn generate(&self) -> Result<O::Generated> {
        let generated = self.op.generate();
        generated.map_err(|reason| Error::kernel("attention", reason))
    }

    /// Compiles the op's program, and loads `other` with it.
    fn compile(
        self,
        generated: O::Generated,
        device: &Device,
        tile: Option<AttentionTile>,
        other: Option<Unit>,
    ) -> Result<OnGpu<O>> {
        let program = generated.as_ref();
        let unit = tile.map_or_else(|| program.clone(), |tile| tile.unit(program));
        let kernels = Kernels::load(device, self.plan.dtype(), [unit].into_iter().chain(other))?;
        Ok(OnGpu {
            shaped: self,
            code: Arc::new(Code {
                kernels,
                generated,
                tile,
            }),
        })
    }

    /// Joins the op with code that was compiled for other shapes.
    fn adapt(self, code: &Arc<Code<O::Generated>>) -> Result<OnGpu<O>> {
        if self.generate()?.as_ref() != code.generated.as_ref() {
            let reason = "has a different pattern, or different channels per head. Compile it";
            return Err(Error::argument("attention", reason));
        }
        Ok(OnGpu {
            shaped: self,
            code: code.clone(),
        })
    }
}

impl<O: LowerGenerated> Shaped<O> {
    /// Returns the calls that compute the op.
    fn lower(
        &self,
        generated: &O::Generated,
        device: &Device,
        operands: &[DeviceAddress],
        results: &[DeviceAddress],
        scratch: DeviceAddress,
    ) -> Result<Vec<Call>> {
        let Some(step) = self.plan.steps().first() else {
            return Ok(Vec::new());
        };
        let constants: HashMap<_, _> = self
            .operands
            .iter()
            .copied()
            .zip(operands.iter().copied())
            .collect();
        let addresses = Addresses {
            inputs: DeviceAddress::NULL,
            constants: &constants,
            states: None,
            steps: &HashMap::new(),
            float8: None,
            sparse: &HashMap::new(),
            arena: DeviceAddress::NULL,
            elsewhere: Elsewhere::NONE,
            in_place: &InPlace::default(),
            results: Some(results),
            scratch,
            counters: DeviceAddress::NULL,
        };
        let calls = self
            .op
            .lower_with(&Lowering::new(&self.plan, step, addresses), generated);
        calls.map_err(|reason| Error::op(self.plan.node(step), Some(device.name()), reason))
    }
}

impl Shaped<PatternAttention> {
    /// Returns the tile that is stored for this attention on the device, if there is one.
    fn stored_tile(&self, generated: &Unit, device: &Device) -> Result<Option<AttentionTile>> {
        let operands = vec![DeviceAddress::NULL; self.operands.len()];
        let results = vec![DeviceAddress::NULL; self.result_shapes().len()];
        let calls = self.lower(generated, device, &operands, &results, DeviceAddress::NULL)?;
        Ok(calls.iter().find_map(|call| match call {
            Call::PatternAttention(call) => select::stored_tile(device, call.shape()),
            _ => None,
        }))
    }
}

impl<O> Shaped<O> {
    fn result_shapes(&self) -> Vec<Vec<usize>> {
        let steps = self.plan.steps().iter();
        let outputs = steps.flat_map(|step| &step.outputs);
        outputs.map(|&id| self.plan.buffer(id).shape.clone()).collect()
    }
}

impl OnGpu<PatternAttention> {
    /// Returns the derivative for operands of these shapes.
    fn derivative(&self, dtype: DType, shapes: &[&[usize]]) -> Result<Shaped<PatternAttentionBackward>> {
        let op = &self.shaped.op;
        let results = self.shaped.result_shapes();
        let mut operands = operands(op, shapes);
        operands.extend([&results[0], &results[1], &results[0]].map(|shape| (shape.clone(), false)));
        Shaped::new(PatternAttentionBackward(op.clone()), dtype, &operands)
    }
}

impl<O: LowerGenerated> OnGpu<O> {
    /// Submits the op. Results that are `None` are not computed.
    fn run(&self, stream: &Stream, operands: &[Operand<'_>], results: &[Option<Operand<'_>>]) -> Result<()> {
        let Some(step) = self.shaped.plan.steps().first() else {
            return Ok(());
        };
        let expect = |what, found: usize, expected: usize| {
            if found == expected {
                return Ok(());
            }
            Err(Error::argument(what, format!("are {found}, expected {expected}")))
        };
        expect("operands", operands.len(), self.shaped.operands.len())?;
        expect("results", results.len(), step.outputs.len())?;
        let mut scratch = stream.allocate::<u8>(self.shaped.scratch_bytes.max(1))?;
        let address = |result: &Option<Operand<'_>>| match result {
            Some(result) => result.address(),
            None => DeviceAddress::NULL,
        };
        let of_operands: Vec<DeviceAddress> = operands.iter().map(Operand::address).collect();
        let of_results: Vec<DeviceAddress> = results.iter().map(address).collect();
        let Code {
            kernels,
            generated,
            tile,
        } = &*self.code;
        let calls = self.shaped.lower(
            generated,
            kernels.device(),
            &of_operands,
            &of_results,
            scratch.address(),
        )?;
        let memory: Vec<Operand<'_>> = operands
            .iter()
            .chain(results.iter().flatten())
            .copied()
            .chain([scratch.writing()])
            .collect();
        for call in calls {
            match call {
                Call::Kernel(call) => call.launch(kernels, stream, &memory)?,
                Call::Generated(call) => call.launch(kernels, stream, &memory)?,
                Call::PatternAttention(call) => {
                    let mut launches = call.launches(*tile).into_iter();
                    launches.try_for_each(|launch| launch.launch(kernels, stream, &memory))?;
                }
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
