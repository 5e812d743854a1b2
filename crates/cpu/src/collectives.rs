//! What ops need of the processes that train together.

use std::fmt;

use hipvit_graph::op::Exchange;

/// Connections to the other ranks of a training step.
pub trait Collectives: fmt::Debug + Send + Sync {
    /// Returns this process's rank.
    fn rank(&self) -> usize;

    /// Starts an exchange of the elements of a rank, as [`Exchange`] lays them out.
    fn start(&self, exchange: Exchange, values: Vec<f32>);

    /// Ends an exchange that needs no other rank.
    fn skip(&self, exchange: Exchange, values: Vec<f32>);

    /// Waits for the end of an exchange, and returns the elements of its tensors: sums, this rank's parts of the sums, or all parts.
    ///
    /// # Errors
    ///
    /// The text of the error.
    fn finish(&self, id: u32) -> Result<Vec<f32>, String>;
}
