//! Rows and columns of tensors: slices, concatenation, padding, and scaling.

use std::ops::Range;

use super::assembled;
use super::data::{Data, Tensor};
use crate::dtype::DType;

impl Tensor {
    /// Returns rows `range` of the outermost dimension, sharing the storage unless the values were computed.
    ///
    /// Returns `None` if the tensor is a scalar or the range is outside it.
    pub fn rows(&self, range: Range<usize>) -> Option<Self> {
        let (&count, inner) = self.shape.split_first()?;
        if range.start > range.end || range.end > count {
            return None;
        }
        let stride: usize = inner.iter().product();
        let shape: Vec<usize> = std::iter::once(range.len())
            .chain(inner.iter().copied())
            .collect();
        let dtype = self.dtype;
        let data = match &self.data {
            Data::Owned(values) => Data::Owned(values[range.start * stride..range.end * stride].into()),
            Data::View {
                bytes,
                range: at,
                mapped,
            }
            | Data::Scaled {
                bytes,
                range: at,
                mapped,
                ..
            } => {
                let width = stride * dtype.size();
                let start = at.start + range.start * width;
                Data::View {
                    bytes: bytes.clone(),
                    range: start..start + range.len() * width,
                    mapped: *mapped,
                }
            }
            Data::Assembled(parts) => {
                let elements = range.start * stride..range.end * stride;
                return match assembled::cut(parts, elements) {
                    Some(parts) => Some(Self::assembled(shape, dtype, parts)),
                    None => self.written().rows(range),
                };
            }
        };
        let rows = Self { shape, dtype, data };
        Some(match &self.data {
            Data::Scaled { scales, .. } => rows.with_scales(scales[range].into()),
            _ => rows,
        })
    }

    /// Copies columns `range` of a matrix. The result is f32, or of 8 or 16 bits if the matrix is.
    ///
    /// Returns `None` if the tensor is not a matrix or the range is outside it.
    pub fn columns(&self, range: Range<usize>) -> Option<Self> {
        let &[rows, width] = self.shape.as_slice() else {
            return None;
        };
        if range.start > range.end || range.end > width {
            return None;
        }
        let shape = vec![rows, range.len()];
        if let Data::Assembled(parts) = &self.data {
            return match assembled::columns(parts, width, &range) {
                Some(parts) => Some(Self::assembled(shape, self.dtype, parts)),
                None => self.written().columns(range),
            };
        }
        let size = self.dtype.size();
        let part = |stored: &[u8]| -> Vec<u8> {
            let rows = stored.chunks(width.max(1) * size);
            let part = range.start * size..range.end * size;
            rows.flat_map(|row| &row[part.clone()]).copied().collect()
        };
        if let Some((stored, scales)) = self.scaled_parts() {
            return Some(Self::stored(shape, self.dtype, part(&stored)).with_scales(scales.into()));
        }
        match self.halves() {
            Some(stored) => Some(Self::stored(shape, self.dtype, part(&stored))),
            None => {
                let values: Vec<f32> = self
                    .to_f32()
                    .chunks(width.max(1))
                    .flat_map(|row| &row[range.clone()])
                    .copied()
                    .collect();
                Self::from_f32(shape, values)
            }
        }
    }

    /// Concatenates the rows of all `parts` without copying elements. The result is f32, or of 8 or 16 bits if all parts have the same such dtype.
    ///
    /// Returns `None` if there are no parts, or if the extents beyond the outermost differ.
    pub fn concat_rows(parts: &[&Self]) -> Option<Self> {
        let (first, rest) = parts.split_first()?;
        let inner = first.shape.get(1..)?;
        if rest.iter().any(|part| part.shape.get(1..) != Some(inner)) {
            return None;
        }
        let rows = parts.iter().map(|part| part.shape[0]).sum();
        let shape: Vec<usize> = std::iter::once(rows).chain(inner.iter().copied()).collect();
        let alike = parts.iter().all(|part| part.dtype == first.dtype);
        let narrow = parts.iter().all(|part| part.has_scales()) || first.dtype.size() == 2;
        let dtype = if alike && narrow { first.dtype } else { DType::F32 };
        let parts = parts.iter().flat_map(|part| part.to_parts());
        Some(Self::assembled(shape, dtype, parts.collect()))
    }

    /// Copies the matrix or vector, padded with zeros after its rows and columns to `shape`. The result is f32, or of 16 bits if the tensor
    /// is.
    ///
    /// Returns `None` if the number of dimensions differs, or if there are more rows or columns than in `shape`.
    pub fn padded(&self, shape: &[usize]) -> Option<Self> {
        let (&width, rows) = self.shape.split_last().filter(|(_, rows)| rows.len() < 2)?;
        let grows =
            shape.len() == self.shape.len() && shape.iter().zip(&self.shape).all(|(new, old)| new >= old);
        let new_width = shape.last().copied().filter(|_| grows)?;
        let elements = shape.iter().product::<usize>();
        let rows = rows.first().copied().unwrap_or(1);
        let size = self.dtype.size();
        match self.halves() {
            Some(stored) => {
                let mut bytes = vec![0; elements * size];
                place(&stored, width * size, &mut bytes, new_width * size, rows);
                Some(Self::stored(shape.to_vec(), self.dtype, bytes))
            }
            None => {
                let mut values = vec![0.0; elements];
                place(&self.to_f32(), width, &mut values, new_width, rows);
                Self::from_f32(shape, values)
            }
        }
    }

    /// Multiplies row i by `factors[i]`, with one rounding to f32 per product. For a tensor with scales, multiplies the scales. No element is copied.
    ///
    /// Returns `None` if the number of factors differs from the number of rows.
    pub fn scale_rows(&self, factors: &[f32]) -> Option<Self> {
        if self.shape.first() != Some(&factors.len()) {
            return None;
        }
        if let Data::Scaled { scales, .. } = &self.data {
            let scales: Vec<f32> = scales
                .iter()
                .zip(factors)
                .map(|(scale, factor)| scale * factor)
                .collect();
            return Some(self.clone().with_scales(scales.into()));
        }
        let dtype = if self.has_scales() { self.dtype } else { DType::F32 };
        match assembled::scale(self, factors) {
            Some(parts) => Some(Self::assembled(self.shape.clone(), dtype, parts)),
            None => self.written().scale_rows(factors),
        }
    }
}

/// Copies rows of `width` elements to the starts of longer rows.
fn place<T: Copy>(from: &[T], width: usize, to: &mut [T], new_width: usize, rows: usize) {
    for row in 0..rows {
        to[row * new_width..][..width].copy_from_slice(&from[row * width..][..width]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use half::f16;

    use super::*;
    use crate::float8::{Float8, Overflow};

    #[test]
    fn concatenated_rows_keep_a_common_half_type() {
        let half = |values: [f32; 2]| {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|v| f16::from_f32(*v).to_le_bytes())
                .collect();
            Tensor::view([1, 2], DType::F16, Arc::new(bytes), 0..4).unwrap()
        };
        let single = Tensor::from_f32([2, 2], vec![5.0, 6.0, 7.0, 8.0]).unwrap();

        let halves = Tensor::concat_rows(&[&half([1.0, 2.0]), &half([3.0, 4.0])]).unwrap();
        assert_eq!((halves.dtype(), halves.shape()), (DType::F16, [2, 2].as_slice()));
        assert_eq!(halves.to_f32().as_ref(), [1.0, 2.0, 3.0, 4.0]);
        assert!(!halves.is_mapped());

        let mixed = Tensor::concat_rows(&[&half([1.0, 2.0]), &single]).unwrap();
        assert_eq!((mixed.dtype(), mixed.shape()), (DType::F32, [3, 2].as_slice()));
        assert_eq!(mixed.to_f32().as_ref(), [1.0, 2.0, 5.0, 6.0, 7.0, 8.0]);

        assert!(Tensor::concat_rows(&[]).is_none());
        assert!(Tensor::concat_rows(&[&single, &Tensor::from_f32([1, 3], vec![0.0; 3]).unwrap()]).is_none());
    }

    #[test]
    fn rows_are_scaled() {
        let tensor = Tensor::from_f32([2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        let scaled = tensor.scale_rows(&[0.5, -2.0]).unwrap();
        assert_eq!(scaled.shape(), [2, 2]);
        assert_eq!(scaled.to_f32().as_ref(), [0.5, 1.0, -6.0, -8.0]);
        assert!(tensor.scale_rows(&[1.0]).is_none());
    }

    #[test]
    fn int8_rows_have_their_scales() {
        let tensor = |bytes: [i8; 4], scales: [f32; 2]| {
            let bytes = bytes.map(i8::cast_unsigned).to_vec();
            Tensor::scaled([2, 2], DType::I8, Arc::new(bytes), 0..4, scales.to_vec()).unwrap()
        };
        let (a, b) = (
            tensor([1, -2, 127, -128], [0.5, 2.0]),
            tensor([3, 4, 5, 6], [1.0, 10.0]),
        );
        assert_eq!(a.to_f32().as_ref(), [0.5, -1.0, 254.0, -256.0]);
        assert_eq!((a.dtype(), a.size_in_bytes()), (DType::I8, 12));
        let both = Tensor::concat_rows(&[&a, &b]).unwrap();
        assert_eq!(*both.scaled_parts().unwrap().1, [0.5, 2.0, 1.0, 10.0]);
        assert_eq!(
            both.rows(1..3).unwrap().to_f32().as_ref(),
            [254.0, -256.0, 3.0, 4.0]
        );
        assert_eq!(*both.rows(1..3).unwrap().scaled_parts().unwrap().1, [2.0, 1.0]);
        let scaled = a.scale_rows(&[-2.0, 0.5]).unwrap();
        let (bytes, scales) = scaled.scaled_parts().unwrap();
        assert_eq!((&*bytes, &*scales), (&[1, 254, 127, 128][..], &[-1.0, 1.0][..]));
        assert_eq!(a.columns(1..2).unwrap().to_f32().as_ref(), [-1.0, -256.0]);
        assert_eq!(tensor([1; 4], [f32::NAN, 1.0]).count_non_finite(), 1);
        let single = Tensor::from_f32([1, 2], vec![7.0, 8.0]).unwrap();
        let mixed = Tensor::concat_rows(&[&single, &a]).unwrap();
        assert_eq!(mixed.to_f32().as_ref(), [7.0, 8.0, 0.5, -1.0, 254.0, -256.0]);
        // One scale too few.
        assert!(Tensor::scaled([2, 2], DType::I8, Arc::new(vec![0; 4]), 0..4, vec![1.0]).is_none());
        // Not an 8-bit dtype.
        assert!(Tensor::scaled([2, 2], DType::F16, Arc::new(vec![0; 8]), 0..8, vec![1.0; 2]).is_none());
    }

    #[test]
    fn float8_rows_have_their_scales() {
        let one = Float8::E4M3.from_f32(1.0, Overflow::Saturate);
        let bytes = Arc::new(vec![one, one | 0x80, 0x7e, 0]);
        let tensor = Tensor::scaled([2, 2], DType::F8E4M3, bytes, 0..4, vec![0.5, 2.0]).unwrap();
        assert_eq!(tensor.to_f32().as_ref(), [0.5, -0.5, 896.0, 0.0]);
        let both = Tensor::concat_rows(&[&tensor, &tensor]).unwrap();
        assert_eq!((both.dtype(), both.size_in_bytes()), (DType::F8E4M3, 8 + 16));
        let signed = Tensor::scaled([1, 2], DType::I8, Arc::new(vec![1, 2]), 0..2, vec![1.0]).unwrap();
        assert_eq!(
            Tensor::concat_rows(&[&tensor, &signed]).unwrap().dtype(),
            DType::F32
        );
        let nan = Tensor::scaled([1, 1], DType::F8E4M3, Arc::new(vec![0x7f]), 0..1, vec![1.0]).unwrap();
        assert_eq!((tensor.count_non_finite(), nan.count_non_finite()), (0, 1));
    }

    #[test]
    fn padding_is_zeros_after_rows_and_columns() {
        let matrix = Tensor::from_f32([2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        let padded = matrix.padded(&[3, 4]).unwrap();
        assert_eq!(padded.shape(), [3, 4]);
        let expected = [1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(padded.to_f32().as_ref(), expected);
        // 1 and −2.
        let vector = Tensor::view([2], DType::BF16, Arc::new(vec![0x80, 0x3f, 0, 0xc0]), 0..4).unwrap();
        let padded = vector.padded(&[3]).unwrap();
        assert_eq!(
            (padded.dtype(), padded.to_f32().as_ref()),
            (DType::BF16, &[1.0, -2.0, 0.0][..])
        );
        assert!(matrix.padded(&[1, 4]).is_none() && matrix.padded(&[4]).is_none());
    }
}
