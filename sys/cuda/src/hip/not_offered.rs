//! HIP functions that are not supported: compute-unit masks, which only AMD GPUs have; launches and
//! graph instantiation with extended structures, whose attributes differ.

use hipvit_sys::hip::hipError_t;

hip_provider::not_offered! { hip, hipError_t, hipError_t::hipErrorNotSupported;
    hipExtStreamCreateWithCUMask
    hipExtStreamGetCUMask
    hipDrvLaunchKernelEx
    hipGraphInstantiateWithParams
}
