//! Exercises a provider on the machine's GPU through hipvit-sys, as any program would, and prints a line for each item:
//! `HIPVIT_PROVIDER=cuda selftest`. The exit code is 1 if any item fails.
//!
//! Nothing in it knows of NVIDIA but the processor's name for hipRTC, which is taken from the device's properties.

mod device;
mod products;
mod runtime;

use std::process::ExitCode;

use device::Gpu;

/// What an item came to: a figure to print, or why it failed.
pub(crate) type Outcome = Result<String, String>;

type Item = (&'static str, fn(&Gpu) -> Outcome);

const ITEMS: &[Item] = &[
    ("devices and properties", runtime::properties),
    ("malloc, memcpy, memset", runtime::memory),
    ("pointer attributes", runtime::pointers),
    ("out of memory is a status", runtime::out_of_memory),
    ("streams and events", runtime::timing),
    ("host function", runtime::host_function),
    ("module launch", runtime::launch),
    (
        "module launch with an argument buffer",
        runtime::launch_with_buffer,
    ),
    (
        "dynamic shared memory beyond the default",
        runtime::large_shared_memory,
    ),
    ("graph capture and replay", runtime::graph),
    ("rocBLAS gemm_ex f32", products::gemm_f32),
    ("rocBLAS gemm_ex f16", products::gemm_f16),
    ("rocBLAS gemm_ex bf16", products::gemm_bf16),
    ("rocBLAS gemm_ex with another D", products::gemm_other_output),
    ("rocBLAS gemm_strided_batched_ex f16", products::gemm_batched),
    ("hipBLASLt matmul + bias, bf16", products::matmul_bias),
    ("hipBLASLt matmul + bias + GELU, bf16", products::matmul_gelu),
    (
        "MIOpen convolution as patch embedding, f32",
        products::convolution,
    ),
    ("MIOpen softmax, f32", products::softmax),
    ("RCCL all-reduce of one rank", products::all_reduce),
    ("ROCm SMI", runtime::monitoring),
    ("two devices", runtime::peers),
];

fn main() -> ExitCode {
    let gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("FAIL  provider: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Needs no device, so it is worth its line on any machine.
    let compiled = runtime::compile(&gpu);
    let mut failed = report("hipRTC compile", compiled);
    if gpu.arch.is_none() {
        println!("FAIL  there is no device; the rest was not run");
        return ExitCode::FAILURE;
    }
    for (name, item) in ITEMS {
        failed += report(name, item(&gpu));
    }
    println!("{} of {} failed", failed, ITEMS.len() + 1);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn report(name: &str, outcome: Outcome) -> usize {
    match outcome {
        Ok(figure) => {
            println!("PASS  {name}: {figure}");
            0
        }
        Err(cause) => {
            println!("FAIL  {name}: {cause}");
            1
        }
    }
}
