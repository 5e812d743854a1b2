//! HIP functions that are not supported: compute-unit masks, which are AMD's only; virtual memory management; launches and
//! graph instantiation with extended structures, whose attributes differ.

use hipvit_sys::hip::hipError_t;

hipvit_sys::not_offered! { hip, hipError_t, hipError_t::hipErrorNotSupported;
    hipExtStreamCreateWithCUMask
    hipExtStreamGetCUMask
    hipDrvLaunchKernelEx
    hipGraphInstantiateWithParams
    hipMemAddressFree
    hipMemAddressReserve
    hipMemCreate
    hipMemGetAccess
    hipMemGetAllocationGranularity
    hipMemMap
    hipMemRelease
    hipMemSetAccess
    hipMemUnmap
}
