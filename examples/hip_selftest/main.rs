//! Every type of `hipvit::hip` on a real device, through whatever provider `HIPVIT_PROVIDER` names. A line for each check;
//! the exit code is 1 if any failed.
//!
//!     cargo run --release --example hip_selftest
#![allow(unsafe_code)]

mod dnn;
mod peers;
mod products;

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use half::{bf16, f16};
use hipvit::DType;
use hipvit::hip::Error;
use hipvit::hip::{
    Access, Arguments, Device, DeviceBuffer, Graph, Kernel, Launch, Module, Operand, Rtc, Runtime, Stream,
    Work,
};

use dnn::{attention, convolution, layer_norm, softmax};
use peers::peers;
use products::{blas, blas_lt};

type Check = Result<String, Box<dyn std::error::Error>>;
type Run = fn(&Device) -> Check;

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
    let checks: [(&str, Run); 19] = [
        ("buffers", buffers),
        ("pinned ring", pinned_ring),
        ("events order and time streams", events),
        ("frozen buffer on four threads", frozen),
        ("10,000 allocations leave memory flat", pool),
        ("out of memory is an error", out_of_memory),
        ("hipRTC error has a log", compile_error),
        ("module and kernel", kernel),
        ("graph", graph),
        ("dynamic LDS", dynamic_lds),
        ("copies between two GPUs", peers),
        ("rocBLAS f32", |d| blas::<f32>(d, DType::F32)),
        ("rocBLAS f16", |d| blas::<f16>(d, DType::F16)),
        ("rocBLAS bf16", |d| blas::<bf16>(d, DType::BF16)),
        ("hipBLASLt bias and GELU", blas_lt),
        ("MIOpen softmax", softmax),
        ("MIOpen layer norm", layer_norm),
        ("MIOpen convolution", convolution),
        ("MIOpen attention", attention),
    ];
    let (mut failed, mut skipped) = (0, 0);
    for (name, check) in checks {
        let start = Instant::now();
        match check(&device) {
            Ok(note) => println!(
                "PASS {name}: {note} ({:.0} ms)",
                start.elapsed().as_secs_f64() * 1e3
            ),
            Err(error) if is_absent(error.as_ref()) => {
                println!("SKIP {name}: {error}");
                skipped += 1;
            }
            Err(error) => {
                println!("FAIL {name}: {error}");
                failed += 1;
            }
        }
    }
    println!("pool: {:?}", device.pool_stats());
    println!("{failed} failed, {skipped} skipped, of {}", checks.len());
    ExitCode::from(u8::from(failed > 0))
}

/// A provider need not offer everything.
fn is_absent(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(Error::Provider { .. }) => true,
        Some(Error::Device { advice, .. }) => advice.contains("does not offer"),
        _ => error.is::<Absent>(),
    }
}

/// What a check needs and this machine lacks.
#[derive(Debug)]
struct Absent(&'static str);

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Absent {}

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
                scope.spawn(move || -> hipvit::hip::Result<bool> {
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
    let round = || -> hipvit::hip::Result<()> {
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
#[derive(Clone, Copy)]
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

fn scale_kernel(device: &Device) -> hipvit::hip::Result<Kernel<Scale>> {
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
) -> hipvit::hip::Result<()> {
    let n = (to.bytes() / 4) as u32;
    let launch = Launch::new(n.div_ceil(256), 256);
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
    type Error = Error;

    fn enqueue(&mut self, stream: &Stream) -> hipvit::hip::Result<()> {
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

const ENDS: &str = r#"
struct Ends { float* to; unsigned last; unsigned reserved; };
extern "C" __global__ void ends(Ends a) {
    extern __shared__ float lds[];
    if (threadIdx.x == 0) {
        lds[0] = 1.0f;
        lds[a.last] = 2.0f;
    }
    __syncthreads();
    if (threadIdx.x < 2) a.to[threadIdx.x] = lds[threadIdx.x * a.last];
}
"#;

#[repr(C)]
#[derive(Clone, Copy)]
struct Ends {
    to: u64,
    last: u32,
    reserved: u32,
}

impl Arguments for Ends {
    fn accesses(&self, visit: &mut dyn FnMut(Access)) {
        visit(Access::write("to", self.to, 8));
    }
}

/// All that a block can get is there at both of its ends; a byte more is refused.
fn dynamic_lds(device: &Device) -> Check {
    let code = Rtc::new(device)?.compile("ends.hip", ENDS, &[], &[])?;
    // SAFETY: the source above takes this structure and writes two floats at its address. Its other accesses are to LDS,
    // of which the launches below give it `last + 1` floats.
    let kernel: Kernel<Ends> = unsafe { Module::load(device, code)?.kernel("ends") }?;
    let stream = device.stream()?;
    let most = device.properties().lds_per_block_max as u32;
    for bytes in [most, device.properties().lds_per_block as u32, 512] {
        let mut to = stream.zeroed::<f32>(2)?;
        let arguments = Ends {
            to: to.address(),
            last: bytes / 4 - 1,
            reserved: 0,
        };
        let launch = Launch {
            lds_bytes: bytes,
            ..Launch::new(1, 64)
        };
        kernel.launch(&stream, launch, &arguments, &[to.writing()])?;
        let got = to.read()?;
        ensure(got == [1.0, 2.0], || format!("{got:?} with {bytes} bytes"))?;
        let launch = Launch {
            lds_bytes: most + 1,
            ..launch
        };
        let refused = kernel.launch(&stream, launch, &arguments, &[to.writing()]);
        ensure(refused.is_err(), || "more than there is was let through".into())?;
    }
    Ok(format!("{most} bytes"))
}
