//! The kernel `softmax`, which overwrites the scores of unfused attention.

use std::fmt;

use super::attention::{CAUSAL, Mask, PADDING};
use super::case::{Addresses, KernelForm};
use super::list::List;
use crate::validate::part::{Part, gather, image_of};
use hipvit::graph::cases::{Operand, Scale, activation};
use hipvit::kernels::{KernelCall, KernelError, SoftmaxArgs};
use hipvit::ops::OpError;
use hipvit::reference::{Array, masked_softmax, rounded};
use hipvit::tensor::{DType, Tensor};

const EVERY: Mask = Mask {
    padding: false,
    ..PADDING
};

pub(super) fn cases(list: &mut List) {
    let window = Mask {
        left: Some(5),
        right: Some(3),
        padding: false,
    };
    let causal_padding = Mask {
        padding: true,
        ..CAUSAL
    };
    match list.scale() {
        Scale::Awkward => {
            for keys in [1, 63, 64, 65, 197, 257] {
                softmax(list, [1, 2, 3, keys], EVERY, true);
            }
            softmax(list, [2, 2, 65, 65], causal_padding, true);
            softmax(list, [1, 2, 20, 70], window, false);
            softmax(list, [1, 1, 2, 8192], EVERY, true);
            softmax(list, [1, 1, 1, 8501], PADDING, false);
        }
        Scale::Model { sizes, .. } => {
            let shape = [sizes.batch, sizes.heads, sizes.tokens, sizes.tokens];
            // Unfused attention of these sizes does not take a whole batch.
            if shape.iter().product::<usize>() <= 1 << 26 {
                softmax(list, shape, EVERY, true);
            }
            if list.is_micro() {
                softmax(list, [1, 1, 2, 1], EVERY, false);
                softmax(list, [2, 2, 19, 33], causal_padding, true);
                softmax(list, [1, 2, 20, 70], window, false);
                // Rows that need a block, and rows that no block keeps whole.
                softmax(list, [1, 1, 1, 2500], EVERY, true);
                softmax(list, [1, 1, 1, 8501], EVERY, true);
            }
        }
        Scale::Heads => {}
    }
}

fn softmax(list: &mut List, shape: [usize; 4], mask: Mask, in_place: bool) {
    let scores = Operand {
        spread: 8.0,
        ..activation(&shape)
    };
    let mut operands = vec![scores];
    operands.extend(mask.operand(shape[0], shape[3]));
    let form = Softmax {
        mask,
        scale: 0.5,
        in_place,
    };
    list.push_kernel(form, operands);
}

/// `(x [B,H,Nq,N], key mask [B,N]?) → [B,H,Nq,N]`.
#[derive(Debug)]
struct Softmax {
    mask: Mask,
    scale: f32,
    in_place: bool,
}

impl fmt::Display for Softmax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention_softmax{}", self.mask)
    }
}

impl KernelForm for Softmax {
    fn op_name(&self) -> &'static str {
        "attention_softmax"
    }

    fn in_place(&self) -> Option<usize> {
        self.in_place.then_some(0)
    }

    /// A maximum, a difference, an exponential, a sum and a quotient.
    fn flops(&self, _operands: &[&[usize]], result: &[usize]) -> u64 {
        5 * result.iter().product::<usize>() as u64
    }

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        let &[_, heads, queries, keys] = operands[0].shape() else {
            return Err("takes scores".into());
        };
        let scores = gather(&operands[0], rows)?;
        let mut weights = Vec::with_capacity(scores.values().len());
        for (row, scores) in rows.iter().zip(scores.values().chunks(keys)) {
            let (image, query) = (row / queries / heads, row % queries);
            let padding = if self.mask.padding {
                Some(image_of(&operands[1], image)?.into_values())
            } else {
                None
            };
            let seen = self.mask.keys(query, queries, keys);
            let visible =
                |key: usize| seen.contains(&key) && padding.as_ref().is_none_or(|keys| keys[key] != 0.0);
            weights.extend(masked_softmax(scores, self.scale, visible));
        }
        let weights = Array::new([rows.len(), keys], weights).ok_or("has a row of another length")?;
        // A score of magnitude 12 becomes an exponent of up to 17 in base 2. Its rounding error is multiplied
        // by that in the weight, and doubled by the maximum's error. The sum adds some 50 roundings, in parts
        // of 32 and a tree.
        Ok(vec![Part::new(&weights, rows, rounded(dtype, 96.0))])
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let &[images, heads, queries, keys] = operands[0] else {
            return Err("takes scores".into());
        };
        let visible = self
            .mask
            .visibility(memory.operand(self.mask.padding.then_some(1)), queries, keys)?;
        let addresses = [memory.operand(Some(0)), memory.result];
        Ok(SoftmaxArgs::new(addresses, [images, heads, queries, keys], visible, self.scale)?.into())
    }
}
