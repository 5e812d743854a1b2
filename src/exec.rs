//! Execution of models: an [`Executor`] runs plans of one graph on named inputs and returns named outputs.
//!
//! | executor | runs on |
//! | --- | --- |
//! | [`HostExecutor`] | the CPU, with the kernels of the crate |
//! | [`HipExecutor`] | one GPU, through [`crate::hip`] |
//! | [`PipelineExecutor`] | several GPUs, each with some of the layers |
//! | [`TensorExecutor`] | several ranks, each with a part of every layer; a rank is one of the two above |
//! | [`Replicas`] | several executors of the same graph, which take batches in turn |

mod collectives;
mod cpu;
mod executor;
mod hip;
mod host;
mod input;
mod measure;
mod options;
mod output;
mod placement;
mod plans;
mod replays;
mod replicas;
pub mod select;
mod slabs;
mod staging;
mod states;
mod step_args;
mod threads;

pub use collectives::Collectives;
pub use cpu::DTYPES;
pub use cpu::{Arena, CpuExecutor, Observer, constant_bytes};
pub use executor::{
    Download, Executor, ExecutorInfo, FinishOptions, Finished, KeepResult, PendingRun, Reservation,
    Statistics, Submission,
};
pub use hip::{
    Dense, DrawnBatch, DrawnImage, ErasedRectangle, HipAugment, HipExecutor, HipPreprocess, PeerAllReduce,
    PeerNorm, PeerSum, PipelineExecutor, Processes, Stage, StageObserver, TensorExecutor, TimedCall, Tuned,
};
pub use hip::{append, run_bytes, unpack};
pub use host::HostExecutor;
pub use input::{InputData, Inputs};
pub use options::ExecutorOptions;
pub use output::{RunOutput, RunOutputs};
pub use placement::Placement;
pub use replays::{GraphMode, GraphSwitch, Replays};
pub use replicas::Replicas;
pub use slabs::{BatchSlabs, Images, SlabPart, Slabs, StagedImage, StagedPixels};
pub use staging::{HostPool, Staging, StagingPart};
pub use threads::HostThreads;
