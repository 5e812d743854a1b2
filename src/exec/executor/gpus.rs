//! Executors on several GPUs: replicas of a model, or one that is divided among them.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use rayon::ThreadPool;

use super::Executor;
use crate::dtype::from_hip;
use crate::error::{Error, Result};
use crate::exec::GraphMode;
use crate::exec::cpu::{cores, thread_pool};
use crate::exec::hip::{
    HipExecutor, HostConstants, PipelineExecutor, Processes, SparseWeights, TensorExecutor,
};
use crate::exec::select::SelectOptions;
use crate::graph::Graph;
use crate::hip::{Device, NumaNode};
use crate::tensor::DType;

impl Executor {
    /// One on each of these GPUs. The weights are converted once, and uploaded to all GPUs at once.
    ///
    /// # Errors
    ///
    /// As [`hip`](Self::hip).
    pub fn hip_on_each(
        graph: &Graph,
        devices: &[Device],
        dtype: DType,
        threads: Option<usize>,
        select: SelectOptions,
    ) -> Result<Vec<Self>> {
        if let [device] = devices {
            return Ok(vec![Self::hip(graph, device, dtype, threads, select)?]);
        }
        let mut nodes: Vec<Option<&NumaNode>> = Vec::new();
        for device in devices {
            if !nodes.contains(&device.numa_node()) {
                nodes.push(device.numa_node());
            }
        }
        let of_node = threads.map(|threads| (threads / nodes.len()).max(1));
        let near = |node: &Option<&NumaNode>| devices.iter().find(|device| device.numa_node() == *node);
        let pools = nodes
            .iter()
            .filter_map(near)
            .map(|device| host_threads(device, of_node).map(Arc::new));
        let pools: Vec<Arc<ThreadPool>> = pools.collect::<Result<_>>()?;

        // Devices that encode FP8 differently are not mixed in one machine.
        let float8 = devices
            .first()
            .and_then(|device| device.properties().float8().map(from_hip));
        // Nor those whose indices of 2:4 sparse weights differ.
        let sparse = match devices.first() {
            Some(device) => SparseWeights::of(graph, device, dtype, select, None)?,
            None => None,
        };
        let constants = HostConstants::new(graph, dtype, float8, sparse.as_ref());
        let make = |device| HipExecutor::with_constants(graph, &constants, device, dtype);
        // Kernels are compiled by the first GPU of each architecture, and loaded by the others.
        let is_first = |index: usize| {
            let target = |device: &Device| device.properties().target.clone();
            let before = devices[..index].iter().map(target);
            before.into_iter().all(|before| before != target(&devices[index]))
        };
        let mut made: Vec<Option<HipExecutor>> = devices.iter().map(|_| None).collect();
        for first in [true, false] {
            thread::scope(|scope| -> Result<()> {
                let indices = (0..devices.len()).filter(|&index| is_first(index) == first);
                let start = |index: usize| -> Result<_> {
                    let thread = thread::Builder::new().spawn_scoped(scope, move || make(&devices[index]));
                    Ok((index, thread.map_err(|error| Error::argument("threads", error))?))
                };
                let started: Vec<_> = indices.map(start).collect::<Result<_>>()?;
                for (index, thread) in started {
                    made[index] = Some(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
                }
                Ok(())
            })?;
        }
        let executors = made.into_iter().flatten().zip(devices).map(|(executor, device)| {
            let node = nodes
                .iter()
                .position(|node| *node == device.numa_node())
                .unwrap_or(0);
            Self::on_gpu(executor, pools[node].clone(), threads).select(select)
        });
        Ok(executors.collect())
    }

    /// On several GPUs that share each layer, of all layers or of the stages of a pipeline, see [`TensorExecutor::new`]; `threads` are for
    /// work on the host.
    ///
    /// # Errors
    ///
    /// As there, or the threads cannot be started.
    pub fn tensor(
        graph: &Graph,
        (devices, pipeline): (&[Device], usize),
        dtype: DType,
        threads: Option<usize>,
        (mode, select): (GraphMode, SelectOptions),
    ) -> Result<Self> {
        let first = first(devices)?;
        let copying = |device: &Device| host_threads(device, threads);
        let executor = TensorExecutor::new(graph, (devices, pipeline), dtype, (mode, select), copying)?;
        Ok(Self::Tensor {
            executor: Box::new(executor),
            threads: host_threads(first, threads)?.into(),
            decode_threads: threads.unwrap_or_else(num_cpus::get),
        })
    }

    /// On the GPU of this process, which shares each layer with those of other processes, see [`TensorExecutor::across`]; `threads` are
    /// for work on the host.
    ///
    /// # Errors
    ///
    /// As there, or the threads cannot be started.
    pub(crate) fn tensor_across(
        graph: &Graph,
        device: &Device,
        dtype: DType,
        threads: Option<usize>,
        configure: (GraphMode, SelectOptions),
        processes: Processes,
    ) -> Result<Self> {
        let copying = host_threads(device, threads)?;
        let executor = TensorExecutor::across(graph, device, dtype, configure, copying, processes)?;
        Ok(Self::Tensor {
            executor: Box::new(executor),
            threads: host_threads(device, threads)?.into(),
            decode_threads: threads.unwrap_or_else(num_cpus::get),
        })
    }

    /// Does what rank 0 of several processes decides, until that has ended.
    ///
    /// # Errors
    ///
    /// See [`TensorExecutor::follow`].
    pub(crate) fn follow(&self) -> Result<()> {
        match self {
            Self::Tensor { executor, .. } => executor.follow(),
            _ => Err(Error::argument(
                "session",
                "is one process's, and follows no other",
            )),
        }
    }

    /// On several GPUs that have some layers each, see [`PipelineExecutor::new`]; `threads` are for work on the host.
    ///
    /// # Errors
    ///
    /// As there, or the threads cannot be started.
    pub fn pipeline(graph: &Graph, devices: &[Device], dtype: DType, threads: Option<usize>) -> Result<Self> {
        let first = first(devices)?;
        Ok(Self::Pipeline {
            executor: Box::new(PipelineExecutor::new(graph, devices, dtype)?),
            threads: host_threads(first, threads)?.into(),
            decode_threads: threads.unwrap_or_else(num_cpus::get),
        })
    }
}

fn first(devices: &[Device]) -> Result<&Device> {
    devices
        .first()
        .ok_or_else(|| Error::argument("devices", "no GPU is named"))
}

/// Threads on the NUMA node of the GPU, by default one per physical core there. That a thread cannot be bound costs speed
/// at most.
pub(super) fn host_threads(device: &Device, threads: Option<usize>) -> Result<ThreadPool> {
    let node = device.numa_node().cloned();
    let bind = move || {
        if let Some(node) = &node {
            let _ = node.bind_thread();
        }
    };
    let threads = match threads {
        Some(threads) => Some(threads),
        None => {
            let count = || {
                bind();
                cores()
            };
            // A thread of its own, since the caller's stays where it is.
            let counted = thread::scope(|scope| {
                let thread = thread::Builder::new().spawn_scoped(scope, count)?;
                Ok(thread.join().ok())
            });
            counted.map_err(|error: io::Error| Error::argument("threads", error))?
        }
    };
    // Not with the device itself: the pool's threads end some time after the pool.
    thread_pool(threads, bind)
}
