//! The executor of one GPU: f32, f16 or bf16 on any provider of HIP, through [`crate::hip`].
//!
//! | part | has |
//! | --- | --- |
//! | `Kernels` | the code of the builtin kernels |
//! | `Constants` | the weights, in one allocation |
//! | `Selection`, `Libraries` | the candidate for each call, and the libraries' handles on a stream |
//! | `HostMemory` | pinned memory for inputs, and the stream that copies them |
//! | `Contexts` | a stream, the activations' arena and captured graphs for each run in flight |
//! | `GraphReplays` | whether and how often captured graphs are replayed |
//!
//! A step becomes calls ([`lower`]). A linear layer, the patch embedding and attention are computed by the candidate that is
//! [selected](super::select); all else is computed by builtin kernels.
//!
//! A run is submitted as a whole and waited for later, so that several can be in flight. Each has an `ExecutionContext`, whose
//! stream computes and then copies the results to pinned memory. Another stream copies the inputs of all contexts. Events order
//! such a copy after the context's previous run and before its next. Pageable input is [staged](staging) in pieces. Images that the
//! device resizes are copied as decoded, by the context's own stream.
//!
//! The second run of a plan on a context is captured as a graph. Later runs replay it, if the replay gave the same bytes as
//! the steps did (`Replay`), and some of them are checked (`GraphMode`).

mod call_clock;
mod calls;
mod candidate;
mod check;
mod clock;
mod constants;
mod context;
mod direct;
mod executor;
mod feed;
mod graphs;
mod guarded;
mod libraries;
mod lower;
mod memory;
mod order;
mod pipeline;
mod preprocess;
mod problem;
mod rank;
mod regions;
mod report;
mod reserve;
mod results;
mod run;
mod sparse;
mod staging;
mod steps;
mod tensor;
#[cfg(test)]
mod tests;
mod tune;

pub use self::call_clock::TimedCall;
pub use self::clock::{Stage, StageObserver};
pub(crate) use self::constants::HostConstants;
pub use self::constants::{append, unpack};
pub use self::direct::{PeerAllReduce, PeerNorm, PeerSum};
pub use self::executor::HipExecutor;
pub use self::pipeline::PipelineExecutor;
pub use self::preprocess::HipPreprocess;
pub(crate) use self::sparse::SparseWeights;
pub use self::tensor::{Processes, TensorExecutor};
pub use self::tune::{Dense, Tuned};
