//! Validation of the GPU executor, and of its kernels in forms that no op needs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::backend::Backend;
use super::cases::{self, Addresses, Case, KernelForm, Resize, Role, Work};
use super::check::{Batch, Clock, Content, FILL, MARGIN, Run, regions};
use super::digest::{CodeDigest, Loaded};
use super::operands::{Operands, stored};
use super::rounded_rows;
use crate::peaks::{Peaks, measure_gpu};
use hipvit::error::{Error, Result};
use hipvit::exec::select::{Choice, SelectOptions, Sparse, Store};
use hipvit::exec::{ExecutorOptions, HipExecutor};
use hipvit::graph::plan::Plan;
use hipvit::hip::{Device, DeviceAddress, DeviceBuffer, Operand, SparseLt, Stream};
use hipvit::image::{Resampling, Window};
use hipvit::kernels::{DevicePass, ImagePass, Kernels, ResizeKernels, SparseOrder, has_int8_gemm};
use hipvit::ops::{Attention, AttentionBackward, GridMask, Linear, Op, Rounding};
use hipvit::tensor::DType;

/// Maximum number of launches that are timed together.
const MAX_LAUNCHES: usize = 50;

/// A GPU.
pub(super) struct Hip {
    device: Device,
    loaded: Mutex<Loaded>,
}

impl Hip {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device,
            loaded: Mutex::default(),
        }
    }
}

impl Backend for Hip {
    fn device(&self) -> String {
        format!("hip:{}", self.device.ordinal())
    }

    fn name(&self) -> String {
        let properties = self.device.properties();
        format!("{}, {}", properties.name, properties.target)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32, DType::F16, DType::BF16]
    }

    fn lacks(&self, case: &Case, dtype: DType) -> Option<&'static str> {
        match case.work {
            Work::Op(Op::Normalize(_) | Op::PatchConv(_)) => {
                Some("GPU plans have patch_extract and linear instead")
            }
            Work::Op(Op::Linear(Linear {
                rounding: Some(rounding),
                ..
            })) => self.lacks_bytes(case, rounding, dtype),
            Work::Op(_) if case.sparse_weight().is_some() => self.lacks_sparse(case.sparse_weight()?, dtype),
            Work::Op(
                Op::Attention(Attention { key_mask: true, .. })
                | Op::AttentionBackward(AttentionBackward(Attention { key_mask: true, .. })),
            ) => Some("GPU plans compute key masks; the kernels' masks are validated as such"),
            _ => None,
        }
    }

    fn free_memory(&self) -> Result<Option<usize>> {
        let (free, _) = self.device.memory()?;
        Ok(Some(free + self.device.pool_stats().unused()))
    }

    fn peaks(&self, dtypes: &[DType]) -> Peaks {
        measure_gpu(&self.device, dtypes)
    }

    fn run(&self, case: &Case, operands: &Operands, dtype: DType, clock: Option<Clock<'_>>) -> Result<Run> {
        match &case.work {
            Work::Op(op) => self.run_op(case, op, operands, dtype, clock),
            Work::Kernel(form) => self.run_kernel(case, form.as_ref(), operands, dtype, clock),
            Work::Resize(resize) => self.run_resize(case, resize, operands, clock),
        }
    }

    fn code(&self) -> Vec<CodeDigest> {
        self.loaded.lock().list()
    }
}

impl Hip {
    /// Returns the reason if the zeros of a 2:4 sparse weight are not skipped.
    fn lacks_sparse(&self, weight: &cases::Operand, dtype: DType) -> Option<&'static str> {
        if dtype.size() != 2 {
            return Some("2:4 sparse weights are packed in 16 bits");
        }
        if SparseOrder::of(self.device.properties().arch()).is_none() {
            return Some("the GPU does not skip the zeros of 2:4 sparse weights");
        }
        if weight.role == Role::SparseWeight {
            return None;
        }
        if weight.shape.iter().any(|extent| !extent.is_multiple_of(8)) {
            return Some("hipSPARSELt needs multiples of 8 channels");
        }
        let stream = self.device.stream().ok()?;
        let opened = SparseLt::with_workspace(&stream, 0);
        opened.err().map(|_| "hipSPARSELt cannot be opened for the GPU")
    }

    /// Returns the reason if an 8-bit GEMM is not supported.
    fn lacks_bytes(&self, case: &Case, rounding: Rounding, dtype: DType) -> Option<&'static str> {
        let multiples_of = |channels: usize| {
            let weight = &case.operands[1].shape;
            weight.iter().all(|extent| extent.is_multiple_of(channels))
        };
        let properties = self.device.properties();
        match rounding {
            Rounding::Int8(_)
                if properties.arch().starts_with("sm_")
                    && !multiples_of(4)
                    && !has_int8_gemm(properties.arch()) =>
            {
                Some("cuBLAS int8 GEMMs need multiples of 4 channels")
            }
            Rounding::Int8(_) => None,
            Rounding::Float8(_) if properties.float8().is_none() => Some("the GPU does not multiply FP8"),
            Rounding::Float8(_) if dtype.size() != 2 => Some("FP8 GEMMs need 16-bit activations"),
            Rounding::Float8(_) if !multiples_of(16) => Some("FP8 GEMMs need multiples of 16 channels"),
            Rounding::Float8(_) => None,
            Rounding::Bf16 => Some("GPUs compute it in the activations' dtype, without rounding"),
        }
    }

    fn run_op(
        &self,
        case: &Case,
        op: &Op,
        operands: &Operands,
        dtype: DType,
        clock: Option<Clock<'_>>,
    ) -> Result<Run> {
        let (graph, placed) = operands.graph(case, op)?;
        let graph = Arc::new(graph);
        let select = SelectOptions {
            sparse: match case.sparse_weight().map(|weight| weight.role) {
                Some(Role::CompressedWeight) => Sparse::On,
                Some(_) => Sparse::Builtin,
                None => Sparse::Off,
            },
            // Measured times would select one of them.
            measured: case.sparse_weight().is_none(),
            ..SelectOptions::default()
        };
        let options = ExecutorOptions {
            select,
            ..ExecutorOptions::new(dtype)
        };
        let mut executor = HipExecutor::new(&graph, &self.device, &options)?;
        self.loaded.lock().add(executor.code())?;
        let plan = Plan::new(graph, case.batch(), dtype)?;
        let measure = |first, batch: Batch<'_>| match clock {
            Some(clock) => clock(first, MAX_LAUNCHES, batch),
            None => Ok(()),
        };
        let memory = executor.run_guarded(&plan, operands.input(), (MARGIN, FILL), measure)?;
        let step = plan.steps().last();
        let mut regions = regions(&plan, &placed, case.result);
        if matches!(op, Op::Linear(spec) if matches!(spec.rounding, Some(Rounding::Int8(_)))) {
            // Check the other candidate, if there is one. Integer sums are exact, so both have the same bits.
            let mut store = Store::default();
            for (problem, _) in executor.problems(&plan)? {
                store.insert(problem, Choice::Int8, 0.0);
            }
            executor.set_tuned(store);
            let other = executor.run_guarded(&plan, operands.input(), (MARGIN, FILL), |_, _| Ok(()))?;
            if memory != other {
                let reason = "int8_gemm and the library's GEMM give different bits";
                return Err(Error::graph(case.op_name(), reason));
            }
        }
        if let Some(kernels) = rounded_rows::check(&self.device, case, op, operands, dtype)? {
            self.loaded.lock().add(kernels.code())?;
        }
        if let (Op::GridMask(GridMask), Some((result, _))) = (op, regions.last_mut()) {
            // The result has 8 bits, in a buffer for the plan's dtype.
            result.end = result.start + result.len() / dtype.size();
        }
        Ok(Run {
            memory,
            regions,
            bytes: step.map_or(0, |step| step.bytes_read + step.bytes_written),
        })
    }

    fn run_kernel(
        &self,
        case: &Case,
        form: &dyn KernelForm,
        operands: &Operands,
        dtype: DType,
        clock: Option<Clock<'_>>,
    ) -> Result<Run> {
        let layout = Layout::new(case, operands, dtype)?;
        let stream = self.device.stream()?;
        let memory = stream.upload(&layout.bytes)?;
        let refused = |reason| Error::graph(case.op_name(), reason);
        let addresses = layout.addresses(memory.address(), dtype);
        let call = form.call(&case.shapes(), &addresses).map_err(refused)?;
        let kernels = Kernels::load(&self.device, dtype, [call.unit().map_err(refused)?])?;
        self.loaded.lock().add(kernels.code())?;
        layout.run(&stream, memory, clock, |memory| {
            call.launch(&kernels, &stream, &[memory])
        })
    }

    fn run_resize(
        &self,
        case: &Case,
        resize: &Resize,
        operands: &Operands,
        clock: Option<Clock<'_>>,
    ) -> Result<Run> {
        let layout = Layout::new(case, operands, DType::U8)?;
        let stream = self.device.stream()?;
        let memory = stream.upload(&layout.bytes)?;
        let kernels = ResizeKernels::load(&self.device)?;
        self.loaded.lock().add(kernels.code())?;
        let whole = Window::whole(resize.output);
        let resampling = Resampling::new(resize.input, resize.output, resize.filter, whole)?;
        let mut size = resize.input;
        let mut passes = Vec::new();
        for pass in resampling.passes() {
            let pass_on_device = DevicePass::new(pass, size)?;
            let tables = stream.upload(pass_on_device.tables())?;
            passes.push((
                pass_on_device,
                tables,
                stream.zeroed::<u8>(pass.output().iter().product::<usize>() * 3)?,
            ));
            size = pass.output();
        }
        let [from, to] = [0, 1].map(|index| layout.regions[index].0.clone());
        layout.run(&stream, memory, clock, |memory| {
            let mut input = memory.part(from.clone())?;
            let last = passes.len().saturating_sub(1);
            for (index, (pass, tables, result)) in passes.iter_mut().enumerate() {
                let output = if index == last {
                    memory.part(to.clone())?
                } else {
                    result.writing()
                };
                let tables = tables.reading();
                let pass = ImagePass {
                    pass,
                    tables,
                    input,
                    output,
                };
                kernels.launch(&stream, &[pass])?;
                input = output;
            }
            Ok(())
        })
    }
}

/// Returns the device time of the submitted work.
fn device_time(stream: &Stream, submit: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let before = stream.record()?;
    submit()?;
    Ok(stream.record()?.since(&before)?)
}

/// The operands and the result of a kernel in one allocation, with margins between them.
struct Layout {
    bytes: Vec<u8>,
    regions: Vec<(Range<usize>, Content)>,
    /// Offset of each operand.
    operands: Vec<usize>,
    /// Bytes that are read and written.
    moved: u64,
}

impl Layout {
    fn new(case: &Case, operands: &Operands, dtype: DType) -> Result<Self> {
        let mut layout = Self {
            bytes: vec![FILL; MARGIN],
            regions: Vec::new(),
            operands: vec![0; operands.tensors.len()],
            moved: 0,
        };
        let elements: usize = case.result()?.iter().product();
        let mut result = vec![FILL; elements * case.result_dtype(dtype).size()];
        for (index, tensor) in operands.tensors.iter().enumerate() {
            let dtype = match case.operands[index].role {
                Role::Single => DType::F32,
                _ => dtype,
            };
            if case.in_place() == Some(index) {
                result = stored(tensor, dtype);
                layout.moved += result.len() as u64;
            } else {
                layout.operands[index] = layout.add(&stored(tensor, dtype), Content::Operand(index));
            }
        }
        let at = layout.add(&result, Content::Result);
        if let Some(index) = case.in_place() {
            layout.operands[index] = at;
        }
        Ok(layout)
    }

    /// Adds contents. Returns their offset.
    fn add(&mut self, contents: &[u8], content: Content) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(contents);
        self.moved += contents.len() as u64;
        self.regions.push((start..self.bytes.len(), content));
        let end = self.bytes.len().next_multiple_of(256) + MARGIN;
        self.bytes.resize(end, FILL);
        start
    }

    /// Returns the addresses for a layout that begins at `base`. The result is the last region.
    fn addresses(&self, base: DeviceAddress, dtype: DType) -> Addresses {
        let result = self.regions.last().map_or(0, |(range, _)| range.start);
        Addresses {
            operands: self.operands.iter().map(|&at| base.offset(at)).collect(),
            result: base.offset(result),
            element: dtype.size(),
        }
    }

    /// Submits once and copies the memory back. Then submits as `clock` requests, without checking the memory
    /// again.
    fn run(
        self,
        stream: &Stream,
        mut memory: DeviceBuffer<u8>,
        clock: Option<Clock<'_>>,
        mut submit: impl FnMut(Operand<'_>) -> Result<()>,
    ) -> Result<Run> {
        let mut batch = |memory: &mut DeviceBuffer<u8>, count: usize| {
            device_time(stream, || (0..count).try_for_each(|_| submit(memory.writing())))
        };
        let first = batch(&mut memory, 1)?;
        let result = memory.read()?;
        if let Some(clock) = clock {
            clock(first, MAX_LAUNCHES, &mut |count| batch(&mut memory, count))?;
        }
        Ok(Run {
            memory: result,
            bytes: self.moved,
            regions: self.regions,
        })
    }
}
