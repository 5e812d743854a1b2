//! Kernels by name, and their launches.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use super::{CURRENT, INVALID, LAUNCH_FAILURE, NOT_FOUND, SUCCESS, Slot, Status, access, add, due, get, queue, rocprofiler};

#[path = "../../../safe/src/address.rs"]
#[allow(dead_code)]
mod address;
#[path = "../../../src/kernels/bindings.rs"]
mod bindings;
#[path = "kernels.rs"]
mod kernels;

use address::DeviceAddress;
use bindings::*;
use kernels::OnHost;

/// `scale`: `to[i] = factor * from[i]` for `n` floats.
#[repr(C)]
#[derive(Clone, Copy)]
struct Scale {
    from: DeviceAddress,
    to: DeviceAddress,
    n: u32,
    factor: f32,
}

impl OnHost for Scale {
    fn run(&self, memory: &mut impl kernels::Memory) {
        for i in 0..self.n as usize {
            memory.set(self.to, i, self.factor * memory.get(self.from, i));
        }
    }
}

/// [`PatchExtractArgs`] of the entry with channel-first pixels.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PatchExtractChw(PatchExtractArgs);

impl OnHost for PatchExtractArgs {
    fn run(&self, memory: &mut impl kernels::Memory) {
        kernels::patch_extract(memory, self, false);
    }
}

impl OnHost for PatchExtractChw {
    fn run(&self, memory: &mut impl kernels::Memory) {
        kernels::patch_extract(memory, &self.0, true);
    }
}

/// Memory of the host with f32 elements.
struct Host;

impl kernels::Memory for Host {
    fn get(&self, address: DeviceAddress, index: usize) -> f32 {
        unsafe { address.as_mut_ptr::<f32>().add(index).read() }
    }
    fn set(&mut self, address: DeviceAddress, index: usize, value: f32) {
        unsafe { address.as_mut_ptr::<f32>().add(index).write(value) };
    }
    fn pixel(&self, address: DeviceAddress, index: usize) -> u8 {
        unsafe { address.as_mut_ptr::<u8>().add(index).read() }
    }
    fn set_value(&mut self, address: DeviceAddress, index: usize, value: f32) {
        self.set(address, index, value);
    }
    fn value(&self, address: DeviceAddress, index: usize) -> f32 {
        self.get(address, index)
    }
    fn erf(&self, x: f32) -> f32 {
        unsafe extern "C" {
            safe fn erff(x: f32) -> f32;
        }
        erff(x)
    }
}

/// A kernel with its copied arguments, and the addresses among them.
type Bound = (Box<dyn Fn() + Send + Sync>, Vec<DeviceAddress>);
type Bind = unsafe fn(*const c_void) -> Bound;

macro_rules! kernels {
    ($($name:literal: $arguments:ty, [$($($address:tt).+),*];)*) => {
        const KERNELS: &[(&str, Bind)] = &[$(($name, {
            unsafe fn bind(arguments: *const c_void) -> Bound {
                let a = unsafe { *arguments.cast::<$arguments>() };
                (Box::new(move || a.run(&mut Host)), vec![$(a.$($address).+),*])
            }
            bind
        }),)*];
    };
}

kernels! {
    "scale": Scale, [from, to];
    "patch_extract_f32": PatchExtractArgs, [pixels, out];
    "patch_extract_chw_f32": PatchExtractChw, [0.pixels, 0.out];
    "tokens_f32": TokensArgs, [x, prefix, position, out];
    "add_f32": AddArgs, [x, gamma, y, out];
    "checksum_f32": ChecksumArgs, [from, out];
    "layer_norm_f32": LayerNormArgs, [x, weight, bias, out];
    "layer_norm_few_f32": LayerNormArgs, [x, weight, bias, out];
    "rms_norm_f32": LayerNormArgs, [x, weight, out];
    "rms_norm_few_f32": LayerNormArgs, [x, weight, out];
    "bias_activation_f32": BiasActivationArgs, [x, bias, residual, out];
    "swiglu_f32": SwiGluArgs, [x, out];
    "swiglu_norm_f32": SwiGluNormArgs, [x, weight, bias, out];
    "attention_32_f32": AttentionArgs, [q, k, v, out];
    "attention_64_f32": AttentionArgs, [q, k, v, out];
    "attention_128_f32": AttentionArgs, [q, k, v, out];
    "attention_32_bias_f32": AttentionBiasArgs, [attention.q, attention.k, attention.v, attention.out, bias];
    "attention_64_bias_f32": AttentionBiasArgs, [attention.q, attention.k, attention.v, attention.out, bias];
    "attention_32_stats_f32": AttentionStatisticsArgs, [scores.attention.q, scores.attention.k, scores.attention.v, scores.attention.out, scores.bias, statistics];
    "attention_64_stats_f32": AttentionStatisticsArgs, [scores.attention.q, scores.attention.k, scores.attention.v, scores.attention.out, scores.bias, statistics];
    "attention_32_rope_f32": AttentionRopeArgs,
        [attention.q, attention.k, attention.v, attention.out, rope.x, rope.table];
    "attention_64_rope_f32": AttentionRopeArgs,
        [attention.q, attention.k, attention.v, attention.out, rope.x, rope.table];
    "attention_pattern_f32": AttentionPatternArgs,
        [attention.q, attention.k, attention.v, attention.out];
    "permute_tokens_f32": PermuteTokensArgs, [x, out];
    "conv_patches_f32": ConvPatchesArgs, [x, out];
    "window_pool_f32": WindowPoolArgs, [x, out];
    "rope_f32": RopeArgs, [x, table];
    "softmax_f32": SoftmaxArgs, [x, out];
    "transpose_f32": TransposeArgs, [x, gamma, y, out];
    "pool_f32": PoolArgs, [x, out];
}

/// Block size in the code of attention: 4 waves and 64 queries.
static BLOCK: u32 = 4 << 16 | 64;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleGetGlobal(
    address: *mut *mut c_void,
    bytes: *mut usize,
    _module: *mut c_void,
    name: *const c_char,
) -> Status {
    if !unsafe { CStr::from_ptr(name) }.to_bytes().ends_with(b"_block") {
        return NOT_FOUND;
    }
    unsafe { *address = std::ptr::from_ref(&BLOCK).cast_mut().cast() };
    unsafe { *bytes = size_of_val(&BLOCK) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyDtoH(to: *mut c_void, from: *mut c_void, bytes: usize) -> Status {
    unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    SUCCESS
}

/// Reports every kernel and the GEMM to the profiler, by its number as a function.
pub fn tell_profiler() {
    for (number, (name, _)) in (1..).zip(KERNELS) {
        rocprofiler::load(number, name);
    }
    rocprofiler::load(GEMM.0, GEMM.1);
}
pub const GEMM: (u64, &str) = (1000, "Cijk_Ailk_Bljk_SB_MT64x64x16");

/// A function is its position in the table, from 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleGetFunction(
    f: *mut *mut c_void,
    _module: *mut c_void,
    name: *const c_char,
) -> Status {
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some(index) = KERNELS.iter().position(|(known, _)| known.as_bytes() == name) else {
        return NOT_FOUND;
    };
    unsafe { *f = (index + 1) as *mut c_void };
    SUCCESS
}

/// LDS that every kernel declares.
const DECLARED_LDS: i32 = 1024;
/// Maximum dynamic LDS of a launch.
static MOST_LDS: AtomicU64 = AtomicU64::new(65536 - DECLARED_LDS as u64);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFuncGetAttribute(value: *mut i32, attribute: u32, _f: *mut c_void) -> Status {
    if attribute != 1 {
        return INVALID;
    }
    unsafe { *value = DECLARED_LDS };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipFuncSetAttribute(_f: *const c_void, attribute: u32, value: i32) -> Status {
    if attribute != 8 || value > 98304 - DECLARED_LDS {
        return INVALID;
    }
    MOST_LDS.store(value as u64, SeqCst);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLaunchKernel(
    f: *mut c_void,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    _by: u32,
    _bz: u32,
    lds: u32,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Status {
    if lds > MOST_LDS.load(SeqCst) as u32 {
        return INVALID;
    }
    // Report work of one device on another device's stream.
    let device = queue::device_of(stream);
    if device != CURRENT.get() {
        add(Slot::Violations, 1);
    }
    let number = 1 + device as u64;
    if due(Slot::FailLaunch) || get(Slot::LoseDevice) == number {
        return LAUNCH_FAILURE;
    }
    let (run, addresses) = unsafe { KERNELS[f as usize - 1].1(*parameters) };
    let waves = u64::from(gx * gy * gz * bx.div_ceil(64));
    let counted = rocprofiler::launch(f as u64, KERNELS[f as usize - 1].0, waves);
    queue::submit(stream, move || {
        // The safe layer has checked that the ranges are within their buffers. Check here that the buffers
        // are live.
        if !addresses.iter().all(|&a| a.is_null() || access(a.as_u64() as usize, 4)) {
            return INVALID;
        }
        for _ in 0..10_000 {
            if get(Slot::Uploads) >= get(Slot::HoldLaunches) && get(Slot::HoldDevice) != number {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        run();
        counted();
        SUCCESS
    })
}
