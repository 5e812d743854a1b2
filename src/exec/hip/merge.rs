//! Steps that are computed with the step before them: updates of weights in one launch, and activations of layers in training in the epilogue of a
//! GEMM.

use super::executor::HipExecutor;
use super::libraries::Libraries;
use super::lower::{Call, LinearCall};
use crate::graph::plan::{Plan, Step};
use crate::hip::{Access, DeviceAddress, Gemm};
use crate::kernels::{KernelArguments, KernelCall};
use crate::ops::{Activation, ActivationBackward, Op};

impl HipExecutor {
    /// Returns true if [`merge`](Self::merge) could compute the step `next` with `calls`, the calls of the step before it.
    pub(super) fn may_merge(&self, calls: &[Call], plan: &Plan, next: &Step) -> bool {
        match (calls, &plan.node(next).op) {
            ([Call::Kernel(KernelCall::AdamW(_))], Op::AdamW(_)) => true,
            ([Call::Linear(linear)], Op::Activation(_)) => {
                self.selection.has_hipblaslt() && is_plain(linear) && !is_recomputed(plan, next)
            }
            ([Call::Linear(linear)], Op::ActivationBackward(_)) => {
                self.selection.has_hipblaslt() && is_plain(linear)
            }
            _ => false,
        }
    }

    /// Tries to compute the step `next`, whose calls are `of_next`, with `calls`. Returns true if it did.
    pub(super) fn merge(
        &self,
        calls: &mut [Call],
        plan: &Plan,
        next: &Step,
        of_next: &[Call],
        libraries: &mut Libraries,
    ) -> bool {
        match (calls, of_next) {
            ([Call::Kernel(KernelCall::AdamW(arguments))], [Call::Kernel(KernelCall::AdamW(more))]) => {
                !conflict(arguments, more, self.dtype.size()) && arguments.merge(more)
            }
            ([call @ Call::Linear(_)], of_next) => {
                let Call::Linear(linear) = *call else {
                    return false;
                };
                let merged = match plan.node(next).op {
                    Op::Activation(activation) => with_activation(&linear, activation, of_next),
                    Op::ActivationBackward(backward) => with_derivative(&linear, backward, of_next),
                    _ => None,
                };
                let Some(merged) = merged.filter(|merged| merged.shape().epilogue().is_some()) else {
                    return false;
                };
                let merged = Call::Linear(merged);
                let (choice, _) = libraries.resolve(&merged, &self.selection, &self.kernels);
                if choice.has_epilogue() {
                    *call = merged;
                }
                choice.has_epilogue()
            }
            _ => false,
        }
    }
}

/// Returns true if another step computes the same activation, for the backward pass. Both must have equal bits.
fn is_recomputed(plan: &Plan, step: &Step) -> bool {
    let same =
        |other: &&Step| other.inputs == step.inputs && matches!(plan.node(other).op, Op::Activation(_));
    plan.steps().iter().filter(same).count() > 1
}

/// Returns true for a GEMM without anything after it but a bias.
fn is_plain(linear: &LinearCall) -> bool {
    let has_8_bits = linear.float8.is_some() || linear.int8.is_some();
    linear.activation.is_none()
        && linear.residual.is_null()
        && linear.preactivation.is_null()
        && linear.sparse.is_none()
        && !has_8_bits
}

/// Returns the layer that also writes `activation` of its result, as `next` does.
fn with_activation(linear: &LinearCall, activation: Activation, next: &[Call]) -> Option<LinearCall> {
    let [Call::Kernel(KernelCall::BiasActivation(next))] = next else {
        return None;
    };
    let Gemm {
        m, n, k, a, b, wide, ..
    } = linear.gemm;
    let bytes = |columns: usize| m * columns * wide.size();
    // The plan may place the second result over operands that only the first step reads.
    let overlaps = overlap((next.out, bytes(n)), (linear.x, bytes(k)));
    let is_layer = !a.transposed && b.transposed && next.x == linear.out && next.out != linear.out;
    (is_layer && !overlaps && (next.rows as usize, next.channels as usize) == (m, n)).then_some(LinearCall {
        activation: Some(activation),
        preactivation: linear.out,
        out: next.out,
        ..*linear
    })
}

/// Returns the gradient of a layer's input that is multiplied by the derivative of the activation before the layer, as `next` does in place.
fn with_derivative(linear: &LinearCall, backward: ActivationBackward, next: &[Call]) -> Option<LinearCall> {
    let (slope, sums) = match next {
        [Call::Kernel(KernelCall::ActivationBackward(slope))] => (slope, DeviceAddress::NULL),
        [
            Call::Kernel(KernelCall::ActivationBackward(slope)),
            Call::Kernel(KernelCall::ColumnSum(sums)),
        ] => (slope, sums.out),
        _ => return None,
    };
    let Gemm { m, n, a, b, .. } = linear.gemm;
    let is_gradient = !a.transposed && !b.transposed && linear.bias.is_null() && !backward.secant;
    let in_place = slope.dy == linear.out && slope.dx == linear.out;
    (is_gradient && in_place && (slope.rows as usize, slope.channels as usize) == (m, n)).then_some(
        LinearCall {
            activation: Some(backward.activation),
            preactivation: slope.x,
            bias: sums,
            scratch: slope.sums,
            ..*linear
        },
    )
}

/// Returns true if one of two calls writes memory that the other accesses, so that they cannot be one launch, whose blocks run in any order. The
/// plan may place a result over an operand that only the first call reads. `element` is the size of an element of the dtype.
fn conflict(first: &impl KernelArguments, second: &impl KernelArguments, element: usize) -> bool {
    let of_first = accesses(first, element);
    accesses(second, element).into_iter().any(|b| {
        let conflicts =
            |a: &Access| (a.written || b.written) && overlap((a.address, a.bytes), (b.address, b.bytes));
        of_first.iter().any(conflicts)
    })
}

fn accesses(arguments: &impl KernelArguments, element: usize) -> Vec<Access> {
    let mut all = Vec::new();
    arguments.accesses(element, &mut |access| all.push(access));
    all
}

/// Returns true if two ranges of memory, each with its number of bytes, have a common byte.
fn overlap((first, bytes): (DeviceAddress, usize), (second, more): (DeviceAddress, usize)) -> bool {
    let (first, second) = (first.as_u64(), second.as_u64());
    first < second + more as u64 && second < first + bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hip::{DType, Matrix};
    use crate::kernels::{ADAMW_TENSORS, ActivationBackwardArgs, AdamWArgs, AdamWTensor, BiasActivationArgs};

    fn at(n: u64) -> DeviceAddress {
        DeviceAddress::from_raw(n << 20)
    }

    /// A layer of 6 rows, 5 channels to 4, with its result at 4 MiB.
    fn layer(gemm: Gemm, bias: DeviceAddress) -> LinearCall {
        LinearCall {
            gemm,
            x: at(1),
            weight: at(2),
            bias,
            residual: DeviceAddress::NULL,
            out: at(4),
            scratch: at(6),
            activation: None,
            preactivation: DeviceAddress::NULL,
            float8: None,
            int8: None,
            sparse: None,
        }
    }

    #[test]
    fn updates_that_write_each_others_operands_are_separate_launches() {
        let update = |base: u64, rounded: DeviceAddress| {
            let tensor = AdamWTensor {
                weight: at(base),
                gradient: at(base + 1),
                first: at(base + 2),
                second: at(base + 3),
                new_weight: at(base),
                new_first: at(base + 2),
                new_second: at(base + 3),
                rounded,
                elements: 10,
                first_block: 0,
            };
            AdamWArgs {
                tensors: [tensor; ADAMW_TENSORS as usize],
                rates: at(100),
                factor: at(101),
                count: 1,
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.0,
                rate_factor: 1.0,
                f32_gradient: 0,
                reserved: 0,
            }
        };
        let first = update(0, at(10));
        assert!(!conflict(&first, &update(20, at(30)), 2));
        // The gradient of the first update has 20 bytes.
        let over_gradient = |byte| conflict(&first, &update(20, at(1).offset(byte)), 2);
        assert_eq!([0, 19, 20].map(over_gradient), [true, true, false]);
        assert!(conflict(&update(20, at(1)), &first, 2));
        assert!(conflict(&first, &update(20, at(10)), 2), "both write");
    }

    #[test]
    fn a_layer_keeps_its_sum_beside_the_activation() {
        let linear = layer(Gemm::linear(6, 4, 5, DType::BF16), at(3));
        let gelu = |x, out, extents| {
            let null = DeviceAddress::NULL;
            let activation = Some(Activation::GeluErf);
            let arguments = BiasActivationArgs::new([x, null, null, out], extents, activation).unwrap();
            with_activation(&linear, Activation::GeluErf, &[arguments.into()])
        };
        let merged = gelu(at(4), at(5), [6, 4]).unwrap();
        assert_eq!(
            (merged.preactivation, merged.out, merged.bias),
            (at(4), at(5), at(3))
        );
        assert_eq!(merged.activation, Some(Activation::GeluErf));
        assert_eq!(gelu(at(7), at(5), [6, 4]), None, "reads another value");
        assert_eq!(gelu(at(4), at(4), [6, 4]), None, "the sum is not kept");
        assert_eq!(gelu(at(4), at(5), [4, 6]), None, "another shape");
        let last = at(1).offset(6 * 5 * 2 - 1);
        assert_eq!(gelu(at(4), last, [6, 4]), None, "overwrites x while it is read");
        assert!(gelu(at(4), at(1).offset(6 * 5 * 2), [6, 4]).is_some());
    }

    #[test]
    fn a_gradient_is_multiplied_by_the_derivative_in_place() {
        let gemm = Gemm::new(6, 4, 5, DType::BF16);
        let linear = layer(gemm, DeviceAddress::NULL);
        let backward = ActivationBackward {
            activation: Activation::GeluTanh,
            secant: false,
            sums: false,
        };
        let slope = |backward, addresses, linear: &LinearCall| {
            let arguments = ActivationBackwardArgs::new(addresses, [6, 4], backward).unwrap();
            with_derivative(linear, backward, &[arguments.into()])
        };
        let merged = slope(backward, [at(5), at(4), at(4)], &linear).unwrap();
        assert_eq!((merged.preactivation, merged.out), (at(5), at(4)));
        assert!(merged.bias.is_null());
        assert_eq!(
            slope(backward, [at(5), at(4), at(7)], &linear),
            None,
            "not in place"
        );
        let secant = ActivationBackward {
            secant: true,
            ..backward
        };
        assert_eq!(slope(secant, [at(5), at(4), at(4)], &linear), None);
        let of_weight = Gemm {
            a: Matrix::transposed(6),
            ..gemm
        };
        let of_weight = layer(of_weight, DeviceAddress::NULL);
        assert_eq!(slope(backward, [at(5), at(4), at(4)], &of_weight), None);
    }
}
