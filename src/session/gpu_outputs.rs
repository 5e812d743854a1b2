//! Results that stay on the GPU: [`Session::run_on_gpu`].

use std::sync::Arc;

use super::Session;
use super::run::{Collect, RunInput, RunOptions, Submitted};
use crate::dtype::to_hip;
use crate::error::{Error, Result};
use crate::exec::{Download, FinishOptions};
use crate::graph::OutputKind;
use crate::hip::{Device, DeviceAddress, DeviceBuffer, DlpackTensor, DlpackView, Operand, Stream};
use crate::tensor::DType;
use crate::timing::Timing;

/// A tensor in GPU memory. The memory is freed with the last tensor that uses it.
#[derive(Clone, Debug)]
pub struct GpuTensor {
    memory: Arc<DeviceBuffer<u8>>,
    dtype: DType,
    shape: Vec<usize>,
    /// Strides in elements.
    strides: Vec<usize>,
    /// Offset of the first element in bytes.
    offset: usize,
}

impl GpuTensor {
    /// Creates a tensor from the row-major elements in a buffer.
    #[must_use]
    pub fn new(memory: Arc<DeviceBuffer<u8>>, dtype: DType, shape: Vec<usize>) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        Self {
            memory,
            dtype,
            shape,
            strides,
            offset: 0,
        }
    }

    /// Returns the tokens from `from` to `to` of a tensor `[images, tokens, D]`.
    fn tokens(mut self, from: usize, to: usize) -> Self {
        self.offset += from * self.strides[1] * self.dtype.size();
        self.shape[1] = to - from;
        self
    }

    /// Returns the GPU.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.memory.stream().device()
    }

    /// Returns the dtype, which is the session's.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the extents, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the strides in elements.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Returns the memory of a tensor without gaps, for copies to other GPU memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the tensor is a part of another one, with gaps.
    pub fn operand(&self) -> Result<Operand<'_>> {
        let elements: usize = self.shape.iter().product();
        let mut dense = elements;
        let is_dense = self.shape.iter().zip(&self.strides).all(|(&extent, &stride)| {
            dense /= extent.max(1);
            stride == dense
        });
        if !is_dense {
            return Err(Error::argument("tensor", "has gaps between its elements"));
        }
        let bytes = elements * self.dtype.size();
        Ok(self.memory.reading().part(self.offset..self.offset + bytes)?)
    }

    /// Returns the address of the first element on the GPU.
    #[must_use]
    pub fn address(&self) -> DeviceAddress {
        self.memory.address().offset(self.offset)
    }

    /// Exports the tensor to another library by DLPack. The consumer need not synchronise, since the tensor is already written.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let session = hipvit::Session::tinyvit32()?;
    /// let outputs = session.run_on_gpu(hipvit::RunInput::Pixels(&[0; 32 * 32 * 3]), Default::default())?;
    /// let managed = outputs.embeddings().to_dlpack()?.into_raw();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// No error occurs for a tensor of a session.
    pub fn to_dlpack(&self) -> Result<DlpackTensor> {
        let view = DlpackView {
            dtype: to_hip(self.dtype),
            offset: self.offset,
            shape: &self.shape,
            strides: &self.strides,
        };
        Ok(DlpackTensor::export(&self.memory, view)?)
    }
}

/// Results of [`Session::run_on_gpu`], in the order of the images. Like [`Outputs`](crate::Outputs), but in GPU memory and in the session's
/// dtype.
#[derive(Clone, Debug)]
pub struct GpuOutputs {
    embeddings: GpuTensor,
    others: Vec<(OutputKind, GpuTensor)>,
    prefix_tokens: usize,
}

impl GpuOutputs {
    fn of(&self, kind: OutputKind) -> Option<&GpuTensor> {
        let found = self.others.iter().find(|(known, _)| *known == kind);
        found.map(|(_, tensor)| tensor)
    }

    /// Returns the logits `[images, classes]`. `None` without a classification head.
    #[must_use]
    pub fn logits(&self) -> Option<&GpuTensor> {
        self.of(OutputKind::Logits)
    }

    /// Returns the embeddings `[images, D]`.
    #[must_use]
    pub fn embeddings(&self) -> &GpuTensor {
        &self.embeddings
    }

    /// Returns the tokens of the patches, `[images, patches, D]`, if the session keeps tokens.
    #[must_use]
    pub fn tokens(&self) -> Option<GpuTensor> {
        let all = self.of(OutputKind::Tokens)?;
        Some(all.clone().tokens(self.prefix_tokens, all.shape[1]))
    }

    /// Returns all tokens, `[images, tokens, D]`, if the session keeps tokens.
    #[must_use]
    pub fn all_tokens(&self) -> Option<&GpuTensor> {
        self.of(OutputKind::Tokens)
    }

    /// Returns the tokens before those of the patches, `[images, prefix tokens, D]`, if the session keeps tokens.
    #[must_use]
    pub fn prefix_tokens(&self) -> Option<GpuTensor> {
        let all = self.of(OutputKind::Tokens)?;
        Some(all.clone().tokens(0, self.prefix_tokens))
    }

    /// Returns the indices of the blocks whose tokens the session keeps.
    pub fn hidden_layer_indices(&self) -> impl Iterator<Item = usize> {
        self.others.iter().filter_map(|(kind, _)| match kind {
            OutputKind::HiddenLayer(block) => Some(*block),
            _ => None,
        })
    }

    /// Returns all tokens after block `block`, `[images, tokens, D]`.
    #[must_use]
    pub fn hidden_layer(&self, block: usize) -> Option<&GpuTensor> {
        self.of(OutputKind::HiddenLayer(block))
    }
}

impl Session {
    /// Returns the GPU for the results of [`run_on_gpu`](Self::run_on_gpu). `None` without a GPU or with several.
    pub fn output_gpu(&self) -> Option<&Device> {
        self.input_gpu().filter(|_| self.degrees().pipeline == 1)
    }

    /// Runs the model as [`run_with`](Self::run_with) does, and leaves the results on the session's only GPU for other libraries.
    ///
    /// The results are complete when this returns. Logits and embeddings are also copied to the host for checks; tokens and hidden layers
    /// are not.
    ///
    /// # Errors
    ///
    /// The errors of [`run_with`](Self::run_with), and [`Error::Argument`] if the session is on the CPU or on several GPUs, or keeps
    /// attention statistics.
    pub fn run_on_gpu<'a>(
        &self,
        input: impl Into<RunInput<'a>>,
        options: RunOptions<'_>,
    ) -> Result<GpuOutputs> {
        if self.packing().is_some() {
            let reason = "results of packed images go to the host";
            return Err(Error::argument("packed", reason));
        }
        let Some(gpu) = self.output_gpu() else {
            let reason = format!(
                "on {}: results stay on a GPU if it is the only one",
                self.devices()
            );
            return Err(Error::argument("device", reason));
        };
        let mut results = OnGpu {
            stream: gpu.stream()?,
            outputs: Vec::new(),
            done: 0,
        };
        self.run_to(&mut results, &input.into(), options)?;
        results.stream.synchronize()?;
        let mut others: Vec<(OutputKind, GpuTensor)> =
            results.outputs.into_iter().map(Whole::tensor).collect();
        let embeddings = others.iter().position(|(kind, _)| *kind == OutputKind::Embedding);
        let missing = || Error::internal("outputs", "has no embeddings");
        let (_, embeddings) = others.swap_remove(embeddings.ok_or_else(missing)?);
        Ok(GpuOutputs {
            embeddings,
            others,
            prefix_tokens: self.info().prefix_tokens,
        })
    }
}

/// Collects the results of all images of a run, batch by batch.
struct OnGpu {
    stream: Stream,
    outputs: Vec<Whole>,
    /// Number of images with complete results.
    done: usize,
}

/// An output of the plan for all images.
struct Whole {
    kind: OutputKind,
    memory: DeviceBuffer<u8>,
    dtype: DType,
    shape: Vec<usize>,
    /// Bytes per image.
    each: usize,
}

impl Whole {
    fn tensor(self) -> (OutputKind, GpuTensor) {
        (
            self.kind,
            GpuTensor::new(Arc::new(self.memory), self.dtype, self.shape),
        )
    }
}

impl Collect for OnGpu {
    const DOWNLOAD: Download = Download::Checked;

    fn begin(&mut self, session: &Session, images: usize) -> Result<()> {
        let plan = session.plan(1)?;
        for &(kind, _, id) in plan.outputs() {
            if matches!(kind, OutputKind::AttentionStatistics(_)) {
                let reason = "of a session that keeps statistics of attention, which go to the host";
                return Err(Error::argument("outputs", reason));
            }
            let buffer = plan.buffer(id);
            let mut shape = buffer.shape.clone();
            shape[0] *= images;
            self.outputs.push(Whole {
                kind,
                memory: self.stream.allocate(images * buffer.bytes)?,
                dtype: buffer.dtype,
                shape,
                each: buffer.bytes,
            });
        }
        Ok(())
    }

    fn finish(&mut self, session: &Session, run: Submitted, timing: Option<&mut Timing>) -> Result<()> {
        let Submitted { run, images, .. } = run;
        let Self { outputs, done, .. } = self;
        let mut keep = |index: usize, operand: Operand<'_>| {
            let output: &mut Whole = &mut outputs[index];
            Ok(output.memory.copy_part_from_peer(*done * output.each, operand)?)
        };
        let finished = run.finish(FinishOptions {
            timing,
            keep: Some(&mut keep),
        })?;
        session.check_finite(&session.outputs(finished.outputs, images)?, *done)?;
        *done += images;
        Ok(())
    }
}
