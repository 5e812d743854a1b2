//! Tensors on the model's GPU, which are read where they lie, and given to others: through DLPack, <https://dmlc.github.io/dlpack>.

#![allow(unsafe_code, reason = "DLPack's tensors are pointers")]

use std::ffi::CStr;

use hipvit::DType;
use hipvit::dtype::from_hip;
use hipvit::hip::{Device, DlpackTensor, ForeignMemory, Stream};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::error::argument;

/// Name of a capsule whose tensor has not been consumed.
const NAME: &CStr = c"dltensor";

/// A tensor on a GPU, which its library gets back when this is dropped.
pub struct DeviceTensor {
    pub memory: ForeignMemory,
    pub dtype: DType,
    pub shape: Vec<usize>,
    _tensor: DlpackTensor,
}

/// The tensor on `gpu` that `object` is; `None` if it is none, or on another device. Its library makes the stream wait for the work that
/// writes it. The result has to be kept until the stream has done all that reads it.
pub fn on_gpu(
    object: &Bound<'_, PyAny>,
    gpu: &Device,
    stream: impl FnOnce() -> PyResult<Stream>,
) -> PyResult<Option<DeviceTensor>> {
    if !object.hasattr("__dlpack_device__")? {
        return Ok(None);
    }
    let py = object.py();
    let device = object
        .call_method0("__dlpack_device__")?
        .extract::<(i32, i32)>()?;
    let ours = gpu.dlpack();
    if device != ours {
        return Ok(None);
    }
    // A tensor of torch that autograd follows refuses to be exported.
    let object = if object.hasattr("detach")? {
        object.call_method0("detach")?
    } else {
        object.clone()
    };
    let stream = stream()?;
    let options = PyDict::new(py);
    options.set_item("stream", stream.handle())?;
    let capsule = object.call_method("__dlpack__", (), Some(&options))?;
    let capsule = capsule.cast_into::<PyCapsule>()?;
    // SAFETY: the capsule lives. A pointer of this name is to a `DLManagedTensor`, which is given back by whoever renames the capsule, as
    // DLPack has it; its library can be called while Python's lock is held, as it is wherever the result is dropped.
    let tensor = unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr());
        if raw.is_null() || ffi::PyCapsule_SetName(capsule.as_ptr(), c"used_dltensor".as_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        DlpackTensor::from_raw(raw)
    };
    let wrong = |reason: String| argument(py, format!("images: the tensor on {} {reason}", gpu.name()));
    let tensor = tensor.ok_or_else(|| wrong("is a null pointer".into()))?;
    if tensor.device() != ours {
        return Err(wrong(format!(
            "is exported as one on device {:?}",
            tensor.device()
        )));
    }
    if !tensor.is_row_major() {
        return Err(wrong("is not row-major: make it contiguous".into()));
    }
    let dtype = tensor.dtype();
    let dtype = dtype.ok_or_else(|| wrong("has neither uint8 nor float32 elements".into()))?;
    // SAFETY: it is on this GPU, and its library was told of the stream. It stays as long as the result, whose owner waits for the stream.
    let memory = unsafe { tensor.memory(&stream) };
    let memory = memory.map_err(|error| wrong(error.to_string()))?;
    let shape = tensor.shape().iter().map(|&extent| extent as usize).collect();
    Ok(Some(DeviceTensor {
        memory,
        dtype: from_hip(dtype),
        shape,
        _tensor: tensor,
    }))
}

/// Wraps `tensor` in a capsule. The importer takes the tensor over; otherwise the capsule's destructor frees it.
pub fn capsule(py: Python<'_>, tensor: DlpackTensor) -> PyResult<Bound<'_, PyCapsule>> {
    let raw = tensor.into_raw();
    // SAFETY: the pointer is not null, and the name lives as long as the program.
    let capsule = unsafe { ffi::PyCapsule_New(raw, NAME.as_ptr(), Some(give_back)) };
    if capsule.is_null() {
        // SAFETY: it was just given away by its owner, and nobody has it.
        drop(unsafe { DlpackTensor::from_raw(raw) });
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference to a capsule.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule).cast_into_unchecked() })
}

unsafe extern "C" fn give_back(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule. Whoever takes the tensor over renames it, as DLPack has it; else the pointer is that of
    // `capsule`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            drop(DlpackTensor::from_raw(ffi::PyCapsule_GetPointer(
                capsule,
                NAME.as_ptr(),
            )));
        }
    }
}
