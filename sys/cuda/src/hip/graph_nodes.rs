//! Nodes that are added to graphs explicitly, or changed.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext};
use hipvit_sys::hip::{
    dim3, hipError_t, hipEvent_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t, hipHostNodeParams,
    hipKernelNodeParams, hipMemcpyKind, hipMemsetParams,
};

use super::copy::memory_types;
use super::module::launch_options;
use super::pointer::address;
use super::{cu, hip};

/// The driver's parameters of a kernel node. `options` keeps its launch options alive until the call.
unsafe fn kernel(
    from: *const hipKernelNodeParams,
    options: &mut Option<[*mut c_void; 5]>,
) -> Result<CUDA_KERNEL_NODE_PARAMS, hipError_t> {
    // SAFETY: the caller's structure is null or may be read.
    let from = unsafe { from.as_ref() }.ok_or(hipError_t::hipErrorInvalidValue)?;
    // SAFETY: as for a launch.
    *options = unsafe { launch_options(from.extra) }?;
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: from.func.cast(),
        gridDimX: from.gridDim.x,
        gridDimY: from.gridDim.y,
        gridDimZ: from.gridDim.z,
        blockDimX: from.blockDim.x,
        blockDimY: from.blockDim.y,
        blockDimZ: from.blockDim.z,
        sharedMemBytes: from.sharedMemBytes,
        kernelParams: from.kernelParams,
        extra: options
            .as_mut()
            .map_or(ptr::null_mut(), |options| options.as_mut_ptr()),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    })
}

unsafe fn fill(from: *const hipMemsetParams) -> Result<CUDA_MEMSET_NODE_PARAMS, hipError_t> {
    // SAFETY: the caller's structure is null or may be read.
    let from = unsafe { from.as_ref() }.ok_or(hipError_t::hipErrorInvalidValue)?;
    Ok(CUDA_MEMSET_NODE_PARAMS {
        dst: address(from.dst),
        pitch: from.pitch,
        value: from.value,
        elementSize: from.elementSize,
        width: from.width,
        height: from.height,
    })
}

fn row(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    kind: hipMemcpyKind,
) -> Result<CUDA_MEMCPY3D, hipError_t> {
    let (source, target) = memory_types(kind)?;
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: source,
        srcHost: from,
        srcDevice: address(from),
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: size,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: target,
        dstHost: to,
        dstDevice: address(to),
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: size,
        dstHeight: 1,
        WidthInBytes: size,
        Height: 1,
        Depth: 1,
    })
}

fn current() -> Result<CUcontext, hipError_t> {
    let mut context = ptr::null_mut();
    // SAFETY: `context` is a handle that the call may write.
    unsafe { cu!(cuCtxGetCurrent(&mut context))? };
    Ok(context)
}

hip! {
    fn hipGraphAddKernelNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        parameters: *const hipKernelNodeParams,
    ) {
        let mut options = None;
        let parameters = kernel(parameters, &mut options)?;
        cu!(cuGraphAddKernelNode_v2(node.cast(), graph.cast(), dependencies.cast(), count, &parameters))
    }

    fn hipGraphKernelNodeGetParams(node: hipGraphNode_t, parameters: *mut hipKernelNodeParams) {
        let mut found = std::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        cu!(cuGraphKernelNodeGetParams_v2(node.cast(), found.as_mut_ptr()))?;
        // Numbers and pointers: zero is valid for all of them.
        let found = found.assume_init();
        parameters.write(hipKernelNodeParams {
            blockDim: dim3 { x: found.blockDimX, y: found.blockDimY, z: found.blockDimZ },
            extra: found.extra,
            func: found.func.cast(),
            gridDim: dim3 { x: found.gridDimX, y: found.gridDimY, z: found.gridDimZ },
            kernelParams: found.kernelParams,
            sharedMemBytes: found.sharedMemBytes,
        });
        Ok(())
    }

    fn hipGraphKernelNodeSetParams(node: hipGraphNode_t, parameters: *const hipKernelNodeParams) {
        let mut options = None;
        let parameters = kernel(parameters, &mut options)?;
        cu!(cuGraphKernelNodeSetParams_v2(node.cast(), &parameters))
    }

    fn hipGraphExecKernelNodeSetParams(
        exec: hipGraphExec_t, node: hipGraphNode_t, parameters: *const hipKernelNodeParams,
    ) {
        let mut options = None;
        let parameters = kernel(parameters, &mut options)?;
        cu!(cuGraphExecKernelNodeSetParams_v2(exec.cast(), node.cast(), &parameters))
    }

    fn hipGraphAddMemcpyNode1D(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        to: *mut c_void, from: *const c_void, size: usize, kind: hipMemcpyKind,
    ) {
        let copy = row(to, from, size, kind)?;
        cu!(cuGraphAddMemcpyNode(node.cast(), graph.cast(), dependencies.cast(), count, &copy, current()?))
    }

    fn hipGraphExecMemcpyNodeSetParams1D(
        exec: hipGraphExec_t, node: hipGraphNode_t, to: *mut c_void, from: *const c_void, size: usize,
        kind: hipMemcpyKind,
    ) {
        let copy = row(to, from, size, kind)?;
        cu!(cuGraphExecMemcpyNodeSetParams(exec.cast(), node.cast(), &copy, current()?))
    }

    fn hipGraphAddMemsetNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        parameters: *const hipMemsetParams,
    ) {
        let fill = fill(parameters)?;
        cu!(cuGraphAddMemsetNode(node.cast(), graph.cast(), dependencies.cast(), count, &fill, current()?))
    }

    fn hipGraphExecMemsetNodeSetParams(
        exec: hipGraphExec_t, node: hipGraphNode_t, parameters: *const hipMemsetParams,
    ) {
        let fill = fill(parameters)?;
        cu!(cuGraphExecMemsetNodeSetParams(exec.cast(), node.cast(), &fill, current()?))
    }

    fn hipGraphAddHostNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        parameters: *const hipHostNodeParams,
    ) {
        // A function and its argument, in this order on either side.
        cu!(cuGraphAddHostNode(node.cast(), graph.cast(), dependencies.cast(), count, parameters.cast()))
    }

    fn hipGraphAddChildGraphNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        child: hipGraph_t,
    ) {
        cu!(cuGraphAddChildGraphNode(node.cast(), graph.cast(), dependencies.cast(), count, child.cast()))
    }

    fn hipGraphAddEmptyNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
    ) {
        cu!(cuGraphAddEmptyNode(node.cast(), graph.cast(), dependencies.cast(), count))
    }

    fn hipGraphAddEventRecordNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        event: hipEvent_t,
    ) {
        cu!(cuGraphAddEventRecordNode(node.cast(), graph.cast(), dependencies.cast(), count, event.cast()))
    }

    fn hipGraphAddEventWaitNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        event: hipEvent_t,
    ) {
        cu!(cuGraphAddEventWaitNode(node.cast(), graph.cast(), dependencies.cast(), count, event.cast()))
    }
}
