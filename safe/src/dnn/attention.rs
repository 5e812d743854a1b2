//! Attention as a problem for which MIOpen finds a solution, with its find 2.0 interface (beta).
//!
//! MIOpen's attention also covers training and 8-bit floats. Most of the tensors are therefore scales of one, a dropout of probability
//! zero, and statistics that are ignored.

use std::fmt;
use std::ptr;

use hipvit_sys::miopen::{
    miopenDataType_t, miopenMhaDescriptor_t, miopenProblem_t, miopenProblemDirection_t, miopenSolution_t,
    miopenTensorArgument_t, miopenTensorArgumentId_t,
};

use super::Dnn;
use super::descriptor::{Tensor, packed};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::call;

/// `softmax(scale · Q Kᵀ) V` without a mask. Q, K, V and the result are packed `[batch, heads, tokens, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiHeadAttention {
    /// Number of sequences.
    pub batch: usize,
    /// Heads per sequence.
    pub heads: usize,
    /// Tokens per sequence, for queries and keys.
    pub tokens: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Factor of the scores, usually 1/√head_dim.
    pub scale: f32,
    /// Dtype of Q, K, V and the result.
    pub dtype: DType,
}

impl MultiHeadAttention {
    fn shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.tokens, self.head_dim]
    }

    fn rows(&self) -> [usize; 4] {
        [self.batch, self.heads, self.tokens, 1]
    }

    fn bytes(&self) -> usize {
        self.shape().iter().product::<usize>() * self.dtype.size()
    }
}

/// Distance of single-element tensors in bytes, so that each has the alignment of an allocation.
const SLOT: usize = 256;

/// Contents of an extra tensor.
#[derive(Clone, Copy)]
enum Extra {
    /// An f32, 1.
    One,
    /// An f32, 0.
    Zero,
    /// An i64, 0.
    ZeroInteger,
    /// An f32 that MIOpen writes, in this slot.
    Written(usize),
    /// An f32 per query that MIOpen writes, with this index among such tensors.
    Rows(usize),
}

const SLOTS: usize = 4;

const EXTRAS: [(miopenTensorArgumentId_t, Extra); 13] = [
    (miopenTensorArgumentId_t::miopenTensorMhaDescaleK, Extra::One),
    (miopenTensorArgumentId_t::miopenTensorMhaDescaleQ, Extra::One),
    (miopenTensorArgumentId_t::miopenTensorMhaDescaleV, Extra::One),
    (miopenTensorArgumentId_t::miopenTensorMhaDescaleS, Extra::One),
    (miopenTensorArgumentId_t::miopenTensorMhaScaleS, Extra::One),
    (miopenTensorArgumentId_t::miopenTensorMhaScaleO, Extra::One),
    (
        miopenTensorArgumentId_t::miopenTensorMhaDropoutProbability,
        Extra::Zero,
    ),
    (
        miopenTensorArgumentId_t::miopenTensorMhaDropoutSeed,
        Extra::ZeroInteger,
    ),
    (
        miopenTensorArgumentId_t::miopenTensorMhaDropoutOffset,
        Extra::ZeroInteger,
    ),
    (miopenTensorArgumentId_t::miopenTensorMhaAmaxO, Extra::Written(2)),
    (miopenTensorArgumentId_t::miopenTensorMhaAmaxS, Extra::Written(3)),
    (miopenTensorArgumentId_t::miopenTensorMhaM, Extra::Rows(0)),
    (miopenTensorArgumentId_t::miopenTensorMhaZInv, Extra::Rows(1)),
];

const OPERANDS: [miopenTensorArgumentId_t; 4] = [
    miopenTensorArgumentId_t::miopenTensorMhaQ,
    miopenTensorArgumentId_t::miopenTensorMhaK,
    miopenTensorArgumentId_t::miopenTensorMhaV,
    miopenTensorArgumentId_t::miopenTensorMhaO,
];

/// A solution that MIOpen found for an attention.
pub struct Attention {
    device: Device,
    shape: MultiHeadAttention,
    solution: miopenSolution_t,
    /// Memory of the extra tensors.
    extras: DeviceBuffer<u8>,
    workspace: Option<DeviceBuffer<u8>>,
}

// SAFETY: a solution is host memory of the library, used by one thread at a time.
unsafe impl Send for Attention {}

impl Dnn {
    /// Lets MIOpen find a solution for an attention. It may compile kernels, and time them on its own memory.
    ///
    /// Tested with MIOpen 3.5.1 without a GPU: it accepts the problem with these tensors. Finding and running a solution was not tested on
    /// a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if MIOpen fails, or has no solution for the device, the shape or the dtype.
    pub fn find_attention(&mut self, shape: MultiHeadAttention) -> Result<Attention> {
        let stream = self.stream().clone();
        let device = stream.device();
        let table = libraries::miopen(device)?;
        device.enter()?;
        let problem = Problem::new(device, &shape)?;
        let (mut solution, mut count, mut bytes) = (ptr::null_mut(), 0, 0);
        // SAFETY: the handle and the problem are alive. There is memory for the one requested solution, and no options.
        unsafe {
            call!(
                device,
                table.miopenFindSolutions(
                    self.raw,
                    problem.raw,
                    ptr::null_mut(),
                    &mut solution,
                    &mut count,
                    1,
                )
            )
        }?;
        if count < 1 {
            return Err(Error::Device {
                device: device.name().to_owned(),
                call: "miopenFindSolutions",
                status: format!("no solution for {shape:?}"),
                advice: String::new(),
            });
        }
        let rows = shape.rows().iter().product::<usize>() * size_of::<f32>();
        let mut content = vec![0; SLOTS * SLOT + 2 * rows.next_multiple_of(SLOT)];
        content[..size_of::<f32>()].copy_from_slice(&1f32.to_ne_bytes());
        // The solution is destroyed with this value from here on.
        let mut attention = Attention {
            device: device.clone(),
            shape,
            solution,
            extras: stream.upload(&content)?,
            workspace: None,
        };
        // SAFETY: the solution is alive; the call writes one size.
        unsafe { call!(device, table.miopenGetSolutionWorkspaceSize(solution, &mut bytes)) }?;
        if bytes > 0 {
            attention.workspace = Some(stream.allocate(bytes)?);
        }
        Ok(attention)
    }

    /// Submits an attention for which a solution was found.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand is too small; [`Error::Device`] if MIOpen fails.
    pub fn attend(
        &mut self,
        attention: &mut Attention,
        [q, k, v]: [Operand<'_>; 3],
        out: Operand<'_>,
    ) -> Result<()> {
        let bytes = attention.shape.bytes();
        for (name, operand) in [("q", &q), ("k", &k), ("v", &v)] {
            operand.expect(name, bytes, false)?;
        }
        out.expect("out", bytes, true)?;
        let stream = self.stream().clone();
        let device = stream.device();
        let table = libraries::miopen(device)?;
        let solution = attention.solution;
        let rows = attention.shape.rows().iter().product::<usize>() * size_of::<f32>();
        let extras = attention.extras.writing();
        let scratch = attention.workspace.as_mut().map(DeviceBuffer::writing);
        let operands = OPERANDS
            .into_iter()
            .zip([q, k, v, out].map(|operand| operand.pointer()));
        let extra = |(id, extra): (miopenTensorArgumentId_t, Extra)| {
            let (offset, bytes) = match extra {
                Extra::One => (0, size_of::<f32>()),
                Extra::Zero => (SLOT, size_of::<f32>()),
                Extra::ZeroInteger => (SLOT, size_of::<i64>()),
                Extra::Written(slot) => (slot * SLOT, size_of::<f32>()),
                Extra::Rows(place) => (SLOTS * SLOT + place * rows.next_multiple_of(SLOT), rows),
            };
            Ok((id, extras.part(offset..offset + bytes)?.pointer()))
        };
        let extra = EXTRAS.into_iter().map(extra).collect::<Result<Vec<_>>>()?;
        let tensors: Vec<_> = operands
            .chain(extra)
            .map(|(id, buffer)| miopenTensorArgument_t {
                id,
                // Null: MIOpen takes that of the problem.
                descriptor: ptr::null_mut(),
                buffer,
            })
            .collect();
        let used: Vec<_> = [q, k, v, out, extras].into_iter().chain(scratch).collect();
        stream.keep(|| self.handle.clone());
        stream.submit(&used, |_| {
            // SAFETY: the handle and the solution are alive. The tensors have the bytes of the descriptions that the solution was found
            // for, and the workspace has the requested size. The list is read before the call returns.
            unsafe {
                call!(
                    device,
                    table.miopenRunSolution(
                        self.raw,
                        solution,
                        tensors.len(),
                        tensors.as_ptr(),
                        scratch.map_or(ptr::null_mut(), |w| w.pointer()),
                        scratch.map_or(0, |w| w.bytes()),
                    )
                )
            }
        })
    }
}

/// A problem to find a solution for.
struct Problem {
    device: Device,
    raw: miopenProblem_t,
}

impl Problem {
    fn new(device: &Device, shape: &MultiHeadAttention) -> Result<Self> {
        let table = libraries::miopen(device)?;
        let mut attention: miopenMhaDescriptor_t = ptr::null_mut();
        let mut problem = Self {
            device: device.clone(),
            raw: ptr::null_mut(),
        };
        // SAFETY: the calls write one handle each and initialise it. MIOpen has no function that destroys an attention's description, so
        // its few bytes leak.
        unsafe {
            call!(device, table.miopenCreateMhaDescriptor(&mut attention))?;
            call!(device, table.miopenSetMhaDescriptor(attention, shape.scale))?;
            call!(
                device,
                table.miopenCreateMhaProblem(
                    &mut problem.raw,
                    attention,
                    miopenProblemDirection_t::miopenProblemDirectionForward,
                )
            )?;
        }
        for id in OPERANDS {
            problem.describe(id, &Tensor::new(device, shape.dtype, &shape.shape())?)?;
        }
        for (id, extra) in EXTRAS {
            let (dtype, shape) = match extra {
                Extra::ZeroInteger => (miopenDataType_t::miopenInt64, [1; 4]),
                Extra::Rows(_) => (miopenDataType_t::miopenFloat, shape.rows()),
                _ => (miopenDataType_t::miopenFloat, [1; 4]),
            };
            problem.describe(id, &Tensor::of(device, dtype, &shape, &packed(shape))?)?;
        }
        Ok(problem)
    }

    fn describe(&self, id: miopenTensorArgumentId_t, tensor: &Tensor) -> Result<()> {
        let table = libraries::miopen(&self.device)?;
        // SAFETY: both are alive; the problem copies the description.
        unsafe {
            call!(
                self.device,
                table.miopenSetProblemTensorDescriptor(self.raw, id, tensor.raw())
            )
        }
    }
}

impl Drop for Problem {
    fn drop(&mut self) {
        if !self.raw.is_null()
            && let Ok(table) = libraries::miopen(&self.device)
        {
            // SAFETY: destroyed once, by its owner.
            let result = unsafe { call!(self.device, table.miopenDestroyProblem(self.raw)) };
            self.device.park(result);
        }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        if let Ok(table) = libraries::miopen(&self.device) {
            // SAFETY: destroyed once, by its owner.
            let result = unsafe { call!(self.device, table.miopenDestroySolution(self.solution)) };
            self.device.park(result);
        }
    }
}

impl fmt::Debug for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attention").field(&self.shape).finish()
    }
}
