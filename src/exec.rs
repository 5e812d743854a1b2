//! Running a model: executors take a graph and an input, and give its outputs. The CPU's computes with the kernels that
//! lie beside the shape rules in [`crate::ops`]; the GPU's speaks to the device through [`crate::hip`].

mod cpu;
mod executor;
mod hip;
pub mod select;
mod slabs;
mod staging;
mod step_args;

pub(crate) use cpu::DTYPES;
pub use cpu::{Arena, CpuExecutor, Observer, constant_bytes};
pub use executor::Executor;
pub(crate) use executor::{PendingRun, RunFeed};
pub use hip::{
    Dense, GraphMode, HipExecutor, HipPreprocess, PeerAllReduce, PeerNorm, PeerSum, PipelineExecutor,
    Replays, Stage, StageObserver, TensorExecutor, TimedCall, Tuned,
};
pub(crate) use hip::{Processes, Submission, append, unpack};
pub(crate) use slabs::{BatchSlabs, Images, Slabs, StagedImage, StagedPixels};
pub(crate) use staging::{Staging, StagingPart};
