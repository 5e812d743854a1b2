//! Multi-head attention.

use super::*;

pub(super) fn shape(spec: &Attention, inputs: &[&[usize]]) -> Result<Shape, String> {
    let shape = unmasked_shape(spec, inputs)?;
    if spec.causal {
        let keys = inputs.get(spec.operands.keys()).map_or(0, |keys| keys[1]);
        if spec.first_key > 0 || spec.key_mask || shape.get(1) != Some(&keys) || shape.len() != 3 {
            return Err(format!(
                "is causal, which takes as many queries as its {keys} keys, and no key mask"
            ));
        }
    }
    Ok(shape)
}

fn unmasked_shape(spec: &Attention, inputs: &[&[usize]]) -> Result<Shape, String> {
    let c = spec.heads * spec.head_dim;
    if c == 0 {
        return Err("has no heads or no channels per head".into());
    }
    let (inputs, mask) = match (spec.key_mask, inputs) {
        (false, _) => (inputs, None),
        (true, [inputs @ .., mask]) => (inputs, Some(*mask)),
        (true, []) => return Err("its operand `key mask` is missing".into()),
    };
    let expect_mask = |images: usize, keys: usize| match mask {
        Some(_) if spec.first_key > 0 => Err("has a key mask, which says itself what is left out".into()),
        Some(mask) => expect("key mask", mask, &[images, keys]),
        None => Ok(()),
    };
    let (inputs, bias) = match (spec.bias, inputs) {
        (false, _) => (inputs, None),
        (true, [inputs @ .., bias]) => (inputs, Some(*bias)),
        (true, []) => return Err("its operand `bias` is missing".into()),
    };
    // Rows and columns of the scores.
    let expect_bias = |queries: usize, keys: usize| match bias {
        Some(bias) => expect("bias", bias, &[spec.heads, queries, keys]),
        None => Ok(()),
    };
    let (query, key) = match spec.operands {
        AttentionOperands::PackedQkv => {
            let [qkv] = operands(inputs)?;
            return match *qkv {
                [b, n, packed] if packed == 3 * c && spec.first_key < n => {
                    expect_bias(n, n)?;
                    expect_mask(b, n)?;
                    Ok(vec![b, n, c])
                }
                _ => Err(format!("`qkv` has shape {qkv:?}, expected [B, N, {}]", 3 * c)),
            };
        }
        AttentionOperands::PackedKv => {
            let [q, kv] = operands(inputs)?;
            match *kv {
                [b, n, packed] if packed == 2 * c => (q, [b, n, c]),
                _ => return Err(format!("`kv` has shape {kv:?}, expected [B, N, {}]", 2 * c)),
            }
        }
        AttentionOperands::Separate => {
            let [q, k, v] = operands(inputs)?;
            match *k {
                [b, n, channels] if channels == c && v == k => (q, [b, n, c]),
                _ => {
                    return Err(format!(
                        "`k` and `v` have shapes {k:?} and {v:?}, expected [B, N, {c}]"
                    ));
                }
            }
        }
    };
    expect_mask(key[0], key[1])?;
    if spec.first_key >= key[1] {
        return Err(format!("has {} keys, none from {} on", key[1], spec.first_key));
    }
    match *query {
        [b, n, channels] if channels == c && (b == 1 || b == key[0]) => {
            expect_bias(n, key[1])?;
            Ok(vec![key[0], n, c])
        }
        [b, channels] if channels == c && b == key[0] => {
            expect_bias(1, key[1])?;
            Ok(vec![b, c])
        }
        _ => Err(format!(
            "`q` has shape {query:?}, expected [{} or 1, N, {c}] or [{0}, {c}]",
            key[0]
        )),
    }
}

/// Two GEMMs, and four operations for the scale and softmax of each score; one more for its bias.
pub(super) fn flops(spec: &Attention, inputs: &[&[usize]], output: &[usize]) -> u64 {
    let keys = spec.keys(inputs) as u64;
    let queries = count(output) / spec.head_dim as u64;
    let scores = if spec.causal {
        queries * (keys + 1) / 2
    } else {
        queries * keys
    };
    scores * (4 * spec.head_dim as u64 + 4 + u64::from(spec.bias))
}

/// Of the result of attention with these operands: `[B,heads,Nq,3]`.
pub(super) fn statistics_shape(spec: &Attention, inputs: &[&[usize]]) -> Result<Shape, String> {
    let queries = match *shape(spec, inputs)? {
        [b, queries, _] => [b, queries],
        ref vectors => [vectors[0], 1],
    };
    Ok(vec![queries[0], spec.heads, queries[1], 3])
}

/// One GEMM, and six operations for scale, exponential and sums of each score; one more for its bias.
pub(super) fn statistics_flops(spec: &Attention, inputs: &[&[usize]], output: &[usize]) -> u64 {
    let keys = spec.keys(inputs) as u64;
    count(output) / 3 * keys * (2 * spec.head_dim as u64 + 6 + u64::from(spec.bias))
}

impl Attention {
    /// How many keys a query attends to, by the operands' shapes.
    pub fn keys(&self, inputs: &[&[usize]]) -> usize {
        let index = self.operands.keys();
        let keys = inputs.get(index).and_then(|shape| shape.get(1));
        keys.map_or(0, |keys| keys.saturating_sub(self.first_key))
    }
}

impl AttentionOperands {
    /// The operand that the keys are in.
    pub fn keys(self) -> usize {
        match self {
            Self::PackedQkv => 0,
            Self::Separate | Self::PackedKv => 1,
        }
    }

    /// The operands before the bias.
    pub fn count(self) -> usize {
        match self {
            Self::PackedQkv => 1,
            Self::PackedKv => 2,
            Self::Separate => 3,
        }
    }
}
