//! RCCL: one rank, two GPUs of this process, two ranks of two threads, and ranks that fail.

use std::thread;
use std::time::Duration;

use half::bf16;
use hip_safe::{Comm, CommOptions, DType, Device, DeviceBuffer, Error, Group, Reduction, Stream, UniqueId};

use super::{Absent, Check, ensure, numbers};

const N: usize = 1000;

/// Every collective; with one rank they are copies.
fn collectives(comms: &[Comm]) -> Result<(), Box<dyn std::error::Error>> {
    let ranks = comms.len();
    let values: Vec<Vec<f32>> = (0..ranks)
        .map(|rank| numbers(N * ranks, 60 + rank as u32))
        .collect();
    let zeroed = |len: usize| -> hip_safe::Result<Vec<DeviceBuffer<f32>>> {
        comms.iter().map(|comm| comm.stream().zeroed(len)).collect()
    };
    let uploaded = || -> hip_safe::Result<Vec<DeviceBuffer<f32>>> {
        comms
            .iter()
            .zip(&values)
            .map(|(comm, values)| comm.stream().upload(values))
            .collect()
    };
    let sum: Vec<f32> = (0..N * ranks)
        .map(|i| values.iter().map(|v| v[i]).sum())
        .collect();
    // Up to eight ranks, in any order.
    let near =
        |a: &[f32], b: &[f32]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);

    let (sources, mut targets) = (uploaded()?, zeroed(N * ranks)?);
    let mut group = Group::new();
    for ((comm, source), target) in comms.iter().zip(&sources).zip(&mut targets) {
        group.all_reduce(comm, DType::F32, Reduction::Sum, source, target)?;
    }
    group.submit()?;
    for target in &targets {
        ensure(near(&target.read()?, &sum), || "all-reduce".into())?;
    }

    let mut buffers = uploaded()?;
    let mut group = Group::new();
    for (comm, buffer) in comms.iter().zip(&mut buffers) {
        group.all_reduce_in_place(comm, DType::F32, Reduction::Max, buffer)?;
    }
    group.submit()?;
    let largest: Vec<f32> = (0..N * ranks)
        .map(|i| values.iter().map(|v| v[i]).fold(-2.0, f32::max))
        .collect();
    for buffer in &buffers {
        ensure(buffer.read()? == largest, || "all-reduce in place".into())?;
    }

    let mut targets = zeroed(N)?;
    let mut group = Group::new();
    for ((comm, source), target) in comms.iter().zip(&sources).zip(&mut targets) {
        group.reduce_scatter(comm, DType::F32, Reduction::Sum, source, target)?;
    }
    group.submit()?;
    for (target, part) in targets.iter().zip(sum.chunks(N)) {
        ensure(near(&target.read()?, part), || "reduce-scatter".into())?;
    }

    let mut gathered = zeroed(N * ranks)?;
    let mut group = Group::new();
    for ((comm, source), target) in comms.iter().zip(&sources).zip(&mut gathered) {
        group.all_gather(comm, DType::F32, source.reading().part(0..4 * N)?, target)?;
    }
    group.submit()?;
    let expected: Vec<f32> = values.iter().flat_map(|values| values[..N].to_vec()).collect();
    for target in &gathered {
        ensure(target.read()? == expected, || "all-gather".into())?;
    }

    let root = ranks - 1;
    let mut buffers = uploaded()?;
    let mut group = Group::new();
    for (comm, buffer) in comms.iter().zip(&mut buffers) {
        group.broadcast(comm, DType::F32, root, buffer)?;
    }
    group.submit()?;
    for buffer in &buffers {
        ensure(buffer.read()? == values[root], || "broadcast".into())?;
    }

    // To the next, from the one before. Not every provider lets a rank send to itself.
    if ranks == 1 {
        return Ok(comms[0].check()?);
    }
    let mut targets = zeroed(N * ranks)?;
    let mut group = Group::new();
    for ((comm, source), target) in comms.iter().zip(&sources).zip(&mut targets) {
        group.send(comm, DType::F32, (comm.rank() + 1) % ranks, source)?;
        group.receive(comm, DType::F32, (comm.rank() + ranks - 1) % ranks, target)?;
    }
    group.submit()?;
    for (rank, target) in targets.iter().enumerate() {
        let expected = &values[(rank + ranks - 1) % ranks];
        ensure(target.read()? == *expected, || "send and receive".into())?;
    }
    comms.iter().try_for_each(Comm::check)?;
    Ok(())
}

pub(crate) fn one_rank(device: &Device) -> Check {
    let stream = device.stream()?;
    let comms = Comm::all(std::slice::from_ref(&stream))?;
    collectives(&comms)?;
    let comm = &comms[0];
    ensure((comm.rank(), comm.ranks()) == (0, 1), || format!("{comm:?}"))?;
    let x = stream.upload(&[bf16::ONE; 6])?;
    let mut y = stream.zeroed::<bf16>(6)?;
    comm.all_reduce(DType::BF16, Reduction::Mean, &x, &mut y)?;
    ensure(y.read()? == [bf16::ONE; 6], || "bf16".into())?;

    let elsewhere = device.stream()?.zeroed::<bf16>(6)?;
    let errors = [
        comm.all_reduce(DType::BF16, Reduction::Sum, &x, y.writing().part(0..4)?),
        comm.all_reduce(DType::F32, Reduction::Sum, x.reading().part(0..6)?, &mut y),
        comm.all_reduce(DType::BF16, Reduction::Sum, &x, x.reading()),
        comm.all_reduce(DType::BF16, Reduction::Sum, &elsewhere, &mut y),
        comm.broadcast(DType::BF16, 1, &mut y),
        Comm::all(&[stream.clone(), device.stream()?]).map(drop),
    ];
    let texts = [
        "target: has 4 bytes where 12 are needed",
        "source: 6 bytes are not 1 equal parts of f32",
        "target: is read-only and would be written",
        "operand: belongs to another stream",
        "rank: 1 of 1",
        "streams: two of them are of the same GPU",
    ];
    for (result, text) in errors.into_iter().zip(texts) {
        let error = result.err().map(|error| error.to_string()).unwrap_or_default();
        ensure(error.starts_with(text), || {
            format!("{error:?} instead of {text:?}")
        })?;
    }

    comm.abort()?;
    comm.clone().abort()?;
    let error = comm.all_reduce_in_place(DType::BF16, Reduction::Sum, &mut y);
    ensure(
        error.is_err_and(|error| error.to_string() == "communicator: was aborted"),
        || "an aborted communicator communicates".into(),
    )?;
    Ok("every collective, wrong operands, abort".into())
}

fn two(device: &Device) -> Result<[Stream; 2], Box<dyn std::error::Error>> {
    match &device.runtime().devices()?[..] {
        [first, second, ..] => Ok([first.stream()?, second.stream()?]),
        _ => Err(Absent("there is one GPU").into()),
    }
}

pub(crate) fn two_gpus(device: &Device) -> Check {
    let streams = two(device)?;
    let comms = Comm::all(&streams)?;
    for _ in 0..3 {
        collectives(&comms)?;
    }
    Ok("every collective, three times".into())
}

pub(crate) fn by_id(device: &Device) -> Check {
    let streams = two(device)?;
    let id = UniqueId::from_bytes(UniqueId::new(device)?.to_bytes());
    thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .enumerate()
            .map(|(rank, stream)| {
                scope.spawn(move || -> hip_safe::Result<Vec<f32>> {
                    let comm = Comm::with_id(stream, id, rank, 2)?;
                    let mut buffer = stream.upload(&[1.0 + rank as f32; N])?;
                    for _ in 0..10 {
                        comm.all_reduce_in_place(DType::F32, Reduction::Sum, &mut buffer)?;
                    }
                    buffer.read()
                })
            })
            .collect();
        for thread in threads {
            let values = thread.join().map_err(|_| "a thread panicked")??;
            ensure(values == [3.0 * 512.0; N], || format!("{}", values[0]))?;
        }
        Ok("ten sums on two threads".into())
    })
}

pub(crate) fn is_emulated(device: &Device) -> hip_safe::Result<bool> {
    Ok(device.runtime().path()?.ends_with("libhip_emu.so"))
}

/// The reason of an [`Error::Communicator`] of this rank of two.
fn reason<T>(result: hip_safe::Result<T>, expected: usize) -> Result<String, String> {
    match result {
        Err(Error::Communicator {
            rank,
            ranks: 2,
            reason,
            ..
        }) if rank == expected => Ok(reason),
        Err(error) => Err(format!("another error: {error}")),
        Ok(_) => Err(format!("rank {expected} has not failed")),
    }
}

/// Rank 1 calls nothing: rank 0's collective is aborted, every wait says so, and new ranks work.
pub(crate) fn left_alone(device: &Device) -> Check {
    let streams = two(device)?;
    let comms = Comm::all_with(&streams, CommOptions::with_timeout(Duration::from_secs(1)))?;
    let mut buffer = streams[0].upload(&[1.0f32; N])?;
    comms[0].all_reduce_in_place(DType::F32, Reduction::Sum, &mut buffer)?;
    let found = reason(buffer.read(), 0)?;
    ensure(found.contains("did not end within 1 s"), || found.clone())?;
    reason(streams[0].synchronize(), 0)?;
    reason(
        comms[0].all_reduce_in_place(DType::F32, Reduction::Sum, &mut buffer),
        0,
    )?;
    drop((buffer, comms));

    let streams = two(device)?;
    collectives(&Comm::all(&streams)?)?;
    Ok(found)
}

/// The emulated GPUs' RCCL detects calls that differ between the ranks; a real one need not.
pub(crate) fn mismatch(device: &Device) -> Check {
    if !is_emulated(device)? {
        return Err(Absent("undefined on real GPUs").into());
    }
    let streams = two(device)?;
    let comms = Comm::all(&streams)?;
    let mut a = streams[0].upload(&[1.0f32; N])?;
    let mut b = streams[1].upload(&[1.0f32; 2 * N])?;
    comms[0].all_reduce_in_place(DType::F32, Reduction::Sum, &mut a)?;
    comms[1].all_reduce_in_place(DType::F32, Reduction::Sum, &mut b)?;
    let found = reason(a.read(), 0)?;
    ensure(
        found.contains("ncclAllReduce(1000 × float32, sum)")
            && found.contains("ncclAllReduce(2000 × float32, sum)"),
        || found.clone(),
    )?;
    reason(b.read(), 1)?;
    Ok(found)
}

/// The other rank of an id never comes.
pub(crate) fn missing(device: &Device) -> Check {
    let stream = device.stream()?;
    let options = CommOptions::with_timeout(Duration::from_secs(1));
    let made = Comm::with_id_and(&stream, UniqueId::new(device)?, 1, 2, options);
    let found = reason(made, 1)?;
    ensure(found.contains("not all ranks came within 1 s"), || found.clone())?;
    Ok(found)
}
