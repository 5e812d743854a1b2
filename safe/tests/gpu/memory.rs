//! Device memory, pinned memory, the pool, events.

use std::thread;
use std::time::Instant;

use hip_safe::{Device, DeviceBuffer, Error};

use super::scale::{scale, scale_kernel};
use super::{Check, ensure, numbers};

pub(crate) fn buffers(device: &Device) -> Check {
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

pub(crate) fn pinned_ring(device: &Device) -> Check {
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

pub(crate) fn events(device: &Device) -> Check {
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

pub(crate) fn pool(device: &Device) -> Check {
    let stream = device.stream()?;
    let round = || -> hip_safe::Result<()> {
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

pub(crate) fn out_of_memory(device: &Device) -> Check {
    let stream = device.stream()?;
    let error = stream.allocate::<u8>(2 * device.properties().memory);
    ensure(matches!(error, Err(Error::OutOfMemory { .. })), || {
        format!("{error:?}")
    })?;
    drop(stream.upload(&[1u8])?.read()?);
    Ok("and the device is still usable".into())
}

pub(crate) fn frozen(device: &Device) -> Check {
    let kernel = scale_kernel(device)?;
    let weights = device.stream()?.upload(&vec![2f32; 1 << 20])?.freeze()?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (kernel, weights) = (&kernel, &weights);
                scope.spawn(move || -> hip_safe::Result<bool> {
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

pub(crate) fn bind_thread(device: &Device) -> Check {
    thread::scope(|scope| {
        let bound = scope.spawn(|| device.bind_thread()).join();
        Ok(match bound.map_err(|_| "a thread panicked")?? {
            Some(node) => format!("node {node}"),
            None => "the host has one node, or does not tell the GPU's".into(),
        })
    })
}
