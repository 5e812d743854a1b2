//! RCCL with one rank.

use std::ptr;

use hipvit_sys::Rccl;
use hipvit_sys::rccl::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};

use crate::{Buffer, Stream, provider, turn};

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
fn collectives_of_one_rank_copy_in_the_streams_order() {
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

#[test]
fn several_ranks_are_refused() {
    let mut comms = [ptr::null_mut(); 2];
    assert_eq!(
        unsafe { rccl().ncclCommInitAll(comms.as_mut_ptr(), 2, [0, 1].as_ptr()) }.expect("exported"),
        ncclResult_t::ncclInvalidUsage
    );
}
