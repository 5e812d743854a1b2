//! Where the pixel, its patch and its token lie in memory, step by step of the plan that runs the model.

use std::sync::Arc;

use anyhow::Result;
use hipvit::Session;
use hipvit::graph::inspection::{DeviceMemory, KernelLaunch, Region, SelectedKernels};
use hipvit::graph::plan::{Plan, Step};
use hipvit::ops::Op;
use hipvit_explain::Trace;
use serde::Serialize;

use super::super::Usage;

/// The memory and kernels of a run at batch 1.
#[derive(Serialize)]
pub struct Places {
    device: String,
    dtype: String,
    /// The address of the arena, where it is known before a run: on a GPU.
    pub arena: Option<Region>,
    /// The address of the input there.
    pub input: Option<Region>,
    /// Offset of the pixel's red byte in the input, u8 `[1, H, W, 3]`.
    pub input_offset: Option<usize>,
    pub steps: Vec<Place>,
}

/// A step's result.
#[derive(Serialize)]
pub struct Place {
    pub step: String,
    pub op: String,
    /// Row-major.
    pub shape: Vec<usize>,
    pub dtype: String,
    /// Where the result begins in the arena, in bytes.
    pub offset: usize,
    pub bytes: usize,
    /// Where the first element of what carries the pixel lies, after the result's first byte: its red value in the patch
    /// matrix, else the first channel of its token.
    pub pixel_offset: Option<usize>,
    /// Kernels or library that compute it.
    pub kernels: Vec<String>,
    /// Their grids and blocks, of the crate's own kernels.
    pub launches: Vec<KernelLaunch>,
}

impl Place {
    /// Returns the kernels and libraries that compute the step, kernels with blocks and threads per block.
    pub fn computed_by(&self) -> String {
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

/// The plan of a session at batch 1, and on a GPU what runs it.
pub struct Memory {
    plan: Arc<Plan>,
    kernels: Vec<SelectedKernels>,
    device: Option<DeviceMemory>,
}

impl Memory {
    pub fn of(session: &Session) -> Result<Self> {
        let plan = session.plan(1)?;
        let executor = session.executor();
        let (kernels, device) = match executor.hip() {
            Some(gpu) => (gpu.kernels(&plan)?, Some(gpu.memory(&plan)?)),
            None if executor.gpu().is_none() => (Vec::new(), None),
            None => {
                return Err(Usage("trace shows the memory of one GPU: leave out --parallel").into());
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
pub struct Written {
    pub name: String,
    /// How many kernels and library calls compute it.
    pub calls: usize,
    /// The address of its first byte.
    pub begin: u64,
    /// Bytes of a row: of the last extent.
    pub row: usize,
    pub rows: usize,
}

impl Memory {
    /// The steps in order; none on the CPU.
    pub fn steps(&self) -> Vec<Written> {
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
                begin: device.arena.address + buffer.offset as u64,
                row: columns * self.plan.dtype().size(),
                rows: buffer.shape.iter().product::<usize>() / columns.max(1),
            }
        };
        self.plan.steps().iter().map(of_step).collect()
    }
}

impl Places {
    pub fn new(session: &Session, memory: &Memory, trace: &Trace) -> Self {
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
            input: device.as_ref().map(|memory| memory.input),
            input_offset: trace
                .input
                .map(|input| (input.y * trace.resized.width + input.x) * 3),
            steps,
        }
    }

    /// The device and the precision.
    pub fn title(&self) -> String {
        format!("{}, {}, batch 1", self.device, self.dtype)
    }

    /// Where a step's result begins: its address on a GPU, else its offset in the arena.
    pub fn begin(&self, place: &Place) -> String {
        match self.arena {
            Some(arena) => format!("{:#x}", arena.address + place.offset as u64),
            None => format!("arena + {:#x}", place.offset),
        }
    }

    /// Returns a description of the input and of the pixel's place in it.
    pub fn of_input(&self) -> Option<String> {
        let offset = self.input_offset?;
        Some(match self.input {
            Some(input) => format!("{:#x} + {offset:#x}", input.address),
            None => format!("input + {offset:#x}"),
        })
    }
}
