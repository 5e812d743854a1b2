//! Weights with 2:4 sparsity along the input channels, packed in compressed-tensors' format `sparse-24-bitmask`.
//!
//! A layer whose `weight` is `[rows, columns]` has these tensors:
//!
//! - `compressed`: `[rows, columns / 2]`, the kept values, in the weight's own type
//! - `bitmask`: u8 `[rows, ⌈columns / 8⌉]`, a bit for each column, the lowest first, 1 if the value was kept
//! - `shape`: i64 `[2, 1]`
//!
//! They take 9/16 of the bytes for 16-bit weights (−43.75 %), 17/32 for 32 bits (−46.9 %), 5/8 for 8 bits (−37.5 %).
//! The mask has as many bits as two 2-bit indices for each four values, which GPUs read.
//!
//! Weights are unpacked when the model is loaded. For a GPU that can skip the zeros, they are packed again in the GPU's
//! order (`kernels::sparse_gemm`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use safetensors::Dtype;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::model::fields::Fields;
use crate::model::stored::Stored;

/// Key in `quantization_config`.
pub(super) const KEY: &str = "sparsity_config";
const FORMAT: &str = "sparse-24-bitmask";
const PARTS: [&str; 3] = ["compressed", "bitmask", "shape"];

/// Packed weights of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sparsity {
    /// Number of weights with 2:4 sparsity.
    pub weights: usize,
    /// Number of bytes of their values and masks.
    pub packed_bytes: u64,
    /// Number of bytes of these weights with their zeros, which they take on the host when the model is loaded.
    pub dense_bytes: u64,
}

impl fmt::Display for Sparsity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (packed, dense) = (self.packed_bytes, self.dense_bytes);
        write!(
            f,
            "2:4: {} weights packed, {:.2} MiB of {:.2} MiB ({:+.1} %); unpacked at load, but for GPUs that skip zeros (--sparse)",
            self.weights,
            mib(packed),
            mib(dense),
            100.0 * (packed as f64 / dense as f64 - 1.0)
        )
    }
}

/// Returns true if the `quantization_config` says that weights are packed.
///
/// # Errors
///
/// Returns [`Error::Config`] for a value that is not supported.
pub(super) fn is_packed(quantization: &Fields<'_>) -> Result<bool> {
    let fields = quantization.object_or_empty(KEY)?;
    match fields.text("format")? {
        None | Some("dense") => return Ok(false),
        Some(FORMAT) => {}
        Some(other) => {
            let reason = format_args!("is {other:?}: of sparse formats only {FORMAT} is read");
            return Err(fields.error("format", reason));
        }
    }
    match fields.text("sparsity_structure")? {
        None | Some("2:4") => Ok(true),
        Some(other) => {
            let reason = format_args!("is {other:?}, expected 2:4");
            Err(fields.error("sparsity_structure", reason))
        }
    }
}

/// Returns the configuration of a model whose linear layers are packed, except for those in `ignore`.
pub(super) fn config(ignore: &[String], global: f64) -> Value {
    json!({
        "format": FORMAT,
        "targets": ["Linear"],
        "ignore": ignore,
        "global_sparsity": global,
        "sparsity_structure": "2:4",
    })
}

/// Returns the names of the three tensors of a packed weight.
fn names(weight: &str) -> [String; 3] {
    let layer = weight.strip_suffix(".weight").unwrap_or(weight);
    PARTS.map(|part| format!("{layer}.{part}"))
}

/// A tensor that is written.
pub(in crate::model) type Part = (String, Dtype, Vec<usize>, Vec<u8>);

/// Packs the weight `name`, `[rows, columns]` with values of `size` bytes.
///
/// Returns `None` if more than two values of a group of four are not zero, or the columns are not a multiple of four.
/// If fewer than two are not zero, the first zeros are kept.
pub(in crate::model) fn pack(name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Option<[Part; 3]> {
    let &[rows, columns] = shape else { return None };
    let size = dtype.bitsize() / 8;
    if columns % 4 != 0 || bytes.len() != rows * columns * size {
        return None;
    }
    let mut values = Vec::with_capacity(bytes.len() / 2);
    let mut mask = vec![0u8; rows * columns.div_ceil(8)];
    let rows_of_mask = mask.chunks_mut(columns.div_ceil(8).max(1));
    for (row, mask) in bytes.chunks((columns * size).max(1)).zip(rows_of_mask) {
        for (group, four) in row.chunks(4 * size).enumerate() {
            let bits = keep(four, size)?;
            mask[group / 2] |= bits << (group % 2 * 4);
            let kept = |(i, _): &(usize, &[u8])| bits >> i & 1 == 1;
            four.chunks(size)
                .enumerate()
                .filter(kept)
                .for_each(|(_, value)| values.extend_from_slice(value));
        }
    }
    let sides = [rows, columns].map(|side| (side as i64).to_le_bytes());
    let [compressed, bitmask, shape] = names(name);
    Some([
        (compressed, dtype, vec![rows, columns / 2], values),
        (bitmask, Dtype::U8, vec![rows, columns.div_ceil(8)], mask),
        (shape, Dtype::I64, vec![2, 1], sides.concat()),
    ])
}

/// Returns the bits of the two values of a group of four that are kept.
fn keep(four: &[u8], size: usize) -> Option<u8> {
    let used = |i: &usize| four[i * size..][..size].iter().any(|&byte| byte != 0);
    let mut bits = (0..4).filter(used).fold(0u8, |bits, i| bits | 1 << i);
    for i in 0..4 {
        if bits.count_ones() < 2 {
            bits |= 1 << i;
        }
    }
    (bits.count_ones() == 2).then_some(bits)
}

/// Replaces each packed weight by the dense weight.
///
/// # Errors
///
/// Returns [`Error::Tensor`] for a tensor that is missing or has another type or shape, or for a mask without two bits
/// in each four.
pub(crate) fn unpack(tensors: &mut BTreeMap<String, Stored>) -> Result<Sparsity> {
    let mut sparsity = Sparsity::default();
    // Any part identifies a layer, so that a part alone gives an error that names what is missing.
    let layer = |name: &String| {
        let (layer, part) = name.rsplit_once('.')?;
        PARTS.contains(&part).then(|| layer.to_owned())
    };
    let mut layers: Vec<String> = tensors.keys().filter_map(layer).collect();
    layers.dedup();
    for layer in layers {
        let weight = format!("{layer}.weight");
        let names = names(&weight);
        // The parts of a layer need not be neighbours in the order of names.
        let parts = names.each_ref().map(|name| tensors.remove(name));
        let Some(file) = parts.iter().flatten().next().map(|part| part.file.clone()) else {
            continue;
        };
        let [Some(compressed), Some(mask), Some(shape)] = &parts else {
            let missing = parts.iter().position(Option::is_none).unwrap_or(0);
            let reason = format!("is missing: `{layer}` is packed as {FORMAT}");
            return Err(Error::tensor(&file, &names[missing], reason));
        };
        if tensors.contains_key(&weight) {
            let reason = format!("occurs twice: it is also packed, as `{}`", names[0]);
            return Err(Error::tensor(&file, &weight, reason));
        }
        let dense = dense(&names, compressed, mask, shape)?;
        sparsity.weights += 1;
        sparsity.packed_bytes += (compressed.range.len() + mask.range.len() + shape.range.len()) as u64;
        sparsity.dense_bytes += dense.range.len() as u64;
        tensors.insert(weight, dense);
    }
    Ok(sparsity)
}

fn dense(
    [compressed_name, mask_name, shape_name]: &[String; 3],
    compressed: &Stored,
    mask: &Stored,
    shape: &Stored,
) -> Result<Stored> {
    let expect = |name: &str, stored: &Stored, expected: &[usize]| {
        if stored.shape == expected {
            Ok(())
        } else {
            let reason = format!("has shape {:?}, expected {expected:?}", stored.shape);
            Err(Error::tensor(&stored.file, name, reason))
        }
    };
    let data = |name: &str, stored: &Stored| match stored.data() {
        Some(data) => Ok(data.to_vec()),
        None => Err(Error::tensor(
            &stored.file,
            name,
            "does not have the bytes of its shape",
        )),
    };
    let wrong = |reason: String| Error::tensor(&shape.file, shape_name, reason);
    let sides = data(shape_name, shape)?;
    let sides: Vec<i64> = match shape.dtype {
        Dtype::I64 => sides
            .as_chunks()
            .0
            .iter()
            .map(|&b| i64::from_le_bytes(b))
            .collect(),
        Dtype::I32 => (sides.as_chunks().0.iter())
            .map(|&b| i32::from_le_bytes(b).into())
            .collect(),
        other => return Err(wrong(format!("has dtype {other}, expected I64"))),
    };
    let sides: Vec<usize> = sides.iter().filter_map(|&side| side.try_into().ok()).collect();
    // The product of the two numbers fits, because the kept values are in the file.
    let (&[rows, columns], 2) = (sides.as_slice(), shape.shape.iter().product::<usize>()) else {
        return Err(wrong("is not two sizes, those of a matrix".into()));
    };
    if columns % 4 != 0 {
        return Err(wrong(format!(
            "has {columns} columns, which are not a multiple of four"
        )));
    }
    expect(compressed_name, compressed, &[rows, columns / 2])?;
    expect(mask_name, mask, &[rows, columns.div_ceil(8)])?;
    let size = match compressed.dtype {
        Dtype::F32 => 4,
        Dtype::F16 | Dtype::BF16 => 2,
        Dtype::I8 | Dtype::F8_E4M3 => 1,
        other => {
            let reason = format!("has dtype {other}, expected F32, F16, BF16, I8 or F8_E4M3");
            return Err(Error::tensor(&compressed.file, compressed_name, reason));
        }
    };
    if mask.dtype != Dtype::U8 {
        let reason = format!("has dtype {}, expected U8", mask.dtype);
        return Err(Error::tensor(&mask.file, mask_name, reason));
    }
    let values = data(compressed_name, compressed)?;
    let masks = data(mask_name, mask)?;
    let mut values = values.chunks_exact(size);
    let mut bytes = Vec::with_capacity(2 * compressed.range.len());
    for (row, masks) in masks.chunks(columns.div_ceil(8).max(1)).enumerate() {
        for group in 0..masks.len() * 2 {
            let bits = masks[group / 2] >> (group % 2 * 4) & 0xF;
            // If the number of groups of four is odd, the last byte has unused bits.
            let expected = if group < columns / 4 { 2 } else { 0 };
            if bits.count_ones() != expected {
                let reason = format!(
                    "has {} of four bits set at row {row}, columns {} to {}, expected {expected}",
                    bits.count_ones(),
                    4 * group,
                    4 * group + 3
                );
                return Err(Error::tensor(&mask.file, mask_name, reason));
            }
            for i in 0..2 * expected {
                match bits >> i & 1 {
                    1 => bytes.extend_from_slice(values.next().unwrap_or(&[0; 4][..size])),
                    _ => bytes.extend_from_slice(&[0; 4][..size]),
                }
            }
        }
    }
    Ok(Stored {
        file: compressed.file.clone(),
        range: 0..bytes.len(),
        bytes: Arc::new(bytes),
        dtype: compressed.dtype,
        shape: vec![rows, columns],
        computed: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored((_, dtype, shape, bytes): &Part) -> Stored {
        Stored {
            file: "weights".into(),
            range: 0..bytes.len(),
            bytes: Arc::new(bytes.clone()),
            dtype: *dtype,
            shape: shape.clone(),
            computed: false,
        }
    }

    #[test]
    fn packed_weights_are_those_of_the_format() {
        // The mask of four columns is in the lower half of a byte, the first column in its lowest bit.
        let bytes = [
            0, 7, 0, 9, 5, 0, 0, 0, 0, 0, 3, 4u8, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 8,
        ];
        let parts = pack("fc.weight", Dtype::I8, &[2, 12], &bytes).unwrap();
        let [compressed, mask, shape] = &parts;
        assert_eq!(
            (
                compressed.0.as_str(),
                compressed.2.as_slice(),
                compressed.3.as_slice()
            ),
            (
                "fc.compressed",
                &[2, 6][..],
                &[7, 9, 5, 0, 3, 4, 0, 0, 1, 1, 0, 8][..]
            )
        );
        assert_eq!(
            (mask.0.as_str(), mask.2.as_slice(), mask.3.as_slice()),
            (
                "fc.bitmask",
                &[2, 2][..],
                &[0b0011_1010, 0b1100, 0b0011_0011, 0b1001][..]
            )
        );
        assert_eq!((shape.0.as_str(), shape.2.as_slice()), ("fc.shape", &[2, 1][..]));
        let mut tensors: BTreeMap<_, _> = parts.iter().map(|part| (part.0.clone(), stored(part))).collect();
        let sparsity = unpack(&mut tensors).unwrap();
        assert_eq!(
            (sparsity.weights, sparsity.dense_bytes, sparsity.packed_bytes),
            (1, 24, 32)
        );
        let weight = &tensors["fc.weight"];
        assert_eq!(
            (weight.data().unwrap(), weight.shape.as_slice()),
            (&bytes[..], &[2, 12][..])
        );
        assert_eq!(tensors.len(), 1);
    }

    #[test]
    fn three_of_four_are_not_packed() {
        assert!(pack("w", Dtype::I8, &[1, 4], &[1, 1, 1, 0]).is_none());
        assert!(pack("w", Dtype::I8, &[1, 6], &[0; 6]).is_none());
        assert!(pack("w", Dtype::F16, &[1, 4], &[1, 0, 0, 1, 0, 0, 0, 0]).is_some());
    }

    /// The format takes 9/16 of the bytes for 16-bit weights, and 16 bytes for the shape.
    #[test]
    fn bytes_are_what_the_format_takes() {
        for (dtype, size, packed) in [
            (Dtype::F32, 4, 17 * 8),
            (Dtype::BF16, 2, 9 * 8),
            (Dtype::I8, 1, 5 * 8),
        ] {
            let parts = pack("w", dtype, &[4, 16], &vec![0; 64 * size]).unwrap();
            let bytes: usize = parts[..2].iter().map(|part| part.3.len()).sum();
            assert_eq!(bytes, packed, "{dtype}");
        }
    }
}
