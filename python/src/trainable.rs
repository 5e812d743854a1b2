//! The part of `hipvit.torch.TrainableModel` that computes: logits and gradients, on NumPy's arrays and on tensors of GPUs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hipvit::DType;
use hipvit::exec::InputData;
use hipvit::hip::{Device, Stream};
use hipvit::model::{Checkpoint, InputKind, TensorValues};
use hipvit::tensor::Input as Elements;
use hipvit_train::differentiable::{Arguments, Differentiable as Function, DifferentiableOptions};
use hipvit_train::initial::{InitialModel, Start};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::{parse_dtype, parse_image_size, parse_input};
use crate::dlpack::{self, DeviceTensor};
use crate::dtype::long_name;
use crate::error::{argument, convert};
use crate::gpu_outputs::GpuTensor;
use crate::images::{self, Input};
use crate::process;
use crate::training::parse_device;

/// Name, shape and parts of a weight. The rows of the parts are: first element in the weight, index of the tensor, first element in the
/// tensor, number of elements.
type WeightParts<'py> = (String, Bound<'py, PyTuple>, Bound<'py, PyArray2<i64>>);

/// Writes the model that training starts from: a checkpoint with a classifier for the classes, or a new model.
#[pyfunction]
pub fn new_model(
    py: Python<'_>,
    model: PathBuf,
    directory: PathBuf,
    classes: Vec<String>,
    image_size: Option<usize>,
    seed: u64,
) -> PyResult<()> {
    let written = py.detach(|| {
        let start = Start::of(&model, image_size);
        InitialModel::new(start, &classes, seed)?.write(&directory)
    });
    written.map_err(|error| convert(py, &error, None))
}

/// A model as a function of its images and weights, with its derivative. It has no state, so copies share it.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct Differentiable {
    function: Function,
    /// True if the images are `pixel_values`.
    values: bool,
    /// Stream that reads tensors on the GPU.
    reader: OnceLock<Stream>,
}

#[pymethods]
impl Differentiable {
    #[new]
    #[pyo3(signature = (model, *, device = None, dtype = None, input = "pixel_values", image_size = None, threads = None))]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        device: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        input: &str,
        image_size: Option<&Bound<'_, PyAny>>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        process::check(py)?;
        if Start::of(&model, None).is_from_scratch() {
            let message = format!(
                "model: {} has no weights. Give the classes, such as classes=10, to create some",
                model.display()
            );
            return Err(argument(py, message));
        }
        let options = DifferentiableOptions {
            device: parse_device(device)?,
            dtype: dtype.map_or(Ok(DType::F32), parse_dtype)?,
            threads,
            input: parse_input(py, input)?,
            image_size: image_size.map(parse_image_size).transpose()?,
        };
        let function = py.detach(|| Function::new(Checkpoint::open(Some(&model))?, &options));
        Ok(Self {
            function: function.map_err(|error| convert(py, &error, None))?,
            values: options.input == InputKind::PixelValues,
            reader: OnceLock::new(),
        })
    }

    /// Returns the parts of each weight.
    #[getter]
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Vec<WeightParts<'py>>> {
        let weights = self.function.weights().iter();
        weights
            .map(|weight| {
                let rows = weight.parts.iter();
                let rows = rows.flat_map(|part| [part.to, part.tensor, part.from, part.len]);
                let rows: Vec<i64> = rows.map(|number| number as i64).collect();
                let rows = PyArray1::from_vec(py, rows).reshape([weight.parts.len(), 4])?;
                Ok((weight.name.clone(), PyTuple::new(py, &weight.shape)?, rows))
            })
            .collect()
    }

    /// Returns the elements of each tensor of the checkpoint. `None` for integers.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tensors = PyDict::new(py);
        let checkpoint = self.function.checkpoint();
        for (name, shape) in checkpoint.tensors() {
            let elements = checkpoint.tensor(name).ok();
            let elements = elements.map(|tensor| tensor.to_f32().into_owned().into_pyarray(py));
            let array = elements.map(|array| array.reshape(shape.to_vec())).transpose()?;
            tensors.set_item(name, array)?;
        }
        Ok(tensors)
    }

    /// Reason why a tensor has no gradient, by the tensor's name.
    #[getter]
    fn frozen(&self) -> BTreeMap<String, &'static str> {
        let frozen = self.function.frozen().iter();
        frozen
            .map(|frozen| (frozen.tensor.clone(), frozen.reason))
            .collect()
    }

    /// Dtypes in which a pass reads the weights from GPU memory. The last one of the backward pass is that of the gradient.
    fn dtypes(&self, py: Python<'_>, is_backward: bool) -> PyResult<Vec<&'static str>> {
        let dtypes = self.function.dtypes(is_backward);
        let dtypes = dtypes.map_err(|error| convert(py, &error, None))?;
        Ok(dtypes.into_iter().map(long_name).collect())
    }

    /// Returns the logits `[B, classes]`: an array, or a tensor on the GPU if the images are on it.
    fn forward<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        weights: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = images.py();
        process::check(py)?;
        if let Some(call) = self.on_gpu(images, &weights, None)? {
            let arguments = call.arguments();
            let logits = py.detach(|| self.function.forward_on_gpu(arguments));
            let logits = logits.map_err(|error| convert(py, &error, None))?;
            return Ok(Bound::new(py, GpuTensor(logits))?.into_any());
        }
        let call = self.on_host(images, &weights, None)?;
        let arguments = call.arguments()?;
        let logits = py.detach(|| self.function.forward(arguments));
        let logits = logits.map_err(|error| convert(py, &error, None))?;
        Ok(logits.into_pyarray(py).into_any())
    }

    /// Returns the gradient of each weight, of the kind of the images.
    fn backward<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        weights: Vec<Bound<'py, PyAny>>,
        gradient: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = images.py();
        process::check(py)?;
        if let Some(call) = self.on_gpu(images, &weights, Some(gradient))? {
            let (arguments, gradient) = (call.arguments(), call.gradient());
            let gradients = py.detach(|| self.function.backward_on_gpu(arguments, gradient?));
            let gradients = gradients.map_err(|error| convert(py, &error, None))?;
            let tensors = gradients.into_iter();
            return tensors
                .map(|tensor| Ok(Bound::new(py, GpuTensor(tensor))?.into_any()))
                .collect();
        }
        let call = self.on_host(images, &weights, Some(gradient))?;
        let (arguments, gradient) = (call.arguments()?, call.gradient()?);
        let gradients = py.detach(|| self.function.backward(arguments, gradient));
        let gradients = gradients.map_err(|error| convert(py, &error, None))?;
        let pairs = gradients.into_iter().zip(self.function.weights());
        pairs
            .map(|(gradient, weight)| {
                Ok(gradient
                    .into_pyarray(py)
                    .reshape(weight.shape.clone())?
                    .into_any())
            })
            .collect()
    }

    /// Writes the model with new elements of some tensors, in the form of the checkpoint.
    fn save(
        &self,
        py: Python<'_>,
        directory: PathBuf,
        tensors: BTreeMap<String, PyReadonlyArrayDyn<'_, f32>>,
    ) -> PyResult<()> {
        let elements = |(name, array): (String, PyReadonlyArrayDyn<'_, f32>)| {
            (name, array.as_array().iter().copied().collect())
        };
        let values: TensorValues = tensors.into_iter().map(elements).collect();
        let checkpoint = self.function.checkpoint();
        let directory: &Path = &directory;
        let saved = py.detach(|| checkpoint.write_values(directory, &values));
        saved.map_err(|error| convert(py, &error, None))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        let [height, width] = self.size();
        format!(
            "<hipvit.Differentiable {}: {height}x{width}, {} classes, {} on {}>",
            self.function.checkpoint().place().display(),
            self.function.classes(),
            long_name(self.function.dtype()),
            self.device()
        )
    }

    /// Number of classes.
    #[getter]
    fn num_classes(&self) -> usize {
        self.function.classes()
    }

    /// Height and width of the images.
    #[getter]
    fn image_size(&self) -> (usize, usize) {
        let [height, width] = self.size();
        (height, width)
    }

    /// Device: `cpu` or `hip:N`.
    #[getter]
    fn device(&self) -> String {
        let gpu = self.function.gpu();
        gpu.map_or_else(|| "cpu".to_owned(), |gpu| format!("hip:{}", gpu.ordinal()))
    }

    /// Dtype of activations and gradients.
    #[getter]
    fn dtype(&self) -> &'static str {
        long_name(self.function.dtype())
    }

    /// The GPU as a DLPack device. `None` on the CPU.
    #[getter]
    fn dlpack_device(&self) -> Option<(i32, i32)> {
        self.function.gpu().map(Device::dlpack)
    }
}

impl Differentiable {
    fn size(&self) -> [usize; 2] {
        let (width, height) = self.function.preprocess().output_size();
        [height, width]
    }

    /// Imports the arguments of a call from GPU memory. `None` if the images are not there.
    fn on_gpu(
        &self,
        images: &Bound<'_, PyAny>,
        weights: &[Bound<'_, PyAny>],
        gradient: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<OnGpu>> {
        let Some(gpu) = self.function.gpu() else {
            return Ok(None);
        };
        let py = images.py();
        let stream = || match self.reader.get() {
            Some(stream) => Ok(stream.clone()),
            None => {
                let made = gpu.stream().map_err(|error| convert(py, &error.into(), None))?;
                Ok(self.reader.get_or_init(|| made).clone())
            }
        };
        let Some(images) = dlpack::on_gpu(images, gpu, stream)? else {
            return Ok(None);
        };
        images::check_tensor(py, &images, self.values, self.size())?;
        let dtypes = self.function.dtypes(gradient.is_some());
        let dtypes = dtypes.map_err(|error| convert(py, &error, None))?;
        let stream = stream()?;
        let import = |(tensor, dtype): (&Bound<'_, PyAny>, DType)| {
            let tensor = dlpack::import(tensor, &stream, stream.handle(), "weights")?;
            if tensor.dtype == dtype {
                return Ok(tensor);
            }
            let (given, expected) = (long_name(tensor.dtype), long_name(dtype));
            Err(argument(
                py,
                format!("weights: a tensor is {given}, expected {expected}"),
            ))
        };
        let operands = weights.iter().chain(gradient).zip(dtypes);
        Ok(Some(OnGpu {
            batch: images.shape.first().copied().unwrap_or(0),
            images,
            operands: operands.map(import).collect::<PyResult<_>>()?,
            weights: weights.len(),
        }))
    }

    /// Reads the arguments of a call from host memory.
    fn on_host<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        weights: &[Bound<'py, PyAny>],
        gradient: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<OnHost<'py>> {
        let py = images.py();
        let images = images::input(images, self.values, self.size())?;
        let read = |array: &Bound<'py, PyAny>| match array.cast::<PyArrayDyn<f32>>() {
            Ok(array) if array.is_c_contiguous() => Ok(array.readonly()),
            _ => Err(argument(py, "weights: is no row-major array of float32")),
        };
        Ok(OnHost {
            images,
            weights: weights.iter().map(read).collect::<PyResult<_>>()?,
            gradient: gradient.map(read).transpose()?,
        })
    }
}

/// Arguments of a call in GPU memory.
struct OnGpu {
    batch: usize,
    images: DeviceTensor,
    /// Weights, and the gradient of the logits if there is one.
    operands: Vec<DeviceTensor>,
    /// Number of weights.
    weights: usize,
}

impl OnGpu {
    fn arguments(&self) -> Arguments<'static> {
        let weights = self.operands.iter().take(self.weights);
        Arguments {
            batch: self.batch,
            images: InputData::Device(self.images.memory.clone()),
            weights: weights
                .map(|tensor| InputData::Device(tensor.memory.clone()))
                .collect(),
        }
    }

    fn gradient(&self) -> hipvit::Result<InputData<'static>> {
        let gradient = self.operands.get(self.weights);
        let missing = || hipvit::Error::argument("gradient", "is missing");
        Ok(InputData::Device(gradient.ok_or_else(missing)?.memory.clone()))
    }
}

/// Arguments of a call in host memory.
struct OnHost<'py> {
    images: Input<'py>,
    weights: Vec<PyReadonlyArrayDyn<'py, f32>>,
    gradient: Option<PyReadonlyArrayDyn<'py, f32>>,
}

impl OnHost<'_> {
    fn arguments(&self) -> PyResult<Arguments<'_>> {
        let (images, shape) = match &self.images {
            Input::Pixels(pixels) => (Elements::Pixels(pixels.as_slice()?), pixels.shape()),
            Input::Values(values) => (Elements::Values(values.as_slice()?), values.shape()),
        };
        let weights = self.weights.iter();
        let weights = weights.map(|array| Ok(Elements::Values(array.as_slice()?).into()));
        Ok(Arguments {
            batch: if shape.len() == 4 { shape[0] } else { 1 },
            images: images.into(),
            weights: weights.collect::<PyResult<_>>()?,
        })
    }

    fn gradient(&self) -> PyResult<InputData<'_>> {
        let gradient = self.gradient.as_ref();
        let values = gradient.map_or(Ok(&[][..]), |array| array.as_slice())?;
        Ok(Elements::Values(values).into())
    }
}
