//! NumPy's file format for arrays of numbers.
//!
//! Implemented here because existing crates add a parser generator for a header of one line.

use std::path::Path;

use anyhow::Result;
use hipvit::exec::unpack;
use hipvit::ndarray::{ArrayD, IxDyn, ShapeBuilder as _};
use hipvit::{DType, TensorArray, TensorView};
use hipvit_files::regular_file;

use super::outcome::{Usage, refused};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum bytes of a file.
const LONGEST: u64 = 1 << 34;

/// Reads an array. Floating-point numbers become f32, and integers that no model has become 64 bits.
///
/// # Errors
///
/// Returns [`hipvit::Error::Io`] if the file cannot be read, and [`Usage`] if it is not an array of numbers.
pub(crate) fn read(path: &Path) -> Result<TensorArray> {
    let bytes = regular_file::read_within(path, LONGEST).map_err(refused(path))?;
    let wrong = |reason: &str| Usage(format!("{}: {reason}", path.display())).into();
    parse(&bytes).map_err(|reason| wrong(reason.0))
}

/// Why bytes are not an array.
struct Refusal(&'static str);

const NOT_NPY: Refusal = Refusal("is not a NumPy file. Write one with numpy.save");
const DAMAGED: Refusal = Refusal("is a damaged NumPy file");

fn parse(bytes: &[u8]) -> Result<TensorArray, Refusal> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(NOT_NPY)?;
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return Err(DAMAGED),
    };
    let (header, data) = rest.split_at_checked(length).ok_or(DAMAGED)?;
    let header = std::str::from_utf8(header).map_err(|_| DAMAGED)?;
    let descr = field(header, "descr")
        .and_then(|text| text.strip_prefix('\''))
        .ok_or(DAMAGED)?;
    let (descr, _) = descr.split_once('\'').ok_or(DAMAGED)?;
    let fortran = field(header, "fortran_order").ok_or(DAMAGED)?.starts_with("True");
    let shape = field(header, "shape")
        .and_then(|text| text.strip_prefix('('))
        .ok_or(DAMAGED)?;
    let (shape, _) = shape.split_once(')').ok_or(DAMAGED)?;
    let extents = shape
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty());
    let shape: Option<Vec<usize>> = extents.map(|extent| extent.parse().ok()).collect();
    let layout = Layout {
        shape: shape.ok_or(DAMAGED)?,
        fortran,
    };
    Ok(match descr {
        "<f4" => TensorArray::F32(layout.array(data, f32::from_le_bytes)?),
        "<f2" => TensorArray::F32(layout.array(data, |bytes: [u8; 2]| unpack(&bytes, DType::F16)[0])?),
        "<f8" => TensorArray::F32(layout.array(data, |bytes| f64::from_le_bytes(bytes) as f32)?),
        "<i4" => TensorArray::I32(layout.array(data, i32::from_le_bytes)?),
        "<i8" => TensorArray::I64(layout.array(data, i64::from_le_bytes)?),
        "<i2" => TensorArray::I32(layout.array(data, |bytes| i16::from_le_bytes(bytes).into())?),
        "<u2" => TensorArray::I32(layout.array(data, |bytes| u16::from_le_bytes(bytes).into())?),
        "<u4" => TensorArray::I64(layout.array(data, |bytes| u32::from_le_bytes(bytes).into())?),
        "|i1" => TensorArray::I32(layout.array(data, |bytes| i8::from_le_bytes(bytes).into())?),
        "|u1" => TensorArray::U8(layout.array(data, |[byte]| byte)?),
        "|b1" => TensorArray::Bool(layout.array(data, |[byte]| byte != 0)?),
        _ => {
            return Err(Refusal(
                "has elements that no model takes. Convert them with numpy.ndarray.astype",
            ));
        }
    })
}

/// Returns the text after a key of the header, which is a Python literal.
fn field<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

struct Layout {
    shape: Vec<usize>,
    fortran: bool,
}

impl Layout {
    fn array<T, const N: usize>(
        &self,
        data: &[u8],
        element: impl Fn([u8; N]) -> T,
    ) -> Result<ArrayD<T>, Refusal> {
        let (elements, rest) = data.as_chunks();
        let count = self
            .shape
            .iter()
            .try_fold(1, |n: usize, &extent| n.checked_mul(extent));
        if count != Some(elements.len()) || !rest.is_empty() {
            return Err(DAMAGED);
        }
        let elements = elements.iter().map(|&bytes| element(bytes)).collect();
        let shape = IxDyn(&self.shape).set_f(self.fortran);
        ArrayD::from_shape_vec(shape, elements).map_err(|_| DAMAGED)
    }
}

/// Returns a file with the array.
pub(crate) fn bytes(array: &TensorArray) -> Vec<u8> {
    fn elements<T: Copy, const N: usize>(
        array: &hipvit::ndarray::ArrayViewD<'_, T>,
        bytes: fn(T) -> [u8; N],
    ) -> Vec<u8> {
        array.iter().flat_map(|&element| bytes(element)).collect()
    }
    let (descr, data) = match array.view() {
        TensorView::F32(array) => ("<f4", elements(&array, f32::to_le_bytes)),
        TensorView::I32(array) => ("<i4", elements(&array, i32::to_le_bytes)),
        TensorView::I64(array) => ("<i8", elements(&array, i64::to_le_bytes)),
        TensorView::U8(array) => ("|u1", elements(&array, u8::to_le_bytes)),
        TensorView::Bool(array) => ("|b1", elements(&array, |value| [u8::from(value)])),
    };
    [header(descr, array.shape()), data].concat()
}

/// Returns a header of format version 1.0: a Python literal, padded with spaces to align the data to 64 bytes.
pub(crate) fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    const VERSION: &[u8] = &[1, 0];
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let extents = extents.join(", ");
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}{comma}), }}");
    while !(MAGIC.len() + 4 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    // The text is far shorter than 64 KiB.
    let length = (text.len() as u16).to_le_bytes();
    [MAGIC, VERSION, &length, text.as_bytes()].concat()
}
