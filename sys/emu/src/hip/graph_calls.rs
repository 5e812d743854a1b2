//! HIP's functions for graphs, except for adding and changing nodes.

use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::fs;
use std::ptr;

use hip_provider::hip::put;
use hipvit_sys::hip::{
    hipError_t, hipGraph_t, hipGraphExec_t, hipGraphExecUpdateResult, hipGraphInstantiateParams,
    hipGraphInstantiateResult, hipGraphNode_t, hipGraphNodeType, hipStream_t,
};

use super::graph::{
    EXECUTABLES, Executable, GRAPHS, Graph, NODES, Step, find, find_executable, find_node, handle, in_order,
    indices,
};
use super::hip;
use super::machine::machine;
use super::stream;
use super::task::Task;

/// Submits the tasks of an executable graph.
fn launch(executable: &Executable, stream: hipStream_t) -> Result<(), hipError_t> {
    let stream = stream::find(stream)?;
    let steps = executable.steps().clone();
    if stream.captured()?.is_some() {
        return stream.submit(&Task::Graph(Graph::of(steps)?)).map(drop);
    }
    let mut tasks = in_order(&steps)?;
    let machine = machine()?;
    if machine.replays.fires(machine.settings.faults.replay)
        && let Some(last) = tasks.iter().rposition(Task::is_work)
    {
        tasks.remove(last);
    }
    tasks.iter().try_for_each(|task| stream.submit(task).map(drop))
}

/// Writes nodes as HIP does: only their number if there is no array; else as many as fit, followed by nulls.
///
/// # Safety
/// `count` is null or may be read and written, and `to` is null or has as many elements.
unsafe fn give<T: Copy>(found: &[T], empty: T, to: *mut T, count: *mut usize) -> Result<(), hipError_t> {
    if count.is_null() {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    // SAFETY: as the caller says.
    unsafe {
        if to.is_null() {
            count.write(found.len());
            return Ok(());
        }
        for index in 0..*count {
            to.add(index).write(found.get(index).copied().unwrap_or(empty));
        }
        count.write(found.len().min(*count));
    }
    Ok(())
}

/// # Safety
/// `to` is null or may be written.
unsafe fn instantiate(to: *mut hipGraphExec_t, graph: hipGraph_t, flags: u64) -> Result<(), hipError_t> {
    let executable = Executable::of(&find(graph)?, flags)?;
    // SAFETY: as the caller says.
    unsafe { put(to, EXECUTABLES.insert(executable)) }
}

/// Returns the reason for which an executable graph cannot be updated to another graph.
fn difference(old: &[Step], new: &[Step]) -> Option<(hipGraphExecUpdateResult, usize)> {
    let topology = hipGraphExecUpdateResult::hipGraphExecUpdateErrorTopologyChanged;
    if old.len() != new.len() {
        return Some((topology, old.len().min(new.len())));
    }
    for (index, pair) in old.iter().zip(new).enumerate() {
        match pair {
            (None, None) => {}
            (Some((a, before)), Some((b, after))) => {
                if before != after {
                    return Some((topology, index));
                }
                if a.kind() != b.kind() {
                    let kind = hipGraphExecUpdateResult::hipGraphExecUpdateErrorNodeTypeChanged;
                    return Some((kind, index));
                }
            }
            _ => return Some((topology, index)),
        }
    }
    None
}

hip! {
    fn hipGraphCreate(graph: *mut hipGraph_t, flags: u32) {
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        put(graph, handle(Graph::new()))
    }

    fn hipGraphDestroy(graph: hipGraph_t) {
        GRAPHS.remove(graph).map(drop)
    }

    fn hipGraphClone(to: *mut hipGraph_t, from: hipGraph_t) {
        put(to, handle(find(from)?.copy()?))
    }

    fn hipGraphAddDependencies(
        graph: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t, count: usize,
    ) {
        let graph = find(graph)?;
        let pairs = indices(&graph, from, count)?.into_iter().zip(indices(&graph, to, count)?);
        let mut nodes = graph.nodes();
        for (before, after) in pairs {
            if before == after {
                return Err(hipError_t::hipErrorInvalidValue);
            }
            let node = nodes.get_mut(after).and_then(Option::as_mut);
            node.ok_or(hipError_t::hipErrorInvalidValue)?.after.push(before);
        }
        Ok(())
    }

    fn hipGraphGetEdges(graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t, count: *mut usize) {
        let graph = find(graph)?;
        let steps = graph.steps();
        let edges = steps.iter().enumerate().flat_map(|(index, step)| {
            let after = step.iter().flat_map(|(_, after)| after.clone());
            after.map(move |before| (before, index))
        });
        let (before, after): (Vec<_>, Vec<_>) = edges.unzip();
        let capacity = count.as_ref().copied();
        give(&graph.handles(&before), ptr::null_mut(), from, count)?;
        if let Some(capacity) = capacity && !to.is_null() {
            let mut capacity = capacity;
            give(&graph.handles(&after), ptr::null_mut(), to, &mut capacity)?;
        }
        Ok(())
    }

    fn hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        let graph = find(graph)?;
        let all: Vec<_> = (0..graph.steps().len()).collect();
        give(&graph.handles(&all), ptr::null_mut(), nodes, count)
    }

    fn hipGraphGetRootNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        let graph = find(graph)?;
        let steps = graph.steps().into_iter().enumerate();
        let roots = steps.filter(|(_, step)| step.as_ref().is_some_and(|(_, after)| after.is_empty()));
        let roots: Vec<_> = roots.map(|(index, _)| index).collect();
        give(&graph.handles(&roots), ptr::null_mut(), nodes, count)
    }

    fn hipGraphNodeGetDependencies(node: hipGraphNode_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        let node = find_node(node)?;
        let after = node.with(|node| node.after.clone())?;
        let graph = node.graph.upgrade().ok_or(hipError_t::hipErrorInvalidHandle)?;
        give(&graph.handles(&after), ptr::null_mut(), nodes, count)
    }

    fn hipGraphNodeGetDependentNodes(node: hipGraphNode_t, nodes: *mut hipGraphNode_t, count: *mut usize) {
        let node = find_node(node)?;
        let graph = node.graph.upgrade().ok_or(hipError_t::hipErrorInvalidHandle)?;
        let steps = graph.steps().into_iter().enumerate();
        let later = steps.filter(|(_, step)| step.as_ref().is_some_and(|(_, after)| after.contains(&node.index)));
        let later: Vec<_> = later.map(|(index, _)| index).collect();
        give(&graph.handles(&later), ptr::null_mut(), nodes, count)
    }

    fn hipGraphNodeGetType(node: hipGraphNode_t, kind: *mut hipGraphNodeType) {
        put(kind, find_node(node)?.task()?.kind())
    }

    fn hipGraphDestroyNode(node: hipGraphNode_t) {
        let node = NODES.remove(node)?;
        let graph = node.graph.upgrade().ok_or(hipError_t::hipErrorInvalidHandle)?;
        let mut nodes = graph.nodes();
        if let Some(place) = nodes.get_mut(node.index) {
            *place = None;
        }
        for other in nodes.iter_mut().flatten() {
            other.after.retain(|&before| before != node.index);
        }
        Ok(())
    }

    /// Nothing is written to the log buffer.
    fn hipGraphInstantiate(
        exec: *mut hipGraphExec_t, graph: hipGraph_t, error_node: *mut hipGraphNode_t, log: *mut c_char, size: usize,
    ) {
        if !error_node.is_null() {
            error_node.write(ptr::null_mut());
        }
        if !log.is_null() && size > 0 {
            log.write(0);
        }
        instantiate(exec, graph, 0)
    }

    fn hipGraphInstantiateWithFlags(exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: u64) {
        instantiate(exec, graph, flags)
    }

    fn hipGraphInstantiateWithParams(
        exec: *mut hipGraphExec_t, graph: hipGraph_t, parameters: *mut hipGraphInstantiateParams,
    ) {
        let parameters = parameters.as_mut().ok_or(hipError_t::hipErrorInvalidValue)?;
        parameters.errNode_out = ptr::null_mut();
        let done = instantiate(exec, graph, parameters.flags);
        parameters.result_out = match done {
            Ok(()) => hipGraphInstantiateResult::hipGraphInstantiateSuccess,
            Err(_) => hipGraphInstantiateResult::hipGraphInstantiateError,
        };
        done
    }

    fn hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t) {
        launch(&*find_executable(exec)?, stream)
    }

    /// No operation.
    fn hipGraphUpload(exec: hipGraphExec_t, stream: hipStream_t) {
        find_executable(exec)?;
        stream::find(stream).map(drop)
    }

    fn hipGraphExecGetFlags(exec: hipGraphExec_t, flags: *mut u64) {
        put(flags, find_executable(exec)?.flags)
    }

    fn hipGraphExecDestroy(exec: hipGraphExec_t) {
        EXECUTABLES.remove(exec).map(drop)
    }

    fn hipGraphExecUpdate(
        exec: hipGraphExec_t, graph: hipGraph_t, error_node: *mut hipGraphNode_t,
        result: *mut hipGraphExecUpdateResult,
    ) {
        let (exec, graph) = (find_executable(exec)?, find(graph)?);
        let new = graph.steps();
        let mut old = exec.steps();
        let changed = difference(&old, &new);
        if !error_node.is_null() {
            let node = changed.and_then(|(_, index)| graph.handles(&[index]).first().copied());
            error_node.write(node.unwrap_or(ptr::null_mut()));
        }
        let success = hipGraphExecUpdateResult::hipGraphExecUpdateSuccess;
        if !result.is_null() {
            result.write(changed.map_or(success, |(result, _)| result));
        }
        if changed.is_some() {
            return Err(hipError_t::hipErrorGraphExecUpdateFailure);
        }
        *old = new;
        Ok(())
    }

    /// In Graphviz's format, without the details that the flags select.
    fn hipGraphDebugDotPrint(graph: hipGraph_t, file: *const c_char, _flags: u32) {
        if file.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let file = CStr::from_ptr(file).to_string_lossy();
        let mut text = "digraph {\n".to_owned();
        for (index, step) in find(graph)?.steps().iter().enumerate() {
            let Some((task, after)) = step else { continue };
            let _ = writeln!(text, "  n{index} [label={:?}];", task.name());
            for before in after {
                let _ = writeln!(text, "  n{before} -> n{index};");
            }
        }
        text.push_str("}\n");
        fs::write(&*file, text).map_err(|_| hipError_t::hipErrorOperatingSystem)
    }
}
