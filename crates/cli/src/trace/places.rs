//! Memory locations of the pixel, its patch and its token, for each step of the plan.

use std::sync::Arc;

use anyhow::Result;
use hipvit::Session;
use hipvit::graph::inspection::{DeviceMemory, KernelLaunch, Region, SelectedKernels};
use hipvit::graph::plan::{Plan, Step};
use hipvit::hip::DeviceAddress;
use hipvit::ops::Op;
use hipvit_explain::Trace;
use serde::Serialize;

use super::super::outcome::Usage;

/// Memory and kernels of a run at batch 1.
#[derive(Serialize)]
pub(crate) struct Places {
    device: String,
    dtype: String,
    /// Address of the arena. Known before a run on GPUs only.
    pub(crate) arena: Option<Region>,
    /// Address of the input on a GPU.
    pub(crate) input: Option<Region>,
    /// Offset of the pixel's red byte in the u8 input `[1, H, W, 3]`.
    pub(crate) input_offset: Option<usize>,
    pub(crate) steps: Vec<Place>,
}

/// Location of a step's result.
#[derive(Serialize)]
pub(crate) struct Place {
    pub(crate) step: String,
    pub(crate) op: String,
    /// Extents of the result, in row-major order.
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: String,
    /// Offset of the result in the arena in bytes.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Offset of the pixel within the result in bytes: its red value in the patch matrix, or else the first channel of
    /// its token.
    pub(crate) pixel_offset: Option<usize>,
    /// Kernels or library functions that compute the result.
    pub(crate) kernels: Vec<String>,
    /// Grids and blocks of hipvit's own kernels.
    pub(crate) launches: Vec<KernelLaunch>,
}

impl Place {
    /// Returns the kernels and libraries that compute the step. Kernels include the number of blocks and threads per
    /// block.
    pub(crate) fn computed_by(&self) -> String {
        let along = |sizes: [u32; 3]| {
            let used = sizes.iter().rposition(|&size| size != 1).unwrap_or(0);
            let sizes: Vec<String> = sizes[..=used].iter().map(u32::to_string).collect();
            sizes.join("×")
        };
        let of_kernel = |name: &String| match self.launches.iter().find(|launch| launch.kernel == *name) {
            Some(launch) => format!("{name} <{}, {}>", along(launch.grid), along(launch.block)),
            None => name.clone(),
        };
        let all: Vec<String> = self.kernels.iter().map(of_kernel).collect();
        all.join(", ")
    }
}

/// Plan of a session at batch 1. On a GPU, also its addresses and kernels.
pub(crate) struct Memory {
    plan: Arc<Plan>,
    kernels: Vec<SelectedKernels>,
    device: Option<DeviceMemory>,
}

impl Memory {
    pub(crate) fn of(session: &Session) -> Result<Self> {
        let plan = session.plan(1)?;
        let executor = session.executor();
        let (kernels, device) = match executor.hip() {
            Some(gpu) => (gpu.kernels(&plan)?, Some(gpu.memory(&plan)?)),
            None if executor.gpu().is_none() => (Vec::new(), None),
            None => {
                return Err(Usage("trace supports a single GPU: leave out --parallel").into());
            }
        };
        Ok(Self {
            plan,
            kernels,
            device,
        })
    }
}

/// Where a step writes its result on a GPU.
pub(crate) struct Written {
    pub(crate) name: String,
    /// Number of kernel launches and library calls.
    pub(crate) calls: usize,
    /// Address of the first byte.
    pub(crate) begin: DeviceAddress,
    /// Bytes of a row, which spans the last dimension.
    pub(crate) row: usize,
    pub(crate) rows: usize,
}

impl Memory {
    /// Returns the steps in order; empty on the CPU.
    pub(crate) fn steps(&self) -> Vec<Written> {
        let Some(device) = &self.device else {
            return Vec::new();
        };
        let of_step = |step: &Step| {
            let (node, buffer) = (self.plan.node(step), self.plan.buffer(step.output()));
            let op = node.op.to_string();
            let kernels = self
                .kernels
                .iter()
                .find(|k| k.op == op && k.shape == buffer.shape);
            let columns = buffer.shape.last().copied().unwrap_or(1);
            Written {
                name: node.name.clone(),
                calls: kernels.map_or(0, |kernels| kernels.kernels.len()),
                begin: device.arena.address.offset(buffer.offset),
                row: columns * self.plan.dtype().size(),
                rows: buffer.shape.iter().product::<usize>() / columns.max(1),
            }
        };
        self.plan.steps().iter().map(of_step).collect()
    }
}

impl Places {
    pub(crate) fn new(session: &Session, memory: &Memory, trace: &Trace) -> Self {
        let Memory {
            plan,
            kernels,
            device,
        } = memory;
        let dtype = plan.dtype();
        let size = dtype.size();
        let tokens = session.info().tokens;
        let patches = tokens - session.info().prefix_tokens;
        let pixel_offset = |op: &Op, shape: &[usize]| {
            let (place, token) = (trace.patch?, trace.token?);
            match *shape {
                [_, _, columns] if matches!(op, Op::PatchExtract(_)) => {
                    Some((place.index * columns + place.permuted[0]) * size)
                }
                [_, rows, columns] if rows == patches && patches != tokens => {
                    Some(place.index * columns * size)
                }
                [_, rows, columns] if rows == tokens => Some(token.index * columns * size),
                _ => None,
            }
        };
        let of_step = |step: &Step| {
            let (node, buffer) = (plan.node(step), plan.buffer(step.output()));
            let op = node.op.to_string();
            let on_gpu = kernels.iter().find(|k| k.op == op && k.shape == buffer.shape);
            Place {
                step: node.name.clone(),
                pixel_offset: pixel_offset(&node.op, &buffer.shape),
                shape: buffer.shape.clone(),
                dtype: dtype.to_string(),
                offset: buffer.offset,
                bytes: buffer.bytes,
                kernels: on_gpu.map_or_else(|| vec!["CPU".to_owned()], |k| k.kernels.clone()),
                launches: on_gpu.map_or_else(Vec::new, |k| k.launches.clone()),
                op,
            }
        };
        let steps = plan.steps().iter().map(of_step).collect();
        Self {
            device: session.device().to_string(),
            dtype: dtype.to_string(),
            arena: device.as_ref().map(|memory| memory.arena),
            input: device.as_ref().and_then(|memory| memory.input),
            input_offset: trace
                .input
                .map(|input| (input.y * trace.resized.width + input.x) * 3),
            steps,
        }
    }

    /// Returns the device and the precision.
    pub(crate) fn title(&self) -> String {
        format!("{}, {}, batch 1", self.device, self.dtype)
    }

    /// Returns where a step's result starts: its address on a GPU, or its offset in the arena.
    pub(crate) fn begin(&self, place: &Place) -> String {
        match self.arena {
            Some(arena) => format!("{:#x}", arena.address.offset(place.offset)),
            None => format!("arena + {:#x}", place.offset),
        }
    }

    /// Describes the input and the location of the pixel in it.
    pub(crate) fn of_input(&self) -> Option<String> {
        let offset = self.input_offset?;
        Some(match self.input {
            Some(input) => format!("{:#x} + {offset:#x}", input.address),
            None => format!("input + {offset:#x}"),
        })
    }
}
