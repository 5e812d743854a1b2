//! Devices and their memory.

use std::ffi::c_void;
use std::ptr;

use hipvit_sys::hip::{hipError_t, hipMemcpyKind, hipMemoryType, hipPointerAttribute_t};

use crate::Outcome;
use crate::device::{Gpu, compare, is, numbers, ok, text};

#[test]
fn devices_and_properties() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    for device in 0..gpu.device_count()? {
        let p = gpu.properties(device)?;
        println!(
            "{device}: {} ({}), {} compute units, warps of {}, {:.1} GiB, bus {} bits at {} MHz, L2 {} MiB, clock {} MHz, \
             shared {} B/block ({} opt-in), {} registers/block, PCI {:04x}:{:02x}:{:02x}, maps host memory: {}",
            text(&p.name),
            text(&p.gcnArchName),
            p.multiProcessorCount,
            p.warpSize,
            p.totalGlobalMem as f64 / (1_u64 << 30) as f64,
            p.memoryBusWidth,
            p.memoryClockRate / 1000,
            p.l2CacheSize >> 20,
            p.clockRate / 1000,
            p.sharedMemPerBlock,
            p.sharedMemPerBlockOptin,
            p.regsPerBlock,
            p.pciDomainID,
            p.pciBusID,
            p.pciDeviceID,
            p.canMapHostMemory != 0,
        );
        if p.warpSize != 32 && p.warpSize != 64 || p.multiProcessorCount < 1 || p.totalGlobalMem == 0 {
            return Err(format!("device {device} has a property that cannot be"));
        }
    }
    Ok(())
}

#[test]
fn malloc_memcpy_and_memset() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let values = numbers(100_003, 1);
    let (first, second) = (gpu.upload(&values)?, gpu.zeros(values.len())?);
    let bytes = size_of_val(&values[..]);
    // SAFETY: both are device memory of this many bytes.
    ok(unsafe { hip.hipMemcpy(second.at, first.at, bytes, hipMemcpyKind::hipMemcpyDefault) })?;
    if second.download::<f32>(values.len())? != values {
        return Err("a copy on the device differs".into());
    }
    // SAFETY: the device memory has this many bytes.
    ok(unsafe { hip.hipMemset(second.at, 0x5a, bytes) })?;
    if second.download::<u8>(bytes)?.iter().any(|byte| *byte != 0x5a) {
        return Err("memset left other bytes".into());
    }
    Ok(())
}

#[test]
fn memory_info() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let memory = gpu.upload(&[0_u8; 4096])?;
    let (mut free, mut total, mut size) = (0, 0, 0);
    // SAFETY: the calls write the sizes that they are given; the pointer is hipMalloc's.
    unsafe {
        ok(gpu.hip()?.hipMemGetInfo(&mut free, &mut total))?;
        ok(gpu.hip()?.hipMemPtrGetInfo(memory.at, &mut size))?;
    }
    println!("{} of {} MiB free", free >> 20, total >> 20);
    if free == 0 || free > total || size < 4096 {
        return Err(format!("{free} of {total} bytes free, an allocation of {size}"));
    }
    Ok(())
}

#[test]
fn pointer_attributes() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let device = gpu.upload(&[1_u8; 64])?;
    let mut pinned: *mut c_void = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    ok(unsafe { hip.hipHostMalloc(&mut pinned, 4096, 0) })?;
    let plain = [0_u8; 64];
    let kind = |pointer: *const c_void| {
        let mut attributes = hipPointerAttribute_t::default();
        // SAFETY: the call writes one structure; it looks the pointer up and does not follow it.
        ok(unsafe { hip.hipPointerGetAttributes(&mut attributes, pointer) })?;
        Ok::<_, String>(attributes.type_)
    };
    let kinds = [kind(device.at)?, kind(pinned)?, kind(plain.as_ptr().cast())?];
    // SAFETY: the address is hipHostMalloc's, freed once.
    ok(unsafe { hip.hipHostFree(pinned) })?;
    let expected = [
        hipMemoryType::hipMemoryTypeDevice,
        hipMemoryType::hipMemoryTypeHost,
        hipMemoryType::hipMemoryTypeUnregistered,
    ];
    if kinds != expected {
        return Err(format!("{kinds:?}"));
    }
    Ok(())
}

#[test]
fn out_of_memory_is_a_status() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let mut at = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    let allocated = unsafe { hip.hipMalloc(&mut at, 1 << 46) };
    is(allocated, hipError_t::hipErrorOutOfMemory)?;
    // SAFETY: takes no arguments.
    is(unsafe { hip.hipGetLastError() }, hipError_t::hipErrorOutOfMemory)?;
    // The device goes on.
    gpu.upload(&[1.0_f32])?;
    Ok(())
}

#[test]
fn two_devices() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    if gpu.device_count()? < 2 {
        println!("skipped: there is one device");
        return Ok(());
    }
    let values = numbers(4096, 6);
    let bytes = size_of_val(&values[..]);
    let first = gpu.upload(&values)?;
    let (mut can, mut kind, mut hops) = (0, 0, 0);
    // SAFETY: the calls write the ints that they are given.
    unsafe {
        ok(hip.hipDeviceCanAccessPeer(&mut can, 0, 1))?;
        ok(hip.hipExtGetLinkTypeAndHopCount(0, 1, &mut kind, &mut hops))?;
    }
    println!("peer access {can}, link type {kind}, {hops} hops");
    gpu.select(1)?;
    let copied = (|| {
        let second = gpu.zeros(values.len())?;
        if can != 0 {
            // SAFETY: takes numbers.
            ok(unsafe { hip.hipDeviceEnablePeerAccess(0, 0) })?;
        }
        // SAFETY: each device's memory has this many bytes.
        ok(unsafe { hip.hipMemcpyPeer(second.at, 1, first.at, 0, bytes) })?;
        compare(&second.download(values.len())?, &values, 0.0)
    })();
    gpu.select(0)?;
    copied
}
