//! Graphs: capture, instantiation, replay, and inspection. Modes, node types and results have the driver's values.

use std::ffi::c_char;
use std::ptr;

use cudarc::driver::sys::{CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo};
use hipvit_sys::hip::{
    hipGraph_t, hipGraphEdgeData, hipGraphExec_t, hipGraphExecUpdateResult, hipGraphNode_t, hipGraphNodeType,
    hipStream_t, hipStreamCaptureMode, hipStreamCaptureStatus,
};

use super::{cu, hip};

hip! {
    fn hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) {
        cu!(cuStreamBeginCapture_v2(stream.cast(), mode.0))
    }

    fn hipStreamBeginCaptureToGraph(
        stream: hipStream_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, edges: *const hipGraphEdgeData,
        count: usize, mode: hipStreamCaptureMode,
    ) {
        cu!(cuStreamBeginCaptureToGraph(
            stream.cast(), graph.cast(), dependencies.cast(), edges.cast(), count, mode.0,
        ))
    }

    fn hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) {
        cu!(cuStreamEndCapture(stream.cast(), graph.cast()))
    }

    fn hipStreamIsCapturing(stream: hipStream_t, status: *mut hipStreamCaptureStatus) {
        cu!(cuStreamIsCapturing(stream.cast(), status.cast()))
    }

    fn hipStreamGetCaptureInfo_v2(
        stream: hipStream_t, status: *mut hipStreamCaptureStatus, id: *mut u64, graph: *mut hipGraph_t,
        dependencies: *mut *const hipGraphNode_t, count: *mut usize,
    ) {
        cu!(cuStreamGetCaptureInfo_v2(
            stream.cast(), status.cast(), id, graph.cast(), dependencies.cast(), count,
        ))
    }

    fn hipStreamUpdateCaptureDependencies(
        stream: hipStream_t, dependencies: *mut hipGraphNode_t, count: usize, flags: u32,
    ) {
        cu!(cuStreamUpdateCaptureDependencies(stream.cast(), dependencies.cast(), count, flags))
    }

    fn hipThreadExchangeStreamCaptureMode(mode: *mut hipStreamCaptureMode) {
        cu!(cuThreadExchangeStreamCaptureMode(mode.cast()))
    }

    fn hipGraphCreate(graph: *mut hipGraph_t, flags: u32) {
        cu!(cuGraphCreate(graph.cast(), flags))
    }

    fn hipGraphDestroy(graph: hipGraph_t) {
        cu!(cuGraphDestroy(graph.cast()))
    }

    fn hipGraphClone(to: *mut hipGraph_t, from: hipGraph_t) {
        cu!(cuGraphClone(to.cast(), from.cast()))
    }

    fn hipGraphAddDependencies(
        graph: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t, count: usize,
    ) {
        cu!(cuGraphAddDependencies(graph.cast(), from.cast(), to.cast(), count))
    }

    fn hipGraphGetEdges(
        graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t, count: *mut usize,
    ) {
        cu!(cuGraphGetEdges(graph.cast(), from.cast(), to.cast(), count))
    }

    fn hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        cu!(cuGraphGetNodes(graph.cast(), nodes.cast(), count))
    }

    fn hipGraphGetRootNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        cu!(cuGraphGetRootNodes(graph.cast(), nodes.cast(), count))
    }

    fn hipGraphNodeGetDependencies(node: hipGraphNode_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        cu!(cuGraphNodeGetDependencies(node.cast(), nodes.cast(), count))
    }

    fn hipGraphNodeGetDependentNodes(node: hipGraphNode_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        cu!(cuGraphNodeGetDependentNodes(node.cast(), nodes.cast(), count))
    }

    fn hipGraphNodeGetType(node: hipGraphNode_t, kind: *mut hipGraphNodeType) {
        cu!(cuGraphNodeGetType(node.cast(), kind.cast()))
    }

    fn hipGraphDestroyNode(node: hipGraphNode_t) {
        cu!(cuGraphDestroyNode(node.cast()))
    }

    /// The driver no longer reports the failing node, nor writes a log.
    fn hipGraphInstantiate(
        exec: *mut hipGraphExec_t, graph: hipGraph_t, error_node: *mut hipGraphNode_t, log: *mut c_char, size: usize,
    ) {
        if !error_node.is_null() {
            error_node.write(ptr::null_mut());
        }
        if !log.is_null() && size > 0 {
            log.write(0);
        }
        cu!(cuGraphInstantiateWithFlags(exec.cast(), graph.cast(), 0))
    }

    fn hipGraphInstantiateWithFlags(exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: u64) {
        cu!(cuGraphInstantiateWithFlags(exec.cast(), graph.cast(), flags))
    }

    fn hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t) {
        cu!(cuGraphLaunch(exec.cast(), stream.cast()))
    }

    fn hipGraphUpload(exec: hipGraphExec_t, stream: hipStream_t) {
        cu!(cuGraphUpload(exec.cast(), stream.cast()))
    }

    fn hipGraphExecGetFlags(exec: hipGraphExec_t, flags: *mut u64) {
        cu!(cuGraphExecGetFlags(exec.cast(), flags))
    }

    fn hipGraphExecDestroy(exec: hipGraphExec_t) {
        cu!(cuGraphExecDestroy(exec.cast()))
    }

    fn hipGraphExecUpdate(
        exec: hipGraphExec_t, graph: hipGraph_t, error_node: *mut hipGraphNode_t,
        result: *mut hipGraphExecUpdateResult,
    ) {
        let mut info = std::mem::MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
        let updated = cu!(cuGraphExecUpdate_v2(exec.cast(), graph.cast(), info.as_mut_ptr()));
        let info = info.as_ptr();
        if !result.is_null() {
            // Read as an integer: a newer driver may return a value that the enumeration lacks.
            result.write(hipGraphExecUpdateResult((&raw const (*info).result).cast::<u32>().read()));
        }
        if !error_node.is_null() {
            error_node.write((*info).errorNode.cast());
        }
        updated
    }

    fn hipGraphDebugDotPrint(graph: hipGraph_t, file: *const c_char, flags: u32) {
        cu!(cuGraphDebugDotPrint(graph.cast(), file, flags))
    }
}

const _: () = assert!(size_of::<CUgraphExecUpdateResult>() == size_of::<u32>());
const _: () = assert!(size_of::<hipGraphEdgeData>() == size_of::<cudarc::driver::sys::CUgraphEdgeData>());
