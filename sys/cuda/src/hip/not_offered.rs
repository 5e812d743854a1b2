//! What of HIP is not offered: masks of compute units, which are AMD's; virtual memory management; launches and
//! instantiations with extended structures, whose attributes differ.

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
