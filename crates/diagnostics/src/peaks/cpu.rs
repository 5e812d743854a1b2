//! Measured peaks of the host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use super::{GemmPeak, Peaks, best, fastest, grow, square};
use hipvit::error::{Error, Result};
use hipvit::exec::{Arena, CpuExecutor};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, Role};
use hipvit::ops::{Linear, Op};
use hipvit::tensor::{DType, Input, Tensor};

/// Returns the name of the CPU, or of its architecture.
pub fn cpu_name() -> String {
    let cpu = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let system = System::new_with_specifics(cpu);
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim());
    let brand = brand.filter(|brand| !brand.is_empty());
    brand.unwrap_or(std::env::consts::ARCH).to_owned()
}

/// Measures a copy by `threads` threads, by default one per physical core, and GEMMs in `dtypes`.
pub fn measure(threads: Option<usize>, dtypes: &[DType]) -> Peaks {
    let mut peaks = Peaks::default();
    match copy(threads) {
        Ok((bytes, rate)) => {
            peaks.copy_bytes = bytes;
            peaks.copy_bytes_per_second = Some(rate);
        }
        Err(error) => peaks.missing.push(error.to_string()),
    }
    for &dtype in dtypes {
        match gemm(threads, dtype) {
            Ok(gemm) => peaks.gemms.extend(gemm),
            Err(error) => peaks.missing.push(error.to_string()),
        }
    }
    peaks
}

/// Returns the bytes of a copy by all threads, and the bytes read and written per second.
fn copy(threads: Option<usize>) -> Result<(usize, f64)> {
    const BYTES: usize = 256 << 20;
    const CHUNK: usize = 1 << 20;
    let executor = CpuExecutor::new(&pixel_graph(), threads)?;
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

fn gemm(threads: Option<usize>, dtype: DType) -> Result<Option<GemmPeak>> {
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
        let executor = CpuExecutor::with_dtype(&graph, dtype, threads)?;
        let plan = Plan::new(graph, 1, DType::F32)?;
        let mut arena = Arena::new();
        best(|| last_step(&executor, &plan, Input::Pixels(&[0; 3]), &mut arena))
    })?;
    Ok(fastest(gemms, dtype))
}

/// Creates a graph whose input is not read.
fn pixel_graph() -> Graph {
    Graph::new("peak", [1, 1, 1, 3], DType::U8)
}

/// Returns the time of the plan's last step.
fn last_step(executor: &CpuExecutor, plan: &Plan, input: Input<'_>, arena: &mut Arena) -> Result<Duration> {
    let mut last = Duration::ZERO;
    executor.run(plan, input, arena, Some(&mut |_, time| last = time))?;
    Ok(last)
}
