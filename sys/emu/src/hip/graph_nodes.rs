//! Adding nodes to graphs and changing them, without capture.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use hip_provider::hip::put;
use hipvit_sys::hip::{
    dim3, hipError_t, hipEvent_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t, hipHostNodeParams,
    hipKernelNodeParams, hipMemcpyKind, hipMemsetParams,
};

use super::copy::{Copy, Fill, Rows};
use super::graph::{self, find, find_executable, find_node};
use super::launch::Launch;
use super::task::{HostFunction, Task};
use super::{event, hip};

/// Adds a task as a node.
///
/// # Safety
/// `to` is null or may be written, and `dependencies` has `count` handles.
unsafe fn add(
    to: *mut hipGraphNode_t,
    graph: hipGraph_t,
    dependencies: *const hipGraphNode_t,
    count: usize,
    task: Task,
) -> Result<(), hipError_t> {
    let graph = find(graph)?;
    // SAFETY: as the caller says.
    let after = unsafe { graph::indices(&graph, dependencies, count) }?;
    if to.is_null() {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    let index = graph.add(task, after)?;
    let node = graph.handles(&[index]).first().copied();
    // SAFETY: as the caller says.
    unsafe { put(to, node.ok_or(hipError_t::hipErrorUnknown)?) }
}

/// # Safety
/// `from` is null, or what HIP says of a kernel's node.
unsafe fn kernel(from: *const hipKernelNodeParams) -> Result<Task, hipError_t> {
    // SAFETY: as the caller says.
    let from = unsafe { from.as_ref() }.ok_or(hipError_t::hipErrorInvalidValue)?;
    let axes = |n: dim3| [n.x, n.y, n.z];
    // SAFETY: as for a launch.
    let launch = unsafe {
        Launch::new(
            from.func.cast(),
            axes(from.gridDim),
            axes(from.blockDim),
            from.sharedMemBytes,
            from.kernelParams,
            from.extra,
        )
    };
    launch.map(Task::Kernel)
}

/// # Safety
/// `from` is null or may be read.
unsafe fn fill(from: *const hipMemsetParams) -> Result<Task, hipError_t> {
    // SAFETY: as the caller says.
    let from = unsafe { from.as_ref() }.ok_or(hipError_t::hipErrorInvalidValue)?;
    let size = (from.width, from.height);
    let fill = Fill::new(
        Rows::new(from.dst, from.pitch),
        size,
        from.value,
        from.elementSize as usize,
    )?;
    fill.map(Task::Fill).ok_or(hipError_t::hipErrorInvalidValue)
}

fn row(to: *const c_void, from: *const c_void, size: usize, kind: hipMemcpyKind) -> Result<Task, hipError_t> {
    let copy = Copy::new(Rows::new(to, size), Rows::new(from, size), (size, 1), kind)?;
    copy.map(Task::Copy).ok_or(hipError_t::hipErrorInvalidValue)
}

hip! {
    fn hipGraphAddKernelNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        parameters: *const hipKernelNodeParams,
    ) {
        add(node, graph, dependencies, count, kernel(parameters)?)
    }

    /// The arguments are the node's own, valid until it is changed.
    fn hipGraphKernelNodeGetParams(node: hipGraphNode_t, parameters: *mut hipKernelNodeParams) {
        let Task::Kernel(launch) = find_node(node)?.task()? else {
            return Err(hipError_t::hipErrorInvalidValue);
        };
        let axes = |[x, y, z]: [u32; 3]| dim3 { x, y, z };
        put(parameters, hipKernelNodeParams {
            blockDim: axes(launch.block),
            extra: ptr::null_mut(),
            func: ptr::without_provenance_mut(launch.handle),
            gridDim: axes(launch.grid),
            kernelParams: launch.parameters(),
            sharedMemBytes: launch.lds,
        })
    }

    fn hipGraphKernelNodeSetParams(node: hipGraphNode_t, parameters: *const hipKernelNodeParams) {
        let node = find_node(node)?;
        if !matches!(node.task()?, Task::Kernel(_)) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        node.set_task(kernel(parameters)?)
    }

    fn hipGraphExecKernelNodeSetParams(
        exec: hipGraphExec_t, node: hipGraphNode_t, parameters: *const hipKernelNodeParams,
    ) {
        find_executable(exec)?.replace(&*find_node(node)?, kernel(parameters)?)
    }

    fn hipGraphAddMemcpyNode1D(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        to: *mut c_void, from: *const c_void, size: usize, kind: hipMemcpyKind,
    ) {
        add(node, graph, dependencies, count, row(to, from, size, kind)?)
    }

    fn hipGraphExecMemcpyNodeSetParams1D(
        exec: hipGraphExec_t, node: hipGraphNode_t, to: *mut c_void, from: *const c_void, size: usize,
        kind: hipMemcpyKind,
    ) {
        find_executable(exec)?.replace(&*find_node(node)?, row(to, from, size, kind)?)
    }

    fn hipGraphAddMemsetNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        parameters: *const hipMemsetParams,
    ) {
        add(node, graph, dependencies, count, fill(parameters)?)
    }

    fn hipGraphExecMemsetNodeSetParams(
        exec: hipGraphExec_t, node: hipGraphNode_t, parameters: *const hipMemsetParams,
    ) {
        find_executable(exec)?.replace(&*find_node(node)?, fill(parameters)?)
    }

    fn hipGraphAddHostNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        parameters: *const hipHostNodeParams,
    ) {
        let parameters = parameters.as_ref().ok_or(hipError_t::hipErrorInvalidValue)?;
        let function = HostFunction {
            function: parameters.fn_.ok_or(hipError_t::hipErrorInvalidValue)?,
            argument: parameters.userData.expose_provenance(),
        };
        add(node, graph, dependencies, count, Task::Host(function))
    }

    /// Copies the child graph.
    fn hipGraphAddChildGraphNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        child: hipGraph_t,
    ) {
        let (parent, child) = (find(graph)?, find(child)?);
        if Arc::ptr_eq(&parent, &child) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        add(node, graph, dependencies, count, Task::Graph(child.copy()?))
    }

    fn hipGraphAddEmptyNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
    ) {
        add(node, graph, dependencies, count, Task::Empty)
    }

    fn hipGraphAddEventRecordNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        event: hipEvent_t,
    ) {
        add(node, graph, dependencies, count, Task::Record(event::find(event)?.recording.clone()))
    }

    fn hipGraphAddEventWaitNode(
        node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
        event: hipEvent_t,
    ) {
        add(node, graph, dependencies, count, Task::Wait(event::find(event)?.recording.clone()))
    }
}
