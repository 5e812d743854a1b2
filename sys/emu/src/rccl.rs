//! RCCL for communicators of one rank, whose collectives are copies. Several ranks are not supported: creating such a
//! communicator returns `ncclInvalidUsage`.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use hipvit_sys::Status as _;
use hipvit_sys::export::{c_name, caught};
use hipvit_sys::hip::{hipError_t, hipStream_t};
use hipvit_sys::rccl::{
    self, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};
use hipvit_sys::{export, not_offered};

use crate::hip::{Handles, current, machine, submit};

/// The version of RCCL whose interface is implemented.
const VERSION: i32 = 22_707;

/// A communicator of one rank: its device.
struct Communicator(u32);

static COMMUNICATORS: Handles<Communicator> = Handles::new();

fn run(body: impl FnOnce() -> Result<(), ncclResult_t>) -> ncclResult_t {
    caught(ncclResult_t::ncclSuccess, ncclResult_t::ncclInternalError, body)
}

/// # Safety
/// `to` is null or may be written.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), ncclResult_t> {
    if to.is_null() {
        return Err(ncclResult_t::ncclInvalidArgument);
    }
    // SAFETY: as the caller says.
    unsafe { to.write(value) };
    Ok(())
}

fn of_hip<T>(result: Result<T, hipError_t>) -> Result<T, ncclResult_t> {
    result.map_err(|_| ncclResult_t::ncclUnhandledCudaError)
}

fn find(comm: ncclComm_t) -> Result<Arc<Communicator>, ncclResult_t> {
    COMMUNICATORS
        .get(comm)
        .map_err(|_| ncclResult_t::ncclInvalidArgument)
}

fn remove(comm: ncclComm_t) -> Result<(), ncclResult_t> {
    let removed = COMMUNICATORS.remove(comm);
    removed.map(drop).map_err(|_| ncclResult_t::ncclInvalidArgument)
}

/// # Safety
/// `to` is null or may be written.
unsafe fn create(to: *mut ncclComm_t, ranks: i32, rank: i32, device: u32) -> Result<(), ncclResult_t> {
    match (ranks, rank) {
        // SAFETY: as the caller says.
        (1, 0) => unsafe { put(to, COMMUNICATORS.insert(Arc::new(Communicator(device)))) },
        (2.., _) => Err(ncclResult_t::ncclInvalidUsage),
        _ => Err(ncclResult_t::ncclInvalidArgument),
    }
}

fn size(datatype: ncclDataType_t) -> Result<usize, ncclResult_t> {
    Ok(match datatype {
        ncclDataType_t::ncclInt8 | ncclDataType_t::ncclUint8 => 1,
        ncclDataType_t::ncclFloat8e4m3 | ncclDataType_t::ncclFloat8e5m2 => 1,
        ncclDataType_t::ncclFloat16 | ncclDataType_t::ncclBfloat16 => 2,
        ncclDataType_t::ncclInt32 | ncclDataType_t::ncclUint32 | ncclDataType_t::ncclFloat32 => 4,
        ncclDataType_t::ncclInt64 | ncclDataType_t::ncclUint64 | ncclDataType_t::ncclFloat64 => 8,
        _ => return Err(ncclResult_t::ncclInvalidArgument),
    })
}

/// A collective of one rank: copies `from` to `to`.
fn copy(
    name: &str,
    (from, to): (*const c_void, *mut c_void),
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: hipStream_t,
) -> Result<(), ncclResult_t> {
    find(comm)?;
    let bytes = (count * size(datatype)?) as u64;
    let (from, to) = (from.expose_provenance() as u64, to.expose_provenance() as u64);
    if bytes == 0 || from == to {
        return Ok(());
    }
    of_hip(submit(stream, name, move |memory| {
        Ok(memory.copy(to, from, bytes)?)
    }))
}

/// The built-in operations, which leave a single rank's data unchanged; user-defined ones are not offered.
fn known(op: ncclRedOp_t) -> Result<(), ncclResult_t> {
    if op.0 < ncclRedOp_t::ncclNumOps.0 {
        Ok(())
    } else {
        Err(ncclResult_t::ncclInvalidArgument)
    }
}

fn only(root: i32) -> Result<(), ncclResult_t> {
    if root == 0 {
        Ok(())
    } else {
        Err(ncclResult_t::ncclInvalidArgument)
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(result: ncclResult_t) -> *const c_char {
    c_name(result.name().unwrap_or("unknown result code"))
}
const _: rccl::prototypes::ncclGetErrorString = ncclGetErrorString;

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
    c_name("")
}
const _: rccl::prototypes::ncclGetLastError = ncclGetLastError;

export! { rccl, ncclResult_t, run;
    fn ncclGetVersion(version: *mut i32) {
        put(version, VERSION)
    }

    /// The identifier is not used: a communicator of one rank has no peers.
    fn ncclGetUniqueId(id: *mut ncclUniqueId) {
        put(id, ncclUniqueId { internal: [0; 128] })
    }

    fn ncclCommInitRank(comm: *mut ncclComm_t, ranks: i32, _id: ncclUniqueId, rank: i32) {
        create(comm, ranks, rank, of_hip(current())?.ordinal)
    }

    fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t, ranks: i32, _id: ncclUniqueId, rank: i32, _config: *mut ncclConfig_t,
    ) {
        create(comm, ranks, rank, of_hip(current())?.ordinal)
    }

    fn ncclCommInitAll(comms: *mut ncclComm_t, count: i32, devices: *const i32) {
        let ordinal = devices.as_ref().copied().unwrap_or(0);
        create(comms, count, 0, of_hip(machine::device(ordinal))?.ordinal)
    }

    fn ncclCommFinalize(comm: ncclComm_t) {
        find(comm).map(drop)
    }

    fn ncclCommDestroy(comm: ncclComm_t) {
        remove(comm)
    }

    fn ncclCommAbort(comm: ncclComm_t) {
        remove(comm)
    }

    fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t) {
        find(comm)?;
        put(error, ncclResult_t::ncclSuccess)
    }

    fn ncclCommCount(comm: ncclComm_t, count: *mut i32) {
        find(comm)?;
        put(count, 1)
    }

    fn ncclCommCuDevice(comm: ncclComm_t, device: *mut i32) {
        put(device, find(comm)?.0 as i32)
    }

    fn ncclCommUserRank(comm: ncclComm_t, rank: *mut i32) {
        find(comm)?;
        put(rank, 0)
    }

    fn ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, root: i32,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        known(op)?;
        only(root)?;
        copy("ncclReduce", (from, to), count, datatype, comm, stream)
    }

    fn ncclBcast(
        memory: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t, stream: hipStream_t,
    ) {
        only(root)?;
        copy("ncclBcast", (memory, memory), count, datatype, comm, stream)
    }

    fn ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        only(root)?;
        copy("ncclBroadcast", (from, to), count, datatype, comm, stream)
    }

    fn ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        known(op)?;
        copy("ncclAllReduce", (from, to), count, datatype, comm, stream)
    }

    fn ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        known(op)?;
        copy("ncclReduceScatter", (from, to), count, datatype, comm, stream)
    }

    fn ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        copy("ncclAllGather", (from, to), count, datatype, comm, stream)
    }

    fn ncclGroupStart() {
        Ok(())
    }

    fn ncclGroupEnd() {
        Ok(())
    }
}

not_offered! { rccl, ncclResult_t, ncclResult_t::ncclInvalidUsage;
    ncclCommSplit
    ncclCommRegister
    ncclCommDeregister
    ncclMemAlloc
    ncclMemFree
    ncclRedOpCreatePreMulSum
    ncclRedOpDestroy
    ncclSend
    ncclRecv
    ncclGather
    ncclScatter
    ncclAllToAll
}
