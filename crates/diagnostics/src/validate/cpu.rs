//! Validation of the CPU's executor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::cases::{Case, Resize, Work};
use super::check::{Clock, Content, FILL, MARGIN, Run, regions};
use super::operands::Operands;
use crate::peaks::{Peaks, cpu_name, measure_cpu};
use hipvit::error::{Error, Result};
use hipvit::exec::{Arena, CpuExecutor, DTYPES};
use hipvit::graph::plan::Plan;
use hipvit::image::{self, RgbImage};
use hipvit::ops::{Linear, Op};
use hipvit::tensor::{DType, Input};

/// The host.
pub(super) struct Cpu {
    pub(super) threads: Option<usize>,
}

impl Backend for Cpu {
    fn device(&self) -> String {
        "cpu".into()
    }

    fn name(&self) -> String {
        cpu_name()
    }

    fn dtypes(&self) -> &'static [DType] {
        &DTYPES
    }

    fn activations(&self, dtype: DType) -> DType {
        match dtype {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    fn lacks(&self, case: &Case, dtype: DType) -> Option<&'static str> {
        match &case.work {
            Work::Op(
                Op::Linear(Linear { rounding: None, .. })
                | Op::PatchConv(_)
                | Op::Conv(_)
                | Op::ConvTranspose(_)
                | Op::Attention(_),
            ) => None,
            Work::Op(_) if dtype != DType::F32 => Some("is independent of the dtype on the CPU"),
            Work::Op(_) | Work::Resize(_) => None,
            Work::Kernel(_) => Some("is a form of a GPU kernel"),
        }
    }

    fn free_memory(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    fn peaks(&self, dtypes: &[DType]) -> Peaks {
        measure_cpu(self.threads, dtypes)
    }

    fn run(&self, case: &Case, operands: &Operands, dtype: DType, clock: Option<Clock<'_>>) -> Result<Run> {
        let op = match &case.work {
            Work::Op(op) => op,
            Work::Kernel(_) => return Err(Error::graph(case.op_name(), "is a form of a GPU kernel")),
            Work::Resize(resize) => return run_resize(resize, operands, clock),
        };
        let (graph, placed) = operands.graph(case, op)?;
        let graph = Arc::new(graph);
        let executor = CpuExecutor::with_dtype(&graph, dtype, self.threads)?;
        let plan = Plan::new(graph, case.batch(), DType::F32)?;
        let fill = f32::from_ne_bytes([FILL; 4]);
        let mut arena = Arena::with_margin(&plan, MARGIN / size_of::<f32>(), fill)?;
        let mut run = || last_step(&executor, &plan, operands.input(), &mut arena);
        let first = run()?;
        if let Some(clock) = clock {
            clock(first, 1, &mut |count| (0..count).map(|_| run()).sum())?;
        }
        let step = plan.steps().last();
        let mut memory: Vec<u8> = bytemuck::cast_slice(arena.with_margins(&plan)).to_vec();
        let regions = regions(&plan, &placed, case.result);
        if case.result_dtype(dtype) == DType::I32 {
            let results = regions.iter().filter(|(_, content)| *content == Content::Result);
            results.for_each(|(range, _)| store_as_integers(&mut memory[range.clone()]));
        }
        Ok(Run {
            memory,
            regions,
            bytes: step.map_or(0, |step| step.bytes_read + step.bytes_written),
        })
    }
}

/// Converts integers, which the CPU computes as f32, to the i32 of the result.
fn store_as_integers(result: &mut [u8]) {
    for element in result.as_chunks_mut().0 {
        *element = (f32::from_ne_bytes(*element) as i32).to_ne_bytes();
    }
}

/// Resizes with the decoder's own code, which allocates its result.
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

/// Returns the time of the plan's last step.
fn last_step(executor: &CpuExecutor, plan: &Plan, input: Input<'_>, arena: &mut Arena) -> Result<Duration> {
    let mut last = Duration::ZERO;
    executor.run(plan, input, arena, Some(&mut |_, time| last = time))?;
    Ok(last)
}
