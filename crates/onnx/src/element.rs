//! Element types of ONNX.

use std::fmt;

use hipvit_graph::DType;

/// Element type of a tensor in an ONNX model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16.
    BF16,
    /// IEEE 754 double precision. Graphs compute it in their own dtype.
    F64,
    /// Signed 64-bit integer. Graphs compute it in 32 bits.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer. Graphs compute it in 32 bits.
    U64,
    /// Unsigned 32-bit integer. Graphs compute it in 32 bits.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// True or false. Graphs compute it as 1 and 0.
    Bool,
}

impl ElementType {
    /// Returns the element type with this number in ONNX files. `None` for types that no image model needs, such as strings.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            1 => Self::F32,
            2 => Self::U8,
            3 => Self::I8,
            4 => Self::U16,
            5 => Self::I16,
            6 => Self::I32,
            7 => Self::I64,
            9 => Self::Bool,
            10 => Self::F16,
            11 => Self::F64,
            12 => Self::U32,
            13 => Self::U64,
            16 => Self::BF16,
            _ => return None,
        })
    }

    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Returns true for floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// Returns true for integers, not for [`Bool`](Self::Bool).
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Self::Bool
    }

    /// Returns the dtype of a graph's input of this element type. Ops read all integers in 32 bits.
    pub fn input_dtype(self) -> DType {
        match self {
            Self::F32 | Self::F16 | Self::BF16 | Self::F64 | Self::Bool => DType::F32,
            _ => DType::I32,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F64 => "f64",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U64 => "u64",
            Self::U32 => "u32",
            Self::U16 => "u16",
            Self::U8 => "u8",
            Self::Bool => "bool",
        })
    }
}
