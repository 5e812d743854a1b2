//! Data types and host tensors: constants (views into a memory-mapped weight file, or computed values) and a model's input.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

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

    /// The rows of all `parts`, one part after the other, in one new tensor: f32, or 16 bits wide if all parts are of
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
        let stored: Option<Vec<&[u8]>> = parts.iter().map(|part| part.stored_as(first.dtype)).collect();
        match (first.dtype, stored) {
            (DType::F16 | DType::BF16, Some(stored)) => {
                let bytes = stored.concat();
                let data = Data::View {
                    range: 0..bytes.len(),
                    bytes: Arc::new(bytes),
                    mapped: false,
                };
                Some(Self {
                    shape,
                    dtype: first.dtype,
                    data,
                })
            }
            _ => {
                let values: Vec<f32> = parts.iter().flat_map(|part| part.to_f32().into_owned()).collect();
                Self::from_f32(shape, values)
            }
        }
    }

    /// Columns `range` of a matrix in a new tensor: f32, or 16 bits wide if the matrix is.
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
        match self.stored_as(self.dtype).filter(|_| self.dtype.size() == 2) {
            Some(stored) => {
                let size = self.dtype.size();
                let part = range.start * size..range.end * size;
                let bytes: Vec<u8> = stored
                    .chunks(width.max(1) * size)
                    .flat_map(|row| &row[part.clone()])
                    .copied()
                    .collect();
                let data = Data::View {
                    range: 0..bytes.len(),
                    bytes: Arc::new(bytes),
                    mapped: false,
                };
                Some(Self {
                    shape,
                    dtype: self.dtype,
                    data,
                })
            }
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

    /// Row i times `factors[i]`, each product rounded once to f32.
    ///
    /// Returns `None` if there is not one factor a row.
    pub fn scale_rows(&self, factors: &[f32]) -> Option<Self> {
        let (&rows, inner) = self.shape.split_first()?;
        if rows != factors.len() {
            return None;
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

    /// The stored bytes, if they are elements of `dtype`.
    fn stored_as(&self, dtype: DType) -> Option<&[u8]> {
        match &self.data {
            Data::View { bytes, range, .. } if self.dtype == dtype => {
                Some(&(**bytes).as_ref()[range.clone()])
            }
            _ => None,
        }
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

    /// The stored size.
    pub fn size_in_bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }

    /// Whether the values lie in a weight file (`true`) or were computed (`false`).
    pub fn is_mapped(&self) -> bool {
        matches!(self.data, Data::View { mapped: true, .. })
    }

    /// The host address of the first element, for people who want to see where a parameter lies.
    pub fn address(&self) -> usize {
        match &self.data {
            Data::Owned(values) => values.as_ptr().addr(),
            Data::View { bytes, range, .. } => (**bytes).as_ref().as_ptr().addr() + range.start,
        }
    }

    /// The values as f32: borrowed where they are stored so, converted (exactly) otherwise.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        let bytes = match &self.data {
            Data::Owned(values) => return Cow::Borrowed(values),
            Data::View { bytes, range, .. } => &(**bytes).as_ref()[range.clone()],
        };
        match self.dtype {
            DType::U8 => bytes.iter().map(|&b| f32::from(b)).collect(),
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
        };
        // Computed values have the host's byte order, which is a weight file's.
        let count: fn(&[u8]) -> usize = match self.dtype {
            DType::U8 => return 0,
            DType::F32 => |bytes| {
                let values = bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b));
                values
                    .map(|bits| usize::from(bits & 0x7f80_0000 == 0x7f80_0000))
                    .sum()
            },
            DType::F16 => |bytes| halves_like(bytes, 0x7c00),
            DType::BF16 => |bytes| halves_like(bytes, 0x7f80),
        };
        bytes.par_chunks(PIECE).map(count).sum()
    }

    /// The same values under another shape, or `None` if the number of elements differs.
    pub fn reshaped(&self, shape: impl Into<Vec<usize>>) -> Option<Self> {
        let shape = shape.into();
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
        Some(Self {
            shape,
            dtype: self.dtype,
            data,
        })
    }
}

/// How many 16-bit values have all bits of the exponent.
fn halves_like(bytes: &[u8], exponent: u16) -> usize {
    let values = bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b));
    values.map(|bits| usize::from(bits & exponent == exponent)).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

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
