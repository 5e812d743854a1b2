// Made by sys/scripts/regenerate from ROCm's headers; do not edit.

use crate::hip::*;

pub const NCCL_MAJOR: u32 = 2;
pub const NCCL_MINOR: u32 = 27;
pub const NCCL_PATCH: u32 = 7;
pub const NCCL_VERSION_CODE: u32 = 22707;
pub const NCCL_UNIQUE_ID_BYTES: u32 = 128;
#[repr(C)]
#[derive(Debug)]
pub struct ncclComm {
    _unused: [u8; 0],
}
pub type ncclComm_t = *mut ncclComm;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclUniqueId {
    pub internal: [::core::ffi::c_char; 128usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclUniqueId"][::core::mem::size_of::<ncclUniqueId>() - 128usize];
    ["Alignment of ncclUniqueId"][::core::mem::align_of::<ncclUniqueId>() - 1usize];
    [
        "Offset of field: ncclUniqueId::internal",
    ][::core::mem::offset_of!(ncclUniqueId, internal) - 0usize];
};
impl Default for ncclUniqueId {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl ncclResult_t {
    pub const ncclSuccess: ncclResult_t = ncclResult_t(0);
    pub const ncclUnhandledCudaError: ncclResult_t = ncclResult_t(1);
    pub const ncclSystemError: ncclResult_t = ncclResult_t(2);
    pub const ncclInternalError: ncclResult_t = ncclResult_t(3);
    pub const ncclInvalidArgument: ncclResult_t = ncclResult_t(4);
    pub const ncclInvalidUsage: ncclResult_t = ncclResult_t(5);
    pub const ncclRemoteError: ncclResult_t = ncclResult_t(6);
    pub const ncclInProgress: ncclResult_t = ncclResult_t(7);
    pub const ncclNumResults: ncclResult_t = ncclResult_t(8);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclResult_t(pub ::core::ffi::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct ncclConfig_v22700 {
    pub size: usize,
    pub magic: ::core::ffi::c_uint,
    pub version: ::core::ffi::c_uint,
    pub blocking: ::core::ffi::c_int,
    pub cgaClusterSize: ::core::ffi::c_int,
    pub minCTAs: ::core::ffi::c_int,
    pub maxCTAs: ::core::ffi::c_int,
    pub netName: *const ::core::ffi::c_char,
    pub splitShare: ::core::ffi::c_int,
    pub trafficClass: ::core::ffi::c_int,
    pub commName: *const ::core::ffi::c_char,
    pub collnetEnable: ::core::ffi::c_int,
    pub CTAPolicy: ::core::ffi::c_int,
    pub shrinkShare: ::core::ffi::c_int,
    pub nvlsCTAs: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of ncclConfig_v22700"][::core::mem::size_of::<ncclConfig_v22700>() - 72usize];
    [
        "Alignment of ncclConfig_v22700",
    ][::core::mem::align_of::<ncclConfig_v22700>() - 8usize];
    [
        "Offset of field: ncclConfig_v22700::size",
    ][::core::mem::offset_of!(ncclConfig_v22700, size) - 0usize];
    [
        "Offset of field: ncclConfig_v22700::magic",
    ][::core::mem::offset_of!(ncclConfig_v22700, magic) - 8usize];
    [
        "Offset of field: ncclConfig_v22700::version",
    ][::core::mem::offset_of!(ncclConfig_v22700, version) - 12usize];
    [
        "Offset of field: ncclConfig_v22700::blocking",
    ][::core::mem::offset_of!(ncclConfig_v22700, blocking) - 16usize];
    [
        "Offset of field: ncclConfig_v22700::cgaClusterSize",
    ][::core::mem::offset_of!(ncclConfig_v22700, cgaClusterSize) - 20usize];
    [
        "Offset of field: ncclConfig_v22700::minCTAs",
    ][::core::mem::offset_of!(ncclConfig_v22700, minCTAs) - 24usize];
    [
        "Offset of field: ncclConfig_v22700::maxCTAs",
    ][::core::mem::offset_of!(ncclConfig_v22700, maxCTAs) - 28usize];
    [
        "Offset of field: ncclConfig_v22700::netName",
    ][::core::mem::offset_of!(ncclConfig_v22700, netName) - 32usize];
    [
        "Offset of field: ncclConfig_v22700::splitShare",
    ][::core::mem::offset_of!(ncclConfig_v22700, splitShare) - 40usize];
    [
        "Offset of field: ncclConfig_v22700::trafficClass",
    ][::core::mem::offset_of!(ncclConfig_v22700, trafficClass) - 44usize];
    [
        "Offset of field: ncclConfig_v22700::commName",
    ][::core::mem::offset_of!(ncclConfig_v22700, commName) - 48usize];
    [
        "Offset of field: ncclConfig_v22700::collnetEnable",
    ][::core::mem::offset_of!(ncclConfig_v22700, collnetEnable) - 56usize];
    [
        "Offset of field: ncclConfig_v22700::CTAPolicy",
    ][::core::mem::offset_of!(ncclConfig_v22700, CTAPolicy) - 60usize];
    [
        "Offset of field: ncclConfig_v22700::shrinkShare",
    ][::core::mem::offset_of!(ncclConfig_v22700, shrinkShare) - 64usize];
    [
        "Offset of field: ncclConfig_v22700::nvlsCTAs",
    ][::core::mem::offset_of!(ncclConfig_v22700, nvlsCTAs) - 68usize];
};
impl Default for ncclConfig_v22700 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type ncclConfig_t = ncclConfig_v22700;
impl ncclRedOp_t {
    pub const ncclSum: ncclRedOp_t = ncclRedOp_t(0);
    pub const ncclProd: ncclRedOp_t = ncclRedOp_t(1);
    pub const ncclMax: ncclRedOp_t = ncclRedOp_t(2);
    pub const ncclMin: ncclRedOp_t = ncclRedOp_t(3);
    pub const ncclAvg: ncclRedOp_t = ncclRedOp_t(4);
    pub const ncclNumOps: ncclRedOp_t = ncclRedOp_t(5);
    pub const ncclMaxRedOp: ncclRedOp_t = ncclRedOp_t(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclRedOp_t(pub ::core::ffi::c_uint);
impl ncclDataType_t {
    pub const ncclInt8: ncclDataType_t = ncclDataType_t(0);
    pub const ncclChar: ncclDataType_t = ncclDataType_t(0);
    pub const ncclUint8: ncclDataType_t = ncclDataType_t(1);
    pub const ncclInt32: ncclDataType_t = ncclDataType_t(2);
    pub const ncclInt: ncclDataType_t = ncclDataType_t(2);
    pub const ncclUint32: ncclDataType_t = ncclDataType_t(3);
    pub const ncclInt64: ncclDataType_t = ncclDataType_t(4);
    pub const ncclUint64: ncclDataType_t = ncclDataType_t(5);
    pub const ncclFloat16: ncclDataType_t = ncclDataType_t(6);
    pub const ncclHalf: ncclDataType_t = ncclDataType_t(6);
    pub const ncclFloat32: ncclDataType_t = ncclDataType_t(7);
    pub const ncclFloat: ncclDataType_t = ncclDataType_t(7);
    pub const ncclFloat64: ncclDataType_t = ncclDataType_t(8);
    pub const ncclDouble: ncclDataType_t = ncclDataType_t(8);
    pub const ncclBfloat16: ncclDataType_t = ncclDataType_t(9);
    pub const ncclFloat8e4m3: ncclDataType_t = ncclDataType_t(10);
    pub const ncclFloat8e5m2: ncclDataType_t = ncclDataType_t(11);
    pub const ncclNumTypes: ncclDataType_t = ncclDataType_t(12);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclDataType_t(pub ::core::ffi::c_uint);
impl ncclScalarResidence_t {
    pub const ncclScalarDevice: ncclScalarResidence_t = ncclScalarResidence_t(0);
    pub const ncclScalarHostImmediate: ncclScalarResidence_t = ncclScalarResidence_t(1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct ncclScalarResidence_t(pub ::core::ffi::c_uint);
crate::table::table! {
    Rccl;
    pub fn ncclMemAlloc(ptr: *mut *mut ::core::ffi::c_void, size: usize) -> ncclResult_t;
    pub fn ncclMemFree(ptr: *mut ::core::ffi::c_void) -> ncclResult_t;
    pub fn ncclGetVersion(version: *mut ::core::ffi::c_int) -> ncclResult_t;
    pub fn ncclGetUniqueId(uniqueId: *mut ncclUniqueId) -> ncclResult_t;
    pub fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t,
        nranks: ::core::ffi::c_int,
        commId: ncclUniqueId,
        rank: ::core::ffi::c_int,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;
    pub fn ncclCommInitRank(
        comm: *mut ncclComm_t,
        nranks: ::core::ffi::c_int,
        commId: ncclUniqueId,
        rank: ::core::ffi::c_int,
    ) -> ncclResult_t;
    pub fn ncclCommInitAll(
        comm: *mut ncclComm_t,
        ndev: ::core::ffi::c_int,
        devlist: *const ::core::ffi::c_int,
    ) -> ncclResult_t;
    pub fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t;
    pub fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t;
    pub fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t;
    pub fn ncclCommSplit(
        comm: ncclComm_t,
        color: ::core::ffi::c_int,
        key: ::core::ffi::c_int,
        newcomm: *mut ncclComm_t,
        config: *mut ncclConfig_t,
    ) -> ncclResult_t;
    pub fn ncclGetErrorString(result: ncclResult_t) -> *const ::core::ffi::c_char;
    pub fn ncclGetLastError(comm: ncclComm_t) -> *const ::core::ffi::c_char;
    pub fn ncclCommGetAsyncError(
        comm: ncclComm_t,
        asyncError: *mut ncclResult_t,
    ) -> ncclResult_t;
    pub fn ncclCommCount(
        comm: ncclComm_t,
        count: *mut ::core::ffi::c_int,
    ) -> ncclResult_t;
    pub fn ncclCommCuDevice(
        comm: ncclComm_t,
        device: *mut ::core::ffi::c_int,
    ) -> ncclResult_t;
    pub fn ncclCommUserRank(
        comm: ncclComm_t,
        rank: *mut ::core::ffi::c_int,
    ) -> ncclResult_t;
    pub fn ncclCommRegister(
        comm: ncclComm_t,
        buff: *mut ::core::ffi::c_void,
        size: usize,
        handle: *mut *mut ::core::ffi::c_void,
    ) -> ncclResult_t;
    pub fn ncclCommDeregister(
        comm: ncclComm_t,
        handle: *mut ::core::ffi::c_void,
    ) -> ncclResult_t;
    pub fn ncclRedOpCreatePreMulSum(
        op: *mut ncclRedOp_t,
        scalar: *mut ::core::ffi::c_void,
        datatype: ncclDataType_t,
        residence: ncclScalarResidence_t,
        comm: ncclComm_t,
    ) -> ncclResult_t;
    pub fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) -> ncclResult_t;
    pub fn ncclReduce(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        root: ::core::ffi::c_int,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclBcast(
        buff: *mut ::core::ffi::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::core::ffi::c_int,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclBroadcast(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        count: usize,
        datatype: ncclDataType_t,
        root: ::core::ffi::c_int,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclAllReduce(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        count: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclReduceScatter(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        recvcount: usize,
        datatype: ncclDataType_t,
        op: ncclRedOp_t,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclAllGather(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        sendcount: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclSend(
        sendbuff: *const ::core::ffi::c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: ::core::ffi::c_int,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclRecv(
        recvbuff: *mut ::core::ffi::c_void,
        count: usize,
        datatype: ncclDataType_t,
        peer: ::core::ffi::c_int,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclGather(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        sendcount: usize,
        datatype: ncclDataType_t,
        root: ::core::ffi::c_int,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclScatter(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        recvcount: usize,
        datatype: ncclDataType_t,
        root: ::core::ffi::c_int,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclAllToAll(
        sendbuff: *const ::core::ffi::c_void,
        recvbuff: *mut ::core::ffi::c_void,
        count: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: hipStream_t,
    ) -> ncclResult_t;
    pub fn ncclGroupStart() -> ncclResult_t;
    pub fn ncclGroupEnd() -> ncclResult_t;
}
crate::status::status! {
    ncclResult_t, success: ncclSuccess;
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
    ncclNumResults,
}
