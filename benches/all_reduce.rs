//! Compares all-reduces by hipvit's kernel over peer memory with RCCL's (NCCL's on NVIDIA), in captured
//! graphs on 2 and 4 GPUs: `cargo bench --bench all_reduce`. It checks the results, and exits with 1 if one
//! is wrong. Without two GPUs nothing runs.
//!
//! `fused` is the kernel with bias and residual. `norm` adds the LayerNorm of the result, as a
//! tensor-parallel model does. `library` is only the sum.

use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use half::bf16;
use hipvit::exec::{PeerAllReduce, PeerNorm, PeerSum};
use hipvit::hip::{Comm, DeviceBuffer, Graph, Operand, Reduction, Runtime, Stream, Work};
use hipvit::{DType, hip};

/// Number of sums in a graph.
const SUMS: u32 = 50;
/// Number of replays; the fastest counts.
const REPETITIONS: usize = 5;
/// Number of rows up to which a norm is part of the launch.
const NORMALIZED_ROWS: usize = 4096;
/// Rows and channels of activations.
const SIZES: [[usize; 2]; 10] = [
    [1, 1024],
    [197, 768],
    [197, 1024],
    [577, 1152],
    [729, 1152],
    [8 * 197, 1024],
    [8 * 257, 1280],
    [16 * 197, 1024],
    [64 * 197, 1024],
    [256 * 197, 768],
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Direct,
    Fused,
    Norm,
    Library,
}

struct Rank<'a> {
    kind: Kind,
    direct: &'a PeerAllReduce,
    comm: &'a Comm,
    matrix: [usize; 2],
    x: DeviceBuffer<u8>,
    bias: DeviceBuffer<u8>,
    residual: DeviceBuffer<u8>,
    out: DeviceBuffer<u8>,
    norm: DeviceBuffer<u8>,
}

impl Work for Rank<'_> {
    type Error = hipvit::Error;

    fn enqueue(&mut self, _: &Stream) -> hipvit::Result<()> {
        let [rows, channels] = self.matrix;
        for _ in 0..SUMS {
            if self.kind == Kind::Library {
                self.comm
                    .all_reduce(hip::DType::BF16, Reduction::Sum, &self.x, &mut self.out)?;
                continue;
            }
            let follows = self.kind != Kind::Direct;
            let norm = (self.kind == Kind::Norm).then(|| PeerNorm {
                weight: self.bias.reading(),
                bias: Some(self.bias.reading()),
                epsilon: 1e-6,
                out: self.norm.writing(),
            });
            let sum = PeerSum {
                x: self.x.reading(),
                bias: follows.then(|| self.bias.reading()),
                residual: follows.then(|| self.residual.reading()),
                out: self.out.writing(),
                norm,
                rows,
                channels,
            };
            self.direct.submit(self.comm.rank(), sum)?;
        }
        Ok(())
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        vec![self.out.writing()]
    }
}

/// Returns small integers, so that bf16 represents their sums exactly.
fn value(index: usize, rank: usize) -> f32 {
    ((index + 3 * rank) % 17) as f32
}

fn upload(stream: &Stream, len: usize, rank: usize) -> hip::Result<DeviceBuffer<u8>> {
    let bytes = (0..len).flat_map(|index| bf16::from_f32(value(index, rank)).to_le_bytes());
    stream.upload(&bytes.collect::<Vec<u8>>())
}

/// Returns one rank's microseconds per sum, and the number of wrong elements.
fn measure(
    kind: Kind,
    direct: &PeerAllReduce,
    comm: &Comm,
    matrix: [usize; 2],
    all: &Barrier,
) -> Result<(f64, usize), hipvit::Error> {
    let [rows, channels] = matrix;
    let (stream, rank, ranks) = (comm.stream(), comm.rank(), comm.ranks());
    let work = Rank {
        kind,
        direct,
        comm,
        matrix,
        x: upload(stream, rows * channels, rank)?,
        bias: upload(stream, channels, 5)?,
        residual: upload(stream, rows * channels, 6)?,
        out: stream.zeroed(2 * rows * channels)?,
        norm: stream.zeroed(2 * rows * channels)?,
    };
    let mut graph = Graph::new(stream, work)?;
    if let Some(reason) = graph.fallback() {
        eprintln!("rank {rank}: not captured: {reason}");
    }
    let mut best = Duration::MAX;
    for _ in 0..REPETITIONS {
        all.wait();
        let begin = stream.record()?;
        graph.run()?;
        let end = stream.record()?;
        stream.synchronize()?;
        best = best.min(end.since(&begin)?);
    }
    direct.check(rank)?;
    let bytes = graph.work().out.read()?;
    let wrong = |&(index, bytes): &(usize, &[u8])| {
        let mut expected: f32 = (0..ranks).map(|rank| value(index, rank)).sum();
        if matches!(kind, Kind::Fused | Kind::Norm) {
            expected += value(index % channels, 5) + value(index, 6);
        }
        bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32() != expected
    };
    let wrong = bytes.chunks_exact(2).enumerate().filter(wrong).count();
    Ok((best.as_secs_f64() * 1e6 / f64::from(SUMS), wrong))
}

fn main() -> Result<(), Box<dyn Error>> {
    let devices = match Runtime::open().and_then(|runtime| runtime.devices()) {
        Ok(devices) if devices.len() > 1 => devices,
        Ok(_) => {
            println!("skipped: there is one GPU");
            return Ok(());
        }
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let largest = std::env::var("HIPVIT_BENCH_LARGEST").ok();
    let largest: usize = largest.map_or(Ok(usize::MAX), |text| text.parse())?;
    let mut all_wrong = 0;
    for count in [2, 4].into_iter().filter(|&count| count <= devices.len()) {
        println!("{count} x {}, bf16, us per all-reduce", devices[0].name());
        println!(
            "{:<14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>7}",
            "matrix", "bytes", "direct", "fused", "norm", "library", "#wrong"
        );
        for [rows, channels] in SIZES {
            if rows * channels * 2 > largest {
                continue;
            }
            let streams = devices[..count]
                .iter()
                .map(hip::Device::stream)
                .collect::<hip::Result<Vec<_>>>()?;
            let comms = Comm::all(&streams)?;
            let direct = PeerAllReduce::new(&streams, DType::BF16, Duration::from_secs(30))?;
            let mut times = Vec::new();
            let mut wrong = 0;
            for kind in [Kind::Direct, Kind::Fused, Kind::Norm, Kind::Library] {
                if kind == Kind::Norm && rows > NORMALIZED_ROWS {
                    times.push(f64::NAN);
                    continue;
                }
                let all = Barrier::new(count);
                let results: Vec<_> = thread::scope(|scope| {
                    let run = |comm| {
                        let (direct, all) = (&direct, &all);
                        scope.spawn(move || measure(kind, direct, comm, [rows, channels], all))
                    };
                    let threads: Vec<_> = comms.iter().map(run).collect();
                    threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
                });
                let mut slowest: f64 = 0.0;
                for result in results {
                    let (time, differ) = result.map_err(|_| "a rank's thread panicked")??;
                    slowest = slowest.max(time);
                    wrong += differ;
                }
                times.push(slowest);
            }
            all_wrong += wrong;
            println!(
                "{:<14} {:>10} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>7}",
                format!("{rows}x{channels}"),
                rows * channels * 2,
                times[0],
                times[1],
                times[2],
                times[3],
                wrong
            );
        }
    }
    match all_wrong {
        0 => Ok(()),
        wrong => Err(format!("{wrong} elements are wrong").into()),
    }
}
