//! Images in Python's forms: paths, encoded bytes, PIL images, arrays and tensors.

use std::borrow::Cow;
use std::path::PathBuf;

use hipvit::image::{DecodeOptions, RgbImage};
use hipvit::pipeline::Source;
use hipvit::{DType, Error};
use numpy::{Element, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyModule, PyString};

use crate::dlpack::DeviceTensor;
use crate::error::{argument, module};

/// Collects the images of one call, in order.
pub fn collect(images: &Bound<'_, PyAny>) -> PyResult<Vec<Source>> {
    let mut sources = Vec::new();
    if !push(images, &mut sources)? {
        let Ok(several) = images.try_iter() else {
            return Err(not_an_image(images));
        };
        for image in several {
            let image = image?;
            if !push(&image, &mut sources)? {
                return Err(not_an_image(&image));
            }
        }
    }
    Ok(sources)
}

fn not_an_image(object: &Bound<'_, PyAny>) -> PyErr {
    let class = object.get_type();
    PyTypeError::new_err(format!(
        "{class} is no image: expected a path, the bytes of an image file, a PIL image, a uint8 array or tensor [H, W, 3] or \
         [B, H, W, 3], or a sequence of these"
    ))
}

/// Adds the image or images in `object`. Returns false if it is not an image.
fn push(object: &Bound<'_, PyAny>, sources: &mut Vec<Source>) -> PyResult<bool> {
    let name = format!("image {}", sources.len());
    if object.is_instance_of::<PyString>() || object.hasattr("__fspath__")? {
        sources.push(Source::File(object.extract::<PathBuf>()?));
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        sources.push(Source::Bytes(name, Cow::Owned(bytes.as_bytes().to_vec())));
    } else if let Ok(bytes) = object.cast::<PyByteArray>() {
        sources.push(Source::Bytes(name, Cow::Owned(bytes.to_vec())));
    } else if object.is_instance_of::<PyMemoryView>() {
        let bytes = object.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        sources.push(Source::Bytes(name, Cow::Owned(bytes.as_bytes().to_vec())));
    } else if object.hasattr("convert")? && object.hasattr("mode")? && object.hasattr("tobytes")? {
        sources.push(Source::Decoded(name, pil(object)?));
    } else if let Some(array) = array(object)? {
        // An array of names or objects is treated as a sequence.
        let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
        if matches!(kind.as_str(), "O" | "S" | "T" | "U") {
            return Ok(false);
        }
        push_array(&array, sources)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Converts a PIL image of any mode, like `convert("RGB")`.
fn pil(image: &Bound<'_, PyAny>) -> PyResult<RgbImage> {
    let mode: String = image.getattr("mode")?.extract()?;
    let rgb = match mode.as_str() {
        "RGB" => image.clone(),
        _ => image.call_method1("convert", ("RGB",))?,
    };
    let (width, height) = rgb.getattr("size")?.extract::<(usize, usize)>()?;
    let bytes = rgb.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    rgb_image(image.py(), width, height, bytes.as_bytes().to_vec())
}

fn rgb_image(py: Python<'_>, width: usize, height: usize, data: Vec<u8>) -> PyResult<RgbImage> {
    RgbImage::new(width, height, data).map_err(|error| crate::error::convert(py, &error.into(), None))
}

fn push_array(array: &Bound<'_, PyAny>, sources: &mut Vec<Source>) -> PyResult<()> {
    let pixels = typed::<u8>(array, "uint8 images", IMAGES)?;
    let pixels = pixels.readonly();
    let (count, height, width) = match *pixels.shape() {
        [height, width, 3] => (1, height, width),
        [count, height, width, 3] => (count, height, width),
        _ => return Err(wrong_shape(array.py(), pixels.shape())),
    };
    let bytes = contiguous(&pixels);
    for index in 0..count {
        let size = height * width * 3;
        let data = bytes[index * size..(index + 1) * size].to_vec();
        let name = format!("image {}", sources.len());
        sources.push(Source::Decoded(name, rgb_image(array.py(), width, height, data)?));
    }
    Ok(())
}

fn wrong_shape(py: Python<'_>, shape: &[usize]) -> PyErr {
    let advice = match *shape {
        [3, ..] | [_, 3, _, _] => {
            "; channels are last: permute them, or load the model with input=\"pixel_values\""
        }
        [_, _] | [_, _, 1] => "; an image has three channels: numpy.stack([grey] * 3, axis=-1)",
        [.., 4] => "; an image has no alpha channel: take [..., :3]",
        _ => "",
    };
    argument(
        py,
        format!("images: an array of shape {shape:?} is neither [H, W, 3] nor [B, H, W, 3]{advice}"),
    )
}

/// Returns the elements in row-major order. Copies them only if they are in another order.
fn contiguous<'a, T: Element + Copy>(array: &'a PyReadonlyArrayDyn<'_, T>) -> Cow<'a, [T]> {
    // `as_slice` also accepts column-major arrays.
    match array.as_slice() {
        Ok(slice) if array.is_c_contiguous() => Cow::Borrowed(slice),
        _ => Cow::Owned(array.as_array().iter().copied().collect()),
    }
}

const IMAGES: &str =
    "floats are pixel values, which a model takes that was loaded with input=\"pixel_values\"";
const VALUES: &str = "the model was loaded with input=\"pixel_values\", which are float32 [B, 3, H, W]";

/// Returns `array` if its elements have the type `T`.
fn typed<'py, T: Element>(
    array: &Bound<'py, PyAny>,
    expected: &str,
    advice: &str,
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    array.cast::<PyArrayDyn<T>>().cloned().or_else(|_| {
        let dtype = array.getattr("dtype")?.str()?;
        let message = format!("images: dtype {dtype}, expected {expected}; {advice}");
        Err(argument(array.py(), message))
    })
}

/// Returns a numpy array that is `object` or shares its memory. `None` if it is neither an array nor a tensor.
///
/// A tensor in host memory is not copied. A tensor on a device, unless `dlpack` reads it, is copied to the host by its own library. The
/// library waits for the earlier work of its current stream.
fn array<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if object.cast::<numpy::PyUntypedArray>().is_ok() {
        return Ok(Some(object.clone()));
    }
    let py = object.py();
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let numpy = module(py, &NUMPY, "numpy")?;
    if !object.hasattr("__dlpack__")? {
        return if object.hasattr("__array_interface__")? || object.hasattr("__array__")? {
            numpy.call_method1("asarray", (object,)).map(Some)
        } else {
            Ok(None)
        };
    }
    // A torch tensor that requires gradients cannot be exported.
    let mut tensor = if object.hasattr("detach")? {
        object.call_method0("detach")?
    } else {
        object.clone()
    };
    let (device, _) = tensor
        .call_method0("__dlpack_device__")?
        .extract::<(i32, i32)>()?;
    let on_host = matches!(device, DL_CPU | DL_CUDA_HOST | DL_ROCM_HOST);
    if !on_host && tensor.hasattr("cpu")? {
        tensor = tensor.call_method0("cpu")?;
    } else if !on_host {
        let options = PyDict::new(py);
        options.set_item("device", "cpu")?;
        options.set_item("copy", true)?;
        return numpy
            .call_method("from_dlpack", (tensor,), Some(&options))
            .map(Some);
    }
    numpy
        .call_method1("from_dlpack", (tensor,))
        .map(Some)
        .map_err(|error| {
            let message = format!("images: the tensor cannot be exported by DLPack: {error}");
            argument(py, message)
        })
}

/// DLPack devices whose memory the host can read.
const DL_CPU: i32 = 1;
const DL_CUDA_HOST: i32 = 3;
const DL_ROCM_HOST: i32 = 11;

/// An array that the model takes unchanged.
pub enum Input<'py> {
    /// u8 `[B, H, W, 3]` of the model's size.
    Pixels(PyReadonlyArrayDyn<'py, u8>),
    /// f32 `[B, 3, H, W]`.
    Values(PyReadonlyArrayDyn<'py, f32>),
}

/// Returns an array or tensor of the model's size. Does not copy it if it is row-major and in host memory.
pub fn input<'py>(
    images: &Bound<'py, PyAny>,
    values: bool,
    [height, width]: [usize; 2],
) -> PyResult<Input<'py>> {
    let py = images.py();
    let no_array = || {
        let class = images.get_type();
        PyTypeError::new_err(format!(
            "{class} is neither an array nor a tensor of the model's size"
        ))
    };
    let array = array(images)?.ok_or_else(no_array)?;
    Ok(if !values {
        let pixels = typed::<u8>(&array, "uint8", IMAGES)?;
        check_size(py, pixels.shape(), [height, width, 3])?;
        Input::Pixels(row_major(&pixels)?.readonly())
    } else {
        let values = typed::<f32>(&array, "float32", VALUES)?;
        check_size(py, values.shape(), [3, height, width])?;
        Input::Values(row_major(&values)?.readonly())
    })
}

/// Checks that a tensor on a GPU fits the model, as [`input`] does for an array.
pub fn check_tensor(
    py: Python<'_>,
    tensor: &DeviceTensor,
    values: bool,
    [height, width]: [usize; 2],
) -> PyResult<()> {
    let (expected, image, advice) = if !values {
        (DType::U8, [height, width, 3], IMAGES)
    } else {
        (DType::F32, [3, height, width], VALUES)
    };
    if tensor.dtype != expected {
        let name = |dtype| match dtype {
            DType::U8 => "uint8".to_owned(),
            DType::F32 => "float32".to_owned(),
            other => other.to_string(),
        };
        let (dtype, expected) = (name(tensor.dtype), name(expected));
        return Err(argument(
            py,
            format!("images: dtype {dtype}, expected {expected}; {advice}"),
        ));
    }
    check_size(py, &tensor.shape, image)
}

fn check_size(py: Python<'_>, shape: &[usize], image: [usize; 3]) -> PyResult<()> {
    match (shape, shape.len()) {
        ([.., a, b, c], 3 | 4) if [*a, *b, *c] == image => Ok(()),
        _ => Err(size_error(py, shape, image)),
    }
}

fn size_error(py: Python<'_>, shape: &[usize], [a, b, c]: [usize; 3]) -> PyErr {
    argument(
        py,
        format!("images: an array of shape {shape:?}, but the model takes [B, {a}, {b}, {c}]"),
    )
}

fn row_major<'py, T: Element>(array: &Bound<'py, PyArrayDyn<T>>) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    if array.is_c_contiguous() {
        return Ok(array.clone());
    }
    let copied = array.call_method1("copy", ("C",))?;
    Ok(copied.cast_into::<PyArrayDyn<T>>()?)
}

/// Decodes images. An error has the position of its image.
pub fn decode(sources: Vec<Source>) -> Result<Vec<RgbImage>, (Error, Option<usize>)> {
    let images = sources
        .into_iter()
        .enumerate()
        .map(|(index, source)| match source {
            Source::Decoded(_, image) => Ok(image),
            source => source
                .decode(DecodeOptions::default())
                .map_err(|error| (error, Some(index))),
        });
    images.collect()
}
