//! RCCL on NCCL: RCCL has NCCL's API, and all values are the same. Communicators and unique identifiers are NCCL's, cast.

use std::env;
use std::ffi::{c_char, c_void};
use std::sync::Once;

use hip_provider::export::c_name;
use hip_provider::rccl::run;
use hip_provider::{export, not_offered};
use hipvit_sys::hip::hipStream_t;
use hipvit_sys::rccl::{
    self, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclScalarResidence_t,
    ncclUniqueId,
};

use crate::hip::bound;
use crate::library::{Missing, call};

fn check(called: Result<u32, Missing>) -> Result<(), ncclResult_t> {
    match called {
        Ok(0) => Ok(()),
        Ok(status) => Err(ncclResult_t(status)),
        Err(Missing::Library) => Err(ncclResult_t::ncclSystemError),
        Err(Missing::Function) => Err(ncclResult_t::ncclInvalidUsage),
    }
}

/// Runs an exported function that works on the thread's device.
fn on_device(body: impl FnOnce() -> Result<(), ncclResult_t>) -> ncclResult_t {
    run(|| {
        bound().map_err(|_| ncclResult_t::ncclUnhandledCudaError)?;
        body()
    })
}

/// Switches NVLink multicast off unless the program or its user has set it. It takes memory and a driver service of every GPU.
/// Where these are missing, as in containers and virtual machines, making a communicator fails.
fn multicast_off() {
    static ONCE: Once = Once::new();
    const VARIABLE: &str = "NCCL_NVLS_ENABLE";
    ONCE.call_once(|| {
        if env::var_os(VARIABLE).is_none() {
            // SAFETY: Rust's own readers are locked out; NCCL, which reads it, is not called before this has returned.
            unsafe { env::set_var(VARIABLE, "0") };
        }
    });
}

macro_rules! nccl {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        multicast_off();
        check(call!(NCCL, nccl, $function($($argument),*)))
    }};
}

/// NCCL's identifier type: 128 characters in both.
fn identifier(id: ncclUniqueId) -> cudarc::nccl::sys::ncclUniqueId {
    cudarc::nccl::sys::ncclUniqueId {
        internal: id.internal,
    }
}

/// RCCL's configuration is that of NCCL 2.27, which holds its own size and version.
const _: () = assert!(size_of::<ncclConfig_t>() == size_of::<cudarc::nccl::sys::ncclConfig_t>());

hip_provider::shared_rccl!();

/// # Safety
/// `comm` is null or a communicator.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetLastError(comm: ncclComm_t) -> *const c_char {
    // SAFETY: as the caller says.
    match unsafe { call!(NCCL, nccl, ncclGetLastError(comm.cast())) } {
        Ok(text) => text,
        Err(_) => c_name("NCCL is not installed"),
    }
}
const _: rccl::prototypes::ncclGetLastError = ncclGetLastError;

export! { rccl, ncclResult_t, run;
    fn ncclGetVersion(version: *mut i32) {
        nccl!(ncclGetVersion(version))
    }
}

export! { rccl, ncclResult_t, on_device;
    fn ncclGetUniqueId(id: *mut ncclUniqueId) {
        nccl!(ncclGetUniqueId(id.cast()))
    }

    fn ncclCommInitRank(comm: *mut ncclComm_t, ranks: i32, id: ncclUniqueId, rank: i32) {
        nccl!(ncclCommInitRank(comm.cast(), ranks, identifier(id), rank))
    }

    fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t, ranks: i32, id: ncclUniqueId, rank: i32, config: *mut ncclConfig_t,
    ) {
        nccl!(ncclCommInitRankConfig(comm.cast(), ranks, identifier(id), rank, config.cast()))
    }

    fn ncclCommInitAll(comms: *mut ncclComm_t, count: i32, devices: *const i32) {
        nccl!(ncclCommInitAll(comms.cast(), count, devices))
    }

    fn ncclCommFinalize(comm: ncclComm_t) {
        nccl!(ncclCommFinalize(comm.cast()))
    }

    fn ncclCommDestroy(comm: ncclComm_t) {
        nccl!(ncclCommDestroy(comm.cast()))
    }

    fn ncclCommAbort(comm: ncclComm_t) {
        nccl!(ncclCommAbort(comm.cast()))
    }

    fn ncclCommSplit(
        comm: ncclComm_t, color: i32, key: i32, new: *mut ncclComm_t, config: *mut ncclConfig_t,
    ) {
        nccl!(ncclCommSplit(comm.cast(), color, key, new.cast(), config.cast()))
    }

    fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t) {
        nccl!(ncclCommGetAsyncError(comm.cast(), error.cast()))
    }

    fn ncclCommCount(comm: ncclComm_t, count: *mut i32) {
        nccl!(ncclCommCount(comm.cast(), count))
    }

    fn ncclCommCuDevice(comm: ncclComm_t, device: *mut i32) {
        nccl!(ncclCommCuDevice(comm.cast(), device))
    }

    fn ncclCommUserRank(comm: ncclComm_t, rank: *mut i32) {
        nccl!(ncclCommUserRank(comm.cast(), rank))
    }

    fn ncclCommRegister(comm: ncclComm_t, memory: *mut c_void, size: usize, handle: *mut *mut c_void) {
        nccl!(ncclCommRegister(comm.cast(), memory, size, handle))
    }

    fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) {
        nccl!(ncclCommDeregister(comm.cast(), handle))
    }

    fn ncclMemAlloc(to: *mut *mut c_void, size: usize) {
        nccl!(ncclMemAlloc(to, size))
    }

    fn ncclMemFree(memory: *mut c_void) {
        nccl!(ncclMemFree(memory))
    }

    fn ncclRedOpCreatePreMulSum(
        op: *mut ncclRedOp_t, scalar: *mut c_void, datatype: ncclDataType_t, residence: ncclScalarResidence_t,
        comm: ncclComm_t,
    ) {
        nccl!(ncclRedOpCreatePreMulSum(op.cast(), scalar, datatype.0, residence.0, comm.cast()))
    }

    fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) {
        nccl!(ncclRedOpDestroy(op.0, comm.cast()))
    }

    fn ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, root: i32,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        nccl!(ncclReduce(from, to, count, datatype.0, op.0, root, comm.cast(), stream.cast()))
    }

    fn ncclBcast(
        memory: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t, stream: hipStream_t,
    ) {
        nccl!(ncclBcast(memory, count, datatype.0, root, comm.cast(), stream.cast()))
    }

    fn ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        nccl!(ncclBroadcast(from, to, count, datatype.0, root, comm.cast(), stream.cast()))
    }

    fn ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        nccl!(ncclAllReduce(from, to, count, datatype.0, op.0, comm.cast(), stream.cast()))
    }

    fn ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        nccl!(ncclReduceScatter(from, to, count, datatype.0, op.0, comm.cast(), stream.cast()))
    }

    fn ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        nccl!(ncclAllGather(from, to, count, datatype.0, comm.cast(), stream.cast()))
    }

    fn ncclSend(
        from: *const c_void, count: usize, datatype: ncclDataType_t, peer: i32, comm: ncclComm_t, stream: hipStream_t,
    ) {
        nccl!(ncclSend(from, count, datatype.0, peer, comm.cast(), stream.cast()))
    }

    fn ncclRecv(
        to: *mut c_void, count: usize, datatype: ncclDataType_t, peer: i32, comm: ncclComm_t, stream: hipStream_t,
    ) {
        nccl!(ncclRecv(to, count, datatype.0, peer, comm.cast(), stream.cast()))
    }

    fn ncclGroupStart() {
        nccl!(ncclGroupStart())
    }

    fn ncclGroupEnd() {
        nccl!(ncclGroupEnd())
    }
}

// NCCL has these only since 2.28, and not all under these names.
not_offered! { rccl, ncclResult_t, ncclResult_t::ncclInvalidUsage;
    ncclGather
    ncclScatter
    ncclAllToAll
}
