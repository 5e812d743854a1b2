//! Graphs: tasks and their dependencies, instantiated and replayed.
//!
//! A replay submits the tasks one after another, in one of the orders that the graph allows. The schedule chooses an order in
//! which a missing dependency is likely to change the result.

use std::collections::BTreeSet;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hip_provider::Handles;
use hipvit_sys::hip::{hipError_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t};

use super::queue;
use super::task::{Task, TaskList};
use crate::settings::Schedule;

pub(super) static GRAPHS: Handles<Graph> = Handles::new();
pub(super) static NODES: Handles<NodeRef> = Handles::new();
pub(super) static EXECUTABLES: Handles<Executable> = Handles::new();

pub(super) struct Graph {
    /// Nodes by index, which does not change; a destroyed node is `None`.
    nodes: Mutex<Vec<Option<Node>>>,
    this: Weak<Graph>,
}

#[derive(Clone)]
pub(super) struct Node {
    task: Task,
    pub(super) after: Vec<usize>,
    handle: usize,
}

/// The object behind a node's handle.
pub(super) struct NodeRef {
    pub(super) graph: Weak<Graph>,
    pub(super) index: usize,
}

pub(super) struct Executable {
    tasks: Mutex<Vec<Step>>,
    /// The graph that it was instantiated from, for its nodes' handles.
    graph: Weak<Graph>,
    pub(super) flags: u64,
}

/// A task and the indices of its dependencies; `None` where a node was destroyed.
pub(super) type Step = Option<(Task, Vec<usize>)>;

impl Graph {
    pub(super) fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            nodes: Mutex::default(),
            this: this.clone(),
        })
    }

    pub(super) fn nodes(&self) -> MutexGuard<'_, Vec<Option<Node>>> {
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

    pub(super) fn steps(&self) -> Vec<Step> {
        let nodes = self.nodes();
        let step = |node: &Option<Node>| node.as_ref().map(|node| (node.task.clone(), node.after.clone()));
        nodes.iter().map(step).collect()
    }

    /// A copy.
    pub(super) fn copy(&self) -> Result<Arc<Self>, hipError_t> {
        Self::of(self.steps())
    }

    /// A graph of these steps, under the same indices.
    pub(super) fn of(steps: Vec<Step>) -> Result<Arc<Self>, hipError_t> {
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

impl TaskList for Graph {
    fn in_order(&self) -> Result<Vec<Task>, hipError_t> {
        in_order(&self.steps())
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
pub(super) fn in_order(steps: &[Step]) -> Result<Vec<Task>, hipError_t> {
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
    pub(super) fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(graph: &Arc<Graph>, flags: u64) -> Result<Arc<Self>, hipError_t> {
        let steps = graph.steps();
        in_order(&steps)?;
        Ok(Arc::new(Self {
            tasks: Mutex::new(steps),
            graph: Arc::downgrade(graph),
            flags,
        }))
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
    pub(super) fn with<R>(&self, use_node: impl FnOnce(&mut Node) -> R) -> Result<R, hipError_t> {
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
