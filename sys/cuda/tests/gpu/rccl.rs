//! RCCL: communicators and collectives, of one rank and, where there are two devices, of two.

use std::ptr;

use hipvit_sys::Rccl;
use hipvit_sys::hip::{hipStream_t, hipStreamNonBlocking};
use hipvit_sys::rccl::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};

use crate::Outcome;
use crate::device::{Gpu, Memory, compare, numbers, ok};

const COUNT: usize = 1000;
const F32: ncclDataType_t = ncclDataType_t::ncclFloat32;
const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;

fn rccl(gpu: &Gpu) -> Result<&'static Rccl, String> {
    gpu.provider.rccl().map_err(|error| error.to_string())
}

/// One rank, on the device of its number: `2·COUNT` numbers of its own to send, and as many zeros to receive into.
struct Rank {
    comm: ncclComm_t,
    stream: hipStream_t,
    from: Memory,
    to: Memory,
    values: Vec<f32>,
}

/// Communicators of all ranks, made by the one thread, with a unique identifier.
fn ranks(gpu: &Gpu, count: i32) -> Result<Vec<Rank>, String> {
    let (rccl, hip) = (rccl(gpu)?, gpu.hip()?);
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the call writes one identifier.
    ok(unsafe { rccl.ncclGetUniqueId(&mut id) })?;
    let mut ranks = Vec::new();
    for rank in 0..count {
        gpu.select(rank)?;
        let values = numbers(2 * COUNT, 50 + rank as u32);
        let mut stream = ptr::null_mut();
        // SAFETY: the call writes one handle.
        ok(unsafe { hip.hipStreamCreateWithFlags(&mut stream, hipStreamNonBlocking) })?;
        ranks.push(Rank {
            comm: ptr::null_mut(),
            stream,
            from: gpu.upload(&values)?,
            to: gpu.zeros(2 * COUNT)?,
            values,
        });
    }
    // SAFETY: takes no arguments; a group lets one thread be several ranks.
    ok(unsafe { rccl.ncclGroupStart() })?;
    for (index, rank) in ranks.iter_mut().enumerate() {
        gpu.select(index as i32)?;
        // SAFETY: one handle is written, at the group's end at the latest, when the ranks are still where they are.
        ok(unsafe { rccl.ncclCommInitRank(&mut rank.comm, count, id, index as i32) })?;
    }
    // SAFETY: takes no arguments.
    ok(unsafe { rccl.ncclGroupEnd() })?;
    gpu.select(0)?;
    Ok(ranks)
}

/// Calls for every rank, in a group, and waits; then every rank's result must start with `expected`.
fn collective(
    gpu: &Gpu,
    ranks: &[Rank],
    name: &str,
    call: impl Fn(&Rccl, usize, &Rank) -> Outcome,
    expected: impl Fn(usize) -> Vec<f32>,
) -> Outcome {
    let (rccl, hip) = (rccl(gpu)?, gpu.hip()?);
    for (index, rank) in ranks.iter().enumerate() {
        gpu.select(index as i32)?;
        // SAFETY: the memory has `2·COUNT` floats. What an earlier call left there must not pass for this one's result.
        ok(unsafe { hip.hipMemsetAsync(rank.to.at, 0xff, 2 * COUNT * size_of::<f32>(), rank.stream) })?;
    }
    // SAFETY: takes no arguments.
    ok(unsafe { rccl.ncclGroupStart() })?;
    for (index, rank) in ranks.iter().enumerate() {
        gpu.select(index as i32)?;
        call(rccl, index, rank).map_err(|cause| format!("{name}: {cause}"))?;
    }
    // SAFETY: takes no arguments.
    ok(unsafe { rccl.ncclGroupEnd() }).map_err(|cause| format!("{name}: {cause}"))?;
    for (index, rank) in ranks.iter().enumerate() {
        gpu.select(index as i32)?;
        // SAFETY: the stream lives.
        ok(unsafe { hip.hipStreamSynchronize(rank.stream) })?;
        let expected = expected(index);
        // A sum of two numbers below 1, rounded once.
        compare(&rank.to.download(expected.len())?, &expected, f32::EPSILON)
            .map_err(|cause| format!("{name}, rank {index}: {cause}"))?;
    }
    gpu.select(0)
}

/// All-reduce, reduce-scatter, all-gather, broadcast.
fn collectives(gpu: &Gpu, all: &[Rank]) -> Outcome {
    let n = all.len();
    let sum = |range: std::ops::Range<usize>| -> Vec<f32> {
        range
            .map(|index| all.iter().map(|rank| rank.values[index]).sum())
            .collect()
    };
    // SAFETY of all calls: every rank has `2·COUNT` values to send and to receive into. Two ranks use `COUNT` each where each has
    // a part. The values live until the streams were waited for.
    collective(
        gpu,
        all,
        "all-reduce",
        |rccl, _, rank| {
            // SAFETY: as above.
            ok(unsafe {
                rccl.ncclAllReduce(rank.from.at, rank.to.at, COUNT, F32, SUM, rank.comm, rank.stream)
            })
        },
        |_| sum(0..COUNT),
    )?;
    collective(
        gpu,
        all,
        "reduce-scatter",
        |rccl, _, rank| {
            // SAFETY: as above.
            ok(unsafe {
                rccl.ncclReduceScatter(rank.from.at, rank.to.at, COUNT, F32, SUM, rank.comm, rank.stream)
            })
        },
        |index| sum(index * COUNT..(index + 1) * COUNT),
    )?;
    collective(
        gpu,
        all,
        "all-gather",
        |rccl, _, rank| {
            // SAFETY: as above.
            ok(unsafe { rccl.ncclAllGather(rank.from.at, rank.to.at, COUNT, F32, rank.comm, rank.stream) })
        },
        |_| {
            all.iter()
                .flat_map(|rank| rank.values[..COUNT].to_vec())
                .collect()
        },
    )?;
    collective(
        gpu,
        all,
        "broadcast",
        |rccl, _, rank| {
            // SAFETY: as above.
            ok(unsafe {
                rccl.ncclBroadcast(
                    rank.from.at,
                    rank.to.at,
                    COUNT,
                    F32,
                    n as i32 - 1,
                    rank.comm,
                    rank.stream,
                )
            })
        },
        |_| all[n - 1].values[..COUNT].to_vec(),
    )
}

/// Every rank sends to the next one and receives from the one before; a single rank does both with itself.
fn send_and_receive(gpu: &Gpu, all: &[Rank]) -> Outcome {
    let n = all.len();
    collective(
        gpu,
        all,
        "send and receive",
        |rccl, index, rank| {
            let (next, previous) = ((index + 1) % n, (index + n - 1) % n);
            // SAFETY: as in `collectives`.
            ok(unsafe { rccl.ncclSend(rank.from.at, COUNT, F32, next as i32, rank.comm, rank.stream) })?;
            // SAFETY: as in `collectives`.
            ok(unsafe { rccl.ncclRecv(rank.to.at, COUNT, F32, previous as i32, rank.comm, rank.stream) })
        },
        |index| all[(index + n - 1) % n].values[..COUNT].to_vec(),
    )
}

/// Checks that nothing went wrong, and destroys the communicators and streams.
fn finish(gpu: &Gpu, all: &[Rank]) -> Outcome {
    let (rccl, hip) = (rccl(gpu)?, gpu.hip()?);
    for (index, rank) in all.iter().enumerate() {
        let (mut size, mut number, mut error) = (0, -1, ncclResult_t::ncclInternalError);
        gpu.select(index as i32)?;
        // SAFETY: the calls write the numbers that they are given; communicator and stream are destroyed once, after the
        // stream was waited for.
        unsafe {
            ok(rccl.ncclCommCount(rank.comm, &mut size))?;
            ok(rccl.ncclCommUserRank(rank.comm, &mut number))?;
            ok(rccl.ncclCommGetAsyncError(rank.comm, &mut error))?;
            ok(rccl.ncclCommDestroy(rank.comm))?;
            ok(hip.hipStreamDestroy(rank.stream))?;
        }
        if (size, number, error) != (all.len() as i32, index as i32, ncclResult_t::ncclSuccess) {
            return Err(format!("rank {number} of {size}, asynchronous error {error}"));
        }
    }
    gpu.select(0)
}

#[test]
fn all_reduce_of_one_rank() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let rccl = rccl(&gpu)?;
    let values = numbers(COUNT, 51);
    let (from, to) = (gpu.upload(&values)?, gpu.zeros(COUNT)?);
    let (mut comm, mut version) = (ptr::null_mut(), 0);
    // SAFETY: the communicator lives until it is destroyed here, after the device was waited for; both vectors have
    // this many elements.
    unsafe {
        ok(rccl.ncclGetVersion(&mut version))?;
        ok(rccl.ncclCommInitAll(&mut comm, 1, ptr::null()))?;
        ok(rccl.ncclAllReduce(from.at, to.at, COUNT, F32, SUM, comm, ptr::null_mut()))?;
        gpu.synchronize()?;
        ok(rccl.ncclCommDestroy(comm))?;
    }
    println!("version {version}");
    compare(&to.download(COUNT)?, &values, 0.0)
}

#[test]
fn collectives_of_one_rank() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let all = ranks(&gpu, 1)?;
    collectives(&gpu, &all)?;
    finish(&gpu, &all)
}

#[test]
fn send_and_receive_of_one_rank() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let all = ranks(&gpu, 1)?;
    send_and_receive(&gpu, &all)?;
    finish(&gpu, &all)
}

#[test]
fn collectives_of_two_ranks() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    if gpu.device_count()? < 2 {
        println!("skipped: there is one device");
        return Ok(());
    }
    let all = ranks(&gpu, 2)?;
    collectives(&gpu, &all)?;
    send_and_receive(&gpu, &all)?;
    finish(&gpu, &all)
}

#[test]
fn a_communicator_is_aborted() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    for rank in ranks(&gpu, 1)? {
        // SAFETY: the communicator and the stream are not used any more.
        unsafe {
            ok(rccl(&gpu)?.ncclCommAbort(rank.comm))?;
            ok(gpu.hip()?.hipStreamDestroy(rank.stream))?;
        }
    }
    Ok(())
}
