//! Validation of the CPU's executor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use super::backend::{Backend, best, fastest, grow, square};
use super::cases::{Case, Resize, Work};
use super::check::{Clock, Content, FILL, MARGIN, Run, regions};
use super::operands::Operands;
use super::report::{GemmPeak, Peaks};
use crate::error::{Error, Result};
use crate::exec::{Arena, CpuExecutor};
use crate::graph::plan::Plan;
use crate::graph::{Graph, Role};
use crate::image::{self, RgbImage};
use crate::ops::{Linear, Op};
use crate::tensor::{DType, Input, Tensor};

/// The host.
pub(super) struct Cpu {
    pub(super) threads: Option<usize>,
}

impl Backend for Cpu {
    fn device(&self) -> String {
        "cpu".into()
    }

    fn name(&self) -> String {
        let cpu = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let system = System::new_with_specifics(cpu);
        let brand = system.cpus().first().map(|cpu| cpu.brand().trim());
        let brand = brand.filter(|brand| !brand.is_empty());
        brand.unwrap_or(std::env::consts::ARCH).to_owned()
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32]
    }

    fn lacks(&self, case: &Case) -> Option<&'static str> {
        match case.work {
            Work::Op(_) | Work::Resize(_) => None,
            Work::Kernel(_) => Some("is a form of a GPU kernel"),
        }
    }

    fn free_memory(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    fn peaks(&self, _dtypes: &[DType]) -> Peaks {
        let mut peaks = Peaks::default();
        match self.copy() {
            Ok((bytes, rate)) => {
                peaks.copy_bytes = bytes;
                peaks.copy_bytes_per_second = Some(rate);
            }
            Err(error) => peaks.missing.push(error.to_string()),
        }
        match self.gemm() {
            Ok(gemm) => peaks.gemms.extend(gemm),
            Err(error) => peaks.missing.push(error.to_string()),
        }
        peaks
    }

    fn run(&self, case: &Case, operands: &Operands, dtype: DType, clock: Option<Clock<'_>>) -> Result<Run> {
        let op = match &case.work {
            Work::Op(op) => op,
            Work::Kernel(_) => return Err(Error::graph(case.op_name(), "is a form of a GPU kernel")),
            Work::Resize(resize) => return run_resize(resize, operands, clock),
        };
        let (graph, placed) = operands.graph(case, op)?;
        let graph = Arc::new(graph);
        let executor = CpuExecutor::new(&graph, self.threads)?;
        let plan = Plan::new(graph, case.batch(), dtype)?;
        let fill = f32::from_ne_bytes([FILL; 4]);
        let mut arena = Arena::with_margin(&plan, MARGIN / size_of::<f32>(), fill)?;
        let mut run = || last_step(&executor, &plan, operands.input(), &mut arena);
        let first = run()?;
        if let Some(clock) = clock {
            clock(first, 1, &mut |count| (0..count).map(|_| run()).sum())?;
        }
        let step = plan.steps().last();
        Ok(Run {
            memory: bytemuck::cast_slice(arena.with_margins(&plan)).to_vec(),
            regions: regions(&plan, &placed),
            bytes: step.map_or(0, |step| step.bytes_read + step.bytes_written),
        })
    }
}

/// The image's own code, which allocates its result.
fn run_resize(resize: &Resize, operands: &Operands, clock: Option<Clock<'_>>) -> Result<Run> {
    let Input::Pixels(pixels) = operands.input() else {
        return Err(Error::graph("resize", "takes bytes"));
    };
    let ([width, height], [to_width, to_height]) = (resize.input, resize.output);
    let image = RgbImage::new(width, height, pixels.to_vec())?;
    let run = || {
        let start = Instant::now();
        let result = image::resize(&image, to_width, to_height, resize.filter)?;
        Ok::<_, Error>((result, start.elapsed()))
    };
    let (result, first) = run()?;
    if let Some(clock) = clock {
        clock(first, 1, &mut |count| (0..count).map(|_| Ok(run()?.1)).sum())?;
    }
    Ok(Run {
        bytes: (image.data.len() + result.data.len()) as u64,
        regions: vec![(0..result.data.len(), Content::Result)],
        memory: result.data,
    })
}

impl Cpu {
    /// The bytes of a copy by all threads, and bytes read and written a second.
    fn copy(&self) -> Result<(usize, f64)> {
        const BYTES: usize = 256 << 20;
        const CHUNK: usize = 1 << 20;
        let executor = CpuExecutor::new(&pixel_graph(), self.threads)?;
        let (from, mut to) = (vec![1u8; BYTES], vec![0u8; BYTES]);
        let seconds = best(|| {
            let start = Instant::now();
            executor.install(|| {
                to.par_chunks_mut(CHUNK)
                    .zip(from.par_chunks(CHUNK))
                    .for_each(|(to, from)| to.copy_from_slice(from));
            });
            Ok(start.elapsed())
        })?;
        Ok((BYTES, 2.0 * BYTES as f64 / seconds))
    }

    fn gemm(&self) -> Result<Option<GemmPeak>> {
        let gemms = grow(64, 2048, 0.05, |size| {
            let values = square(size);
            let mut graph = pixel_graph();
            let mut operand = |name, shape: &[usize]| {
                let tensor = Tensor::from_f32(shape, values.as_slice());
                let tensor = tensor.ok_or_else(|| Error::graph("peak", "an operand of another size"))?;
                Ok::<_, Error>(graph.constant(name, tensor))
            };
            let inputs = [operand("x", &[1, size, size])?, operand("weight", &[size, size])?];
            graph.push(Role::Other, "gemm", Op::Linear(Linear::default()), inputs)?;
            let graph = Arc::new(graph);
            let executor = CpuExecutor::new(&graph, self.threads)?;
            let plan = Plan::new(graph, 1, DType::F32)?;
            let mut arena = Arena::new();
            best(|| last_step(&executor, &plan, Input::Pixels(&[0; 3]), &mut arena))
        })?;
        Ok(fastest(gemms, DType::F32))
    }
}

/// A graph whose input is not read.
fn pixel_graph() -> Graph {
    Graph::new("peak", [1, 1, 1, 3], DType::U8)
}

/// The time of the plan's last step.
fn last_step(executor: &CpuExecutor, plan: &Plan, input: Input<'_>, arena: &mut Arena) -> Result<Duration> {
    let mut last = Duration::ZERO;
    executor.run(plan, input, arena, Some(&mut |_, time| last = time))?;
    Ok(last)
}
