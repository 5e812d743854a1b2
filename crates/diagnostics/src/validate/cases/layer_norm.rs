//! Layer and RMS normalisation: the ops, also per head, and the kernel that normalises and stores a sum.

use std::fmt;

use super::case::{Addresses, KernelForm, flops};
use super::list::List;
use crate::validate::part::{Part, gather};
use hipvit::graph::cases::{AWKWARD, Operand, Scale, activation, parameter};
use hipvit::kernels::{FEW_ROWS, KernelCall, KernelError, LayerNormArgs};
use hipvit::ops::{Add, LayerNorm, Op, OpError};
use hipvit::reference::{Array, eval, layer_norm_tolerance, rounded};
use hipvit::tensor::{DType, Tensor};

const EPSILON: f32 = 1e-6;
/// Longest row that a block keeps in registers. The block rereads the stored sum of a longer row.
const LONGEST_KEPT: usize = 8192;

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => {
            form(list, sizes.batch * sizes.tokens, sizes.channels(), 0.0, true);
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                form(list, a.batch * a.tokens, a.channels, 0.0, true);
            }
            // Use the entry for wide rows, with the waves of more than one block.
            for channels in [1025, 1032, 2048] {
                form(list, 9, channels, 0.0, true);
            }
            // Rows that one wave does not hold.
            form(list, 2, 4100, 0.0, true);
            form(list, 3, 8192, 0.0, true);
            for [rows, channels] in [[3, 63], [5, 64], [9, 768], [2, 2049], [1, 8209]] {
                form(list, rows, channels, 0.0, false);
                form(list, rows, channels, 0.0, true);
            }
            // More rows than the entry for few rows takes, with and without whole vec128s.
            for channels in [24, 33] {
                form(list, FEW_ROWS as usize + 3, channels, 0.0, false);
            }
            form(list, FEW_ROWS as usize, 24, 0.0, false);
        }
        Scale::Heads => {}
    }
    if list.is_micro() {
        for [rows, channels] in [[1, 1], [5, 65], [2, 2049]] {
            form(list, rows, channels, 0.0, false);
            form(list, rows, channels, 0.0, true);
        }
        // A row that no block keeps whole, and a mean far from zero.
        form(list, 1, 9001, 0.0, true);
        form(list, 3, 256, 50.0, false);
    }
}

fn form(list: &mut List, rows: usize, channels: usize, mean: f32, residual: bool) {
    let x = || Operand {
        mean,
        ..activation(&[rows, channels])
    };
    let mut operands = vec![x()];
    operands.extend(residual.then(x));
    operands.extend([parameter(&[channels]), parameter(&[channels])]);
    let form = Norm {
        epsilon: EPSILON,
        residual,
        offset: mean != 0.0,
    };
    list.push_kernel(form, operands);
}

/// `(x [R,D], residual [R,D]?, weight [D], bias [D])`: the norm of x `→ [R,D]`, or the norm of x + residual
/// followed by that sum `→ [2,R,D]`.
#[derive(Debug)]
struct Norm {
    epsilon: f32,
    residual: bool,
    /// True if the mean is far from zero.
    offset: bool,
}

impl fmt::Display for Norm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("layer_norm kernel")?;
        f.write_str(if self.residual {
            " +residual, sum stored"
        } else {
            ""
        })?;
        f.write_str(if self.offset { " offset mean" } else { "" })
    }
}

impl Norm {
    fn op(&self) -> Op {
        Op::LayerNorm(LayerNorm {
            epsilon: self.epsilon,
        })
    }

    fn weight(&self) -> usize {
        1 + usize::from(self.residual)
    }
}

impl KernelForm for Norm {
    fn op_name(&self) -> &'static str {
        self.op().name()
    }

    fn result(&self, operands: &[&[usize]]) -> Vec<usize> {
        if self.residual {
            [&[2], operands[0]].concat()
        } else {
            operands[0].to_vec()
        }
    }

    fn flops(&self, operands: &[&[usize]], _result: &[usize]) -> u64 {
        let (x, weight) = (operands[0], operands[self.weight()]);
        let norm = flops(&self.op(), &[x, weight, weight], x);
        if self.residual {
            norm + flops(&Op::Add(Add), &operands[..2], x)
        } else {
            norm
        }
    }

    /// Returns the norms, then the sums if they are stored.
    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        let [x, .., weight, bias] = operands else {
            return Err("takes three operands".into());
        };
        let (count, channels) = (x.shape()[0], weight.shape()[0]);
        let (norms, sums): (Vec<usize>, Vec<usize>) = rows.iter().partition(|&&row| row < count);
        let sum = |rows: &[usize]| -> Result<Array, OpError> {
            let rows: Vec<usize> = rows.iter().map(|row| row % count).collect();
            let x = gather(x, &rows)?;
            if self.residual {
                Ok(eval(&Op::Add(Add), &[&x, &gather(&operands[1], &rows)?])?)
            } else {
                Ok(x)
            }
        };
        let summed = sum(&norms)?;
        let (weight, bias): (Array, Array) = (weight.into(), bias.into());
        let normed = eval(&self.op(), &[&summed, &weight, &bias])?;
        let reread = self.residual && channels > LONGEST_KEPT;
        let tolerance = layer_norm_tolerance([&summed, &weight, &bias], &normed, self.epsilon, dtype, reread);
        let mut parts = vec![Part::new(&normed, &norms, tolerance)];
        if self.residual {
            parts.push(Part::new(&sum(&sums)?, &sums, rounded(dtype, 1.0)));
        }
        Ok(parts)
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let (x, weight) = (operands[0], self.weight());
        let addresses = [
            memory.operand(Some(0)),
            memory.operand(Some(weight)),
            memory.operand(Some(weight + 1)),
            memory.result,
        ];
        let arguments = LayerNormArgs::new(addresses, [x[0], x[1]], self.epsilon)?;
        Ok(if self.residual {
            let sum = memory.result.offset(x[0] * x[1] * memory.element);
            arguments.of_sum(memory.operand(Some(1)), sum).into()
        } else {
            arguments.into()
        })
    }
}
