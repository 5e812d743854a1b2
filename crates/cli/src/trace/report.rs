//! What a trace shows.

use hipvit_explain::Trace;
use serde::Serialize;

use super::machine::Machine;
use super::places::Places;

/// A trace, with its memory and instructions.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) image: &'a str,
    #[serde(flatten)]
    pub(super) trace: &'a Trace,
    pub(super) memory: &'a Places,
    /// The pixel on an emulated GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) machine: Option<Machine>,
}
