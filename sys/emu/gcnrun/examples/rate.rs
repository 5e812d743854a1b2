//! Measures how many instructions per second the emulator executes: `cargo run --release -p gcnrun --example rate [arch]`. Needs a
//! clang for AMD GPUs: `HIPVIT_HIPCC`, or `clang++-19`.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use gcnrun::{Checks, Kind, Launch, Memory, Order, Program};

const ITEMS: u32 = 256;
const BLOCKS: u32 = 16;
const FLOAT4S: u32 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arch = std::env::args().nth(1).unwrap_or_else(|| "gfx942".to_owned());
    let compiler = std::env::var_os("HIPVIT_HIPCC").unwrap_or_else(|| "clang++-19".into());
    let object = tempfile::NamedTempFile::new()?;
    let compiled = Command::new(compiler)
        .args([
            "-x",
            "hip",
            "-std=c++17",
            "-O3",
            "--cuda-device-only",
            "--no-gpu-bundle-output",
        ])
        .args(["-nogpulib", "-nogpuinc", &format!("--offload-arch={arch}"), "-o"])
        .arg(object.path())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/rate.hip"))
        .status()?;
    if !compiled.success() {
        return Err("the kernels do not compile".into());
    }

    let memory = Memory::new();
    let program = Program::load(&memory, 0, &std::fs::read(object.path())?)?;
    let bytes = u64::from(FLOAT4S) * 16;
    let [input, output] = [(); 2].map(|()| memory.allocate(bytes, Kind::Device(0), 256));
    let (input, output) = (input?, output?);
    memory.fill(input, &1.0_f32.to_le_bytes(), bytes / 4)?;

    let count = |n: u32| [&output.to_le_bytes()[..], &n.to_le_bytes()].concat();
    let stream = [
        &output.to_le_bytes()[..],
        &input.to_le_bytes(),
        &FLOAT4S.to_le_bytes(),
    ]
    .concat();
    for (kernel, arguments) in [
        ("arithmetic", count(20_000)),
        ("stream", stream),
        ("through_lds", count(2_000)),
    ] {
        for (checks, name) in [
            (Checks::default(), "checked"),
            (
                Checks {
                    uninitialised: false,
                    lds_races: false,
                    alignment: false,
                    ..Checks::default()
                },
                "unchecked",
            ),
        ] {
            let begin = Instant::now();
            let statistics = program.launch(&Launch {
                kernel,
                grid: [BLOCKS, 1, 1],
                block: [ITEMS, 1, 1],
                dynamic_lds: 0,
                arguments: &arguments,
                order: Order::Forward,
                options: checks,
            })?;
            let seconds = begin.elapsed().as_secs_f64();
            println!(
                "{arch} {kernel:12} {name:9} {:6.1} million instructions in {seconds:.3} s: {:6.1} million/s",
                statistics.instructions as f64 / 1e6,
                statistics.instructions as f64 / 1e6 / seconds,
            );
        }
    }
    Ok(())
}
