//! Every type of `hipvit::hip` on a real device, through whatever provider `HIPVIT_PROVIDER` names. A line for each check;
//! the exit code is 1 if any failed.
//!
//!     cargo run --release --example hip_selftest
#![allow(unsafe_code)]

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use bytemuck::{NoUninit, Pod};
use half::{bf16, f16};
use hipvit::hip::{
    Access, Arguments, Blas, BlasLt, Device, DeviceBuffer, Dnn, Epilogue, Gemm, Graph, Kernel, Launch,
    MatmulOperands, Matrix, Module, Operand, PatchConvolution, Rows, Rtc, Runtime, Scales, Stream, Work,
};
use hipvit::{DType, Error};

type Check = Result<String, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let device = match Runtime::open().and_then(|runtime| runtime.device(0)) {
        Ok(device) => device,
        Err(error) => {
            println!("FAIL device: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} by {:?}", device.name(), device.runtime().path().ok());
    println!("{:?}", device.properties());
    let checks: [(&str, fn(&Device) -> Check); 16] = [
        ("buffers", buffers),
        ("pinned ring", pinned_ring),
        ("events order and time streams", events),
        ("frozen buffer on four threads", frozen),
        ("10,000 allocations leave memory flat", pool),
        ("out of memory is an error", out_of_memory),
        ("hipRTC error has a log", compile_error),
        ("module and kernel", kernel),
        ("graph", graph),
        ("rocBLAS f32", |d| blas::<f32>(d, DType::F32)),
        ("rocBLAS f16", |d| blas::<f16>(d, DType::F16)),
        ("rocBLAS bf16", |d| blas::<bf16>(d, DType::BF16)),
        ("hipBLASLt bias and GELU", blas_lt),
        ("MIOpen softmax", softmax),
        ("MIOpen layer norm", layer_norm),
        ("MIOpen convolution", convolution),
    ];
    let mut failed = 0;
    for (name, check) in checks {
        let start = Instant::now();
        match check(&device) {
            Ok(note) => println!(
                "PASS {name}: {note} ({:.0} ms)",
                start.elapsed().as_secs_f64() * 1e3
            ),
            Err(error) if is_absent(error.as_ref()) => println!("SKIP {name}: {error}"),
            Err(error) => {
                println!("FAIL {name}: {error}");
                failed += 1;
            }
        }
    }
    println!(
        "{failed} of {} failed; pool: {:?}",
        checks.len(),
        device.pool_stats()
    );
    ExitCode::from(u8::from(failed > 0))
}

/// A provider need not offer everything.
fn is_absent(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(Error::Provider { .. }) => true,
        Some(Error::Device { advice, .. }) => advice.contains("does not offer"),
        _ => false,
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Numbers in [-1, 1] from a linear congruence.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn worst(actual: impl IntoIterator<Item = f64>, expected: &[f64]) -> f64 {
    let errors = actual.into_iter().zip(expected).map(|(a, e)| (a - e).abs());
    errors.fold(0.0, |worst, e| if e.is_nan() { f64::NAN } else { worst.max(e) })
}

fn within(error: f64, bound: f64) -> Check {
    // A NaN is within nothing.
    ensure(error <= bound, || format!("error {error:.2e} above {bound:.2e}"))?;
    Ok(format!("error {error:.1e} of {bound:.1e}"))
}

fn buffers(device: &Device) -> Check {
    let stream = device.stream()?;
    for len in [0, 1, 1000, 20_000_000] {
        let values = numbers(len, 1);
        let original = stream.upload(&values)?;
        let mut copy = stream.zeroed::<f32>(len)?;
        ensure(copy.read()?.iter().all(|&x| x == 0.0), || {
            format!("zeroes, {len}")
        })?;
        if len > 0 {
            copy.copy_from(original.reading())?;
        }
        ensure(copy.read()? == values, || format!("a copy of {len}"))?;
    }
    Ok("up, down, across, zero".into())
}

fn pinned_ring(device: &Device) -> Check {
    let stream = device.stream()?;
    let (chunk, chunks) = (1 << 20, 64);
    let mut buffer = stream.allocate::<f32>(chunk * chunks)?;
    let mut ring = device.pinned_ring::<f32>(3, chunk)?;
    let start = Instant::now();
    for index in 0..chunks {
        let mut slot = ring.next()?;
        slot.fill(index as f32);
        ring.submitted(buffer.upload(index * chunk, slot)?);
    }
    ring.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    let values = buffer.read()?;
    let right = values
        .chunks(chunk)
        .enumerate()
        .all(|(i, c)| c.iter().all(|&x| x == i as f32));
    ensure(right, || "a chunk is wrong".into())?;
    Ok(format!(
        "{:.1} GB/s with filling",
        (4 * chunk * chunks) as f64 / seconds / 1e9
    ))
}

fn events(device: &Device) -> Check {
    let (first, second) = (device.stream()?, device.stream()?);
    let mut buffer = first.zeroed::<u8>(64 << 20)?;
    let before = first.record()?;
    for byte in 1..=50 {
        buffer.fill(byte)?;
    }
    let ready = first.record()?;
    let buffer = buffer.move_to(&second, &ready)?;
    ensure(buffer.read()?.iter().all(|&b| b == 50), || {
        "the second stream read too early".into()
    })?;
    let elapsed = ready.since(&before)?;
    ensure(elapsed.as_nanos() > 0, || "no time passed".into())?;
    Ok(format!("50 fills of 64 MiB in {elapsed:?}"))
}

fn frozen(device: &Device) -> Check {
    let kernel = scale_kernel(device)?;
    let weights = device.stream()?.upload(&vec![2f32; 1 << 20])?.freeze()?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (kernel, weights) = (&kernel, &weights);
                scope.spawn(move || -> hipvit::Result<bool> {
                    let stream = device.stream()?;
                    let mut out = stream.allocate::<f32>(1 << 20)?;
                    for _ in 0..100 {
                        scale(kernel, &stream, n as f32, weights.reading(), out.writing())?;
                    }
                    Ok(out.read()?.iter().all(|&x| x == 2.0 * n as f32))
                })
            })
            .collect();
        for thread in threads {
            let right = thread.join().map_err(|_| "a thread panicked")??;
            ensure(right, || "wrong values".into())?;
        }
        Ok("four threads, four streams".into())
    })
}

fn pool(device: &Device) -> Check {
    let stream = device.stream()?;
    let round = || -> hipvit::Result<()> {
        let mut held: Vec<DeviceBuffer<u8>> = Vec::new();
        for n in 0..10_000usize {
            let mut buffer = stream.allocate(1 + (n * 7919) % 3_000_000)?;
            buffer.fill(n as u8)?;
            held.push(buffer);
            if held.len() > 8 {
                held.swap_remove(n % 8);
            }
        }
        drop(held);
        stream.synchronize()
    };
    round()?;
    let (before, stats) = (device.memory()?.0, device.pool_stats());
    round()?;
    let after = device.memory()?.0;
    // Other processes may share the device, so the pool's own figure is the strict one.
    ensure(device.pool_stats().held == stats.held, || {
        format!("{stats:?} then {:?}", device.pool_stats())
    })?;
    let drift = before.abs_diff(after);
    ensure(drift < 64 << 20, || {
        format!("free memory went from {before} to {after}")
    })?;
    let trimmed = device.trim()?;
    Ok(format!(
        "{} driver allocations, {} reuses, fragmentation {:.2}, {trimmed} bytes trimmed",
        stats.driver_allocations,
        stats.reuses,
        stats.fragmentation()
    ))
}

fn out_of_memory(device: &Device) -> Check {
    let stream = device.stream()?;
    let error = stream.allocate::<u8>(2 * device.properties().memory);
    ensure(matches!(error, Err(Error::OutOfMemory { .. })), || {
        format!("{error:?}")
    })?;
    drop(stream.upload(&[1u8])?.read()?);
    Ok("and the device is still usable".into())
}

fn compile_error(device: &Device) -> Check {
    match Rtc::new(device)?.compile(
        "broken.hip",
        "extern \"C\" __global__ void f() { nonsense; }",
        &[],
        &[],
    ) {
        Err(Error::Compile { reason, .. }) => {
            ensure(reason.contains("nonsense"), || reason.clone())?;
            Ok(reason)
        }
        other => Err(format!("{other:?}").into()),
    }
}

const SCALE: &str = r#"
struct Scale { const float* from; float* to; unsigned n; float factor; };
extern "C" __global__ void scale(Scale a) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n) a.to[i] = a.factor * a.from[i];
}
"#;

#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
struct Scale {
    from: u64,
    to: u64,
    n: u32,
    factor: f32,
}

impl Arguments for Scale {
    fn accesses(&self, visit: &mut dyn FnMut(Access)) {
        visit(Access::read("from", self.from, 4 * self.n as usize));
        visit(Access::write("to", self.to, 4 * self.n as usize));
    }
}

fn scale_kernel(device: &Device) -> hipvit::Result<Kernel<Scale>> {
    let code = Rtc::new(device)?.compile("scale.hip", SCALE, &[], &[])?;
    let module = Module::load(device, code)?;
    // SAFETY: the source above takes this structure and touches `n` floats behind each address.
    unsafe { module.kernel("scale") }
}

fn scale(
    kernel: &Kernel<Scale>,
    stream: &Stream,
    factor: f32,
    from: Operand<'_>,
    to: Operand<'_>,
) -> hipvit::Result<()> {
    let n = (to.bytes() / 4) as u32;
    let launch = Launch {
        grid: [n.div_ceil(256), 1, 1],
        block: [256, 1, 1],
        lds_bytes: 0,
    };
    let arguments = Scale {
        from: from.address(),
        to: to.address(),
        n,
        factor,
    };
    kernel.launch(stream, launch, &arguments, &[from, to])
}

fn kernel(device: &Device) -> Check {
    let kernel = scale_kernel(device)?;
    let stream = device.stream()?;
    let values = numbers(1_000_003, 2);
    let from = stream.upload(&values)?;
    let mut to = stream.zeroed::<f32>(values.len())?;
    scale(&kernel, &stream, -3.0, from.reading(), to.writing())?;
    ensure(
        to.read()?.iter().zip(&values).all(|(a, b)| *a == -3.0 * b),
        || "wrong values".into(),
    )?;
    let refused = scale(&kernel, &stream, 1.0, from.reading().part(0..8)?, to.writing());
    ensure(refused.is_err(), || {
        "a launch outside its operands was let through".into()
    })?;
    Ok("compiled, loaded, launched".into())
}

struct Chain {
    kernel: Kernel<Scale>,
    from: DeviceBuffer<f32>,
    between: DeviceBuffer<f32>,
    to: DeviceBuffer<f32>,
}

impl Work for Chain {
    fn enqueue(&mut self, stream: &Stream) -> hipvit::Result<()> {
        scale(
            &self.kernel,
            stream,
            2.0,
            self.from.reading(),
            self.between.writing(),
        )?;
        for _ in 0..20 {
            self.to.copy_from(self.between.reading())?;
            scale(
                &self.kernel,
                stream,
                0.5,
                self.to.reading(),
                self.between.writing(),
            )?;
        }
        Ok(())
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        vec![self.to.writing(), self.between.writing()]
    }
}

fn graph(device: &Device) -> Check {
    let stream = device.stream()?;
    let values = numbers(100_000, 3);
    let chain = Chain {
        kernel: scale_kernel(device)?,
        from: stream.upload(&values)?,
        between: stream.allocate(values.len())?,
        to: stream.allocate(values.len())?,
    };
    let mut graph = Graph::new(&stream, chain)?;
    if let Some(reason) = graph.fallback() {
        return Err(format!("fell back: {reason}").into());
    }
    let other = numbers(values.len(), 4);
    graph.work_mut().from.write(&other)?;
    let start = stream.record()?;
    for _ in 0..100 {
        graph.run()?;
    }
    let elapsed = stream.record()?.since(&start)?;
    let expected = 0.5f32.powi(18);
    let right = graph
        .work()
        .to
        .read()?
        .iter()
        .zip(&other)
        .all(|(a, b)| *a == b * expected);
    ensure(right, || "the replay ignored its new inputs".into())?;
    Ok(format!("41 nodes, {:?} a replay", elapsed / 100))
}

/// An element type of the products.
trait Element: Pod + Send + Sync {
    fn from(value: f32) -> Self;
    fn to(self) -> f64;
}
impl Element for f32 {
    fn from(value: f32) -> Self {
        value
    }
    fn to(self) -> f64 {
        self.into()
    }
}
impl Element for f16 {
    fn from(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn to(self) -> f64 {
        self.into()
    }
}
impl Element for bf16 {
    fn from(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn to(self) -> f64 {
        self.into()
    }
}

fn values<T: Element>(len: usize, seed: u32) -> Vec<T> {
    numbers(len, seed).into_iter().map(T::from).collect()
}

/// Every transposition, strided and batched, f32 and narrow results.
fn blas<T: Element>(device: &Device, dtype: DType) -> Check {
    let stream = device.stream()?;
    let mut blas = Blas::new(&stream)?;
    let mut notes = Vec::new();
    for (turned, batch, (m, n, k)) in [
        (0, 1, (64, 48, 80)),
        (2, 1, (197, 768, 192)),
        (1, 3, (40, 24, 56)),
        (3, 2, (33, 17, 65)),
        (2, 4, (49, 49, 64)),
    ] {
        let side = |turned: bool, rows: usize, columns: usize| match turned {
            false => Matrix::rows(columns + 8).every(rows * (columns + 8)),
            true => Matrix::transposed(rows + 8).every(columns * (rows + 8)),
        };
        let gemm = Gemm {
            batch,
            a: side(turned & 1 != 0, m, k),
            b: side(turned & 2 != 0, k, n),
            c: Matrix::rows(n).every(m * n),
            alpha: 0.5,
            ..Gemm::new(m, n, k, dtype)
        };
        let (a, b) = (
            values::<T>(batch * gemm.a.batch_stride, 5),
            values::<T>(batch * gemm.b.batch_stride, 6),
        );
        let mut expected = vec![0.0; batch * m * n];
        let at = |matrix: &Matrix, values: &[T], z: usize, row: usize, column: usize| {
            let (row, column) = if matrix.transposed {
                (column, row)
            } else {
                (row, column)
            };
            values[z * matrix.batch_stride + row * matrix.stride + column].to()
        };
        for (index, out) in expected.iter_mut().enumerate() {
            let (z, i, j) = (index / (m * n), index / n % m, index % n);
            *out = 0.5
                * (0..k)
                    .map(|l| at(&gemm.a, &a, z, i, l) * at(&gemm.b, &b, z, l, j))
                    .sum::<f64>();
        }
        let (a, b) = (stream.upload(&a)?, stream.upload(&b)?);
        let mut c = stream.zeroed::<T>(expected.len())?;
        blas.gemm(&gemm, a.reading(), b.reading(), c.writing())?;
        let error = worst(c.read()?.into_iter().map(T::to), &expected);
        notes.push(within(error, bound(dtype, k)).map_err(|e| format!("{e}: {gemm:?}"))?);
    }
    Ok(notes.join("; "))
}

/// Sums of `k` products of numbers up to 1: accumulated in f32, and
/// one rounding to the result's type at its largest magnitude, some 6 standard deviations of √(k/9).
fn bound(dtype: DType, k: usize) -> f64 {
    let largest = 2.0 * (k as f64).sqrt() + 1.0;
    let epsilon = match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        _ => k as f64 * 2f64.powi(-24),
    };
    largest * epsilon
}

fn blas_lt(device: &Device) -> Check {
    let stream = device.stream()?;
    let mut lt = BlasLt::new(&stream)?;
    let (m, n, k) = (192, 256, 128);
    let (a, b, c, bias) = (
        values::<f16>(m * k, 7),
        values::<f16>(n * k, 8),
        values::<f16>(m * n, 9),
        values::<f16>(n, 10),
    );
    let [da, db, dc, dbias] = [&a, &b, &c, &bias].map(|values| stream.upload(values));
    let (da, db, dc, dbias) = (da?, db?, dc?, dbias?);
    let mut d = stream.zeroed::<f16>(m * n)?;
    let mut notes = Vec::new();
    for epilogue in [
        Epilogue::None,
        Epilogue::Bias,
        Epilogue::Gelu,
        Epilogue::BiasGelu,
        Epilogue::BiasRelu,
    ] {
        let has_bias = !matches!(epilogue, Epilogue::None | Epilogue::Gelu);
        let gemm = Gemm {
            beta: 1.0,
            ..Gemm::linear(m, n, k, DType::F16)
        };
        let expected: Vec<f64> = (0..m * n)
            .map(|index| {
                let (i, j) = (index / n, index % n);
                let product: f64 = (0..k).map(|l| a[i * k + l].to() * b[j * k + l].to()).sum();
                let x = product + c[index].to() + if has_bias { bias[j].to() } else { 0.0 };
                match epilogue {
                    Epilogue::Gelu | Epilogue::BiasGelu => {
                        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                        0.5 * x * (1.0 + inner.tanh())
                    }
                    Epilogue::BiasRelu => x.max(0.0),
                    _ => x,
                }
            })
            .collect();
        let mut matmul = lt.matmul(gemm, epilogue)?;
        for algorithm in 0..matmul.algorithms() {
            matmul.select(algorithm)?;
            d.fill(0xff)?;
            let operands = MatmulOperands {
                a: da.reading(),
                b: db.reading(),
                c: Some(dc.reading()),
                d: d.writing(),
                bias: has_bias.then(|| dbias.reading()),
                scales: Scales::default(),
            };
            lt.run(&mut matmul, operands)?;
            let error = worst(d.read()?.into_iter().map(Element::to), &expected);
            within(error, 2.0 * bound(DType::F16, k))
                .map_err(|e| format!("{epilogue:?} {algorithm}: {e}"))?;
        }
        notes.push(format!("{epilogue:?} by {} algorithms", matmul.algorithms()));
    }
    Ok(notes.join(", "))
}

fn softmax(device: &Device) -> Check {
    let stream = device.stream()?;
    let (rows, columns) = (50, 197);
    let x = numbers(rows * columns, 11);
    let mut y = stream.zeroed::<f32>(x.len())?;
    let shape = Rows {
        rows,
        columns,
        dtype: DType::F32,
    };
    Dnn::new(&stream)?.softmax(shape, stream.upload(&x)?.reading(), y.writing())?;
    let expected: Vec<f64> = x
        .chunks(columns)
        .flat_map(|row| {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            row.iter().map(move |&x| f64::from(x).exp() / sum)
        })
        .collect();
    within(worst(y.read()?.into_iter().map(f64::from), &expected), 1e-6)
}

fn layer_norm(device: &Device) -> Check {
    let stream = device.stream()?;
    let (rows, columns) = (50, 192);
    let (x, weight, bias) = (
        numbers(rows * columns, 12),
        numbers(columns, 13),
        numbers(columns, 14),
    );
    let mut y = stream.zeroed::<f32>(x.len())?;
    let shape = Rows {
        rows,
        columns,
        dtype: DType::F32,
    };
    let (dw, db) = (stream.upload(&weight)?, stream.upload(&bias)?);
    let input = stream.upload(&x)?;
    let mut dnn = Dnn::new(&stream)?;
    dnn.layer_norm(
        shape,
        1e-6,
        input.reading(),
        [dw.reading(), db.reading()],
        y.writing(),
    )?;
    let expected: Vec<f64> = x
        .chunks(columns)
        .flat_map(|row| {
            let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / columns as f64;
            let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / columns as f64;
            let scale = (variance + 1e-6).sqrt();
            let parts = weight.iter().zip(&bias);
            row.iter()
                .zip(parts)
                .map(move |(&x, (&w, &b))| (f64::from(x) - mean) / scale * f64::from(w) + f64::from(b))
        })
        .collect();
    within(worst(y.read()?.into_iter().map(f64::from), &expected), 1e-5)
}

fn convolution(device: &Device) -> Check {
    let stream = device.stream()?;
    let (batch, channels, features, side, patch) = (2, 3, 40, 32, 8);
    let (x, w) = (
        numbers(batch * channels * side * side, 15),
        numbers(features * channels * patch * patch, 16),
    );
    let tokens = side / patch;
    let expected: Vec<f64> = (0..batch * features * tokens * tokens)
        .map(|index| {
            let (b, f) = (
                index / (features * tokens * tokens),
                index / (tokens * tokens) % features,
            );
            let (row, column) = (index / tokens % tokens, index % tokens);
            (0..channels * patch * patch)
                .map(|tap| {
                    let (c, i, j) = (tap / (patch * patch), tap / patch % patch, tap % patch);
                    let pixel = ((b * channels + c) * side + row * patch + i) * side + column * patch + j;
                    f64::from(x[pixel]) * f64::from(w[f * channels * patch * patch + tap])
                })
                .sum()
        })
        .collect();
    let shape = PatchConvolution {
        batch,
        channels,
        height: side,
        width: side,
        features,
        patch: [patch, patch],
        dtype: DType::F32,
    };
    let (dx, dw) = (stream.upload(&x)?, stream.upload(&w)?);
    let mut dy = stream.zeroed::<f32>(expected.len())?;
    let mut dnn = Dnn::new(&stream)?;
    let mut convolution = dnn.convolution(shape, [dx.reading(), dw.reading(), dy.writing()])?;
    dy.fill(0xff)?;
    dnn.convolve(&mut convolution, [dx.reading(), dw.reading(), dy.writing()])?;
    // Room for Winograd and TF32, which libraries may choose for f32.
    within(worst(dy.read()?.into_iter().map(f64::from), &expected), 2e-2)
}
