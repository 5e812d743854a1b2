//! Tensors whose rows are those of others, some of them with factors. Passes make them without touching an element.
//! The elements are written once, where an executor prepacks or uploads them.

use std::ops::Range;

use super::data::{Data, Part, Tensor};
use crate::dtype::DType;
use crate::non_finite;

impl Part {
    fn rows(&self) -> usize {
        self.tensor.shape[0]
    }

    fn width(&self) -> usize {
        self.tensor.len() / self.rows().max(1)
    }

    /// Returns the part with other elements of the same rows.
    fn with(&self, tensor: Tensor, rows: Range<usize>) -> Self {
        let factors = self.factors.iter().map(|factors| factors[rows.clone()].into());
        Self {
            tensor,
            factors: factors.collect(),
        }
    }

    fn append_f32(&self, values: &mut Vec<f32>) {
        let stored = self.tensor.to_f32();
        let Some((first, rest)) = self.factors.split_first() else {
            values.extend_from_slice(&stored);
            return;
        };
        let (start, width) = (values.len(), self.width().max(1));
        for (row, factor) in stored.chunks(width).zip(&**first) {
            values.extend(row.iter().map(|value| value * factor));
        }
        for factors in rest {
            for (row, factor) in values[start..].chunks_mut(width).zip(&**factors) {
                row.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }

    pub(super) fn count_non_finite(&self) -> usize {
        if self.factors.is_empty() {
            return self.tensor.count_non_finite();
        }
        let mut values = Vec::with_capacity(self.tensor.len());
        self.append_f32(&mut values);
        non_finite::count(values.into_iter())
    }
}

impl Tensor {
    /// Returns the tensor of these parts, whose elements `dtype` and `shape` fit.
    pub(super) fn assembled(shape: Vec<usize>, dtype: DType, parts: Vec<Part>) -> Self {
        if let [Part { tensor, factors }] = parts.as_slice()
            && factors.is_empty()
            && tensor.dtype == dtype
            && let Some(whole) = tensor.reshaped(shape.as_slice())
        {
            return whole;
        }
        let data = Data::Assembled(parts.into());
        Self { shape, dtype, data }
    }

    /// Returns the parts of an assembled tensor, or the tensor as the only part.
    pub(super) fn to_parts(&self) -> Vec<Part> {
        match &self.data {
            Data::Assembled(parts) => parts.to_vec(),
            _ => vec![Part {
                tensor: self.clone(),
                factors: Vec::new(),
            }],
        }
    }

    /// Returns the tensor with its elements in one place.
    pub(super) fn written(&self) -> Self {
        let Data::Assembled(parts) = &self.data else {
            return self.clone();
        };
        let shape = self.shape.clone();
        if self.dtype == DType::F32 {
            let data = Data::Owned(to_f32(parts, self.len()).into());
            return Self { data, ..self.clone() };
        }
        let stored = Self::stored(shape, self.dtype, self.assembled_bytes(parts));
        if self.has_scales() {
            stored.with_scales(scales(parts).into())
        } else {
            stored
        }
    }

    /// Returns the elements of an assembled tensor in little endian, without scales.
    pub(super) fn assembled_bytes(&self, parts: &[Part]) -> Vec<u8> {
        let size = self.dtype.size();
        let mut bytes = Vec::with_capacity(self.len() * size);
        if self.dtype == DType::F32 {
            let values = to_f32(parts, self.len());
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        } else {
            for part in parts {
                bytes.extend_from_slice(&part.tensor.to_le_bytes());
            }
        }
        bytes
    }
}

/// Returns the elements of all parts, `len` of them.
pub(super) fn to_f32(parts: &[Part], len: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(len);
    parts.iter().for_each(|part| part.append_f32(&mut values));
    values
}

/// Returns the scales of all rows, in parts that have such.
pub(super) fn scales(parts: &[Part]) -> Vec<f32> {
    let scales = parts.iter().filter_map(|part| match &part.tensor.data {
        Data::Scaled { scales, .. } => Some(&**scales),
        _ => None,
    });
    scales.flatten().copied().collect()
}

/// Returns the parts of the elements `range`, or `None` if it does not begin or end between rows.
pub(super) fn cut(parts: &[Part], range: Range<usize>) -> Option<Vec<Part>> {
    let mut start = 0;
    let mut found = Vec::new();
    for part in parts {
        let width = part.width();
        let end = start + part.tensor.len();
        let wanted = range.start.max(start)..range.end.min(end);
        if wanted.start < wanted.end {
            let at = [wanted.start - start, wanted.end - start];
            if at.iter().any(|at| !at.is_multiple_of(width)) {
                return None;
            }
            let rows = at[0] / width..at[1] / width;
            found.push(part.with(part.tensor.rows(rows.clone())?, rows));
        }
        start = end;
    }
    Some(found)
}

/// Returns the columns `range` of parts that are matrices of `width` columns, or `None` if they are not.
pub(super) fn columns(parts: &[Part], width: usize, range: &Range<usize>) -> Option<Vec<Part>> {
    let columns = parts.iter().map(|part| {
        let fits = part.tensor.shape.len() == 2 && part.width() == width;
        let tensor = if fits {
            part.tensor.columns(range.clone())?
        } else {
            return None;
        };
        Some(part.with(tensor, 0..part.rows()))
    });
    columns.collect()
}

/// Returns the parts of `tensor` with one more factor for each row, or `None` if its rows are not those of the parts.
pub(super) fn scale(tensor: &Tensor, factors: &[f32]) -> Option<Vec<Part>> {
    let width = tensor.len() / factors.len().max(1);
    let parts = tensor.to_parts();
    let mut rest = factors;
    let scaled = parts.into_iter().map(|mut part| {
        let (of_part, behind) = rest.split_at_checked(part.rows())?;
        rest = behind;
        if part.width() != width {
            return None;
        }
        if tensor.has_scales() {
            part.tensor = part.tensor.scale_rows(of_part)?;
        } else {
            part.factors.push(of_part.into());
        }
        Some(part)
    });
    scaled.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tensor(shape: &[usize], first: f32) -> Tensor {
        let len: usize = shape.iter().product();
        let bytes: Vec<u8> = (0..len).flat_map(|i| (first + i as f32).to_le_bytes()).collect();
        Tensor::view(shape, DType::F32, Arc::new(bytes), 0..4 * len).unwrap()
    }

    #[test]
    fn rows_of_others_are_written_when_they_are_read() {
        let (a, b) = (tensor(&[2, 2], 1.0), tensor(&[1, 2], 5.0));
        let both = Tensor::concat_rows(&[&a, &b]).unwrap();
        assert!(matches!(both.data, Data::Assembled(_)));
        assert_eq!((both.shape(), both.size_in_bytes()), (&[3, 2][..], 24));
        assert_eq!(*both.to_f32(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(both.to_le_bytes()[16..], *b.to_le_bytes());
        let addresses: Vec<usize> = both.stored_parts().map(Tensor::address).collect();
        assert_eq!(addresses, [a.address(), b.address()]);

        // What is one part again shares its storage.
        let second = both.rows(2..3).unwrap();
        assert_eq!((second.address(), second.is_mapped()), (b.address(), true));
        assert_eq!(*both.rows(1..3).unwrap().to_f32(), [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(both.rows(1..1).unwrap().len(), 0);
        assert_eq!(*both.columns(1..2).unwrap().to_f32(), [2.0, 4.0, 6.0]);
        let padded = both.padded(&[3, 3]).unwrap();
        assert_eq!(*padded.to_f32(), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 5.0, 6.0, 0.0]);
    }

    #[test]
    fn factors_are_multiplied_in_order() {
        let (a, b) = (tensor(&[2, 2], 1.0), tensor(&[1, 2], 5.0));
        // Products that differ in the last bit from one with the factors' product.
        let (first, second) = ([0.1f32, 1.0, 0.3], [0.7f32, 2.0, 0.9]);
        let scaled = a.scale_rows(&first[..2]).unwrap();
        let scaled = Tensor::concat_rows(&[&scaled, &b.scale_rows(&first[2..]).unwrap()]).unwrap();
        let scaled = scaled.scale_rows(&second).unwrap();
        let expected: Vec<f32> = (0..6)
            .map(|i| (1 + i) as f32 * first[i / 2] * second[i / 2])
            .collect();
        assert_eq!(*scaled.to_f32(), expected);
        assert_eq!(*scaled.rows(2..3).unwrap().to_f32(), expected[4..]);
        assert_eq!(
            *scaled.columns(0..1).unwrap().to_f32(),
            [expected[0], expected[2], expected[4]]
        );
        assert_eq!((scaled.dtype(), scaled.count_non_finite()), (DType::F32, 0));
        let infinite = scaled.scale_rows(&[f32::INFINITY, 1.0, f32::NAN]).unwrap();
        assert_eq!(infinite.count_non_finite(), 4);
    }

    #[test]
    fn other_rows_than_the_parts_are_cut_and_scaled_too() {
        let both = Tensor::concat_rows(&[&tensor(&[2, 3], 1.0), &tensor(&[2, 3], 7.0)]).unwrap();
        let reshaped = both.reshaped([3, 4]).unwrap();
        assert_eq!(*reshaped.rows(1..2).unwrap().to_f32(), [5.0, 6.0, 7.0, 8.0]);
        assert_eq!(*reshaped.columns(3..4).unwrap().to_f32(), [4.0, 8.0, 12.0]);
        let scaled = reshaped.scale_rows(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(scaled.to_f32()[3..9], [4.0, 10.0, 12.0, 14.0, 16.0, 27.0]);
        let flat = both.reshaped([12]).unwrap();
        assert_eq!(*flat.rows(6..9).unwrap().to_f32(), [7.0, 8.0, 9.0]);
    }
}
