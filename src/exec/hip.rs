//! The executor of one GPU: f32, f16 or bf16 on any HIP provider, through [`crate::hip`].
//!
//! | part | purpose |
//! | --- | --- |
//! | `Kernels` | the code of the builtin kernels |
//! | `Constants` | the weights, in one allocation |
//! | `States` | the parameters and states, which persist across runs, in one allocation |
//! | `Selection`, `Libraries` | the candidate for each call, and the libraries' handles on a stream |
//! | `HostMemory` | pinned memory for inputs, and the stream that copies them |
//! | `Contexts` | a stream, the activations' arena and captured graphs for each run in flight |
//! | `GraphReplays` | whether and how often captured graphs are replayed |
//!
//! A step is lowered to calls ([`lower`]). Linear layers, the patch embedding and attention run on the [selected](super::select) candidate,
//! everything else on builtin kernels.
//!
//! A run is submitted as a whole and waited for later, so that several runs can be in flight. Each run has an `ExecutionContext`: its
//! stream computes, and then copies the results to pinned memory. Another stream copies the inputs of all contexts. Events order an input
//! copy after the context's previous run and before its next run. Pageable input is [staged](staging) in pieces. Images that the device
//! resizes are copied as decoded, on the context's own stream.
//!
//! A GPU that shares the host's memory reads inputs and writes results there, without copies (`unified`).
//!
//! A graph with parameters or states has one stream for all its runs, which thus execute in the order of submission (`states`). Ranks of a
//! training step exchange gradients on a side stream meanwhile (`exchanges`).
//!
//! The second run of a plan on a context is captured as a graph. Later runs replay the graph if its first replay gave the same bytes as the
//! steps (`Replay`). Some of these replays are checked too (`GraphMode`).

mod augment;
mod call_clock;
mod calls;
mod candidate;
mod check;
mod clock;
mod constants;
mod context;
mod data_rank;
mod direct;
mod downloads;
mod elements;
mod exchanges;
mod executor;
mod feed;
mod graphs;
mod guarded;
mod libraries;
mod lower;
mod memory;
mod merge;
mod order;
mod pipeline;
mod preprocess;
mod problem;
mod rank;
mod regions;
mod repeat;
mod report;
mod reserve;
mod results;
mod run;
mod sparse;
mod staging;
mod states;
mod steps;
mod tensor;
#[cfg(test)]
mod tests;
mod tune;
mod unified;

pub use self::augment::{DrawnBatch, DrawnImage, ErasedRectangle, HipAugment};
pub use self::call_clock::TimedCall;
pub use self::clock::{Stage, StageObserver};
pub(crate) use self::constants::HostConstants;
pub use self::context::run_bytes;
pub use self::direct::{PeerAllReduce, PeerNorm, PeerSum};
pub use self::elements::{append, unpack};
pub use self::executor::HipExecutor;
pub use self::pipeline::PipelineExecutor;
pub use self::preprocess::HipPreprocess;
pub(crate) use self::sparse::SparseWeights;
pub use self::tensor::{Processes, TensorExecutor};
pub use self::tune::{Dense, Tuned};
