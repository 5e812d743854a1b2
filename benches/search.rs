//! Times exact search, beside one plain read of the memory, and approximate search.
//!
//!     cargo bench -p hipvit-search                                       # all below, with their default sizes
//!     cargo bench -p hipvit-search -- cpu 1000000                        # random rows of 768 values in f32
//!     cargo bench -p hipvit-search -- gpu 10000000                       # random rows of 768 values in f16, in the memory of a GPU
//!     cargo bench -p hipvit-search --features approximate -- graph FILE  # recall and speed on an index, whose rows are also the queries
//!
//! The GPU is the first of the provider that `HIPVIT_PROVIDER` names. Times are medians and include the copies of queries and results.

use std::error::Error;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use half::f16;
use hipvit::hip::Runtime;
use hipvit_search::{GpuRows, Index, Metric, npy};
use rayon::prelude::*;

const WIDTH: usize = 768;
/// Rows that are generated at once.
const BLOCK: usize = 65536;
const K: usize = 10;

type Outcome = Result<(), Box<dyn Error>>;

/// Returns numbers between −1 and 1 that depend on the seed.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let part = |(index, part): (usize, &mut [f32])| {
        let mut state = (seed << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for value in part {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        }
    };
    let mut values = vec![0.0; count];
    values.par_chunks_mut(4096).enumerate().for_each(part);
    values
}

/// Returns the median time of nine runs, after one that is not counted.
fn median(mut run: impl FnMut() -> Outcome) -> Result<Duration, Box<dyn Error>> {
    run()?;
    let mut times = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn print(what: &str, time: Duration, bytes: usize) {
    let milliseconds = time.as_secs_f64() * 1e3;
    let bandwidth = bytes as f64 / time.as_secs_f64() / 1e9;
    println!("{what:<44} {milliseconds:>9.2} ms  {bandwidth:>7.1} GB/s");
}

/// Reads all values once, on all threads.
fn read(values: &[f32]) -> f32 {
    const SUMS: usize = 32;
    let sum = |part: &[f32]| {
        let mut sums = [0.0; SUMS];
        for values in part.chunks_exact(SUMS) {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        sums.iter().sum::<f32>()
    };
    values.par_chunks(1 << 18).map(sum).sum()
}

fn cpu(rows: usize) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("rows.npy");
    let bytes = rows * WIDTH * size_of::<f32>();
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    file.write_all(&npy::header("<f4", &[rows, WIDTH]))?;
    let mut all = Vec::with_capacity(rows * WIDTH);
    for first in (0..rows).step_by(BLOCK) {
        let values = random(BLOCK.min(rows - first) * WIDTH, first as u64 + 1);
        file.write_all(bytemuck::cast_slice(&values))?;
        all.extend(values);
    }
    file.into_inner()?.sync_all()?;
    println!(
        "CPU, {rows} × {WIDTH} in f32, {} threads",
        rayon::current_num_threads()
    );
    let plain = median(|| {
        black_box(read(&all));
        Ok(())
    })?;
    print("one plain read", plain, bytes);
    drop(all);
    let index = Index::open(&path)?;
    for metric in [Metric::InnerProduct, Metric::Cosine] {
        for queries in [1, 64] {
            let values = random(queries * WIDTH, 0);
            let time = median(|| {
                black_box(index.search(&values, K, metric)?);
                Ok(())
            })?;
            let ratio = time.as_secs_f64() / plain.as_secs_f64();
            print(
                &format!("{metric:?}, queries: {queries}; {ratio:.2} reads"),
                time,
                bytes,
            );
        }
    }
    Ok(())
}

fn gpu(rows: usize) -> Outcome {
    let runtime = match Runtime::open() {
        Ok(runtime) if runtime.device_count()? > 0 => runtime,
        Ok(_) => return Err("there is no GPU".into()),
        Err(error) => return Err(error.into()),
    };
    let device = runtime.device(0)?;
    let mut resident = GpuRows::new(&device, [rows, WIDTH], false)?;
    for first in (0..rows).step_by(BLOCK) {
        let values = random(BLOCK.min(rows - first) * WIDTH, first as u64 + 1);
        let values: Vec<f16> = values.into_par_iter().map(f16::from_f32).collect();
        resident.write(first, &values)?;
    }
    println!("{}, {rows} × {WIDTH} in f16", device.name());
    let bytes = rows * WIDTH * size_of::<f16>();
    for queries in [1, 4, 64] {
        let values: Vec<f16> = random(queries * WIDTH, 0)
            .into_iter()
            .map(f16::from_f32)
            .collect();
        let time = median(|| {
            black_box(resident.nearest(&values, K + 16)?);
            Ok(())
        })?;
        print(&format!("inner product, queries: {queries}"), time, bytes);
    }
    Ok(())
}

#[cfg(not(feature = "approximate"))]
fn graph(_: &Path) -> Outcome {
    Err("add --features approximate".into())
}

#[cfg(feature = "approximate")]
fn graph(path: &Path) -> Outcome {
    use hipvit_search::{Approximate, GraphOptions};

    let index = Index::open(path)?;
    println!(
        "{} × {}, {} threads",
        index.len(),
        index.width(),
        rayon::current_num_threads()
    );
    let start = Instant::now();
    let graph = Approximate::build(&index, Metric::Cosine, GraphOptions::default())?;
    println!("graph built in {:.1} s", start.elapsed().as_secs_f64());
    let mut queries = Vec::new();
    for row in (0..index.len()).step_by((index.len() / 1000).max(1)) {
        let mut values = Vec::new();
        index.copy_row(row, &mut values);
        queries.push(values);
    }
    // Queries arrive one by one, as from users.
    let per_second = |count: usize, start: Instant| count as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut exact = Vec::new();
    for query in &queries {
        exact.extend(index.search(query, K, Metric::Cosine)?);
    }
    let exact_speed = per_second(queries.len(), start);
    println!("exact                    {exact_speed:>9.0} queries/s");
    for effort in [10, 16, 24, 32, 48, 64, 96] {
        let start = Instant::now();
        let mut found = Vec::new();
        for query in &queries {
            found.extend(graph.search(query, K, effort)?);
        }
        let speed = per_second(queries.len(), start);
        let common = exact
            .iter()
            .zip(&found)
            .map(|(exact, found)| exact.iter().filter(|hit| found.contains(hit)).count());
        let recall = common.sum::<usize>() as f64 / (K * queries.len()) as f64;
        println!(
            "effort {effort:>3}, recall {recall:.4} {speed:>9.0} queries/s  {:>5.1}x",
            speed / exact_speed
        );
    }
    Ok(())
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let rows = |default: usize| match arguments.get(1) {
        Some(rows) => Ok(rows.parse()?),
        None => Ok::<usize, Box<dyn Error>>(default),
    };
    match arguments.first().map(String::as_str) {
        Some("cpu") => cpu(rows(1_000_000)?),
        Some("gpu") => gpu(rows(10_000_000)?),
        Some("graph") => graph(Path::new(arguments.get(1).ok_or("name an index")?)),
        Some(other) => Err(format!("`{other}` is not one of cpu, gpu, graph").into()),
        None => {
            cpu(1_000_000)?;
            if let Err(error) = gpu(10_000_000) {
                println!("GPU: not run: {error}");
            }
            Ok(())
        }
    }
}
