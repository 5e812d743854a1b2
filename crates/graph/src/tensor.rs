//! Host tensors. Constants are views into a memory-mapped weight file or computed values. `rows` slices them, and `assembled` concatenates them
//! without a copy. `input` has a model's input.

mod assembled;
mod data;
mod input;
mod rows;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::float8::Float8;
use crate::non_finite;

pub use self::data::{Bytes, Tensor};
use self::data::{Data, Part};
pub use self::input::Input;
pub use crate::dtype::DType;

/// The bytes of a tensor's elements, and the scale of each row.
pub type ScaledParts<'a> = (Cow<'a, [u8]>, Cow<'a, [f32]>);

impl Tensor {
    /// Creates a tensor of `values` in row-major order.
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

    /// Creates a tensor of integers in row-major order.
    ///
    /// Returns `None` if `values.len()` is not the product of `shape`.
    pub fn from_i32(shape: impl Into<Vec<usize>>, values: &[i32]) -> Option<Self> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let range = 0..bytes.len();
        Self::view(shape, DType::I32, Arc::new(bytes), range).map(Self::computed)
    }

    /// Creates a view of `bytes[range]` as little-endian elements of `dtype` in row-major order.
    ///
    /// Returns `None` if the range is outside `bytes` or does not have the size of the shape.
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

    /// Creates a view of `bytes[range]` as 8-bit elements of `dtype` in row-major order. A value is an element times the scale of its row,
    /// an index of the outermost dimension.
    ///
    /// Returns `None` if the numbers of bytes and scales do not fit the shape.
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

    /// Returns true if each row has a scale.
    pub fn has_scales(&self) -> bool {
        match &self.data {
            Data::Scaled { .. } => true,
            // 8-bit rows always have scales.
            Data::Assembled(_) => self.dtype.size() == 1,
            Data::Owned(_) | Data::View { .. } => false,
        }
    }

    /// Returns the bytes and the row scales of a tensor with scales.
    pub fn scaled_parts(&self) -> Option<ScaledParts<'_>> {
        match &self.data {
            Data::Scaled {
                bytes, range, scales, ..
            } => Some(((**bytes).as_ref()[range.clone()].into(), (&**scales).into())),
            Data::Assembled(parts) if self.has_scales() => Some((
                self.assembled_bytes(parts).into(),
                assembled::scales(parts).into(),
            )),
            _ => None,
        }
    }

    /// Returns the bytes with these scales, one per row.
    fn with_scales(self, scales: Arc<[f32]>) -> Self {
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
            other => other,
        };
        Self { data, ..self }
    }

    /// Wraps `bytes`, which hold the elements of a tensor of this shape and dtype.
    fn stored(shape: Vec<usize>, dtype: DType, bytes: Vec<u8>) -> Self {
        let data = Data::View {
            range: 0..bytes.len(),
            bytes: Arc::new(bytes),
            mapped: false,
        };
        Self { shape, dtype, data }
    }

    /// Returns the bytes of a 16-bit tensor without scales.
    fn halves(&self) -> Option<Cow<'_, [u8]>> {
        (self.dtype.size() == 2).then(|| self.to_le_bytes())
    }

    /// Returns the elements in little endian, without scales.
    pub fn to_le_bytes(&self) -> Cow<'_, [u8]> {
        match &self.data {
            Data::Owned(values) if cfg!(target_endian = "little") => bytemuck::cast_slice(values).into(),
            Data::Owned(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Data::View { bytes, range, .. } | Data::Scaled { bytes, range, .. } => {
                (**bytes).as_ref()[range.clone()].into()
            }
            Data::Assembled(parts) => self.assembled_bytes(parts).into(),
        }
    }

    /// Returns the values, marked as computed rather than read from a weight file.
    pub fn computed(mut self) -> Self {
        if let Data::View { mapped, .. } | Data::Scaled { mapped, .. } = &mut self.data {
            *mapped = false;
        }
        self
    }

    /// Returns the extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the dtype as stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stored size in bytes, with the scales.
    pub fn size_in_bytes(&self) -> usize {
        let rows = self.shape.first().copied().unwrap_or(0);
        let scales = if self.has_scales() {
            rows * size_of::<f32>()
        } else {
            0
        };
        self.len() * self.dtype.size() + scales
    }

    /// Returns true if the values are in a weight file, false if they were computed.
    pub fn is_mapped(&self) -> bool {
        matches!(
            self.data,
            Data::View { mapped: true, .. } | Data::Scaled { mapped: true, .. }
        )
    }

    /// Returns the host address of the first element, for display. For an [assembled](Self::is_assembled) tensor, this is the address of its list of parts.
    pub fn address(&self) -> usize {
        match &self.data {
            Data::Owned(values) => values.as_ptr().addr(),
            Data::View { bytes, range, .. } | Data::Scaled { bytes, range, .. } => {
                (**bytes).as_ref().as_ptr().addr() + range.start
            }
            Data::Assembled(parts) => parts.as_ptr().addr(),
        }
    }

    /// Returns true if the rows belong to other tensors and are copied only when they are read.
    pub fn is_assembled(&self) -> bool {
        matches!(self.data, Data::Assembled(_))
    }

    /// Returns the tensors that store the elements: the parts of an assembled tensor, or the tensor itself.
    pub fn stored_parts(&self) -> impl Iterator<Item = &Self> {
        let (parts, own) = match &self.data {
            Data::Assembled(parts) => (&**parts, None),
            _ => (&[][..], Some(self)),
        };
        parts.iter().map(|part| &part.tensor).chain(own)
    }

    /// Returns the values as f32, borrowed if they are stored so. Otherwise each call converts or assembles them. The conversion is exact, except
    /// for products with scales, which are rounded.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        let bytes = match &self.data {
            Data::Owned(values) => return Cow::Borrowed(values),
            Data::Assembled(parts) => return Cow::Owned(assembled::to_f32(parts, self.len())),
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
            DType::F8E5M2 => bytes.iter().map(|&b| Float8::E5M2.to_f32(b)).collect(),
            DType::F8E5M2Fnuz => bytes.iter().map(|&b| Float8::E5M2Fnuz.to_f32(b)).collect(),
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

    /// Counts NaN and infinite values, on the threads of the current pool.
    pub fn count_non_finite(&self) -> usize {
        /// Bytes per task: a multiple of the element size, enough to amortise a task.
        const PIECE: usize = 1 << 18;
        let bytes = match &self.data {
            Data::Owned(values) => bytemuck::cast_slice(values),
            Data::Assembled(parts) => return parts.iter().map(Part::count_non_finite).sum(),
            Data::View { bytes, range, .. } => &(**bytes).as_ref()[range.clone()],
            Data::Scaled { .. } if self.dtype == DType::F8E4M3 => {
                let values = self.to_f32();
                return values.iter().filter(|value| !value.is_finite()).count();
            }
            Data::Scaled { scales, .. } => return scales.iter().filter(|scale| !scale.is_finite()).count(),
        };
        // Computed values have the byte order of the host, which must be that of a weight file.
        let count: fn(&[u8]) -> usize = match self.dtype {
            DType::U8 | DType::I8 | DType::I32 => return 0,
            DType::F8E4M3 | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz => {
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

    /// Returns the values with another shape. `None` if the number of elements differs, or the number of rows of a tensor with scales.
    pub fn reshaped(&self, shape: impl Into<Vec<usize>>) -> Option<Self> {
        let shape = shape.into();
        if self.has_scales() && shape.first() != self.shape.first() {
            return None;
        }
        (shape.iter().product::<usize>() == self.len()).then(|| Self {
            shape,
            ..self.clone()
        })
    }
}

/// Counts the 16-bit values with all exponent bits set.
fn halves_like(bytes: &[u8], exponent: u16) -> usize {
    let values = bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b));
    // A piece is far shorter than u32::MAX. Wider sums would halve the speed.
    let count: u32 = values.map(|bits| u32::from(bits & exponent == exponent)).sum();
    count as usize
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
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
