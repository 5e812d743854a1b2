//! The kernel `bias_activation` with and without bias and residual.

use std::fmt;

use super::case::{Addresses, KernelForm, flops};
use super::list::List;
use crate::validate::part::{Part, gather};
use hipvit::graph::cases::{Scale, parameter};
use hipvit::kernels::{BiasActivationArgs, KernelCall, KernelError};
use hipvit::ops::activation::ACTIVATIONS;
use hipvit::ops::activation::wide;
use hipvit::ops::{Activation, Add, Op, OpError};
use hipvit::reference::{eval, rounded};
use hipvit::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    if let Scale::Awkward = list.scale() {
        forms(list, 5, 197);
        forms(list, 3, 64);
    }
    if list.is_micro() {
        forms(list, 5, 33);
    }
}

/// Each activation and none; bias and residual in all four combinations.
fn forms(list: &mut List, rows: usize, channels: usize) {
    for (index, activation) in ACTIVATIONS.into_iter().map(Some).chain([None]).enumerate() {
        for form in [index, index + 1] {
            let form = BiasActivation {
                activation,
                bias: form % 4 != 1,
                residual: form % 2 == 1,
                in_place: form % 3 == 0,
            };
            let x = wide(&[rows, channels]);
            let bias = form.bias.then(|| parameter(&[channels]));
            let residual = form.residual.then(|| wide(&[rows, channels]));
            let operands = [Some(x), bias, residual];
            list.push_kernel(form, operands.into_iter().flatten().collect());
        }
    }
}

/// `(x [R,D], bias [D]?, residual [R,D]?) → [R,D]`: activation(x + bias) + residual, in place of x or in
/// separate memory.
#[derive(Debug)]
struct BiasActivation {
    activation: Option<Activation>,
    bias: bool,
    residual: bool,
    in_place: bool,
}

impl fmt::Display for BiasActivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bias_activation")?;
        f.write_str(if self.bias { "+bias" } else { "" })?;
        if let Some(activation) = self.activation {
            write!(f, "+{}", activation.name())?;
        }
        f.write_str(if self.residual { "+residual" } else { "" })
    }
}

impl BiasActivation {
    fn residual(&self) -> Option<usize> {
        self.residual.then_some(1 + usize::from(self.bias))
    }
}

impl KernelForm for BiasActivation {
    fn op_name(&self) -> &'static str {
        "activation"
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place.then_some(0)
    }

    fn flops(&self, operands: &[&[usize]], result: &[usize]) -> u64 {
        let activation = self
            .activation
            .map_or(0, |a| flops(&Op::Activation(a), &operands[..1], result));
        let sums = u64::from(self.bias) + u64::from(self.residual);
        activation + sums * result.iter().product::<usize>() as u64
    }

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        let mut y = gather(&operands[0], rows)?;
        if self.bias {
            y = eval(&Op::Add(Add), &[&y, &gather(&operands[1], rows)?])?;
        }
        if let Some(activation) = self.activation {
            y = eval(&Op::Activation(activation), &[&y])?;
        }
        if let Some(residual) = self.residual() {
            y = eval(&Op::Add(Add), &[&y, &gather(&operands[residual], rows)?])?;
        }
        // The roundings of an activation and of both sums.
        Ok(vec![Part::new(&y, rows, rounded(dtype, 13.0))])
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let addresses = [
            memory.operand(Some(0)),
            memory.operand(self.bias.then_some(1)),
            memory.operand(self.residual()),
            memory.result,
        ];
        let x = operands[0];
        Ok(BiasActivationArgs::new(addresses, [x[0], x[1]], self.activation)?.into())
    }
}
