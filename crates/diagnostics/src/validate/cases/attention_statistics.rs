//! Statistics of attention's softmax: the op, and the masks that only the kernel supports. Every query sees a
//! key, because checked results must be finite.

use std::fmt;

use super::attention::{CAUSAL, EVERY, Mask, PADDING, WINDOW, key_mask_index, masked_arguments};
use super::case::{Addresses, KernelForm, STATISTICS};
use super::list::List;
use crate::validate::part::{Part, by_image, gather_array, image_of};
use hipvit::graph::cases::{AWKWARD, Operand, Scale, activation};
use hipvit::hip::DeviceAddress;
use hipvit::kernels::{KernelCall, KernelError, is_fused};
use hipvit::ops::attention::cases::{bias, spec};
use hipvit::ops::{Attention, AttentionOperands, Definition, Op, OpError};
use hipvit::reference::Array;
use hipvit::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, every_form } => {
            let heads = (sizes.heads, sizes.head_dim);
            if every_form && is_fused(&spec(heads, AttentionOperands::Separate)) {
                masked(
                    list,
                    sizes.batch,
                    [sizes.tokens, sizes.tokens],
                    heads,
                    CAUSAL,
                    true,
                );
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                for &heads in a.heads {
                    let queries = a.tokens.div_ceil(3);
                    masked(list, a.batch, [queries, a.tokens], heads, EVERY, false);
                    masked(list, a.batch, [queries, a.tokens], heads, WINDOW, true);
                }
            }
            for tokens in [1, 63, 64, 65, 197, 257] {
                masked(list, 1, [tokens, tokens], (1, 64), EVERY, false);
                masked(list, 2, [tokens, tokens], (2, 32), CAUSAL, true);
                if tokens > 1 {
                    masked(list, 2, [tokens, tokens], (2, 64), PADDING, false);
                }
            }
        }
        Scale::Heads => {
            for head_dim in [32, 64, 80, 96, 128] {
                masked(list, 1, [67, 131], (2, head_dim), WINDOW, true);
                masked(list, 2, [20, 135], (1, head_dim), PADDING, true);
            }
        }
    }
}

fn masked(
    list: &mut List,
    batch: usize,
    [queries, keys]: [usize; 2],
    heads: (usize, usize),
    mask: Mask,
    biased: bool,
) {
    let spec = Attention {
        bias: biased,
        ..spec(heads, AttentionOperands::Separate)
    };
    let tokens = |n| activation(&[batch, n, heads.0 * heads.1]);
    let mut operands: Vec<Operand> = vec![tokens(queries), tokens(keys), tokens(keys)];
    operands.extend(biased.then(|| bias(heads.0, [queries, keys])));
    operands.extend(mask.operand(batch, keys));
    list.push_kernel(MaskedStatistics { spec, mask }, operands);
}

/// `(q [B,Nq,C], k [B,N,C], v [B,N,C], bias [heads,Nq,N]?, key mask [B,N]?) → f32 [B,heads,Nq,3]`.
#[derive(Debug)]
struct MaskedStatistics {
    spec: Attention,
    mask: Mask,
}

impl MaskedStatistics {
    fn op(&self) -> Attention {
        Attention {
            statistics: true,
            ..self.spec
        }
    }
}

impl fmt::Display for MaskedStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Op::Attention(self.op()), self.mask)
    }
}

impl KernelForm for MaskedStatistics {
    fn op_name(&self) -> &'static str {
        STATISTICS
    }

    fn result(&self, operands: &[&[usize]]) -> Vec<usize> {
        vec![operands[0][0], self.spec.heads, operands[0][1], 3]
    }

    fn result_dtype(&self, dtype: DType) -> DType {
        self.op().result_dtype(1, dtype)
    }

    fn flops(&self, operands: &[&[usize]], result: &[usize]) -> u64 {
        self.op()
            .flops(operands, &[operands[0].to_vec(), result.to_vec()])
    }

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        let (queries, keys) = (operands[0].shape()[1], operands[1].shape()[1]);
        let part = |(image, rows): (usize, Vec<(usize, usize)>)| {
            let mut arrays = [0, 1, 2]
                .map(|index| image_of(&operands[index], image))
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?;
            if self.spec.bias {
                arrays.push(Array::from(&operands[3]));
            }
            let present = if self.mask.padding {
                Some(image_of(&operands[key_mask_index(&self.spec)], image)?.into_values())
            } else {
                None
            };
            let arrays: Vec<&Array> = arrays.iter().collect();
            let visible = |_: usize, query: usize, key: usize| {
                let present = present.as_ref().is_none_or(|keys| keys[key] != 0.0);
                present && self.mask.keys(query, queries, keys).contains(&key)
            };
            let whole = self.op().eval_masked(&arrays, visible)?.swap_remove(1);
            let (rows, within): (Vec<usize>, Vec<usize>) = rows.into_iter().unzip();
            let tolerance = self.op().tolerance(1, &arrays, dtype);
            Ok::<_, OpError>(Part::new(&gather_array(&whole, &within)?, &rows, tolerance))
        };
        by_image(rows, self.spec.heads * queries)
            .into_iter()
            .map(part)
            .collect()
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let (arguments, bias) =
            masked_arguments(&self.spec, self.mask, operands, memory, DeviceAddress::NULL)?;
        Ok(arguments.with_statistics(bias, memory.result)?.into())
    }
}
