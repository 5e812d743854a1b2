//! Runs custom kernels through the safe HIP layer of hipvit.
//!
//! Shows compilation at run time, a launch with several parameters, and a template looked up by a name expression.
//!
//!     cargo run --release --example custom_kernel
//!     HIPVIT_PROVIDER=emu:gfx942 cargo run --release --example custom_kernel    # on an emulated GPU
#![allow(unsafe_code, reason = "kernels are trusted once")]

use hipvit::hip::{In, Launch, Module, Out, Result, Rtc, Runtime};

const SOURCE: &str = r#"
extern "C" __global__ void saxpy(unsigned n, float a, const float* x, float* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

template <class T, unsigned POWER> __global__ void power(unsigned n, T* x) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T result = 1;
    for (unsigned p = 0; p < POWER; ++p) result *= x[i];
    x[i] = result;
}
"#;

fn main() -> Result<()> {
    let device = Runtime::open()?.device(0)?;
    let stream = device.stream()?;
    println!("{}", device.name());

    let rtc = Rtc::new(&device)?;
    let code = rtc
        .program("custom_kernel.hip", SOURCE)
        .name("power<int, 3>")
        .compile()?;
    let module = Module::load(&device, code)?;

    // Typed arguments: the kernel's accesses are declared once, and each launch is checked against them.
    let n = 1000u32;
    let saxpy = module.function("saxpy")?;
    // SAFETY: the kernel has these parameters, reads n elements of x, and writes n of y.
    let saxpy = unsafe { saxpy.typed::<(u32, f32, In<f32>, Out<f32>), 2>(|(n, ..)| [n as usize; 2]) }?;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let (x, mut y) = (stream.upload(&x)?, stream.upload(&vec![1.0f32; n as usize])?);
    saxpy.launch(&stream, Launch::for_elements(n), (n, 2.0, &x, &mut y))?;
    println!("saxpy: {:?} ...", &y.read()?[..5]);

    let error = saxpy.launch(&stream, Launch::for_elements(n), (n + 1, 2.0, &x, &mut y));
    println!(
        "too many elements: {}",
        error.err().map(|error| error.to_string()).unwrap_or_default()
    );

    // Untyped arguments: each launch is unsafe.
    let power = module.function("power<int, 3>")?;
    let mut cubes = stream.upload(&(0..10).collect::<Vec<i32>>())?;
    let launch = power
        .launch(&stream, Launch::for_elements(10))
        .value(10u32)
        .buffer(&mut cubes);
    // SAFETY: the kernel accesses 10 elements, and the buffer has 10.
    unsafe { launch.submit() }?;
    println!("{}: {:?}", power.name(), cubes.read()?);

    let attributes = power.attributes()?;
    let block = power.suggested_block(0, 0)?.block;
    println!(
        "{} registers; best occupancy with blocks of {block} threads",
        attributes.registers
    );
    Ok(())
}
