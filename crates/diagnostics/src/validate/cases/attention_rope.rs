//! Attention with rotary position embedding as one kernel: both pairings, with one table for all heads or one
//! per head, for all tokens or the last ones.

use std::fmt;

use half::{bf16, f16};

use super::attention::attention_parts;
use super::case::{Addresses, KernelForm, flops};
use super::list::List;
use crate::validate::part::Part;
use hipvit::graph::cases::{AWKWARD, Operand, Scale, activation, parameter};
use hipvit::hip::DeviceAddress;
use hipvit::kernels::{AttentionArgs, KernelCall, KernelError, RopeArgs, Strided, visibility};
use hipvit::ops::{Attention, AttentionOperands, Op, OpError, Rope, RopePairs};
use hipvit::reference::{self, Array, op_tolerance};
use hipvit::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, every_form } => {
            let heads = (sizes.heads, sizes.head_dim & !1);
            if every_form && heads.1 <= 128 {
                for form in 0..FORMS {
                    push(list, form, sizes.batch, sizes.tokens, heads);
                }
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                for &(heads, head_dim) in a.heads {
                    for form in 0..FORMS {
                        push(
                            list,
                            form,
                            a.batch,
                            a.tokens,
                            (heads, head_dim.next_multiple_of(2)),
                        );
                    }
                }
            }
            for (form, tokens) in [1, 63, 64, 65, 197, 257].into_iter().enumerate() {
                push(list, form, 1, tokens, (2, 64));
                push(list, form + 1, 1, tokens, (2, 64));
            }
        }
        Scale::Heads => {
            // The halves of the last head size are no whole vectors in any dtype.
            for head_dim in [64, 80, 96, 128, 22] {
                for form in 0..FORMS {
                    push(list, form, 1, 67, (2, head_dim));
                }
            }
        }
    }
}

/// Number of forms. They differ in the pairing of channels, the tables, the rotated tokens, the mask, and the
/// rotation of queries.
const FORMS: usize = 4;

fn push(list: &mut List, form: usize, batch: usize, tokens: usize, (heads, head_dim): (usize, usize)) {
    let form = form % FORMS;
    let width = heads * head_dim;
    let (operands, rotated) = match form {
        3 => (AttentionOperands::PackedKv, 1),
        _ => (AttentionOperands::PackedQkv, 2),
    };
    let of_heads = RotatedAttention {
        attention: Attention {
            heads,
            head_dim,
            scale: 3.0 / (head_dim as f32).sqrt(),
            operands,
            first_key: 0,
            key_mask: false,
            bias: false,
            causal: form == 1,
            ..Attention::default()
        },
        rope: Rope {
            heads,
            head_dim,
            rotated,
            pairs: [RopePairs::Halves, RopePairs::Interleaved][form % 2],
        },
    };
    let prefix = [1, 5, 0, 2][form].min(tokens - 1);
    let channels = if form < 2 { head_dim } else { width };
    // Values with the magnitude of cosines.
    let table = Operand {
        spread: 1.0,
        ..parameter(&[1, tokens - prefix, channels])
    };
    let mut operands = match form {
        3 => vec![activation(&[batch, tokens.div_ceil(3), width])],
        _ => Vec::new(),
    };
    operands.extend([activation(&[batch, tokens, (1 + rotated) * width]), table]);
    list.push_kernel(of_heads, operands);
}

/// `(qkv [B,N,3·C], table [1,P,C or head_dim]) → [B,N,C]`, or `(q [B,Nq,C], kv [B,N,2·C], table) → [B,Nq,C]`
/// with queries that are not rotated.
#[derive(Debug)]
struct RotatedAttention {
    attention: Attention,
    rope: Rope,
}

impl RotatedAttention {
    /// Returns the index of the rotated operand. The table is the next operand.
    fn packed(&self) -> usize {
        self.attention.operands.keys()
    }
}

impl fmt::Display for RotatedAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {}", Op::Attention(self.attention), Op::Rope(self.rope))
    }
}

impl KernelForm for RotatedAttention {
    fn op_name(&self) -> &'static str {
        "attention"
    }

    fn result(&self, operands: &[&[usize]]) -> Vec<usize> {
        let channels = self.attention.heads * self.attention.head_dim;
        vec![operands[0][0], operands[0][1], channels]
    }

    fn flops(&self, operands: &[&[usize]], result: &[usize]) -> u64 {
        let (packed, table) = (operands[self.packed()], operands[self.packed() + 1]);
        flops(
            &Op::Attention(self.attention),
            &operands[..=self.packed()],
            result,
        ) + flops(&Op::Rope(self.rope), &[packed, table], packed)
    }

    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, OpError> {
        let index = self.packed();
        let op = Op::Rope(self.rope);
        let (packed, table) = (Array::from(&operands[index]), Array::from(&operands[index + 1]));
        let rotated = reference::eval(&op, &[&packed, &table])?;
        // Round as a separate rotation kernel does.
        let values: Vec<f32> = match dtype {
            DType::F16 => rotated
                .values()
                .iter()
                .map(|&v| f16::from_f64(v).to_f32())
                .collect(),
            DType::BF16 => rotated
                .values()
                .iter()
                .map(|&v| bf16::from_f64(v).to_f32())
                .collect(),
            _ => rotated.to_f32(),
        };
        let rotated = Tensor::from_f32(packed.shape(), values).ok_or("its operand has another size")?;
        let mut operands = operands[..=index].to_vec();
        operands[index] = rotated;
        let parts = attention_parts(&self.attention, None, &operands, rows, dtype)?;
        // Some elements of queries and keys are rounded in the other direction.
        let tolerance = 2.0 * op_tolerance(&op, &[&packed, &table], dtype);
        Ok(parts.into_iter().map(|part| part.loosened(tolerance)).collect())
    }

    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, KernelError> {
        let index = self.packed();
        let &[images, keys, channels] = operands[index] else {
            return Err("takes packed tokens".into());
        };
        let (table, queries) = (operands[index + 1], operands[0][1]);
        let width = self.attention.heads * self.attention.head_dim;
        let part = |operand: usize, part: usize, tokens: usize, token: usize| Strided {
            address: memory
                .operand(Some(operand))
                .offset(part * width * memory.element),
            tokens,
            image: tokens * token,
            token,
        };
        let first_key = self.rope.rotated - 1;
        let strided = [
            part(0, 0, queries, operands[0][2]),
            part(index, first_key, keys, channels),
            part(index, first_key + 1, keys, channels),
            Strided {
                address: memory.result,
                ..part(0, 0, queries, width)
            },
        ];
        let visible = visibility(DeviceAddress::NULL, 0, None, self.attention.causal.then_some(0));
        let rope = RopeArgs::new(
            [memory.operand(Some(index)), memory.operand(Some(index + 1))],
            [images, keys, channels],
            [table[1], table[2]],
            &self.rope,
        )?;
        let attention = AttentionArgs::new(&self.attention, images, strided, visible)?;
        Ok(attention.with_rope(rope).into())
    }
}
