//! All-reduces over memory that two and four GPUs share, if there are as many.

use std::thread;
use std::time::Duration;

use half::{bf16, f16};
use hipvit::DType;
use hipvit::exec::{PeerAllReduce, PeerNorm, PeerSum};
use hipvit::hip::{Device as Gpu, DeviceBuffer, Graph, Operand, Stream, Work};

use crate::support::gpu::{device, dtypes, gpu};
use crate::support::session::epsilon;

const TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes before and after each result that must stay unchanged.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;

/// Returns the GPUs if there is more than one.
fn gpus() -> Option<Vec<Gpu>> {
    let (device, _shared) = device()?;
    let gpus = gpu(device).runtime().devices().unwrap();
    if gpus.len() < 2 {
        eprintln!("skipped: there is one GPU");
        return None;
    }
    Some(gpus)
}

fn streams(gpus: &[Gpu]) -> Vec<Stream> {
    gpus.iter().map(|gpu| gpu.stream().unwrap()).collect()
}

/// Returns the values rounded to the dtype, and their bytes. Tests are compiled without optimisation, and there are millions of values: none
/// has an allocation of its own.
fn rounded(values: &[f64], dtype: DType) -> (Vec<f64>, Vec<u8>) {
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    let mut rounded = Vec::with_capacity(values.len());
    for &value in values {
        match dtype {
            DType::F16 => {
                let x = f16::from_f64(value);
                rounded.push(x.to_f64());
                bytes.extend_from_slice(&x.to_le_bytes());
            }
            DType::BF16 => {
                let x = bf16::from_f64(value);
                rounded.push(x.to_f64());
                bytes.extend_from_slice(&x.to_le_bytes());
            }
            _ => {
                let x = value as f32;
                rounded.push(f64::from(x));
                bytes.extend_from_slice(&x.to_le_bytes());
            }
        }
    }
    (rounded, bytes)
}

fn numbers(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let one = |bytes: &[u8]| match dtype {
        DType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        DType::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        _ => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
    };
    bytes.chunks_exact(dtype.size()).map(one).collect()
}

/// Returns pseudo-random values in ±1.
fn random(count: usize, seed: usize) -> Vec<f64> {
    let mut state = seed as u64 * 0x9e37_79b9 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A rank's part of one sum, in separate buffers.
struct Rank<'a> {
    all: &'a PeerAllReduce,
    rank: usize,
    matrix: [usize; 2],
    x: DeviceBuffer<u8>,
    bias: Option<DeviceBuffer<u8>>,
    residual: Option<DeviceBuffer<u8>>,
    /// Result between guards.
    out: DeviceBuffer<u8>,
    norm: Option<Norm>,
}

/// Norm of a sum's rows.
struct Norm {
    weight: DeviceBuffer<u8>,
    bias: Option<DeviceBuffer<u8>>,
    /// Result between guards.
    out: DeviceBuffer<u8>,
}

impl Norm {
    fn of(&mut self) -> hipvit::Result<PeerNorm<'_>> {
        let end = self.out.bytes() - GUARD;
        Ok(PeerNorm {
            weight: self.weight.reading(),
            bias: self.bias.as_ref().map(DeviceBuffer::reading),
            epsilon: EPSILON,
            out: self.out.writing().part(GUARD..end)?,
        })
    }
}

/// Epsilon of the norms.
const EPSILON: f32 = 1e-5;

/// Bytes of a sum, and of its norm.
type Turn = (Vec<u8>, Option<Vec<u8>>);

/// Operation that follows a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Nothing,
    Residual,
    LayerNorm,
    RmsNorm,
}

impl Form {
    const ALL: [Self; 4] = [Self::Nothing, Self::Residual, Self::LayerNorm, Self::RmsNorm];
}

impl Rank<'_> {
    fn submit(&mut self) -> hipvit::Result<()> {
        let [rows, channels] = self.matrix;
        let end = self.out.bytes() - GUARD;
        self.all.submit(
            self.rank,
            PeerSum {
                x: self.x.reading(),
                bias: self.bias.as_ref().map(DeviceBuffer::reading),
                residual: self.residual.as_ref().map(DeviceBuffer::reading),
                out: self.out.writing().part(GUARD..end)?,
                norm: self.norm.as_mut().map(Norm::of).transpose()?,
                rows,
                channels,
            },
        )
    }
}

impl Work for Rank<'_> {
    type Error = hipvit::Error;

    fn enqueue(&mut self, _: &Stream) -> hipvit::Result<()> {
        self.submit()
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        let end = self.out.bytes() - GUARD;
        let norm = self.norm.as_mut().map(|norm| norm.of().unwrap().out);
        let sum = self.out.writing().part(GUARD..end).unwrap();
        [sum].into_iter().chain(norm).collect()
    }
}

/// Returns the result between the guards. Fails if a guard has changed.
fn guarded<'a>(bytes: &'a [u8], what: &str) -> &'a [u8] {
    let (before, rest) = bytes.split_at(GUARD);
    let (inner, after) = rest.split_at(rest.len() - GUARD);
    assert!(
        before.iter().chain(after).all(|&byte| byte == GUARD_BYTE),
        "{what}: written outside of the result"
    );
    inner
}

/// Compares sums of a form with sums in f64. They are repeated as replays of a captured graph with different
/// values. All ranks must get the same bits, and nothing else may be written.
fn sums(gpus: &[Gpu], dtype: DType, matrix: [usize; 2], repetitions: usize, form: Form) {
    let [rows, channels] = matrix;
    let ranks = gpus.len();
    let follows = form != Form::Nothing;
    let streams = streams(gpus);
    let all = PeerAllReduce::new(&streams, dtype, TIMEOUT).unwrap();
    let (bias, bias_bytes) = rounded(&random(channels, 7), dtype);
    let (residual, residual_bytes) = rounded(&random(rows * channels, 8), dtype);
    let (norm_weight, norm_weight_bytes) = rounded(&random(channels, 5), dtype);
    let (norm_bias, norm_bias_bytes) = rounded(&random(channels, 6), dtype);
    let part = |turn: usize, rank: usize| rounded(&random(rows * channels, 9 + turn * 8 + rank), dtype);
    let parts: Vec<Vec<(Vec<f64>, Vec<u8>)>> = (0..repetitions)
        .map(|turn| (0..ranks).map(|rank| part(turn, rank)).collect())
        .collect();
    let result = |stream: &Stream| {
        let bytes = rows * channels * dtype.size() + 2 * GUARD;
        let mut out = stream.allocate::<u8>(bytes).unwrap();
        out.fill(GUARD_BYTE).unwrap();
        out
    };
    let on = |rank: usize, stream: &Stream| {
        let upload = |bytes: &Vec<u8>| stream.upload(bytes).unwrap();
        let norm = matches!(form, Form::LayerNorm | Form::RmsNorm).then(|| Norm {
            weight: upload(&norm_weight_bytes),
            bias: (form == Form::LayerNorm).then(|| upload(&norm_bias_bytes)),
            out: result(stream),
        });
        let work = Rank {
            all: &all,
            rank,
            matrix,
            x: upload(&parts[0][rank].1),
            bias: follows.then(|| upload(&bias_bytes)),
            residual: follows.then(|| upload(&residual_bytes)),
            out: result(stream),
            norm,
        };
        let mut graph = Graph::new(stream, work).unwrap();
        assert_eq!(graph.fallback(), None);
        let turn = |turn: usize| {
            graph.work_mut().x.write(&parts[turn][rank].1).unwrap();
            graph.run().unwrap();
            let norm = graph.work().norm.as_ref().map(|norm| norm.out.read().unwrap());
            (graph.work().out.read().unwrap(), norm)
        };
        let results: Vec<Turn> = (0..repetitions).map(turn).collect();
        all.check(rank).unwrap();
        results
    };
    let results: Vec<Vec<Turn>> = thread::scope(|scope| {
        let on = &on;
        let start = |(rank, stream)| scope.spawn(move || on(rank, stream));
        let threads: Vec<_> = streams.iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for turn in 0..repetitions {
        let what = format!("{ranks} ranks, {dtype} {matrix:?}, {form:?}, turn {turn}");
        for (rank, other) in results.iter().enumerate() {
            assert!(
                other[turn] == results[0][turn],
                "{what}: rank {rank} has other bits than rank 0"
            );
        }
        let (sum, norm) = &results[0][turn];
        let got = numbers(guarded(sum, &what), dtype);
        let mut terms = Vec::with_capacity(ranks + 2);
        for (index, &got) in got.iter().enumerate() {
            terms.clear();
            terms.extend(parts[turn].iter().map(|(part, _)| part[index]));
            if follows {
                terms.extend([bias[index % channels], residual[index]]);
            }
            let expected: f64 = terms.iter().sum();
            // Each addition rounds in f32 what has been summed so far; then one rounding to the dtype.
            let magnitude: f64 = terms.iter().map(|term| term.abs()).sum();
            let sum = terms.len() as f64 * f64::from(f32::EPSILON) / 2.0 * magnitude;
            let bound = sum + epsilon(dtype) / 2.0 * (expected.abs() + sum);
            assert!(
                (got - expected).abs() <= bound,
                "{what}, element {index}: {got} {expected}"
            );
        }
        let Some(norm) = norm else { continue };
        let normal = numbers(guarded(norm, &what), dtype);
        for (row, (sums, normal)) in got.chunks(channels).zip(normal.chunks(channels)).enumerate() {
            let n = channels as f64;
            let mean = match form {
                Form::LayerNorm => sums.iter().sum::<f64>() / n,
                _ => 0.0,
            };
            let variance = sums.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let inverse = 1.0 / (variance + f64::from(EPSILON)).sqrt();
            let largest = sums.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            // The longest chain of additions: a thread's vec128, a wave's six, a row's waves. Then a few roundings more.
            let roundings = 8.0 + 6.0 + 16.0 + 8.0;
            for (column, (&x, &got)) in sums.iter().zip(normal).enumerate() {
                let shift = if form == Form::LayerNorm {
                    norm_bias[column]
                } else {
                    0.0
                };
                let expected = (x - mean) * inverse * norm_weight[column] + shift;
                let f32_error = roundings
                    * f64::from(f32::EPSILON)
                    * (largest * inverse * norm_weight[column].abs() + shift.abs());
                let bound = f32_error + epsilon(dtype) / 2.0 * (expected.abs() + f32_error);
                assert!(
                    (got - expected).abs() <= bound,
                    "{what}, row {row}, column {column} of the norm: {got} {expected}"
                );
            }
        }
    }
}

#[test]
fn sums_over_peer_memory_agree_with_f64() {
    let Some(gpus) = gpus() else { return };
    let mut counts = vec![2];
    counts.extend((gpus.len() >= 4).then_some(4));
    for count in counts {
        for dtype in dtypes() {
            for form in Form::ALL {
                for channels in [1, 63, 64, 65] {
                    sums(&gpus[..count], dtype, [1, channels], 20, form);
                }
            }
            sums(&gpus[..count], dtype, [197, 768], 3, Form::Residual);
            sums(&gpus[..count], dtype, [197, 768], 2, Form::LayerNorm);
            // A block takes fewer such rows than its threads have vec128s for.
            sums(&gpus[..count], dtype, [5, 1152], 1, Form::RmsNorm);
            println!("{count} GPUs, {dtype}: sums agree");
        }
    }
}

/// Several rounds a thread, and rows whose last vec128 is partial.
#[test]
fn large_sums_over_peer_memory_agree_with_f64() {
    let Some(gpus) = gpus() else { return };
    for dtype in dtypes() {
        sums(&gpus[..2], dtype, [1001, 999], 2, Form::Residual);
        sums(&gpus[..2], dtype, [1001, 999], 1, Form::LayerNorm);
    }
}

/// The work ends without the missing rank, and so does all later work. An error names the rank.
#[test]
fn a_rank_that_never_comes_is_an_error() {
    let Some(gpus) = gpus() else { return };
    let streams = streams(&gpus[..2]);
    let all = PeerAllReduce::new(&streams, DType::F32, Duration::from_millis(200)).unwrap();
    let x = streams[0].upload(&[1.0f32; 64]).unwrap();
    let mut out = streams[0].zeroed::<f32>(64).unwrap();
    let mut sum = || {
        all.submit(
            0,
            PeerSum {
                x: x.reading(),
                bias: None,
                residual: None,
                out: out.writing(),
                norm: None,
                rows: 1,
                channels: 64,
            },
        )
        .unwrap();
        streams[0].synchronize().unwrap();
        all.check(0).unwrap_err().to_string()
    };
    assert!(
        sum().contains("rank 0 has waited for rank 1 longer than 0.2 s"),
        "{}",
        sum()
    );
    sum();
    all.check(1).unwrap();
}

/// An aborted sum ends immediately, however long the time-out.
#[test]
fn an_aborted_sum_ends() {
    let Some(gpus) = gpus() else { return };
    let streams = streams(&gpus[..2]);
    let all = PeerAllReduce::new(&streams, DType::F32, TIMEOUT).unwrap();
    let mut x = streams[1].upload(&[1.0f32; 64]).unwrap();
    let matrix = x.writing();
    all.submit(
        1,
        PeerSum {
            x: matrix,
            bias: None,
            residual: None,
            out: matrix,
            norm: None,
            rows: 8,
            channels: 8,
        },
    )
    .unwrap();
    all.abort();
    streams[1].synchronize().unwrap();
    // No rank is to blame.
    all.check(1).unwrap();
}
