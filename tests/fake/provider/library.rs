//! A provider for tests without a GPU: the part of HIP, hipRTC, rocBLAS, RCCL and rocprofiler-sdk that the
//! safe HIP layer and the executor need, on host memory.
//!
//! It runs whole models in f32: a kernel's name selects a few plain loops. Work is really asynchronous: each
//! stream has a thread that runs it late. The provider counts live resources, records accesses to memory that
//! is not live, and fails on demand. `tests/support/fake.rs` compiles it with rustc.
#![allow(non_snake_case, static_mut_refs, clippy::all)]

mod blas;
mod launch;
mod queue;
mod rccl;
mod rocprofiler;
mod roctx;
mod rtc;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub type Status = u32;
pub const SUCCESS: Status = 0;
pub const INVALID: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const NO_DEVICE: Status = 100;
pub const NO_BINARY: Status = 209;
pub const NOT_FOUND: Status = 500;
pub const NOT_READY: Status = 600;
pub const LAUNCH_FAILURE: Status = 719;
pub const ALREADY_ENABLED: Status = 704;
pub const UNSUPPORTED: Status = 801;
pub const CAPTURING: Status = 900;

/// Settings of `fake_set` and counters of `fake_get`.
#[repr(usize)]
#[derive(Clone, Copy)]
pub enum Slot {
    Devices,
    /// Live bytes above which `hipMalloc` fails; 0 is no limit.
    MemoryLimit,
    /// The nth launch from now on fails; 0 is none.
    FailLaunch,
    /// The nth asynchronous copy from now on fails when it is run; 0 is none.
    FailCopy,
    /// Replays omit a part of their work: 1 omits the last, 2 the first; 0 is none.
    CorruptReplay,
    /// The nth `hipFree` from now on fails.
    FailFree,
    DeviceBytes,
    Allocations,
    Pinned,
    Streams,
    Events,
    Modules,
    Graphs,
    Handles,
    /// Number of operations that accessed memory which is not live.
    Violations,
    Mallocs,
    /// Number of events ever created.
    EventsMade,
    /// Number of graphs ever launched.
    Replays,
    /// Number of operations that began while another stream's was running.
    Overlaps,
    /// Captures fail.
    FailCapture,
    /// Number of copies from the host ever submitted.
    Uploads,
    /// Kernels wait, at most some seconds, until this many copies from the host were submitted.
    HoldLaunches,
    /// Kernels of this device, counted from 1, wait while this is set, at most some seconds; 0 is none.
    HoldDevice,
    /// Launches on this device, counted from 1, fail; 0 is none.
    LoseDevice,
    /// Number of copies to the host ever submitted.
    Downloads,
    /// Devices share the host's memory.
    Integrated,
}

const SLOTS: usize = Slot::Integrated as usize + 1;
static VALUES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

pub fn get(slot: Slot) -> u64 {
    VALUES[slot as usize].load(SeqCst)
}

/// Returns the number of devices that was set, or else that of the environment, because a program under test
/// cannot set it.
fn devices() -> u64 {
    get(Slot::Devices).max(told("FAKE_DEVICES"))
}
/// Returns a number of the environment; 0 if there is none.
fn told(name: &str) -> u64 {
    let number = std::env::var(name).ok().and_then(|n| n.parse().ok());
    number.unwrap_or(0)
}
pub fn add(slot: Slot, by: i64) {
    VALUES[slot as usize].fetch_add(by as u64, SeqCst);
}
/// Counts down to a fault. Returns true if it is due.
pub fn due(slot: Slot) -> bool {
    let counted = VALUES[slot as usize].fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    counted == Ok(1)
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_set(slot: usize, value: u64) {
    VALUES[slot].store(value, SeqCst);
}
#[unsafe(no_mangle)]
pub extern "C" fn fake_get(slot: usize) -> u64 {
    VALUES[slot].load(SeqCst)
}

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// Device of each live allocation of device memory.
static OWNERS: Mutex<BTreeMap<usize, i32>> = Mutex::new(BTreeMap::new());

/// Returns true if the allocation belongs to the device. Work runs on the device of the thread that submits
/// it.
fn is_of(address: usize, device: i32) -> bool {
    let owners = OWNERS.lock().unwrap();
    owners.range(..=address).next_back().is_some_and(|(_, &owner)| owner == device)
}

/// Live memory of both kinds: address to bytes.
static MEMORY: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Records a violation unless the bytes are in live memory.
pub fn access(address: usize, bytes: usize) -> bool {
    let memory = MEMORY.lock().unwrap();
    let fits = memory
        .range(..=address)
        .next_back()
        .is_some_and(|(start, len)| address + bytes <= start + len);
    if !fits {
        add(Slot::Violations, 1);
    }
    fits
}

fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes.max(1), 4096).unwrap()
}

unsafe fn allocate(out: *mut *mut c_void, bytes: usize) {
    let pointer = unsafe { std::alloc::alloc(layout(bytes)) };
    // Poison.
    unsafe { pointer.write_bytes(0xA5, bytes) };
    MEMORY.lock().unwrap().insert(pointer as usize, bytes);
    unsafe { *out = pointer.cast() };
}

unsafe fn release(pointer: *mut c_void) -> Option<usize> {
    let bytes = MEMORY.lock().unwrap().remove(&(pointer as usize))?;
    unsafe { std::alloc::dealloc(pointer.cast(), layout(bytes)) };
    Some(bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMalloc(out: *mut *mut c_void, bytes: usize) -> Status {
    add(Slot::Mallocs, 1);
    let limit = get(Slot::MemoryLimit).max(told("FAKE_MEMORY_LIMIT"));
    if limit != 0 && get(Slot::DeviceBytes) + bytes as u64 > limit {
        return OUT_OF_MEMORY;
    }
    add(Slot::DeviceBytes, bytes as i64);
    add(Slot::Allocations, 1);
    unsafe { allocate(out, bytes) };
    OWNERS.lock().unwrap().insert(unsafe { *out } as usize, CURRENT.get());
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFree(pointer: *mut c_void) -> Status {
    // Unlike HIP's, this does not wait, so that a premature free is detected.
    if due(Slot::FailFree) {
        return INVALID;
    }
    let Some(bytes) = (unsafe { release(pointer) }) else {
        return INVALID;
    };
    OWNERS.lock().unwrap().remove(&(pointer as usize));
    add(Slot::DeviceBytes, -(bytes as i64));
    add(Slot::Allocations, -1);
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostMalloc(out: *mut *mut c_void, bytes: usize, _flags: u32) -> Status {
    add(Slot::Pinned, 1);
    unsafe { allocate(out, bytes) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostFree(pointer: *mut c_void) -> Status {
    if unsafe { release(pointer) }.is_none() {
        return INVALID;
    }
    add(Slot::Pinned, -1);
    SUCCESS
}
/// Kernels access host memory at its own address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipHostGetDevicePointer(
    out: *mut *mut c_void,
    host: *mut c_void,
    _flags: u32,
) -> Status {
    unsafe { *out = host };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> Status {
    unsafe { *total = 1 << 30 };
    unsafe { *free = (1 << 30) - get(Slot::DeviceBytes) as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDeviceCount(count: *mut i32) -> Status {
    rocprofiler::hip_is_used();
    let devices = devices() as i32;
    unsafe { *count = devices };
    if devices == 0 { NO_DEVICE } else { SUCCESS }
}
#[unsafe(no_mangle)]
pub extern "C" fn hipSetDevice(device: i32) -> Status {
    if (device as u64) < devices() {
        CURRENT.set(device);
        SUCCESS
    } else {
        101
    }
}
#[unsafe(no_mangle)]
pub extern "C" fn hipGetLastError() -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipRuntimeGetVersion(version: *mut i32) -> Status {
    unsafe { *version = 70_200_000 };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceCanAccessPeer(access: *mut i32, _from: i32, _to: i32) -> Status {
    unsafe { *access = 1 };
    SUCCESS
}
/// Peer access between devices: a bit for each pair.
static PEERS: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceEnablePeerAccess(to: i32, _flags: u32) -> Status {
    let pair = 1 << (8 * CURRENT.get() + to);
    match PEERS.fetch_or(pair, SeqCst) & pair {
        0 => SUCCESS,
        _ => ALREADY_ENABLED,
    }
}
#[unsafe(no_mangle)]
pub extern "C" fn hipMemcpyPeerAsync(
    to: usize,
    to_device: i32,
    from: usize,
    from_device: i32,
    bytes: usize,
    stream: *mut c_void,
) -> Status {
    if !is_of(to, to_device) || !is_of(from, from_device) {
        return INVALID;
    }
    hipMemcpyAsync(to, from, bytes, 3, stream)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipExtGetLinkTypeAndHopCount(
    _a: i32,
    _b: i32,
    kind: *mut u32,
    hops: *mut u32,
) -> Status {
    unsafe { *kind = 4 };
    unsafe { *hops = 1 };
    SUCCESS
}

/// Offsets of `hipDeviceProp_tR0600`, which hipvit-sys asserts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetDevicePropertiesR0600(out: *mut u8, device: i32) -> Status {
    if device as u64 >= devices() {
        return 101;
    }
    let text =
        |at: usize, text: &[u8]| unsafe { ptr::copy_nonoverlapping(text.as_ptr(), out.add(at), text.len()) };
    let int = |at: usize, n: i32| unsafe { out.add(at).cast::<i32>().write(n) };
    let size = |at: usize, n: usize| unsafe { out.add(at).cast::<usize>().write(n) };
    text(0, b"Fake Instinct\0");
    let target = std::env::var("FAKE_TARGET").unwrap_or_else(|_| "gfx942:sramecc+:xnack-".into());
    text(1160, format!("{target}\0").as_bytes());
    size(288, 1 << 30);
    size(296, 65536);
    int(304, 65536);
    int(308, 64);
    int(320, 1024);
    for axis in 0..3 {
        int(324 + 4 * axis, 1024);
        int(336 + 4 * axis, i32::MAX);
    }
    int(348, 2_100_000);
    int(388, 304);
    int(396, i32::from(get(Slot::Integrated).max(told("FAKE_INTEGRATED")) != 0));
    int(584, 0xc1);
    int(608, 1_300_000);
    int(612, 8192);
    int(616, 4 << 20);
    int(624, 2048);
    size(640, 65536);
    size(696, 98304);
    int(648, 131_072);
    SUCCESS
}

/// The code object's bundle must have an entry for gfx942.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipModuleLoadData(module: *mut *mut c_void, image: *const u8) -> Status {
    let number = |at: usize| unsafe { image.add(at).cast::<u64>().read_unaligned() } as usize;
    let mut at = 32;
    for _ in 0..number(24) {
        let name = unsafe { std::slice::from_raw_parts(image.add(at + 24), number(at + 16)) };
        if name.windows(8).any(|part| part == b"--gfx942") {
            add(Slot::Modules, 1);
            launch::tell_profiler();
            unsafe { *module = 1 as *mut c_void };
            return SUCCESS;
        }
        at += 24 + number(at + 16);
    }
    NO_BINARY
}
#[unsafe(no_mangle)]
pub extern "C" fn hipModuleUnload(_module: *mut c_void) -> Status {
    add(Slot::Modules, -1);
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipMemcpyAsync(
    to: usize,
    from: usize,
    bytes: usize,
    kind: u32,
    stream: *mut c_void,
) -> Status {
    const FROM_HOST: u32 = 1;
    const TO_HOST: u32 = 2;
    add(Slot::Uploads, i64::from(kind == FROM_HOST));
    add(Slot::Downloads, i64::from(kind == TO_HOST));
    queue::submit(stream, move || {
        // When it runs, so that copies in replayed graphs fail too.
        if due(Slot::FailCopy) || !access(to, bytes) || !access(from, bytes) {
            return LAUNCH_FAILURE;
        }
        unsafe { ptr::copy(from as *const u8, to as *mut u8, bytes) };
        SUCCESS
    })
}
/// If the environment has FAKE_WRONG_ROWS, the first copied number has the opposite sign.
#[unsafe(no_mangle)]
pub extern "C" fn hipMemcpy2DAsync(
    to: usize,
    to_pitch: usize,
    from: usize,
    from_pitch: usize,
    width: usize,
    height: usize,
    _kind: u32,
    stream: *mut c_void,
) -> Status {
    let wrong = std::env::var_os("FAKE_WRONG_ROWS").is_some();
    queue::submit(stream, move || {
        for row in 0..height {
            let (to, from) = (to + row * to_pitch, from + row * from_pitch);
            if !access(to, width) || !access(from, width) {
                return INVALID;
            }
            unsafe { ptr::copy(from as *const u8, to as *mut u8, width) };
        }
        if wrong {
            unsafe { *(to as *mut u8).add(3) ^= 0x80 };
        }
        SUCCESS
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn hipMemsetAsync(to: usize, byte: i32, bytes: usize, stream: *mut c_void) -> Status {
    queue::submit(stream, move || {
        if !access(to, bytes) {
            return INVALID;
        }
        unsafe { ptr::write_bytes(to as *mut u8, byte as u8, bytes) };
        SUCCESS
    })
}
