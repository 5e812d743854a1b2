//! Lowering of convolutions.

use hipvit_graph::op::{Conv, ConvTranspose, Linear, Op};

use super::call::ConvCall;
use crate::dtype::to_hip;
use crate::graph::Graph;
use crate::graph::plan::{Plan, Step};
use crate::hip::{DeviceAddress, Gemm};
use crate::kernels::bindings::{ConvTransposeSumArgs, DirectConvArgs, WindowGeometry};
use crate::kernels::call::Call;
use crate::kernels::linear::call::LinearCall;
use crate::kernels::lower::{Lower, Lowering, one, shape_of};
use crate::kernels::{KernelError, Unit, extent};

/// Returns the units that convolutions need besides [`Lower::unit`]: what follows a GEMM, and depthwise convolutions.
pub(crate) fn conv_units(graph: &Graph) -> impl Iterator<Item = Unit> {
    let has = |is: fn(&Conv) -> bool| {
        let mut nodes = graph.nodes().iter();
        nodes.any(|node| matches!(&node.op, Op::Conv(conv) if is(conv)))
    };
    let follows = has(|_| true).then(|| Unit::of("bias_activation"));
    // Only the shapes tell a depthwise convolution from others in groups.
    let depthwise = has(|conv| conv.groups != 1).then(|| Unit::of("depthwise_conv"));
    follows.into_iter().chain(depthwise)
}

/// Returns true if a step is a convolution in groups whose builtin way has GEMMs of rocBLAS.
pub(crate) fn has_group_gemm(plan: &Plan, step: &Step) -> bool {
    let call = match &plan.node(step).op {
        Op::Conv(conv) if conv.groups != 1 => unplaced(conv, plan, step).ok(),
        _ => None,
    };
    call.is_some_and(|call| call.has_group_gemm())
}

impl Lower for Conv {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("conv"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        if self.is_pointwise() {
            let linear = Linear {
                bias: self.bias,
                activation: self.activation,
                residual: self.residual,
                rounding: None,
            };
            return one(Call::Linear(step.linear_call(&linear)?));
        }
        let residual = if self.residual {
            step.address(2 + usize::from(self.bias))?
        } else {
            DeviceAddress::NULL
        };
        let call = ConvCall {
            x: step.address(0)?,
            weight: step.address(1)?,
            bias: if self.bias {
                step.address(2)?
            } else {
                DeviceAddress::NULL
            },
            residual,
            out: step.out,
            scratch: step.addresses.scratch,
            ..unplaced(self, step.plan, step.step)?
        };
        one(Call::Conv(call))
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let in_place = step.in_place.is_some();
        if self.is_pointwise() {
            // A residual in place after an activation.
            let elements: usize = plan.buffer(step.output()).shape.iter().product();
            let needed = in_place && self.activation.is_some();
            return if needed { elements * plan.dtype().size() } else { 0 };
        }
        // A convolution without a call is refused when it is lowered.
        unplaced(self, plan, step).map_or(0, |call| call.scratch_bytes(in_place))
    }
}

/// Returns the call of a convolution without addresses.
fn unplaced(conv: &Conv, plan: &Plan, step: &Step) -> Result<ConvCall, KernelError> {
    let &[_, rows, columns, features] = plan.buffer(step.output()).shape.as_slice() else {
        return Err("makes no images".into());
    };
    let x = step.inputs.first().ok_or("has no operands")?;
    Ok(ConvCall {
        windows: WindowGeometry::new(shape_of(plan, *x), [rows, columns], conv.windows())?,
        after: conv.windows().map(|windows| windows.padding[1]),
        features,
        groups: conv.groups,
        x: DeviceAddress::NULL,
        weight: DeviceAddress::NULL,
        bias: DeviceAddress::NULL,
        residual: DeviceAddress::NULL,
        out: DeviceAddress::NULL,
        scratch: DeviceAddress::NULL,
        activation: conv.activation,
        dtype: plan.dtype(),
    })
}

impl Lower for ConvTranspose {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("conv"))
    }

    /// One GEMM multiplies each pixel by the weight, and `conv_transpose_sum` adds up. `direct_conv` computes groups.
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[_, rows, columns, features] = step.shape else {
            return Err("makes no images".into());
        };
        let windows = WindowGeometry::new(step.shape_of(0)?, [rows, columns], self.windows())?;
        let (x, weight, out) = (step.address(0)?, step.address(1)?, step.out);
        let bias = if self.bias {
            step.address(2)?
        } else {
            DeviceAddress::NULL
        };
        if self.groups != 1 {
            return one(DirectConvArgs {
                x,
                weight,
                bias,
                residual: DeviceAddress::NULL,
                out,
                windows,
                features: extent(features)?,
                groups: extent(self.groups)?,
                activation: 0,
                transposed: 1,
            });
        }
        let products = step.addresses.scratch;
        let pixels = [windows.images, windows.height, windows.width].map(|extent| extent as usize);
        let n = features * windows.taps() as usize;
        let k = windows.channels as usize;
        let gemm = Gemm::linear(pixels.iter().product(), n, k, to_hip(step.plan.dtype()));
        let linear = LinearCall {
            gemm,
            x,
            weight,
            bias: DeviceAddress::NULL,
            residual: DeviceAddress::NULL,
            out: products,
            scratch: products,
            activation: None,
            preactivation: DeviceAddress::NULL,
            float8: None,
            int8: None,
            sparse: None,
        };
        let sum = ConvTransposeSumArgs {
            products,
            bias,
            out,
            windows: WindowGeometry {
                channels: extent(features)?,
                ..windows
            },
        };
        Ok(vec![Call::Linear(linear), sum.into()])
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let (Some(&x), true) = (step.inputs.first(), self.groups == 1) else {
            return 0;
        };
        let pixels: usize = shape_of(plan, x).iter().rev().skip(1).product();
        let features = plan.buffer(step.output()).shape.last().copied().unwrap_or(0);
        pixels * features * self.kernel.iter().product::<usize>() * plan.dtype().size()
    }
}
