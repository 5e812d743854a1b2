//! Data types and host tensors: constants (views into a memory-mapped weight file, or computed values) and a model's input.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::float8::Float8;
use crate::non_finite;

pub use hip_safe::DType;

/// Bytes that stay put for as long as a [`Tensor`] looks at them, such as a mapped file.
pub trait Bytes: AsRef<[u8]> + Send + Sync {}
impl<T: AsRef<[u8]> + Send + Sync> Bytes for T {}

/// A constant of a model: row-major, contiguous, cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    shape: Vec<usize>,
    dtype: DType,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Owned(Arc<[f32]>),
    /// Little-endian elements of `dtype` at `range` of `bytes`.
    View {
        bytes: Arc<dyn Bytes>,
        range: Range<usize>,
        /// Whether the bytes are a weight file's.
        mapped: bool,
    },
    /// Elements of 8 bits at `range` of `bytes`, of which those of row i count `scales[i]` each.
    Scaled {
        bytes: Arc<dyn Bytes>,
        range: Range<usize>,
        mapped: bool,
        scales: Arc<[f32]>,
    },
}

impl Tensor {
    /// A tensor of `values` in row-major order.
    ///
    /// Returns `None` if `values.len()` is not the product of `shape`.
    pub fn from_f32(shape: impl Into<Vec<usize>>, values: impl Into<Arc<[f32]>>) -> Option<Self> {
        let (shape, values) = (shape.into(), values.into());
        (values.len() == shape.iter().product::<usize>()).then_some(Self {
            shape,
            dtype: DType::F32,
            data: Data::Owned(values),
        })
    }

    /// A view of `bytes[range]` as little-endian elements of `dtype` in row-major order.
    ///
    /// Returns `None` if the range is outside `bytes` or does not have exactly the shape's bytes.
    pub fn view(
        shape: impl Into<Vec<usize>>,
        dtype: DType,
        bytes: Arc<dyn Bytes>,
        range: Range<usize>,
    ) -> Option<Self> {
        let shape = shape.into();
        let len = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d))?;
        let fits = (*bytes)
            .as_ref()
            .get(range.clone())
            .is_some_and(|b| b.len() == len);
        fits.then_some(Self {
            shape,
            dtype,
            data: Data::View {
                bytes,
                range,
                mapped: true,
            },
        })
    }

    /// A view of `bytes[range]` as elements of `dtype`, which has 8 bits, in row-major order; a value is an element times the scale
    /// of its row, of which there is one for each index of the outermost dimension.
    ///
    /// Returns `None` if there are not as many bytes and scales as the shape asks for.
    pub fn scaled(
        shape: impl Into<Vec<usize>>,
        dtype: DType,
        bytes: Arc<dyn Bytes>,
        range: Range<usize>,
        scales: impl Into<Arc<[f32]>>,
    ) -> Option<Self> {
        let (shape, scales) = (shape.into(), scales.into());
        let fits = shape.first() == Some(&scales.len()) && dtype.size() == 1;
        Self::view(shape, dtype, bytes, range)
            .filter(|_| fits)
            .map(|view| view.with_scales(scales))
    }

    /// The bytes of a tensor with scales, and the scale of each row.
    pub fn scaled_parts(&self) -> Option<(&[u8], &[f32])> {
        match &self.data {
            Data::Scaled {
                bytes, range, scales, ..
            } => Some((&(**bytes).as_ref()[range.clone()], scales)),
            _ => None,
        }
    }

    /// The same bytes with these scales, of which there is one for each row.
    pub(crate) fn with_scales(self, scales: Arc<[f32]>) -> Self {
        let data = match self.data {
            Data::View { bytes, range, mapped }
            | Data::Scaled {
                bytes, range, mapped, ..
            } => Data::Scaled {
                bytes,
                range,
                mapped,
                scales,
            },
            owned => owned,
        };
        Self { data, ..self }
    }

    /// The rows of all `parts`, one part after the other, in one new tensor: f32, or 8 or 16 bits wide if all parts are of
    /// one such type.
    ///
    /// Returns `None` if there is no part, or if the extents differ beyond the outermost.
    pub fn concat_rows(parts: &[&Self]) -> Option<Self> {
        let (first, rest) = parts.split_first()?;
        let inner = first.shape.get(1..)?;
        if rest.iter().any(|part| part.shape.get(1..) != Some(inner)) {
            return None;
        }
        let rows = parts.iter().map(|part| part.shape[0]).sum();
        let shape: Vec<usize> = std::iter::once(rows).chain(inner.iter().copied()).collect();
        let alike = parts.iter().all(|part| part.dtype == first.dtype);
        let scaled: Option<Vec<_>> = parts.iter().map(|part| part.scaled_parts()).collect();
        if let Some(scaled) = scaled.filter(|_| alike) {
            let bytes: Vec<u8> = scaled.iter().flat_map(|(bytes, _)| *bytes).copied().collect();
            let scales: Vec<f32> = scaled.iter().flat_map(|(_, scales)| *scales).copied().collect();
            return Some(Self::stored(shape, first.dtype, bytes).with_scales(scales.into()));
        }
        let stored: Option<Vec<&[u8]>> = parts.iter().map(|part| part.stored_as(first.dtype)).collect();
        match (first.dtype, stored) {
            (DType::F16 | DType::BF16, Some(stored)) => {
                Some(Self::stored(shape, first.dtype, stored.concat()))
            }
            _ => {
                let values: Vec<f32> = parts.iter().flat_map(|part| part.to_f32().into_owned()).collect();
                Self::from_f32(shape, values)
            }
        }
    }

    /// Columns `range` of a matrix in a new tensor: f32, or 8 or 16 bits wide if the matrix is.
    ///
    /// Returns `None` if the tensor is no matrix or the range is outside it.
    pub fn columns(&self, range: Range<usize>) -> Option<Self> {
        let &[rows, width] = self.shape.as_slice() else {
            return None;
        };
        if range.start > range.end || range.end > width {
            return None;
        }
        let shape = vec![rows, range.len()];
        let size = self.dtype.size();
        let part = |stored: &[u8]| -> Vec<u8> {
            let rows = stored.chunks(width.max(1) * size);
            let part = range.start * size..range.end * size;
            rows.flat_map(|row| &row[part.clone()]).copied().collect()
        };
        if let Some((stored, scales)) = self.scaled_parts() {
            return Some(Self::stored(shape, self.dtype, part(stored)).with_scales(scales.into()));
        }
        match self.stored_as(self.dtype).filter(|_| size == 2) {
            Some(stored) => Some(Self::stored(shape, self.dtype, part(stored))),
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

    /// The matrix or vector with zeros after its rows and columns, up to `shape`, in a new tensor: f32, or 16 bits wide if this
    /// one is.
    ///
    /// Returns `None` if the tensor has another number of dimensions, or more rows or columns.
    pub(crate) fn padded(&self, shape: &[usize]) -> Option<Self> {
        let (&width, rows) = self.shape.split_last().filter(|(_, rows)| rows.len() < 2)?;
        let grows =
            shape.len() == self.shape.len() && shape.iter().zip(&self.shape).all(|(new, old)| new >= old);
        let new_width = shape.last().copied().filter(|_| grows)?;
        let elements = shape.iter().product::<usize>();
        let rows = rows.first().copied().unwrap_or(1);
        let size = self.dtype.size();
        match self.stored_as(self.dtype).filter(|_| size == 2) {
            Some(stored) => {
                let mut bytes = vec![0; elements * size];
                place(stored, width * size, &mut bytes, new_width * size, rows);
                Some(Self::stored(shape.to_vec(), self.dtype, bytes))
            }
            None => {
                let mut values = vec![0.0; elements];
                place(&self.to_f32(), width, &mut values, new_width, rows);
                Self::from_f32(shape, values)
            }
        }
    }

    /// Row i times `factors[i]`, each product rounded once to f32; of a tensor with scales these.
    ///
    /// Returns `None` if there is not one factor a row.
    pub fn scale_rows(&self, factors: &[f32]) -> Option<Self> {
        let (&rows, inner) = self.shape.split_first()?;
        if rows != factors.len() {
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
        let width: usize = inner.iter().product();
        let values: Vec<f32> = self
            .to_f32()
            .chunks(width.max(1))
            .zip(factors)
            .flat_map(|(row, factor)| row.iter().map(move |value| value * factor))
            .collect();
        Self::from_f32(self.shape.clone(), values)
    }

    /// Of bytes that are as many elements of `dtype` as `shape` has.
    fn stored(shape: Vec<usize>, dtype: DType, bytes: Vec<u8>) -> Self {
        let data = Data::View {
            range: 0..bytes.len(),
            bytes: Arc::new(bytes),
            mapped: false,
        };
        Self { shape, dtype, data }
    }

    /// The stored bytes, if they are elements of `dtype`.
    fn stored_as(&self, dtype: DType) -> Option<&[u8]> {
        match &self.data {
            Data::View { bytes, range, .. } if self.dtype == dtype => {
                Some(&(**bytes).as_ref()[range.clone()])
            }
            _ => None,
        }
    }

    /// The elements from the one at `start` on under `shape`, sharing the storage; of a tensor with scales the bytes alone.
    ///
    /// Returns `None` if there are not that many, or if the values were computed and it is not all of them.
    pub(crate) fn part(&self, start: usize, shape: Vec<usize>) -> Option<Self> {
        let len = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        let end = start.checked_add(len).filter(|&end| end <= self.len())?;
        let data = match &self.data {
            Data::Owned(values) => {
                let all = start == 0 && end == values.len();
                Data::Owned(all.then(|| values.clone())?)
            }
            Data::View { bytes, range, mapped }
            | Data::Scaled {
                bytes, range, mapped, ..
            } => {
                let at = |element| range.start + element * self.dtype.size();
                Data::View {
                    bytes: bytes.clone(),
                    range: at(start)..at(end),
                    mapped: *mapped,
                }
            }
        };
        let dtype = self.dtype;
        Some(Self { shape, dtype, data })
    }

    /// The elements in little endian, without scales.
    pub(crate) fn to_le_bytes(&self) -> Cow<'_, [u8]> {
        match &self.data {
            Data::Owned(values) if cfg!(target_endian = "little") => bytemuck::cast_slice(values).into(),
            Data::Owned(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Data::View { bytes, range, .. } | Data::Scaled { bytes, range, .. } => {
                (**bytes).as_ref()[range.clone()].into()
            }
        }
    }

    /// The same values, as such that were computed rather than read from a weight file.
    pub(crate) fn computed(mut self) -> Self {
        if let Data::View { mapped, .. } | Data::Scaled { mapped, .. } = &mut self.data {
            *mapped = false;
        }
        self
    }

    /// The extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The element type as stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stored size, with the scales.
    pub fn size_in_bytes(&self) -> usize {
        let scales = self.scaled_parts().map_or(0, |(_, scales)| size_of_val(scales));
        self.len() * self.dtype.size() + scales
    }

    /// Whether the values lie in a weight file (`true`) or were computed (`false`).
    pub fn is_mapped(&self) -> bool {
        matches!(
            self.data,
            Data::View { mapped: true, .. } | Data::Scaled { mapped: true, .. }
        )
    }

    /// The host address of the first element, for people who want to see where a parameter lies.
    pub fn address(&self) -> usize {
        match &self.data {
            Data::Owned(values) => values.as_ptr().addr(),
            Data::View { bytes, range, .. } | Data::Scaled { bytes, range, .. } => {
                (**bytes).as_ref().as_ptr().addr() + range.start
            }
        }
    }

    /// The values as f32: borrowed where they are stored so, converted otherwise; exactly, but with scales, where they
    /// are products that are rounded.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        let bytes = match &self.data {
            Data::Owned(values) => return Cow::Borrowed(values),
            Data::View { bytes, range, .. } => &(**bytes).as_ref()[range.clone()],
            Data::Scaled {
                bytes, range, scales, ..
            } => {
                let bytes = &(**bytes).as_ref()[range.clone()];
                let table: &[f32; 256] = &match self.dtype {
                    DType::F8E4M3 => Float8::E4M3.table(),
                    _ => std::array::from_fn(|bits| f32::from((bits as u8).cast_signed())),
                };
                let rows = bytes
                    .chunks((bytes.len() / scales.len().max(1)).max(1))
                    .zip(scales.iter());
                return rows
                    .flat_map(|(row, scale)| row.iter().map(move |&b| table[usize::from(b)] * scale))
                    .collect();
            }
        };
        match self.dtype {
            DType::U8 => bytes.iter().map(|&b| f32::from(b)).collect(),
            DType::I8 => bytes.iter().map(|&b| f32::from(b.cast_signed())).collect(),
            DType::F8E4M3 => bytes.iter().map(|&b| Float8::E4M3.to_f32(b)).collect(),
            DType::F8E4M3Fnuz => bytes.iter().map(|&b| Float8::E4M3Fnuz.to_f32(b)).collect(),
            DType::I32 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|&b| i32::from_le_bytes(b) as f32)
                .collect(),
            DType::F32 => match bytemuck::try_cast_slice(bytes) {
                Ok(values) if cfg!(target_endian = "little") => Cow::Borrowed(values),
                _ => bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&b| f32::from_le_bytes(b))
                    .collect(),
            },
            DType::F16 => {
                let half: Vec<f16> = bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&b| f16::from_le_bytes(b))
                    .collect();
                Cow::Owned(half.to_f32_vec())
            }
            DType::BF16 => {
                let half: Vec<bf16> = bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&b| bf16::from_le_bytes(b))
                    .collect();
                Cow::Owned(half.to_f32_vec())
            }
        }
    }

    /// How many values are NaN or infinite, counted by the threads of the pool that this is called in.
    pub fn count_non_finite(&self) -> usize {
        /// Enough to be worth a thread's while; of whole elements.
        const PIECE: usize = 1 << 18;
        let bytes = match &self.data {
            Data::Owned(values) => bytemuck::cast_slice(values),
            Data::View { bytes, range, .. } => &(**bytes).as_ref()[range.clone()],
            Data::Scaled { .. } if self.dtype == DType::F8E4M3 => {
                let values = self.to_f32();
                return values.iter().filter(|value| !value.is_finite()).count();
            }
            Data::Scaled { scales, .. } => return scales.iter().filter(|scale| !scale.is_finite()).count(),
        };
        // Computed values have the host's byte order, which is a weight file's.
        let count: fn(&[u8]) -> usize = match self.dtype {
            DType::U8 | DType::I8 | DType::I32 => return 0,
            DType::F8E4M3 | DType::F8E4M3Fnuz => {
                let values = self.to_f32();
                return values.iter().filter(|value| !value.is_finite()).count();
            }
            DType::F32 => |bytes| {
                let values = bytes.as_chunks().0.iter();
                non_finite::count(values.map(|&bits| f32::from_le_bytes(bits)))
            },
            DType::F16 => |bytes| halves_like(bytes, 0x7c00),
            DType::BF16 => |bytes| halves_like(bytes, 0x7f80),
        };
        bytes.par_chunks(PIECE).map(count).sum()
    }

    /// The same values under another shape, or `None` if the number of elements differs, or the rows of a tensor with scales.
    pub fn reshaped(&self, shape: impl Into<Vec<usize>>) -> Option<Self> {
        let shape = shape.into();
        if self.scaled_parts().is_some() && shape.first() != self.shape.first() {
            return None;
        }
        (shape.iter().product::<usize>() == self.len()).then(|| Self {
            shape,
            ..self.clone()
        })
    }

    /// Rows `range` of the outermost dimension, sharing the storage where it is mapped.
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
                let width = stride * self.dtype.size();
                let start = at.start + range.start * width;
                Data::View {
                    bytes: bytes.clone(),
                    range: start..start + range.len() * width,
                    mapped: *mapped,
                }
            }
        };
        let scales = self.scaled_parts().map(|(_, scales)| Arc::from(&scales[range]));
        let rows = Self {
            shape,
            dtype: self.dtype,
            data,
        };
        Some(match scales {
            Some(scales) => rows.with_scales(scales),
            None => rows,
        })
    }
}

/// How many 16-bit values have all bits of the exponent.
fn halves_like(bytes: &[u8], exponent: u16) -> usize {
    let values = bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b));
    // Of a piece, which is far shorter than u32::MAX: wider sums would halve the speed.
    let count: u32 = values.map(|bits| u32::from(bits & exponent == exponent)).sum();
    count as usize
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// A batch of images as a graph takes them, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// u8 pixels `[B,H,W,3]`.
    Pixels(&'a [u8]),
    /// Normalised f32 values `[B,3,H,W]`.
    Values(&'a [f32]),
}

impl Input<'_> {
    /// The element type of the graph input that this fits.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Pixels(_) => DType::U8,
            Self::Values(_) => DType::F32,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Pixels(pixels) => pixels.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements `range`, which are there.
    ///
    /// # Panics
    ///
    /// If they are not.
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Pixels(pixels) => Self::Pixels(&pixels[range]),
            Self::Values(values) => Self::Values(&values[range]),
        }
    }
}

/// Copies rows of `width` elements to the beginnings of longer ones.
fn place<T: Copy>(from: &[T], width: usize, to: &mut [T], new_width: usize, rows: usize) {
    for row in 0..rows {
        to[row * new_width..][..width].copy_from_slice(&from[row * width..][..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float8::Overflow;

    #[test]
    fn views_convert_every_dtype_exactly() {
        let values = [0.0f32, 1.5, -2.25, 1.0 / 3.0];
        let cases = [
            (
                DType::F32,
                values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
            ),
            (
                DType::F16,
                values
                    .iter()
                    .flat_map(|v| f16::from_f32(*v).to_le_bytes())
                    .collect(),
            ),
            (
                DType::BF16,
                values
                    .iter()
                    .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
                    .collect(),
            ),
        ];
        for (dtype, bytes) in cases {
            let len = bytes.len();
            let tensor = Tensor::view([2, 2], dtype, Arc::new(bytes), 0..len).unwrap();
            let expected: Vec<f32> = match dtype {
                DType::F16 => values.iter().map(|&v| f16::from_f32(v).to_f32()).collect(),
                DType::BF16 => values.iter().map(|&v| bf16::from_f32(v).to_f32()).collect(),
                _ => values.to_vec(),
            };
            assert_eq!(tensor.to_f32().as_ref(), expected);
            assert_eq!(tensor.rows(1..2).unwrap().to_f32().as_ref(), &expected[2..]);
        }
    }

    #[test]
    fn values_that_are_no_numbers_are_counted_in_every_dtype() {
        let values = [
            0.0,
            f32::MAX,
            f32::NAN,
            f32::MIN_POSITIVE,
            -f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
        ];
        assert_eq!(
            Tensor::from_f32([7], values.to_vec()).unwrap().count_non_finite(),
            4
        );
        // More than one piece.
        let mut many = vec![1.0; 1 << 18];
        (many[0], many[(1 << 18) - 1]) = (f32::NAN, f32::INFINITY);
        assert_eq!(Tensor::from_f32([1 << 18], many).unwrap().count_non_finite(), 2);
        let view = |dtype, bytes: Vec<u8>| Tensor::view([3], dtype, Arc::new(bytes), 0..6).unwrap();
        let half = [f16::MAX, f16::NAN, f16::NEG_INFINITY]
            .iter()
            .flat_map(|v| v.to_le_bytes());
        assert_eq!(view(DType::F16, half.collect()).count_non_finite(), 2);
        let half = [bf16::MAX, bf16::NAN, bf16::NEG_INFINITY]
            .iter()
            .flat_map(|v| v.to_le_bytes());
        assert_eq!(view(DType::BF16, half.collect()).count_non_finite(), 2);
    }

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
        assert_eq!(both.scaled_parts().unwrap().1, [0.5, 2.0, 1.0, 10.0]);
        assert_eq!(
            both.rows(1..3).unwrap().to_f32().as_ref(),
            [254.0, -256.0, 3.0, 4.0]
        );
        assert_eq!(both.rows(1..3).unwrap().scaled_parts().unwrap().1, [2.0, 1.0]);
        let scaled = a.scale_rows(&[-2.0, 0.5]).unwrap();
        assert_eq!(
            scaled.scaled_parts().unwrap(),
            (&[1, 254, 127, 128][..], &[-1.0, 1.0][..])
        );
        assert_eq!(a.columns(1..2).unwrap().to_f32().as_ref(), [-1.0, -256.0]);
        assert_eq!(tensor([1; 4], [f32::NAN, 1.0]).count_non_finite(), 1);
        let single = Tensor::from_f32([1, 2], vec![7.0, 8.0]).unwrap();
        let mixed = Tensor::concat_rows(&[&single, &a]).unwrap();
        assert_eq!(mixed.to_f32().as_ref(), [7.0, 8.0, 0.5, -1.0, 254.0, -256.0]);
        // A scale too few.
        assert!(Tensor::scaled([2, 2], DType::I8, Arc::new(vec![0; 4]), 0..4, vec![1.0]).is_none());
        // Not of 8 bits.
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

    #[test]
    fn a_wrong_size_is_refused() {
        assert!(Tensor::from_f32([2, 3], vec![0.0; 5]).is_none());
        assert!(Tensor::view([2], DType::F32, Arc::new(vec![0u8; 7]), 0..7).is_none());
        assert!(Tensor::view([2], DType::F16, Arc::new(vec![0u8; 4]), 2..6).is_none());
        assert!(Tensor::view([usize::MAX, 2], DType::F32, Arc::new(vec![0u8; 4]), 0..4).is_none());
        assert!(
            Tensor::from_f32([2, 3], vec![0.0; 6])
                .unwrap()
                .rows(1..3)
                .is_none()
        );
    }
}
