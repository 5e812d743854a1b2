//! Results on the model's GPU, exported to other libraries through DLPack, <https://dmlc.github.io/dlpack>.

use hipvit::hip::DlpackTensor;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::dlpack;
use crate::dtype::long_name;
use crate::error::convert;

/// Results for a number of images, in order, on the model's GPU and in its dtype.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct GpuOutputs(pub hipvit::GpuOutputs);

/// A tensor on a GPU. `torch.from_dlpack` and similar functions import it without a copy.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct GpuTensor(pub hipvit::GpuTensor);

#[pymethods]
impl GpuOutputs {
    fn __len__(&self) -> usize {
        self.0.embeddings().shape()[0]
    }

    fn __repr__(&self) -> String {
        let device = self.0.embeddings().device().ordinal();
        format!(
            "<hipvit.GpuOutputs for {} images on hip:{device}>",
            self.__len__()
        )
    }

    /// `[B, classes]`, before softmax or sigmoid. `None` if the model has no classification head.
    #[getter]
    fn logits(&self) -> Option<GpuTensor> {
        self.0.logits().cloned().map(GpuTensor)
    }

    /// `[B, D]`: the input of the classification head, or the model's result if it has no head.
    #[getter]
    fn embeddings(&self) -> GpuTensor {
        GpuTensor(self.0.embeddings().clone())
    }

    /// `[B, patches, D]`. Requires `tokens=True` when the model is loaded.
    #[getter]
    fn tokens(&self) -> Option<GpuTensor> {
        self.0.tokens().map(GpuTensor)
    }

    /// `[B, prefix tokens, D]`: class, distillation and register tokens.
    #[getter]
    fn prefix_tokens(&self) -> Option<GpuTensor> {
        self.0.prefix_tokens().map(GpuTensor)
    }

    /// `[B, tokens, D]` by block, for the blocks requested when the model is loaded.
    #[getter]
    fn hidden_layers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let layers = PyDict::new(py);
        for block in self.0.hidden_layer_indices() {
            let layer = self.0.hidden_layer(block).cloned().map(GpuTensor);
            layers.set_item(block, layer)?;
        }
        Ok(layers)
    }
}

#[pymethods]
impl GpuTensor {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        long_name(self.0.dtype())
    }

    fn __len__(&self) -> usize {
        self.0.shape()[0]
    }

    fn __repr__(&self) -> String {
        let device = self.0.device().ordinal();
        format!(
            "<hipvit.GpuTensor {:?} {} on hip:{device}>",
            self.0.shape(),
            self.dtype()
        )
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.0.device().dlpack()
    }

    /// The tensor is complete when the model returns it, so that no stream has to wait.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    #[allow(clippy::needless_pass_by_value, reason = "the protocol's arguments")]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = (stream, max_version);
        if copy == Some(true) || dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            let message = format!("{} is exported in place, and not copied", self.__repr__());
            return Err(PyBufferError::new_err(message));
        }
        let tensor: DlpackTensor = self.0.to_dlpack().map_err(|error| convert(py, &error, None))?;
        dlpack::capsule(py, tensor)
    }
}
