//! Sums, LayerScale, affine maps of the channels and scalar factors: the ops, and the kernel `add` with all
//! of its operands together.

use std::fmt;

use super::case::{Addresses, KernelForm};
use super::list::List;
use crate::validate::part::{Part, gather};
use hipvit::graph::cases::{Scale, activation, parameter};
use hipvit::kernels::{AddArgs, KernelCall, KernelError};
use hipvit::ops::{self, Add, MulScalar, Op, OpError};
use hipvit::reference::{eval, rounded};
use hipvit::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    if let Scale::Awkward = list.scale() {
        for [rows, channels, y_rows] in [[6, 65, 3], [4, 64, 4], [7, 197, 1]] {
            forms(list, rows, channels, y_rows);
        }
    }
    if list.is_micro() {
        forms(list, 6, 33, 3);
    }
}

fn forms(list: &mut List, rows: usize, channels: usize, y_rows: usize) {
    for gamma in [false, true] {
        let x = activation(&[rows, channels]);
        let gamma_operand = gamma.then(|| parameter(&[channels]));
        let y = activation(&[y_rows, channels]);
        let operands = [Some(x), gamma_operand, Some(y)];
        list.push_kernel(
            ScaledSum { factor: 0.5, gamma },
            operands.into_iter().flatten().collect(),
        );
    }
}

/// `(x [R,D], gamma [D]?, y [Y,D]) → [R,D]`: factor · gamma · x + y. The rows of y repeat.
#[derive(Debug)]
struct ScaledSum {
    factor: f32,
    gamma: bool,
}

impl fmt::Display for ScaledSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gamma = if self.gamma { "·gamma" } else { "" };
        write!(f, "add {}{gamma}·x + repeated y", self.factor)
    }
}

impl ScaledSum {
    fn y(&self) -> usize {
        1 + usize::from(self.gamma)
    }
}

impl KernelForm for ScaledSum {
    fn op_name(&self) -> &'static str {
        "add"
    }

    fn flops(&self, _operands: &[&[usize]], result: &[usize]) -> u64 {
        let elements: usize = result.iter().product();
        (2 + u64::from(self.gamma)) * elements as u64
    }

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        let mut sum = eval(
            &Op::MulScalar(MulScalar(self.factor)),
            &[&gather(&operands[0], rows)?],
        )?;
        if self.gamma {
            sum = eval(&Op::Scale(ops::Scale), &[&sum, &(&operands[1]).into()])?;
        }
        sum = eval(&Op::Add(Add), &[&sum, &gather(&operands[self.y()], rows)?])?;
        // The roundings of the products with factor and gamma, and of the sum.
        Ok(vec![Part::new(&sum, rows, rounded(dtype, 3.0))])
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let (x, y) = (operands[0], self.y());
        let gamma = memory.operand(self.gamma.then_some(1));
        let y = (memory.operand(Some(y)), operands[y][0]);
        let addresses = [memory.operand(Some(0)), memory.result];
        Ok(AddArgs::new(addresses, [x[0], x[1]], self.factor, gamma, Some(y))?.into())
    }
}
