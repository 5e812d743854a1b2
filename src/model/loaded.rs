//! A loaded model.

use std::sync::Arc;

use super::info::Info;
use super::packing::Packing;
use super::text::TextTower;
use crate::graph::Graph;
use crate::image::Preprocess;
use crate::labels::Labels;
use crate::outputs::Scores;

/// A loaded model: everything that does not depend on an image.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of the model: its repository on the hub, otherwise its directory.
    pub name: String,
    /// Computation as the library performs it, step by step. [`crate::graph::optimize`] makes it fast.
    pub graph: Graph,
    /// Preprocessing that converts an image to the graph's input.
    pub preprocess: Preprocess,
    /// Names of the classes. Empty for a model without a classifier.
    pub labels: Labels,
    /// Function that converts logits to probabilities.
    pub scores: Scores,
    /// Facts that `hipvit inspect` shows.
    pub info: Info,
    /// Text tower of a dual encoder.
    pub text: Option<TextTower>,
    /// Converts images to the graph's inputs, if they are [packed](super::LoadOptions::packed).
    pub packing: Option<Arc<Packing>>,
}
