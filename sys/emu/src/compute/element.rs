//! Element types: bytes of device memory to numbers to compute with, and back with one rounding.

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};
use ndarray::LinalgScalar;

use super::float8::Float8;

/// The element type of a matrix or tensor in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    I32,
    I64,
    /// E4M3 or E5M2.
    F8(Float8),
}

impl Element {
    pub(crate) fn size(self) -> usize {
        match self {
            Self::I8 | Self::F8(_) => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

/// The type of the computation: f32, or f64, which represents i32 and sums of products of i8 exactly.
pub(crate) trait Real: LinalgScalar + Send + Sync + PartialOrd + std::ops::Neg<Output = Self> {
    /// Rounds to nearest.
    fn of(value: f64) -> Self;

    fn wide(self) -> f64;

    /// The numbers that bytes encode, rounded to nearest if their type is wider.
    fn decode(element: Element, bytes: &[u8]) -> Vec<Self>;

    /// Encodes numbers, rounded to nearest, ties to even. Numbers out of an integer type's range wrap around, and NaN is 0.
    fn encode(element: Element, values: &[Self]) -> Vec<u8>;
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as Self
    }

    fn wide(self) -> f64 {
        self.into()
    }

    fn decode(element: Element, bytes: &[u8]) -> Vec<Self> {
        match element {
            Element::F16 => widened(bytes, f16::from_le_bytes, |from, to| {
                from.convert_to_f32_slice(to);
            }),
            Element::Bf16 => widened(bytes, bf16::from_le_bytes, |from, to| {
                from.convert_to_f32_slice(to);
            }),
            Element::F32 => each(bytes, Self::from_le_bytes),
            Element::F64 => each(bytes, |b| f64::from_le_bytes(b) as Self),
            Element::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
            Element::I32 => each(bytes, |b| i32::from_le_bytes(b) as Self),
            Element::I64 => each(bytes, |b| i64::from_le_bytes(b) as Self),
            Element::F8(format) => each(bytes, |[b]| format.decode(b)),
        }
    }

    fn encode(element: Element, values: &[Self]) -> Vec<u8> {
        match element {
            Element::F16 => {
                let mut narrow = vec![f16::ZERO; values.len()];
                narrow.convert_from_f32_slice(values);
                bytes(&narrow, f16::to_le_bytes)
            }
            Element::Bf16 => {
                let mut narrow = vec![bf16::ZERO; values.len()];
                narrow.convert_from_f32_slice(values);
                bytes(&narrow, bf16::to_le_bytes)
            }
            Element::F32 => bytes(values, Self::to_le_bytes),
            Element::F64 => bytes(values, |v| f64::from(v).to_le_bytes()),
            Element::I8 => bytes(values, |v| (integer(v.into()) as i8).to_le_bytes()),
            Element::I32 => bytes(values, |v| (integer(v.into()) as i32).to_le_bytes()),
            Element::I64 => bytes(values, |v| integer(v.into()).to_le_bytes()),
            Element::F8(format) => bytes(values, |v| [format.encode(v)]),
        }
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }

    fn wide(self) -> f64 {
        self
    }

    fn decode(element: Element, bytes: &[u8]) -> Vec<Self> {
        match element {
            Element::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f64()),
            Element::Bf16 => each(bytes, |b| bf16::from_le_bytes(b).to_f64()),
            Element::F32 => each(bytes, |b| f32::from_le_bytes(b).into()),
            Element::F64 => each(bytes, Self::from_le_bytes),
            Element::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
            Element::I32 => each(bytes, |b| i32::from_le_bytes(b).into()),
            Element::I64 => each(bytes, |b| i64::from_le_bytes(b) as Self),
            Element::F8(format) => each(bytes, |[b]| format.decode(b).into()),
        }
    }

    fn encode(element: Element, values: &[Self]) -> Vec<u8> {
        match element {
            Element::F16 => bytes(values, |v| f16::from_f32(odd(v)).to_le_bytes()),
            Element::Bf16 => bytes(values, |v| bf16::from_f32(odd(v)).to_le_bytes()),
            Element::F32 => bytes(values, |v| (v as f32).to_le_bytes()),
            Element::F64 => bytes(values, Self::to_le_bytes),
            Element::I8 => bytes(values, |v| (integer(v) as i8).to_le_bytes()),
            Element::I32 => bytes(values, |v| (integer(v) as i32).to_le_bytes()),
            Element::I64 => bytes(values, |v| integer(v).to_le_bytes()),
            Element::F8(format) => bytes(values, |v| [format.encode(odd(v))]),
        }
    }
}

/// Rounded to odd: of the neighbours in f32, the one whose last bit is set. Rounding that to a type of 16 bits is the same
/// as rounding once (Boldo and Melquiond, 2005); `half` goes by the nearest f32.
fn odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    let towards_zero = nearest.to_bits() - u32::from(f64::from(nearest).abs() > value.abs());
    f32::from_bits(towards_zero | 1)
}

/// The nearest whole number, so that casting it to a narrower one wraps.
fn integer(value: f64) -> i64 {
    value.round_ties_even() as i64
}

fn each<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| of(*chunk)).collect()
}

/// Converts by slices of 16-bit numbers, for which `half` uses the processor's instructions.
fn widened<T>(bytes: &[u8], of: impl Fn([u8; 2]) -> T, widen: impl Fn(&[T], &mut [f32])) -> Vec<f32> {
    let narrow = each(bytes, of);
    let mut wide = vec![0.0; narrow.len()];
    widen(&narrow, &mut wide);
    wide
}

fn bytes<const N: usize, T: Copy>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| of(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_once_to_the_nearest_even() {
        let halfway = 1.0 + 2.0_f64.powi(-11);
        assert_eq!(f64::encode(Element::F16, &[halfway]), f16::ONE.to_le_bytes());
        // Through f32 the last bit would be lost, and the tie would go to even.
        let above = halfway + 2.0_f64.powi(-30);
        assert_eq!(
            f64::encode(Element::F16, &[above]),
            f16::from_bits(0x3c01).to_le_bytes()
        );
        assert_eq!(f32::encode(Element::F16, &[1e6]), f16::INFINITY.to_le_bytes());
        assert_eq!(
            f32::encode(Element::Bf16, &[1.0 + 2.0_f32.powi(-8)]),
            bf16::ONE.to_le_bytes()
        );
    }

    #[test]
    fn integers_are_exact_and_wrap() {
        let numbers = [f64::from(i32::MIN), -1.0, 0.0, f64::from(i32::MAX)];
        let bytes = f64::encode(Element::I32, &numbers);
        assert_eq!(f64::decode(Element::I32, &bytes), numbers);
        assert_eq!(f64::encode(Element::I8, &[200.0]), [200_u8]);
    }

    #[test]
    fn every_half_round_trips() {
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for element in [Element::F16, Element::Bf16] {
            let narrow = f32::encode(element, &f32::decode(element, &bits));
            let wide = f64::encode(element, &f64::decode(element, &bits));
            for (index, bits) in (0..=u16::MAX).zip(bits.as_chunks::<2>().0) {
                let at = 2 * usize::from(index)..2 * usize::from(index) + 2;
                let is_nan = match element {
                    Element::F16 => f16::from_bits(index).is_nan(),
                    _ => bf16::from_bits(index).is_nan(),
                };
                if !is_nan {
                    assert_eq!((&narrow[at.clone()], &wide[at]), (&bits[..], &bits[..]));
                }
            }
        }
    }
}
