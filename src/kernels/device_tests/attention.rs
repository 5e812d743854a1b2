//! Attention that writes its result as E4M3, in every entry.

use super::{DTYPES, Gpu, Part, numbers, random, rounded};
use crate::hip::DeviceAddress;
use crate::kernels::attention::visibility;
use crate::kernels::{AttentionArgs, KernelCall, KernelError, RopeArgs, ScoreBias, Strided};
use crate::ops::{Attention, AttentionOperands, Op, Rope, RopePairs};
use crate::reference::{Array, eval};
use crate::tensor::DType;

const SCALE: f32 = 0.0021;
const IMAGES: usize = 2;
const HEADS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Plain,
    Split,
    Bias,
    Rope,
    Statistics,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    entry: Entry,
    tokens: usize,
    head_dim: usize,
}

impl Case {
    fn channels(self) -> usize {
        HEADS * self.head_dim
    }

    fn spec(self) -> Attention {
        Attention {
            heads: HEADS,
            head_dim: self.head_dim,
            scale: (self.head_dim as f32).sqrt().recip(),
            operands: AttentionOperands::PackedQkv,
            first_key: 0,
            key_mask: false,
            bias: self.entry == Entry::Bias,
            causal: false,
            ..Attention::default()
        }
    }

    /// Addresses in `at`: packed queries, keys and values; score bias; table of rotations; statistics; result.
    fn call(
        self,
        dtype: DType,
        scale: Option<f32>,
        at: [DeviceAddress; 5],
    ) -> Result<KernelCall, KernelError> {
        let [qkv, bias, table, statistics, out] = at;
        let (tokens, channels) = (self.tokens, self.channels());
        let strided = |address, token| Strided {
            address,
            tokens,
            image: tokens * token,
            token,
        };
        let part = |index| strided(qkv.offset(index * channels * dtype.size()), 3 * channels);
        let operands = [part(0), part(1), part(2), strided(out, channels)];
        let every_key = visibility(DeviceAddress::NULL, 0, None, None);
        let mut args = AttentionArgs::new(&self.spec(), IMAGES, operands, every_key)?;
        if let Some(scale) = scale {
            args = args.to_float8(scale);
        }
        let bias = ScoreBias {
            address: bias,
            head: tokens * tokens,
            query: tokens,
        };
        Ok(match self.entry {
            Entry::Plain => args.into(),
            Entry::Split => args.split(dtype.size(), u32::MAX).ok_or("is not split")?.into(),
            Entry::Bias => args.with_bias(bias)?.into(),
            Entry::Statistics => args.with_statistics(None, statistics)?.into(),
            Entry::Rope => {
                let spec = Rope {
                    heads: HEADS,
                    head_dim: self.head_dim,
                    rotated: 2,
                    pairs: RopePairs::Halves,
                };
                let x = [IMAGES, tokens, 3 * channels];
                args.with_rope(RopeArgs::new([qkv, table], x, [tokens, self.head_dim], &spec)?)
                    .into()
            }
        })
    }

    fn check(self, gpu: &Gpu, dtype: DType) {
        let (tokens, channels) = (self.tokens, self.channels());
        let of = |seed, count| rounded(&random(count, seed, 2.0), dtype);
        let (qkv, bias) = (
            of(1, IMAGES * tokens * 3 * channels),
            of(2, HEADS * tokens * tokens),
        );
        let table = of(3, tokens * self.head_dim);
        let result = IMAGES * tokens * channels;
        let parts = |element| {
            let [qkv, bias, table] = [&qkv, &bias, &table].map(|v| Part::numbers(v, dtype));
            let statistics = Part::result(IMAGES * HEADS * tokens * 3, 4);
            [qkv, bias, table, statistics, Part::result(result, element)]
        };
        let in_dtype = gpu.run(dtype, &parts(dtype.size()), 0, |at| self.call(dtype, None, at));
        let in_float8 = gpu.run(dtype, &parts(1), 0, |at| self.call(dtype, Some(SCALE), at));
        let values = numbers(&in_dtype[1], dtype);
        let expected: Vec<u8> = values.iter().map(|v| gpu.float8(v * (1.0 / SCALE))).collect();
        assert!(in_float8[1] == expected, "{dtype} {self:?}");
        assert_eq!(in_float8[0], in_dtype[0], "{dtype} {self:?}: statistics");
        if matches!(self.entry, Entry::Plain | Entry::Split | Entry::Bias) {
            self.check_values(&values, dtype, [&qkv, &bias]);
        }
    }

    fn check_values(self, values: &[f32], dtype: DType, [qkv, bias]: [&[f32]; 2]) {
        let array = |shape: &[usize], values: &[f32]| {
            Array::new(shape, values.iter().map(|&v| f64::from(v)).collect()).unwrap()
        };
        let tokens = self.tokens;
        let qkv = array(&[IMAGES, tokens, 3 * self.channels()], qkv);
        let bias = array(&[HEADS, tokens, tokens], bias);
        let operands = match self.entry {
            Entry::Bias => &[&qkv, &bias][..],
            _ => &[&qkv],
        };
        let expected = eval(&Op::Attention(self.spec()), operands).unwrap();
        let epsilon = match dtype {
            DType::F16 => 2e-3,
            DType::BF16 => 2e-2,
            _ => 1e-5,
        };
        for (got, expected) in values.iter().zip(expected.values()) {
            assert!(
                (f64::from(*got) - expected).abs() <= epsilon,
                "{dtype} {self:?}: {got}, expected {expected}"
            );
        }
    }
}

#[test]
fn attention_writes_float8() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        for entry in [Entry::Plain, Entry::Bias, Entry::Rope, Entry::Statistics] {
            // Whole vec128s, heads that are not whole vec128s, and heads at any offset.
            for (tokens, head_dim) in [(65, 64), (63, 40), (1, 64), (197, 30)] {
                Case {
                    entry,
                    tokens,
                    head_dim,
                }
                .check(&gpu, dtype);
            }
        }
        if dtype.size() == 2 {
            for tokens in [1, 65, 197] {
                let entry = Entry::Split;
                Case {
                    entry,
                    tokens,
                    head_dim: 64,
                }
                .check(&gpu, dtype);
            }
        }
    }
}
