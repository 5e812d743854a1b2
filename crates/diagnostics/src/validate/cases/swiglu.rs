//! The SwiGLU gate, with and without the norm of its result: the ops, and the kernel with a bias.

use std::fmt;

use super::super::expected::{Part, gather};
use super::activation::wide;
use super::{AWKWARD, Addresses, KernelForm, List, Scale, flops, parameter, with};
use hipvit::kernels::{KernelCall, SwiGluArgs};
use hipvit::ops::{Add, Op, SwiGlu, SwiGluNorm};
use hipvit::reference::{eval, rounded};
use hipvit::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => {
            let x = wide(&[sizes.batch, sizes.tokens, 4 * sizes.channels()]);
            list.push(Op::SwiGlu(SwiGlu), vec![x]);
            normed(list, [sizes.batch, sizes.tokens], 2 * sizes.channels(), 0);
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                let x = wide(&[a.batch, a.tokens, a.channels.next_multiple_of(2)]);
                list.push(Op::SwiGlu(SwiGlu), vec![x]);
                normed(list, [a.batch, a.tokens], a.channels, 0);
            }
            // The longest rows that a wave and a block of either wave size keep in registers, longer rows,
            // and the waves of more than one block.
            for channels in [2048, 2056, 4096, 4104, 8192, 8195, 8200] {
                normed(list, [1, 2], channels, 0);
            }
            normed(list, [3, 3], 2048, 0);
            // Padded rows, one of which is not kept in registers.
            for (channels, padding) in [(16, 7), (72, 1), (264, 7), (2736, 6), (8200, 3), (65, 2)] {
                normed(list, [2, 3], channels, padding);
            }
            biased(list, 3, 64);
            biased(list, 5, 63);
        }
        Scale::Heads => {}
    }
    if list.is_micro() {
        biased(list, 5, 33);
        normed(list, [1, 3], 65, 0);
        normed(list, [1, 3], 64, 5);
    }
}

fn normed(list: &mut List, outer: [usize; 2], channels: usize, padding: usize) {
    let x = wide(&with(&outer, 2 * channels));
    let operands = vec![x, parameter(&[channels]), parameter(&[channels])];
    let op = Op::SwiGluNorm(SwiGluNorm {
        epsilon: 1e-6,
        padding,
    });
    list.push(op, operands);
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

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, String> {
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

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, String> {
        let addresses = [memory.operand(Some(0)), memory.operand(Some(1)), memory.result];
        Ok(SwiGluArgs::new(addresses, [operands[0][0], operands[0][1] / 2])?.into())
    }
}
