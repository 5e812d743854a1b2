//! Layer and RMS normalisation: the ops, also per head, and the kernel that normalises and stores a sum.

use std::fmt;

use super::super::expected::{Part, gather};
use super::{AWKWARD, Addresses, KernelForm, List, Operand, Scale, activation, flops, parameter, with};
use hipvit::kernels::{FEW_ROWS, KernelCall, LayerNormArgs};
use hipvit::ops::{Add, LayerNorm, Op, RmsNorm};
use hipvit::reference::{Array, eval, layer_norm_tolerance, rounded};
use hipvit::tensor::{DType, Tensor};

const EPSILON: f32 = 1e-6;
/// Longest row that a block keeps in registers. The block rereads the stored sum of a longer row.
const LONGEST_KEPT: usize = 8192;

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => {
            let outer = [sizes.batch, sizes.tokens];
            add(list, &outer, sizes.channels());
            heads(list, &outer, [sizes.heads, sizes.head_dim]);
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                add(list, &[a.batch, a.tokens], a.channels);
                for &of in a.heads {
                    heads(list, &[a.batch, a.tokens], of.into());
                }
            }
            // Use the entry for wide rows, with the waves of more than one block.
            for channels in [1025, 1032, 2048] {
                add(list, &[3, 3], channels);
            }
            // Rows that exceed one wave.
            add(list, &[2, 1], 4100);
            add(list, &[1, 3], 8192);
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

fn add(list: &mut List, outer: &[usize], channels: usize) {
    let shape = with(outer, channels);
    // A mean far from zero, as in residual streams.
    let x = Operand {
        mean: 3.0,
        ..activation(&shape)
    };
    let [weight, bias] = [parameter(&[channels]), parameter(&[channels])];
    let op = || Op::LayerNorm(LayerNorm { epsilon: EPSILON });
    list.push(op(), vec![x.clone(), weight.clone(), bias.clone()]);
    list.push_in_arena(op(), vec![x.clone(), weight.clone(), bias]);
    let op = || Op::RmsNorm(RmsNorm { epsilon: EPSILON });
    list.push(op(), vec![x.clone(), weight.clone()]);
    list.push_in_arena(op(), vec![x, weight]);
    form(list, outer.iter().product(), channels, 0.0, true);
}

/// Adds per-head norms, as for queries and keys.
fn heads(list: &mut List, outer: &[usize], [heads, head_dim]: [usize; 2]) {
    let x = activation(&with(outer, heads * head_dim));
    let [weight, bias] = [parameter(&[head_dim]), parameter(&[head_dim])];
    list.push(
        Op::LayerNorm(LayerNorm { epsilon: EPSILON }),
        vec![x.clone(), weight.clone(), bias],
    );
    list.push(Op::RmsNorm(RmsNorm { epsilon: EPSILON }), vec![x, weight]);
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
    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, String> {
        let [x, .., weight, bias] = operands else {
            return Err("takes three operands".into());
        };
        let (count, channels) = (x.shape()[0], weight.shape()[0]);
        let (norms, sums): (Vec<usize>, Vec<usize>) = rows.iter().partition(|&&row| row < count);
        let sum = |rows: &[usize]| -> Result<Array, String> {
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

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, String> {
        let (x, weight) = (operands[0], self.weight());
        let addresses = [
            memory.operand(Some(0)),
            memory.operand(Some(weight)),
            memory.operand(Some(weight + 1)),
            memory.result,
        ];
        let arguments = LayerNormArgs::new(addresses, [x[0], x[1]], self.epsilon)?;
        Ok(if self.residual {
            let sum = memory.result + (x[0] * x[1] * memory.element) as u64;
            arguments.of_sum(memory.operand(Some(1)), sum).into()
        } else {
            arguments.into()
        })
    }
}
