//! The part of `hipvit.attention` that computes: a checked pattern, on NumPy's arrays and on tensors of GPUs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipvit::DType;
use hipvit::attention::{CpuAttention, GpuAttention, Number, Pattern, Program, Type};
use hipvit::hip::{Device, Operand, Runtime, Stream};
use hipvit::ops::{AttentionOperands, PatternAttention};
use hipvit::reference::Array;
use hipvit::tensor::Input;
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dlpack::{self, DeviceTensor, NO_WAIT};
use crate::dtype::long_name;
use crate::error::{Kind, argument, convert, raise};
use crate::process;

/// Score and mask of attention, checked. Its code is compiled on first use, and kept.
#[derive(Debug)]
#[pyclass(frozen, module = "hipvit")]
pub struct AttentionPattern {
    program: Arc<Program>,
    /// Attention on GPUs for the shapes and scalars of its first use.
    compiled: Mutex<HashMap<Code, Arc<GpuAttention>>>,
    /// Attention on GPUs for some shapes and scalars.
    adapted: Mutex<HashMap<Key, Arc<GpuAttention>>>,
}

/// Maximum number of combinations of shapes and scalars that are kept. Their code is shared.
const ADAPTED: usize = 64;

/// What code is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Code {
    device: usize,
    dtype: DType,
    head_dim: usize,
    has_derivative: bool,
}

/// What [`GpuAttention`] is prepared for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    code: Code,
    heads: usize,
    /// Bits of the scalars and the scale.
    numbers: Vec<u32>,
    shapes: Vec<Vec<usize>>,
}

#[pymethods]
impl AttentionPattern {
    /// Checks a pattern in JSON.
    #[new]
    fn new(py: Python<'_>, json: &str) -> PyResult<Self> {
        let pattern: Pattern =
            serde_json::from_str(json).map_err(|error| argument(py, format!("attention: {error}")))?;
        let program = pattern.compile();
        let program = program.map_err(|error| argument(py, format!("attention: {error}")))?;
        Ok(Self {
            program: Arc::new(program),
            compiled: Mutex::default(),
            adapted: Mutex::default(),
        })
    }

    /// Computes attention in f32 on the CPU. The operands are queries, keys and values, `[B, tokens, heads, head_dim]`, and the captured
    /// tensors. Returns the result, and `ln Σ e^s` if the derivative needs it.
    #[pyo3(signature = (scale, scalars, operands, *, has_derivative = false))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        scale: f32,
        scalars: Vec<f64>,
        operands: Vec<Bound<'py, PyAny>>,
        has_derivative: bool,
    ) -> PyResult<Vec<Bound<'py, PyArrayDyn<f32>>>> {
        self.run_on_cpu(py, scale, &scalars, &operands, has_derivative, 0)
    }

    /// Computes the derivative in f32 on the CPU. The operands are those of `forward`, its results, and the gradient of the first one.
    /// Returns the gradients of the operands that are floats.
    fn backward<'py>(
        &self,
        py: Python<'py>,
        scale: f32,
        scalars: Vec<f64>,
        operands: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyArrayDyn<f32>>>> {
        self.run_on_cpu(py, scale, &scalars, &operands, true, 3)
    }

    /// Submits attention to `stream`, a handle of the driver. Operands and results are tensors of the stream's GPU, as those of `forward`.
    fn forward_on_gpu<'py>(
        &self,
        py: Python<'py>,
        scale: f32,
        scalars: Vec<f64>,
        operands: Vec<Bound<'py, PyAny>>,
        results: Vec<Bound<'py, PyAny>>,
        stream: usize,
    ) -> PyResult<()> {
        let has_derivative = results.len() > 1;
        let results: Vec<_> = results.into_iter().map(Some).collect();
        let call = OnGpu::new(&operands, &results, stream)?;
        let attention = self.gpu_attention(py, &call, scale, &scalars, (has_derivative, 0))?;
        call.run(py, |stream, operands, results| {
            let results: Vec<_> = results.iter().copied().flatten().collect();
            attention.forward(stream, operands, &results)
        })
    }

    /// Submits the derivative to `stream`, as `forward_on_gpu` submits attention. The results are the gradients; `None` leaves out that of a
    /// captured tensor.
    fn backward_on_gpu<'py>(
        &self,
        py: Python<'py>,
        scale: f32,
        scalars: Vec<f64>,
        operands: Vec<Bound<'py, PyAny>>,
        gradients: Vec<Option<Bound<'py, PyAny>>>,
        stream: usize,
    ) -> PyResult<()> {
        let call = OnGpu::new(&operands, &gradients, stream)?;
        let attention = self.gpu_attention(py, &call, scale, &scalars, (true, 3))?;
        call.run(py, |stream, operands, gradients| {
            attention.backward(stream, operands, gradients)
        })
    }
}

impl AttentionPattern {
    /// Returns the op. Its operands have these shapes, of which those of queries, keys and values become `[B, tokens, channels]`.
    fn op(
        &self,
        py: Python<'_>,
        (scale, scalars): (f32, &[f64]),
        shapes: &mut [Vec<usize>],
        log_sum_exp: bool,
    ) -> PyResult<PatternAttention> {
        let tokens = shapes.get_mut(..3).unwrap_or_default();
        let mut heads = None;
        for shape in tokens {
            let [images, tokens, count, head_dim] = shape[..] else {
                break;
            };
            heads.get_or_insert((count, head_dim));
            *shape = vec![images, tokens, count * head_dim];
        }
        let heads =
            heads.ok_or_else(|| argument(py, "attention: q is not [batch, tokens, heads, head_dim]"))?;
        let captured = shapes.get(3..).unwrap_or_default();
        let captured: Vec<&[usize]> = captured.iter().map(Vec::as_slice).collect();
        let checked = self.program.check_tensors(&captured);
        checked.map_err(|error| argument(py, format!("attention: {error}")))?;
        let scalars = self.program.scalars().iter().zip(scalars);
        Ok(PatternAttention {
            heads: heads.0,
            head_dim: heads.1,
            scale,
            operands: AttentionOperands::Separate,
            program: self.program.clone(),
            scalars: scalars
                .map(|(scalar, &value)| match scalar.ty {
                    Type::Float => Number::Float(value as f32),
                    Type::Int | Type::Bool => Number::Int(value as i32),
                })
                .collect(),
            log_sum_exp,
        })
    }

    /// Runs attention, or its derivative if the operands are followed by `after` more.
    fn run_on_cpu<'py>(
        &self,
        py: Python<'py>,
        scale: f32,
        scalars: &[f64],
        operands: &[Bound<'py, PyAny>],
        log_sum_exp: bool,
        after: usize,
    ) -> PyResult<Vec<Bound<'py, PyArrayDyn<f32>>>> {
        process::check(py)?;
        let arrays = operands.iter().map(OnCpu::new).collect::<PyResult<Vec<_>>>()?;
        let before = arrays
            .get(..arrays.len().saturating_sub(after))
            .unwrap_or_default();
        let mut shapes: Vec<Vec<usize>> = before.iter().map(OnCpu::shape).collect();
        let of_heads = shapes.clone();
        let op = self.op(py, (scale, scalars), &mut shapes, log_sum_exp)?;
        let inputs = arrays.iter().map(OnCpu::input).collect::<PyResult<Vec<_>>>()?;
        let computed = py.detach(|| {
            let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            let attention = CpuAttention::new(&op, &shapes)?;
            if after == 0 {
                attention.forward(&inputs)
            } else {
                attention.backward(&inputs)
            }
        });
        let computed = computed.map_err(|error| convert(py, &error, None))?;
        let results = computed.into_iter().enumerate();
        results
            .map(|(index, array)| {
                // The result has the shape of the queries, and gradients have those of their operands.
                let tokens = if after == 0 { 1 } else { 3 };
                let shape = of_heads.get(index).filter(|_| index < tokens);
                let shape = shape.map_or_else(|| array.shape().to_vec(), Clone::clone);
                own(py, array, shape)
            })
            .collect()
    }

    /// Returns attention for the operands of a call, of which the last `after` are those of the derivative. Compiles it on first use.
    fn gpu_attention(
        &self,
        py: Python<'_>,
        call: &OnGpu,
        scale: f32,
        scalars: &[f64],
        (has_derivative, after): (bool, usize),
    ) -> PyResult<Arc<GpuAttention>> {
        let operands = call.operands.len().saturating_sub(after);
        let operands = call.operands.get(..operands).unwrap_or_default();
        let mut shapes: Vec<Vec<usize>> = operands.iter().map(|tensor| tensor.shape.clone()).collect();
        let op = self.op(py, (scale, scalars), &mut shapes, has_derivative)?;
        let dtype = call.dtype(py, self.program.tensors().iter().map(|tensor| tensor.ty), after)?;
        let bits = |number: &Number| match *number {
            Number::Int(value) => value.cast_unsigned(),
            Number::Float(value) => value.to_bits(),
        };
        let gpu = call.stream.device();
        let code = Code {
            device: gpu.ordinal(),
            dtype,
            head_dim: op.head_dim,
            has_derivative,
        };
        let key = Key {
            code,
            heads: op.heads,
            numbers: op.scalars.iter().map(bits).chain([scale.to_bits()]).collect(),
            shapes,
        };
        if let Some(known) = lock(&self.adapted).get(&key) {
            return Ok(known.clone());
        }
        let compiled = lock(&self.compiled).get(&code).cloned();
        let shapes: Vec<&[usize]> = key.shapes.iter().map(Vec::as_slice).collect();
        let attention = py.detach(|| match &compiled {
            Some(compiled) => compiled.adapted(&op, &shapes),
            None => GpuAttention::new(gpu, dtype, &op, &shapes),
        });
        let attention = Arc::new(attention.map_err(|error| convert(py, &error, None))?);
        if compiled.is_none() {
            lock(&self.compiled).insert(code, attention.clone());
        }
        let mut adapted = lock(&self.adapted);
        if adapted.len() >= ADAPTED {
            adapted.clear();
        }
        adapted.insert(key, attention.clone());
        Ok(attention)
    }
}

// No code panics while one of the mutexes is locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own<'py>(py: Python<'py>, array: Array<f32>, shape: Vec<usize>) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let values = array.into_values().into_pyarray(py);
    values.reshape(shape)
}

/// An operand in host memory, row-major.
enum OnCpu<'py> {
    Floats(PyReadonlyArrayDyn<'py, f32>),
    Integers(PyReadonlyArrayDyn<'py, i32>),
}

impl<'py> OnCpu<'py> {
    fn new(operand: &Bound<'py, PyAny>) -> PyResult<Self> {
        let refused = || {
            argument(
                operand.py(),
                "attention: is no row-major array of float32 or int32",
            )
        };
        let array = if let Ok(floats) = operand.cast::<PyArrayDyn<f32>>() {
            Self::Floats(floats.readonly())
        } else {
            Self::Integers(
                operand
                    .cast::<PyArrayDyn<i32>>()
                    .map_err(|_| refused())?
                    .readonly(),
            )
        };
        let is_row_major = match &array {
            Self::Floats(array) => array.is_c_contiguous(),
            Self::Integers(array) => array.is_c_contiguous(),
        };
        if is_row_major { Ok(array) } else { Err(refused()) }
    }

    fn shape(&self) -> Vec<usize> {
        match self {
            Self::Floats(array) => array.shape().to_vec(),
            Self::Integers(array) => array.shape().to_vec(),
        }
    }

    fn input(&self) -> PyResult<Input<'_>> {
        Ok(match self {
            Self::Floats(array) => Input::Values(array.as_slice()?),
            Self::Integers(array) => Input::Integers(array.as_slice()?),
        })
    }
}

/// Operands and results of a call on a GPU, and the stream that it is submitted to.
struct OnGpu {
    stream: Stream,
    operands: Vec<DeviceTensor>,
    /// `None` is not computed.
    results: Vec<Option<DeviceTensor>>,
}

impl OnGpu {
    fn new(
        operands: &[Bound<'_, PyAny>],
        results: &[Option<Bound<'_, PyAny>>],
        handle: usize,
    ) -> PyResult<Self> {
        let first = operands.first();
        let first = first.ok_or_else(|| PyValueError::new_err("attention: has no operands"))?;
        let py = first.py();
        process::check(py)?;
        let stream = dlpack::foreign_stream(&gpu(py, dlpack::device_of(first)?)?, handle);
        // The stream is the one that the tensors' library works on.
        let import = |tensor: &Bound<'_, PyAny>| dlpack::import(tensor, &stream, NO_WAIT, "attention");
        let operands = operands.iter().map(import).collect::<PyResult<_>>()?;
        let results = results
            .iter()
            .map(|tensor| tensor.as_ref().map(import).transpose());
        let results = results.collect::<PyResult<_>>()?;
        Ok(Self {
            stream,
            operands,
            results,
        })
    }

    /// Returns the dtype of the activations. `captured` are the types of the captured tensors.
    fn dtype(&self, py: Python<'_>, captured: impl Iterator<Item = Type>, after: usize) -> PyResult<DType> {
        let mut operands = self.operands.iter().map(|tensor| tensor.dtype);
        let dtype = operands.next().unwrap_or(DType::F32);
        let captured = captured.map(|ty| if ty == Type::Float { dtype } else { DType::I32 });
        let expected = [dtype; 2].into_iter().chain(captured);
        let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        let count = self.operands.len() - after - 1;
        if is_float && operands.take(count).eq(expected) {
            return Ok(dtype);
        }
        let dtype = long_name(dtype);
        Err(argument(
            py,
            format!("attention: operands have other dtypes than {dtype} and int32"),
        ))
    }

    /// Submits work with the operands and the results.
    fn run(
        mut self,
        py: Python<'_>,
        submit: impl FnOnce(&Stream, &[Operand<'_>], &[Option<Operand<'_>>]) -> hipvit::Result<()>,
    ) -> PyResult<()> {
        let operands = self.operands.iter().map(|tensor| tensor.memory.reading());
        let operands: Vec<_> = operands.collect();
        let results = self.results.iter_mut();
        let results: Vec<_> = results
            .map(|tensor| tensor.as_mut().map(|tensor| tensor.memory.writing()))
            .collect();
        // Submitting takes less time than to release the GIL and to get it back.
        let submitted = submit(&self.stream, &operands, &results);
        submitted.map_err(|error| convert(py, &error, None))
    }
}

/// Returns the GPU that DLPack calls `device`.
fn gpu(py: Python<'_>, device: (i32, i32)) -> PyResult<Device> {
    static GPUS: Mutex<Vec<((i32, i32), Device)>> = Mutex::new(Vec::new());
    let known = lock(&GPUS)
        .iter()
        .find(|(other, _)| *other == device)
        .map(|(_, gpu)| gpu.clone());
    if let Some(gpu) = known {
        return Ok(gpu);
    }
    let open = || Ok(Runtime::open()?.device(usize::try_from(device.1).unwrap_or(0))?);
    let gpu: hipvit::Result<Device> = py.detach(open);
    let gpu = gpu.map_err(|error| convert(py, &error, None))?;
    if gpu.dlpack() != device {
        let message = format!(
            "attention: the tensors are on device {device:?} of DLPack, and hipvit drives {} as {:?}. Set HIPVIT_PROVIDER to the \
             libraries of the tensors' GPU",
            gpu.name(),
            gpu.dlpack()
        );
        return Err(raise(py, Kind::Device, &message));
    }
    lock(&GPUS).push((device, gpu.clone()));
    Ok(gpu)
}
