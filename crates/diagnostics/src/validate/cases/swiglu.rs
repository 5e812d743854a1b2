//! The SwiGLU gate, with and without the norm of its result: the ops, and the kernel with a bias.

use std::fmt;

use super::case::{Addresses, KernelForm, flops};
use super::list::List;
use crate::validate::part::{Part, gather};
use hipvit::graph::cases::{Scale, parameter};
use hipvit::kernels::{KernelCall, KernelError, SwiGluArgs};
use hipvit::ops::activation::wide;
use hipvit::ops::{Add, Op, OpError, SwiGlu};
use hipvit::reference::{eval, rounded};
use hipvit::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    if let Scale::Awkward = list.scale() {
        biased(list, 3, 64);
        biased(list, 5, 63);
    }
    if list.is_micro() {
        biased(list, 5, 33);
    }
}

fn biased(list: &mut List, rows: usize, channels: usize) {
    let operands = vec![wide(&[rows, 2 * channels]), parameter(&[2 * channels])];
    list.push_kernel(BiasedSwiGlu, operands);
}

/// `(x [R,2·D], bias [2·D]) → [R,D]`.
#[derive(Debug)]
struct BiasedSwiGlu;

impl fmt::Display for BiasedSwiGlu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("swiglu+bias")
    }
}

impl KernelForm for BiasedSwiGlu {
    fn op_name(&self) -> &'static str {
        Op::SwiGlu(SwiGlu).name()
    }

    fn result(&self, operands: &[&[usize]]) -> Vec<usize> {
        vec![operands[0][0], operands[0][1] / 2]
    }

    fn flops(&self, operands: &[&[usize]], result: &[usize]) -> u64 {
        flops(&Op::SwiGlu(SwiGlu), &operands[..1], result) + operands[0].iter().product::<usize>() as u64
    }

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        let x = eval(
            &Op::Add(Add),
            &[&gather(&operands[0], rows)?, &gather(&operands[1], rows)?],
        )?;
        // The roundings of an activation, of the other half's bias, and of the product.
        Ok(vec![Part::new(
            &eval(&Op::SwiGlu(SwiGlu), &[&x])?,
            rows,
            rounded(dtype, 13.0),
        )])
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let addresses = [memory.operand(Some(0)), memory.operand(Some(1)), memory.result];
        Ok(SwiGluArgs::new(addresses, [operands[0][0], operands[0][1] / 2])?.into())
    }
}
