//! RCCL: one rank, and the ranks of two devices.

use std::ffi::CStr;
use std::time::Duration;
use std::{ptr, thread};

use hipvit_sys::Rccl;
use hipvit_sys::hip::hipStreamCaptureMode;
use hipvit_sys::rccl::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};

use crate::{Buffer, Stream, has, hip, provider, turn};

fn rccl() -> &'static Rccl {
    provider().rccl().expect("RCCL")
}

#[track_caller]
fn ok(result: Result<ncclResult_t, hipvit_sys::Error>) {
    assert_eq!(result.expect("exported"), ncclResult_t::ncclSuccess);
}

fn communicator() -> ncclComm_t {
    let (mut comm, mut id) = (ptr::null_mut(), ncclUniqueId { internal: [0; 128] });
    unsafe {
        ok(rccl().ncclGetUniqueId(&mut id));
        ok(rccl().ncclCommInitRank(&mut comm, 1, id, 0));
    }
    comm
}

#[test]
fn a_communicator_knows_its_rank_and_device() {
    let comm = communicator();
    let (mut version, mut count, mut rank, mut device) = (0, 0, 7, 7);
    let mut error = ncclResult_t::ncclInternalError;
    unsafe {
        ok(rccl().ncclGetVersion(&mut version));
        ok(rccl().ncclCommCount(comm, &mut count));
        ok(rccl().ncclCommUserRank(comm, &mut rank));
        ok(rccl().ncclCommCuDevice(comm, &mut device));
        ok(rccl().ncclCommGetAsyncError(comm, &mut error));
        ok(rccl().ncclCommFinalize(comm));
        ok(rccl().ncclCommDestroy(comm));
        assert_eq!(
            rccl().ncclCommCount(comm, &mut count).expect("exported"),
            ncclResult_t::ncclInvalidArgument,
            "it was destroyed"
        );
    }
    assert!(version >= 22_000, "{version}");
    assert_eq!((count, rank, device, error), (1, 0, 0, ncclResult_t::ncclSuccess));
}

#[test]
fn collectives_of_one_rank_are_copies_in_stream_order() {
    let _turn = turn();
    let (comm, stream) = (communicator(), Stream::new());
    let (from, to) = (Buffer::of(&[1, 2, 3, 4]), Buffer::of(&[0; 4]));
    let float = ncclDataType_t::ncclFloat32;
    let sum = ncclRedOp_t::ncclSum;
    unsafe {
        ok(rccl().ncclGroupStart());
        ok(rccl().ncclAllReduce(from.0, to.0, 4, float, sum, comm, stream.0));
        ok(rccl().ncclGroupEnd());
        assert_eq!(to.peek(4), [0; 4], "nothing has waited for it");
        stream.wait();
        assert_eq!(to.peek(4), [1, 2, 3, 4]);
        ok(rccl().ncclAllGather(to.0, from.0, 2, float, comm, stream.0));
        ok(rccl().ncclReduceScatter(from.0.byte_add(8), to.0, 2, float, sum, comm, stream.0));
        ok(rccl().ncclBroadcast(to.0, from.0, 1, float, 0, comm, stream.0));
        ok(rccl().ncclReduce(to.0, from.0.byte_add(4), 1, float, sum, 0, comm, stream.0));
        stream.wait();
        assert_eq!((to.peek(4), from.peek(4)), (vec![3, 4, 3, 4], vec![3, 3, 3, 4]));
        assert_eq!(
            rccl()
                .ncclBroadcast(to.0, from.0, 1, float, 1, comm, stream.0)
                .expect("exported"),
            ncclResult_t::ncclInvalidArgument,
            "there is no rank 1"
        );
        ok(rccl().ncclCommDestroy(comm));
    }
}

/// The ranks of both devices, each with a stream and two buffers of eight words: `10 * (rank + 1) + index`, and zeros.
struct Ranks {
    comms: [ncclComm_t; 2],
    streams: [Stream; 2],
    from: [Buffer; 2],
    to: [Buffer; 2],
}

fn on_each<T>(make: impl Fn(u32) -> T) -> [T; 2] {
    let made = [0, 1].map(|device| {
        ok_hip(unsafe { hip().hipSetDevice(device) });
        make(device as u32)
    });
    ok_hip(unsafe { hip().hipSetDevice(0) });
    made
}

impl Ranks {
    fn new() -> Self {
        let mut comms = [ptr::null_mut(); 2];
        ok(unsafe { rccl().ncclCommInitAll(comms.as_mut_ptr(), 2, [0, 1].as_ptr()) });
        Self {
            comms,
            streams: on_each(|_| Stream::new()),
            from: on_each(|device| {
                Buffer::of(&[0, 1, 2, 3, 4, 5, 6, 7].map(|index| 10 * (device + 1) + index))
            }),
            to: on_each(|_| Buffer::of(&[0; 8])),
        }
    }

    /// Calls this for each rank, in a group, and waits; what each target holds then.
    fn run(&self, call: impl Fn(usize) -> Result<ncclResult_t, hipvit_sys::Error>) -> [Vec<u32>; 2] {
        ok(unsafe { rccl().ncclGroupStart() });
        (0..2).for_each(|rank| ok(call(rank)));
        ok(unsafe { rccl().ncclGroupEnd() });
        self.streams.iter().for_each(Stream::wait);
        [0, 1].map(|rank| self.to[rank].peek(8))
    }

    fn error(&self, rank: usize) -> (ncclResult_t, String) {
        let mut error = ncclResult_t::ncclSuccess;
        unsafe {
            ok(rccl().ncclCommGetAsyncError(self.comms[rank], &mut error));
            let text = rccl().ncclGetLastError(self.comms[rank]).expect("exported");
            (error, CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    /// The rank's failure, once there is one.
    fn failure(&self, rank: usize) -> (ncclResult_t, String) {
        loop {
            let found = self.error(rank);
            if found.0 != ncclResult_t::ncclSuccess {
                return found;
            }
            // Makes the stream's work begin.
            let _ = unsafe { hip().hipStreamQuery(self.streams[rank].0) };
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn abort(&self) {
        self.comms
            .iter()
            .for_each(|&comm| ok(unsafe { rccl().ncclCommAbort(comm) }));
    }
}

#[track_caller]
fn ok_hip(status: Result<hipvit_sys::hip::hipError_t, hipvit_sys::Error>) {
    crate::ok(status);
}

const INT: ncclDataType_t = ncclDataType_t::ncclInt32;
const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;

#[test]
fn two_devices_exchange_data() {
    let _turn = turn();
    let ranks = Ranks::new();
    let (r, from, to) = (rccl(), &ranks.from, &ranks.to);
    let (comms, streams) = (&ranks.comms, &ranks.streams);
    let tail = |values: [u32; 4], tail: [u32; 4]| [values, tail].concat();
    unsafe {
        let got = ranks.run(|n| r.ncclAllReduce(from[n].0, to[n].0, 4, INT, SUM, comms[n], streams[n].0));
        assert_eq!(got, [0, 1].map(|_| tail([30, 32, 34, 36], [0; 4])));
        let got = ranks.run(|n| r.ncclAllGather(from[n].0, to[n].0, 2, INT, comms[n], streams[n].0));
        assert_eq!(got, [0, 1].map(|_| tail([10, 11, 20, 21], [0; 4])));
        let got = ranks.run(|n| {
            r.ncclReduceScatter(
                from[n].0,
                to[n].0,
                2,
                INT,
                ncclRedOp_t::ncclMax,
                comms[n],
                streams[n].0,
            )
        });
        assert_eq!(
            got,
            [tail([20, 21, 20, 21], [0; 4]), tail([22, 23, 20, 21], [0; 4])]
        );
        let got = ranks.run(|n| r.ncclBroadcast(from[n].0, to[n].0, 3, INT, 1, comms[n], streams[n].0));
        assert_eq!(got, [0, 1].map(|_| tail([20, 21, 22, 21], [0; 4])));
        let got = ranks.run(|n| r.ncclReduce(from[n].0, to[n].0, 4, INT, SUM, 0, comms[n], streams[n].0));
        assert_eq!(
            got,
            [tail([30, 32, 34, 36], [0; 4]), tail([20, 21, 22, 21], [0; 4])]
        );
        let got = ranks.run(|n| r.ncclAllToAll(from[n].0, to[n].0, 2, INT, comms[n], streams[n].0));
        assert_eq!(
            got,
            [tail([10, 11, 20, 21], [0; 4]), tail([12, 13, 22, 23], [0; 4])]
        );
        let got = ranks.run(|n| r.ncclGather(from[n].0, to[n].0, 4, INT, 1, comms[n], streams[n].0));
        assert_eq!(got[1], [10, 11, 12, 13, 20, 21, 22, 23]);
        let got = ranks.run(|n| r.ncclScatter(from[n].0, to[n].0, 4, INT, 0, comms[n], streams[n].0));
        assert_eq!(
            (&got[0][..4], &got[1][..4]),
            (&[10, 11, 12, 13][..], &[14, 15, 16, 17][..])
        );
        let got = ranks.run(|n| {
            ok(r.ncclSend(from[n].0, 8, INT, 1 - n as i32, comms[n], streams[n].0));
            r.ncclRecv(to[n].0, 8, INT, 1 - n as i32, comms[n], streams[n].0)
        });
        assert_eq!((got[0][0], got[1][0]), (20, 10));
        for comm in ranks.comms {
            ok(r.ncclCommDestroy(comm));
        }
    }
}

#[test]
fn a_captured_collective_is_replayed() {
    let _turn = turn();
    let ranks = Ranks::new();
    let graphs = [0, 1].map(|n| unsafe {
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        let (stream, mode) = (
            &ranks.streams[n],
            hipStreamCaptureMode::hipStreamCaptureModeThreadLocal,
        );
        ok_hip(hip().hipStreamBeginCapture(stream.0, mode));
        let at = ranks.to[n].0;
        ok(rccl().ncclAllReduce(at, at, 8, INT, SUM, ranks.comms[n], stream.0));
        ok_hip(hip().hipStreamEndCapture(stream.0, &mut graph));
        ok_hip(hip().hipGraphInstantiate(&mut exec, graph, ptr::null_mut(), ptr::null_mut(), 0));
        ok_hip(hip().hipGraphDestroy(graph));
        exec
    });
    for (buffer, stream) in ranks.to.iter().zip(&ranks.streams) {
        buffer.fill(8, 1, stream);
    }
    for _ in 0..3 {
        for (&exec, stream) in graphs.iter().zip(&ranks.streams) {
            ok_hip(unsafe { hip().hipGraphLaunch(exec, stream.0) });
        }
    }
    ranks.streams.iter().for_each(Stream::wait);
    assert_eq!([0, 1].map(|n| ranks.to[n].peek(8)), [[8; 8], [8; 8]]);
    graphs
        .into_iter()
        .for_each(|exec| ok_hip(unsafe { hip().hipGraphExecDestroy(exec) }));
    ranks.abort();
}

#[test]
fn calls_that_differ_are_named_and_an_abort_ends_them() {
    let _turn = turn();
    let ranks = Ranks::new();
    unsafe {
        for n in 0..2 {
            let count = 4 * (n + 1);
            let at = ranks.from[n].0;
            ok(rccl().ncclAllReduce(at, at, count, INT, SUM, ranks.comms[n], ranks.streams[n].0));
        }
    }
    let (error, text) = ranks.failure(0);
    assert_eq!(error, ncclResult_t::ncclInvalidUsage);
    assert_eq!(
        text,
        "collective 1 of the communicator differs: rank 0 has called ncclAllReduce(4 × int32, sum), rank 1 \
         ncclAllReduce(8 × int32, sum)"
    );
    assert_eq!(
        unsafe { hip().hipStreamQuery(ranks.streams[0].0) }.expect("exported"),
        hipvit_sys::hip::hipError_t::hipErrorNotReady
    );
    // Later calls of the communicator fail at once.
    let at = ranks.from[0].0;
    let later = unsafe { rccl().ncclAllReduce(at, at, 1, INT, SUM, ranks.comms[0], ranks.streams[0].0) };
    assert_eq!(later.expect("exported"), ncclResult_t::ncclInvalidUsage);
    ranks.abort();
    ranks.streams.iter().for_each(Stream::wait);
    assert_eq!(ranks.from[0].peek(1), [10]);
}

#[test]
fn an_abort_of_one_rank_is_an_error_of_the_other() {
    let _turn = turn();
    let ranks = Ranks::new();
    let at = ranks.from[0].0;
    ok(unsafe { rccl().ncclBroadcast(at, at, 8, INT, 0, ranks.comms[0], ranks.streams[0].0) });
    ok(unsafe { rccl().ncclCommAbort(ranks.comms[1]) });
    let (error, text) = ranks.failure(0);
    assert_eq!(
        (error, &*text),
        (ncclResult_t::ncclRemoteError, "rank 1 was aborted")
    );
    ok(unsafe { rccl().ncclCommAbort(ranks.comms[0]) });
    ranks.streams[0].wait();
}

#[test]
fn an_invalid_call_is_refused_with_a_reason() {
    let _turn = turn();
    let ranks = Ranks::new();
    let (at, comm, other) = (ranks.from[0].0, ranks.comms[0], ranks.streams[1].0);
    let stream = ranks.streams[0].0;
    let none = ptr::null_mut();
    unsafe {
        let refused = [
            (
                rccl().ncclAllReduce(at, at, 8, INT, SUM, comm, other),
                "the stream belongs to device 1, rank 0 to device 0",
            ),
            (
                rccl().ncclBroadcast(at, at, 8, INT, 2, comm, stream),
                "there is no rank 2 of 2",
            ),
            (
                rccl().ncclSend(none, 8, INT, 1, comm, stream),
                "a buffer's address is null",
            ),
            (
                rccl().ncclSend(at, 8, ncclDataType_t(40), 1, comm, stream),
                "there is no type 40",
            ),
            (
                rccl().ncclAllReduce(at, at, 8, INT, ncclRedOp_t(5), comm, stream),
                "there is no operation 5",
            ),
        ];
        for (result, text) in refused {
            assert_eq!(
                result.expect("exported"),
                ncclResult_t::ncclInvalidArgument,
                "{text}"
            );
        }
        let last = rccl().ncclGetLastError(ptr::null_mut()).expect("exported");
        assert!(
            CStr::from_ptr(last)
                .to_string_lossy()
                .ends_with("there is no operation 5")
        );

        // A group with such a call does nothing.
        ok(rccl().ncclGroupStart());
        ok(rccl().ncclBroadcast(at, at, 8, INT, 0, comm, stream));
        let _ = rccl().ncclBroadcast(at, at, 8, INT, 3, comm, stream);
        ok(rccl().ncclGroupEnd());
        ranks.streams[0].wait();

        let mut comms = [none.cast(); 2];
        assert_eq!(
            rccl()
                .ncclCommInitAll(comms.as_mut_ptr(), 2, [1, 1].as_ptr())
                .expect("exported"),
            ncclResult_t::ncclInvalidUsage
        );
    }
    ranks.abort();
}

#[test]
fn a_missing_rank_is_named_after_the_time_out() {
    if !has(
        &[("HIP_EMU_RCCL_TIMEOUT", "1")],
        "rccl::a_missing_rank_is_named_after_the_time_out",
    ) {
        return;
    }
    let ranks = Ranks::new();
    let at = ranks.from[1].0;
    ok(unsafe { rccl().ncclAllReduce(at, at, 8, INT, SUM, ranks.comms[1], ranks.streams[1].0) });
    let (error, text) = ranks.failure(1);
    assert_eq!(error, ncclResult_t::ncclRemoteError);
    assert_eq!(
        text,
        "after 1 s rank 1 still waits in ncclAllReduce(8 × int32, sum), number 1, for rank 0"
    );
    ranks.abort();
}

#[test]
fn a_lost_device_is_an_error_of_all_ranks() {
    // Four copies fill the buffers; the fifth operation is rank 0's collective.
    let settings = [("HIP_EMU_LOSE_DEVICE", "6")];
    if !has(&settings, "rccl::a_lost_device_is_an_error_of_all_ranks") {
        return;
    }
    let ranks = Ranks::new();
    let at = ranks.from[0].0;
    ok(unsafe { rccl().ncclAllReduce(at, at, 8, INT, SUM, ranks.comms[0], ranks.streams[0].0) });
    let at = ranks.from[1].0;
    let lost = unsafe { rccl().ncclAllReduce(at, at, 8, INT, SUM, ranks.comms[1], ranks.streams[1].0) };
    assert_eq!(lost.expect("exported"), ncclResult_t::ncclUnhandledCudaError);
    let text = "the GPU of rank 1 (device 1) is lost".to_owned();
    assert_eq!(ranks.failure(0), (ncclResult_t::ncclRemoteError, text.clone()));
    assert_eq!(ranks.failure(1), (ncclResult_t::ncclUnhandledCudaError, text));
    ranks.abort();
    ranks.streams[0].wait();
    // Else freeing the buffers would be an error.
    on_each(|_| ok_hip(unsafe { hip().hipDeviceReset() }));
}

#[test]
fn a_collective_that_hangs_is_ended_by_an_abort() {
    let settings = [("HIP_EMU_HANG_COLLECTIVE", "2"), ("HIP_EMU_RCCL_TIMEOUT", "1")];
    if !has(&settings, "rccl::a_collective_that_hangs_is_ended_by_an_abort") {
        return;
    }
    let ranks = Ranks::new();
    for n in 0..2 {
        let at = ranks.from[n].0;
        ok(unsafe { rccl().ncclAllReduce(at, at, 8, INT, SUM, ranks.comms[n], ranks.streams[n].0) });
    }
    let (_, text) = ranks.failure(0);
    assert!(text.ends_with("for rank 1"), "{text}");
    ranks.abort();
    ranks.streams.iter().for_each(Stream::wait);
}

fn unique_id() -> ncclUniqueId {
    let mut id = ncclUniqueId { internal: [0; 128] };
    ok(unsafe { rccl().ncclGetUniqueId(&mut id) });
    id
}

/// Becomes this rank on this device, on a thread of its own; the handle as a number.
fn join(id: ncclUniqueId, device: i32, rank: i32, ranks: i32) -> thread::JoinHandle<(ncclResult_t, usize)> {
    thread::spawn(move || unsafe {
        let mut comm = ptr::null_mut();
        ok_hip(hip().hipSetDevice(device));
        let result = rccl().ncclCommInitRank(&mut comm, ranks, id, rank);
        (result.expect("exported"), comm.addr())
    })
}

fn last_error() -> String {
    let text = unsafe { rccl().ncclGetLastError(ptr::null_mut()) }.expect("exported");
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[test]
fn ranks_find_each_other_by_an_id_on_threads_and_in_a_group() {
    let _turn = turn();
    let id = unique_id();
    let threads = [join(id, 0, 0, 2), join(id, 1, 1, 2)];
    let comms = threads.map(|thread| thread.join().expect("it does not panic"));
    for (rank, (result, comm)) in comms.into_iter().enumerate() {
        assert_eq!(result, ncclResult_t::ncclSuccess, "{}", last_error());
        let (comm, mut found) = (ptr::without_provenance_mut(comm), -1);
        unsafe {
            ok(rccl().ncclCommUserRank(comm, &mut found));
            ok(rccl().ncclCommDestroy(comm));
        }
        assert_eq!(found, rank as i32);
    }

    let (id, mut comms) = (unique_id(), [ptr::null_mut(); 2]);
    ok(unsafe { rccl().ncclGroupStart() });
    for (rank, comm) in comms.iter_mut().enumerate() {
        ok_hip(unsafe { hip().hipSetDevice(rank as i32) });
        ok(unsafe { rccl().ncclCommInitRank(comm, 2, id, rank as i32) });
    }
    ok(unsafe { rccl().ncclGroupEnd() });
    ok_hip(unsafe { hip().hipSetDevice(0) });
    comms
        .iter()
        .for_each(|&comm| ok(unsafe { rccl().ncclCommDestroy(comm) }));
}

#[test]
fn ranks_that_do_not_find_each_other_are_named() {
    let test = "rccl::ranks_that_do_not_find_each_other_are_named";
    if !has(&[("HIP_EMU_RCCL_TIMEOUT", "1")], test) {
        return;
    }
    let failed = |threads: &mut dyn Iterator<Item = thread::JoinHandle<(ncclResult_t, usize)>>| {
        for thread in threads {
            let (result, comm) = thread.join().expect("it does not panic");
            assert_eq!(
                (result, comm),
                (ncclResult_t::ncclRemoteError, 0),
                "{}",
                last_error()
            );
        }
        last_error()
    };
    let text = failed(&mut [join(unique_id(), 0, 1, 3)].into_iter());
    assert_eq!(text, "of 3 ranks 0, 2 did not come within 1 s of the first");
    let id = unique_id();
    let text = failed(&mut [join(id, 0, 1, 3), join(id, 1, 1, 3)].into_iter());
    assert!(text.starts_with("rank 1 has come twice: process "), "{text}");
    let id = unique_id();
    let text = failed(&mut [join(id, 0, 0, 2), join(id, 1, 1, 3)].into_iter());
    assert!(text.contains("others in"), "{text}");
}
