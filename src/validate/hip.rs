//! Validation of a GPU's executor, and of its kernels in the forms that no op asks for.

use std::sync::Arc;
use std::time::Duration;

use super::backend::{Backend, best, fastest, grow, square};
use super::cases::{Case, KernelForm, Mask, Work};
use super::check::{Content, FILL, MARGIN, Run, again, regions};
use super::operands::{Operands, stored};
use super::report::{Ceilings, ProductCeiling};
use crate::error::{Error, Result};
use crate::exec::{HipExecutor, append};
use crate::graph::plan::Plan;
use crate::hip::{Blas, Device, Gemm, Stream};
use crate::kernels::{AttentionArgs, KernelArguments, Kernels, LayerNormArgs, Strided, visibility};
use crate::ops::{Attention, Op};
use crate::tensor::DType;

/// A GPU.
pub(super) struct Hip {
    pub(super) device: Device,
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

    fn lacks(&self, case: &Case) -> Option<&'static str> {
        match case.work {
            Work::Op(Op::Normalize(_) | Op::PatchConv(_)) => {
                Some("a GPU's plan has patch_extract and linear instead")
            }
            Work::Op(Op::Prepend) => Some("a GPU's plan has tokens instead"),
            _ => None,
        }
    }

    fn free_memory(&self) -> Result<Option<usize>> {
        let (free, _) = self.device.memory()?;
        Ok(Some(free + self.device.pool_stats().unused()))
    }

    fn ceilings(&self, dtypes: &[DType]) -> Ceilings {
        let mut ceilings = Ceilings::default();
        match self.copy() {
            Ok((bytes, rate)) => {
                ceilings.copy_bytes = bytes;
                ceilings.copy_bytes_per_second = Some(rate);
            }
            Err(error) => ceilings.missing.push(format!("copy: {error}")),
        }
        for &dtype in dtypes {
            match self.product(dtype) {
                Ok(product) => ceilings.products.extend(product),
                Err(error) => ceilings.missing.push(format!("product in {dtype}: {error}")),
            }
        }
        ceilings
    }

    fn run(&self, case: &Case, operands: &Operands, dtype: DType) -> Result<Run> {
        match &case.work {
            Work::Op(op) => self.run_op(case, op, operands, dtype),
            Work::Kernel(form) => self.run_kernel(case, form, operands, dtype),
        }
    }
}

impl Hip {
    fn run_op(&self, case: &Case, op: &Op, operands: &Operands, dtype: DType) -> Result<Run> {
        let (graph, placed) = operands.graph(case, op)?;
        let graph = Arc::new(graph);
        let executor = HipExecutor::new(&graph, &self.device, dtype)?;
        let plan = Plan::new(graph, case.batch(), dtype)?;
        let mut times = Vec::new();
        let memory = executor.run_guarded(&plan, operands.input(), (MARGIN, FILL), |time| {
            times.push(time);
            again(&times)
        })?;
        let step = plan.steps().last();
        Ok(Run {
            memory,
            regions: regions(&plan, &placed),
            bytes: step.map_or(0, |step| step.bytes_read + step.bytes_written),
            times,
        })
    }

    fn run_kernel(&self, case: &Case, form: &KernelForm, operands: &Operands, dtype: DType) -> Result<Run> {
        let layout = Layout::new(case, operands, dtype)?;
        match form {
            KernelForm::MaskedAttention(spec, mask) => {
                let arguments = |base| attention(case, spec, mask, &layout, base);
                self.launch(&layout, dtype, arguments)
            }
            KernelForm::LayerNormOfSum { epsilon } => {
                let arguments = |base| layer_norm(case, *epsilon, &layout, dtype, base);
                self.launch(&layout, dtype, arguments)
            }
        }
    }

    /// Launches a kernel on a layout, given the arguments for the address where that begins.
    fn launch<A: KernelArguments>(
        &self,
        layout: &Layout,
        dtype: DType,
        arguments: impl FnOnce(u64) -> Result<A>,
    ) -> Result<Run> {
        let stream = self.device.stream()?;
        let mut memory = stream.upload(&layout.bytes)?;
        let arguments = arguments(memory.address())?;
        let unit = arguments
            .unit()
            .map_err(|reason| Error::argument("kernel", reason))?;
        let kernels = Kernels::load(&self.device, dtype, [unit])?;
        let mut times = Vec::new();
        while again(&times) {
            times.push(timed(&stream, || {
                kernels.launch(&stream, arguments, &[memory.writing()])
            })?);
        }
        let moved = layout.regions.iter().map(|(range, _)| range.len() as u64);
        Ok(Run {
            memory: memory.read()?,
            bytes: moved.sum(),
            regions: layout.regions.clone(),
            times,
        })
    }

    /// The bytes of a copy within the memory, and bytes read and written a second.
    fn copy(&self) -> Result<(usize, f64)> {
        let stream = self.device.stream()?;
        let most = self.free_memory()?.unwrap_or(0) / 8;
        let copies = grow(1 << 20, most.min(1 << 30), 1e-3, |bytes| {
            let from = stream.zeroed::<u8>(bytes)?;
            let mut to = stream.zeroed::<u8>(bytes)?;
            best(|| timed(&stream, || Ok(to.copy_from(from.reading())?)))
        })?;
        // The largest: smaller ones may stay within the caches.
        let largest = copies
            .last()
            .map(|&(bytes, seconds)| (bytes, 2.0 * bytes as f64 / seconds));
        largest.ok_or_else(|| Error::argument("copy", "was not tried"))
    }

    /// A product by rocBLAS.
    fn product(&self, dtype: DType) -> Result<Option<ProductCeiling>> {
        let stream = self.device.stream()?;
        let mut blas = Blas::new(&stream)?;
        let products = grow(64, 8192, 2e-3, |size| {
            let values = square(size);
            let mut bytes = Vec::with_capacity(size * size * dtype.size());
            append(&mut bytes, &values, dtype);
            let operand = stream.upload(&bytes)?;
            let mut result = stream.zeroed::<u8>(bytes.len())?;
            let gemm = Gemm::linear(size, size, size, dtype);
            best(|| {
                timed(&stream, || {
                    Ok(blas.gemm(&gemm, operand.reading(), operand.reading(), result.writing())?)
                })
            })
        })?;
        Ok(fastest(products, dtype))
    }
}

/// The device's time of what is submitted.
fn timed(stream: &Stream, submit: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let before = stream.record()?;
    submit()?;
    Ok(stream.record()?.since(&before)?)
}

/// The operands of a kernel and its result in one piece of memory, with margins between.
struct Layout {
    bytes: Vec<u8>,
    regions: Vec<(std::ops::Range<usize>, Content)>,
}

impl Layout {
    fn new(case: &Case, operands: &Operands, dtype: DType) -> Result<Self> {
        let mut layout = Self {
            bytes: vec![FILL; MARGIN],
            regions: Vec::new(),
        };
        for (index, tensor) in operands.tensors.iter().enumerate() {
            layout.add(&stored(tensor, dtype), Content::Operand(index));
        }
        let elements: usize = case.result()?.iter().product();
        layout.add(&vec![FILL; elements * dtype.size()], Content::Result);
        Ok(layout)
    }

    fn add(&mut self, contents: &[u8], content: Content) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(contents);
        self.regions.push((start..self.bytes.len(), content));
        let end = self.bytes.len().next_multiple_of(256) + MARGIN;
        self.bytes.resize(end, FILL);
    }

    /// Where an operand, or after them all the result, begins; 0 if there is none.
    fn address(&self, base: u64, index: usize) -> u64 {
        self.regions
            .get(index)
            .map_or(0, |(range, _)| base + range.start as u64)
    }

    fn result(&self, base: u64) -> u64 {
        self.address(base, self.regions.len() - 1)
    }
}

fn attention(
    case: &Case,
    spec: &Attention,
    mask: &Mask,
    layout: &Layout,
    base: u64,
) -> Result<AttentionArgs> {
    let (images, queries) = (case.operands[0].shape[0], case.operands[0].shape[1]);
    let keys = case.operands[1].shape[1];
    let channels = spec.heads * spec.head_dim;
    let strided = |address, tokens| Strided {
        address,
        tokens,
        image: tokens * channels,
        token: channels,
    };
    let operands = [
        strided(layout.address(base, 0), queries),
        strided(layout.address(base, 1), keys),
        strided(layout.address(base, 2), keys),
        strided(layout.result(base), queries),
    ];
    let bound = |bound: Option<u32>| bound.map(|bound| signed(i64::from(bound))).transpose();
    let visible = visibility(
        if mask.padding { layout.address(base, 3) } else { 0 },
        signed(Mask::diagonal(queries, keys))?,
        bound(mask.left)?,
        bound(mask.right)?,
    );
    AttentionArgs::new(spec, images, operands, visible).map_err(|reason| Error::argument("attention", reason))
}

fn layer_norm(case: &Case, epsilon: f32, layout: &Layout, dtype: DType, base: u64) -> Result<LayerNormArgs> {
    let (rows, channels) = (case.operands[0].shape[0], case.operands[0].shape[1]);
    let [x, residual, weight, bias] = [0, 1, 2, 3].map(|index| layout.address(base, index));
    let out = layout.result(base);
    let sum = out + (rows * channels * dtype.size()) as u64;
    LayerNormArgs::new([x, weight, bias, out], [rows, channels], epsilon)
        .map(|arguments| arguments.of_sum(residual, sum))
        .map_err(|reason| Error::argument("layer_norm", reason))
}

fn signed(n: i64) -> Result<i32> {
    i32::try_from(n).map_err(|_| Error::argument("extent", format!("{n} is too large for a GPU")))
}
