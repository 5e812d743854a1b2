//! Search over embeddings: the rows that are nearest to a query, and pairs of near-duplicates.
//!
//! An [`Index`] is one file or a directory of shards that `hipvit embed` wrote, as `.npy` or `.safetensors`, in f32 or f16. The files are
//! memory-mapped. [`Index::search`] is exact: it compares the queries with every row, on all cores. [`GpuIndex`] keeps the rows in the memory
//! of a GPU, in f16. With the feature `approximate`, `Approximate` searches a graph of neighbours, which is faster and may miss rows.
//!
//! ```
//! use hipvit_search::{Index, Metric};
//!
//! # fn main() -> hipvit_search::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("photos.npy");
//! # std::fs::write(&path, hipvit_search::npy::bytes([3, 2], &[1.0, 0.0, 0.6, 0.8, 0.0, 1.0])).expect("a file");
//! let index = Index::open(&path)?;
//! let nearest = index.search(&[0.0, 2.0], 2, Metric::Cosine)?;
//! assert_eq!(nearest[0].iter().map(|hit| hit.row).collect::<Vec<_>>(), [2, 1]);
//! # Ok(()) }
//! ```
//!
//! # Results
//!
//! Candidates are found in f32. Their scores are then computed in f64 from the stored values, so that the scores do not depend on the device
//! or on the other queries. Equal scores are ordered by row. Rows with NaN are never found.

#[cfg(feature = "approximate")]
mod approximate;
mod description;
mod duplicates;
mod error;
mod exact;
mod gpu;
mod index;
mod mapped;
mod metric;
mod names;
pub mod npy;
mod products;
mod shard;
#[cfg(test)]
mod tests;
mod top;

#[cfg(feature = "approximate")]
pub use approximate::{Approximate, GraphOptions};
pub use description::{Description, Kind};
pub use duplicates::Pair;
pub use error::{Error, Result};
pub use gpu::{GpuIndex, GpuRows, MAX_K};
pub use index::Index;
pub use metric::{Hit, Metric};
pub use shard::Element;
