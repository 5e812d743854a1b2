//! NumPy files as tensors.

use std::path::Path;

use anyhow::Result;
use hipvit::exec::unpack;
use hipvit::ndarray::{ArrayD, IxDyn, ShapeBuilder as _};
use hipvit::{DType, TensorArray, TensorView};
use hipvit_files::regular_file;
use hipvit_search::npy::{self, MAGIC};

use super::outcome::{Usage, refused};

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
    if !bytes.starts_with(MAGIC) {
        return Err(NOT_NPY);
    }
    let header = npy::parse(bytes).ok_or(DAMAGED)?;
    let (descr, data) = (header.descr, &bytes[header.data..]);
    let layout = Layout {
        shape: header.shape,
        fortran: header.fortran,
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
    [npy::header(descr, array.shape()), data].concat()
}
