//! Tensors on GPUs, imported and exported without a copy through DLPack, <https://dmlc.github.io/dlpack>.

#![allow(unsafe_code, reason = "DLPack's tensors are pointers")]

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use hipvit::DType;
use hipvit::dtype::from_hip;
use hipvit::hip::{Device, DlpackTensor, ForeignMemory, Stream};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::error::argument;

/// Name of a capsule whose tensor has not been consumed.
const NAME: &CStr = c"dltensor";

/// A borrowed tensor on a GPU. Dropping it returns the tensor to its library.
pub struct DeviceTensor {
    pub memory: ForeignMemory,
    pub dtype: DType,
    pub shape: Vec<usize>,
    _tensor: DlpackTensor,
}

/// Imports `object` as a tensor on `gpu`. `None` if it is not a tensor, or on another device. The tensor's library makes the stream wait
/// for pending writes. Keep the result until the stream has finished all reads.
pub fn on_gpu(
    object: &Bound<'_, PyAny>,
    gpu: &Device,
    stream: impl FnOnce() -> PyResult<Stream>,
) -> PyResult<Option<DeviceTensor>> {
    if !object.hasattr("__dlpack_device__")? {
        return Ok(None);
    }
    let device = device_of(object)?;
    if device != gpu.dlpack() {
        return Ok(None);
    }
    let stream = stream()?;
    let waits = stream.handle();
    let tensor = import(object, &stream, waits, "images")?;
    Ok(Some(tensor))
}

/// Returns DLPack's device type, and the device's ordinal.
pub fn device_of(object: &Bound<'_, PyAny>) -> PyResult<(i32, i32)> {
    object.call_method0("__dlpack_device__")?.extract()
}

/// Returns the stream of another library with this handle.
pub fn foreign_stream(gpu: &Device, handle: usize) -> Stream {
    static STREAMS: Mutex<Vec<((usize, usize), Stream)>> = Mutex::new(Vec::new());
    let key = (gpu.ordinal(), handle);
    // No code panics while the mutex is locked.
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = streams.iter().find(|(other, _)| *other == key) {
        return known.clone();
    }
    // SAFETY: libraries keep their streams for the life of the process: PyTorch takes them from a pool. The handle is of this GPU, as the
    // tensors are, whose library said both.
    let stream = unsafe { gpu.foreign_stream(handle) };
    streams.push((key, stream.clone()));
    stream
}

/// The value of the protocol's argument `stream` for which no stream waits.
pub const NO_WAIT: i32 = -1;

/// Imports `object`, a tensor on the GPU of `stream`. `waits` is the protocol's argument `stream`, of the stream that waits for pending
/// writes. Keep the result until the stream has finished all work on it. `what` names the tensor in errors.
pub fn import<'py>(
    object: &Bound<'py, PyAny>,
    stream: &Stream,
    waits: impl IntoPyObject<'py>,
    what: &str,
) -> PyResult<DeviceTensor> {
    let (py, gpu) = (object.py(), stream.device());
    // A torch tensor that requires gradients cannot be exported.
    let object = if object.hasattr("detach")? {
        object.call_method0("detach")?
    } else {
        object.clone()
    };
    let options = PyDict::new(py);
    options.set_item("stream", waits)?;
    let capsule = object.call_method("__dlpack__", (), Some(&options))?;
    let capsule = capsule.cast_into::<PyCapsule>()?;
    // SAFETY: the capsule is alive. A pointer of this name is a `DLManagedTensor`, and by the protocol the consumer that renames the
    // capsule deletes it. Its library can be called while the GIL is held, as it is wherever the result is dropped.
    let tensor = unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr());
        if raw.is_null() || ffi::PyCapsule_SetName(capsule.as_ptr(), c"used_dltensor".as_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        DlpackTensor::from_raw(raw)
    };
    let wrong = |reason: String| argument(py, format!("{what}: the tensor on {} {reason}", gpu.name()));
    let tensor = tensor.ok_or_else(|| wrong("is a null pointer".into()))?;
    if tensor.device() != gpu.dlpack() {
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
    // SAFETY: the tensor is on this GPU, and its library synchronised with the stream. It lives as long as the result, whose owner waits
    // for the stream or gives memory back in its order.
    let memory = unsafe { tensor.memory(stream) };
    let memory = memory.map_err(|error| wrong(error.to_string()))?;
    let shape = tensor.shape().iter().map(|&extent| extent as usize).collect();
    Ok(DeviceTensor {
        memory,
        dtype: from_hip(dtype),
        shape,
        _tensor: tensor,
    })
}

/// Wraps `tensor` in a capsule. The importer takes the tensor over; otherwise the capsule's destructor frees it.
pub fn capsule(py: Python<'_>, tensor: DlpackTensor) -> PyResult<Bound<'_, PyCapsule>> {
    let raw = tensor.into_raw();
    // SAFETY: the pointer is not null, and the name is static.
    let capsule = unsafe { ffi::PyCapsule_New(raw, NAME.as_ptr(), Some(give_back)) };
    if capsule.is_null() {
        // SAFETY: `into_raw` just released it, and no capsule took it over.
        drop(unsafe { DlpackTensor::from_raw(raw) });
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference to a capsule.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule).cast_into_unchecked() })
}

unsafe extern "C" fn give_back(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule. By the protocol, a consumer renames the capsule. Otherwise the pointer is the one from
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
