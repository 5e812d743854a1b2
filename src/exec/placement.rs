//! Placement of a model on devices.

use std::sync::Arc;

use super::executor::Executor;
use super::hip::{HipExecutor, PipelineExecutor, Processes, TensorExecutor};
use super::host::HostExecutor;
use super::options::ExecutorOptions;
use super::replicas::{Replicas, on_each};
use crate::error::Result;
use crate::graph::Graph;
use crate::hip::Device;

/// The devices that a model runs on, and how they share the work.
#[derive(Debug)]
pub enum Placement {
    /// The CPU.
    Host,
    /// GPUs of this process: `replicas` times `stages` times `ranks`, in this order.
    Gpus {
        /// The GPUs.
        gpus: Vec<Device>,
        /// Number of replicas, which take batches in turn.
        replicas: usize,
        /// Number of stages of each replica. A stage has some of the layers.
        stages: usize,
        /// Number of ranks of each stage. A rank has a part of each layer.
        ranks: usize,
    },
    /// The GPU of this process, if each process is a rank.
    Rank {
        /// The GPU.
        gpu: Device,
        /// The processes.
        processes: Processes,
    },
}

impl Placement {
    /// Returns the placement on one GPU.
    pub fn gpu(gpu: &Device) -> Self {
        Self::Gpus {
            gpus: vec![gpu.clone()],
            replicas: 1,
            stages: 1,
            ranks: 1,
        }
    }

    /// Returns true if the model runs on one GPU alone.
    pub fn is_one_gpu(&self) -> bool {
        matches!(self, Self::Gpus { gpus, .. } if gpus.len() == 1)
    }

    /// Makes an executor for `graph`, which is [optimised](crate::graph::optimize) for the devices.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) for an option that the devices do not support, or if the model cannot be divided. Fails
    /// if the kernels cannot be compiled or loaded, a library is missing, or the weights do not fit into the memory.
    pub fn executor(self, graph: &Graph, options: &ExecutorOptions) -> Result<Arc<dyn Executor>> {
        let (gpus, replicas, stages, ranks) = match self {
            Self::Host => return Ok(Arc::new(HostExecutor::new(graph, options)?)),
            Self::Rank { gpu, processes } => {
                return Ok(Arc::new(TensorExecutor::across(graph, &gpu, options, processes)?));
            }
            Self::Gpus {
                gpus,
                replicas,
                stages,
                ranks,
            } => (gpus, replicas, stages, ranks),
        };
        if let ([gpu], 1) = (gpus.as_slice(), stages * ranks) {
            let mut executor = HipExecutor::new(graph, gpu, options)?;
            if let Some(collectives) = &options.collectives {
                executor.train_with(collectives, options.select.collective_timeout)?;
            }
            return Ok(Arc::new(executor));
        }
        if stages * ranks == 1 {
            return Ok(Arc::new(Replicas::new(on_each(graph, &gpus, options)?)));
        }
        let replica = |gpus: &[Device]| -> Result<Arc<dyn Executor>> {
            Ok(if ranks == 1 {
                Arc::new(PipelineExecutor::new(graph, gpus, options)?)
            } else {
                Arc::new(TensorExecutor::new(graph, gpus, stages, options)?)
            })
        };
        let mut executors = gpus
            .chunks(stages * ranks)
            .map(replica)
            .collect::<Result<Vec<_>>>()?;
        if replicas == 1
            && let Some(only) = executors.pop()
        {
            return Ok(only);
        }
        Ok(Arc::new(Replicas::new(executors)))
    }
}
