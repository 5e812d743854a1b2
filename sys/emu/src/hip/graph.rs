//! Graphs: tasks and their dependencies, instantiated and replayed.
//!
//! A replay submits the tasks one after another, in one of the orders that the graph allows. The schedule chooses an order in
//! which a missing dependency is likely to change the result.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::fs;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hip_provider::Handles;
use hip_provider::hip::put;
use hipvit_sys::hip::{
    hipError_t, hipGraph_t, hipGraphExec_t, hipGraphExecUpdateResult, hipGraphInstantiateParams,
    hipGraphInstantiateResult, hipGraphNode_t, hipGraphNodeType, hipStream_t,
};

use super::hip;
use super::machine::machine;
use super::queue;
use super::stream;
use super::task::Task;
use crate::settings::Schedule;

static GRAPHS: Handles<Graph> = Handles::new();
static NODES: Handles<NodeRef> = Handles::new();
static EXECUTABLES: Handles<Executable> = Handles::new();

pub(super) struct Graph {
    /// By index, which does not change; a destroyed node is `None`.
    nodes: Mutex<Vec<Option<Node>>>,
    this: Weak<Graph>,
}

#[derive(Clone)]
struct Node {
    task: Task,
    after: Vec<usize>,
    handle: usize,
}

/// The object behind a node's handle.
pub(super) struct NodeRef {
    graph: Weak<Graph>,
    index: usize,
}

pub(super) struct Executable {
    tasks: Mutex<Vec<Step>>,
    /// The graph that it was instantiated from, for its nodes' handles.
    graph: Weak<Graph>,
    flags: u64,
}

/// A task and the indices of its dependencies; `None` where a node was destroyed.
type Step = Option<(Task, Vec<usize>)>;

impl Graph {
    pub(super) fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            nodes: Mutex::default(),
            this: this.clone(),
        })
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Option<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task that depends on those with these indices; returns its index.
    pub(super) fn add(&self, task: Task, after: Vec<usize>) -> Result<usize, hipError_t> {
        let mut nodes = self.nodes();
        let index = nodes.len();
        if after
            .iter()
            .any(|&before| nodes.get(before).is_none_or(Option::is_none))
        {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let handle: hipGraphNode_t = NODES.insert(Arc::new(NodeRef {
            graph: self.this.clone(),
            index,
        }));
        nodes.push(Some(Node {
            task,
            after,
            handle: handle.addr(),
        }));
        Ok(index)
    }

    /// The nodes with these indices and all their dependencies.
    pub(super) fn ancestors(&self, of: &[usize]) -> BTreeSet<usize> {
        let nodes = self.nodes();
        let mut found = BTreeSet::new();
        let mut open = of.to_vec();
        while let Some(index) = open.pop() {
            if found.insert(index)
                && let Some(Some(node)) = nodes.get(index)
            {
                open.extend(&node.after);
            }
        }
        found
    }

    /// The handles of the nodes with these indices.
    pub(super) fn handles(&self, of: &[usize]) -> Vec<hipGraphNode_t> {
        let nodes = self.nodes();
        let present = of.iter().filter_map(|&index| nodes.get(index)?.as_ref());
        present
            .map(|node| ptr::without_provenance_mut(node.handle))
            .collect()
    }

    fn steps(&self) -> Vec<Step> {
        let nodes = self.nodes();
        let step = |node: &Option<Node>| node.as_ref().map(|node| (node.task.clone(), node.after.clone()));
        nodes.iter().map(step).collect()
    }

    /// Its tasks in an order that it allows.
    pub(super) fn in_order(&self) -> Result<Vec<Task>, hipError_t> {
        in_order(&self.steps())
    }

    /// A copy.
    pub(super) fn copy(&self) -> Result<Arc<Self>, hipError_t> {
        Self::of(self.steps())
    }

    /// A graph of these steps, under the same indices.
    fn of(steps: Vec<Step>) -> Result<Arc<Self>, hipError_t> {
        let graph = Self::new();
        for step in steps {
            match step {
                Some((task, after)) => {
                    let index = graph.add(task, Vec::new())?;
                    if let Some(Some(node)) = graph.nodes().get_mut(index) {
                        node.after = after;
                    }
                }
                None => graph.nodes().push(None),
            }
        }
        Ok(graph)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        for node in self.nodes().iter().flatten() {
            let _ = NODES.remove(ptr::without_provenance::<u8>(node.handle));
        }
    }
}

/// The steps in an order that their dependencies allow; which one, the schedule says. An error if they form a cycle.
fn in_order(steps: &[Step]) -> Result<Vec<Task>, hipError_t> {
    let schedule = queue::schedule();
    let mut left: BTreeSet<usize> = (0..steps.len()).filter(|&index| steps[index].is_some()).collect();
    let mut tasks = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_ready = |index: &&usize| {
            let step = steps[**index].as_ref();
            step.is_some_and(|(_, after)| after.iter().all(|before| !left.contains(before)))
        };
        let index = match schedule {
            Schedule::Late => left.iter().rev().find(is_ready),
            Schedule::Eager => left.iter().find(is_ready),
            Schedule::Random => {
                let ready: Vec<_> = left.iter().filter(is_ready).collect();
                let chosen = queue::random(ready.len().max(1) as u64);
                ready.get(chosen as usize).copied()
            }
        };
        let index = *index.ok_or(hipError_t::hipErrorInvalidValue)?;
        left.remove(&index);
        tasks.extend(steps[index].iter().map(|(task, _)| task.clone()));
    }
    Ok(tasks)
}

impl Executable {
    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(graph: &Arc<Graph>, flags: u64) -> Result<Arc<Self>, hipError_t> {
        let steps = graph.steps();
        in_order(&steps)?;
        Ok(Arc::new(Self {
            tasks: Mutex::new(steps),
            graph: Arc::downgrade(graph),
            flags,
        }))
    }

    fn launch(&self, stream: hipStream_t) -> Result<(), hipError_t> {
        let stream = stream::find(stream)?;
        let steps = self.steps().clone();
        if stream.captured()?.is_some() {
            return stream.submit(&Task::Graph(Graph::of(steps)?)).map(drop);
        }
        let mut tasks = in_order(&steps)?;
        let machine = machine()?;
        if machine.replays.fires(machine.settings.corrupt_replay)
            && let Some(last) = tasks.iter().rposition(Task::is_work)
        {
            tasks.remove(last);
        }
        tasks.iter().try_for_each(|task| stream.submit(task).map(drop))
    }

    /// Replaces the task of a node by another one of the same kind.
    pub(super) fn replace(&self, node: &NodeRef, task: Task) -> Result<(), hipError_t> {
        if !self.graph.ptr_eq(&node.graph) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        match self.steps().get_mut(node.index) {
            Some(Some((old, _))) if old.kind() == task.kind() => {
                *old = task;
                Ok(())
            }
            _ => Err(hipError_t::hipErrorInvalidValue),
        }
    }
}

impl NodeRef {
    fn with<R>(&self, use_node: impl FnOnce(&mut Node) -> R) -> Result<R, hipError_t> {
        let graph = self.graph.upgrade().ok_or(hipError_t::hipErrorInvalidHandle)?;
        let mut nodes = graph.nodes();
        match nodes.get_mut(self.index) {
            Some(Some(node)) => Ok(use_node(node)),
            _ => Err(hipError_t::hipErrorInvalidHandle),
        }
    }

    pub(super) fn task(&self) -> Result<Task, hipError_t> {
        self.with(|node| node.task.clone())
    }

    pub(super) fn set_task(&self, task: Task) -> Result<(), hipError_t> {
        self.with(|node| node.task = task)
    }
}

pub(super) fn find(graph: hipGraph_t) -> Result<Arc<Graph>, hipError_t> {
    GRAPHS.get(graph)
}

pub(super) fn find_node(node: hipGraphNode_t) -> Result<Arc<NodeRef>, hipError_t> {
    NODES.get(node)
}

pub(super) fn find_executable(executable: hipGraphExec_t) -> Result<Arc<Executable>, hipError_t> {
    EXECUTABLES.get(executable)
}

/// A new handle for a graph.
pub(super) fn handle(graph: Arc<Graph>) -> hipGraph_t {
    GRAPHS.insert(graph)
}

/// The indices of nodes of a graph.
///
/// # Safety
/// `nodes` has `count` handles, or `count` is 0.
pub(super) unsafe fn indices(
    graph: &Arc<Graph>,
    nodes: *const hipGraphNode_t,
    count: usize,
) -> Result<Vec<usize>, hipError_t> {
    if count > 0 && nodes.is_null() {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    let index = |number| {
        // SAFETY: as the caller says.
        let node = find_node(unsafe { *nodes.add(number) })?;
        if node.graph.ptr_eq(&Arc::downgrade(graph)) {
            Ok(node.index)
        } else {
            Err(hipError_t::hipErrorInvalidValue)
        }
    };
    (0..count).map(index).collect()
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

/// Why an executable graph cannot be updated to another graph.
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
        find_executable(exec)?.launch(stream)
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
