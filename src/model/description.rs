//! What a library's reader returns for a configuration.

use super::depth::DepthHead;
use super::info::{Family, Library};
use super::names::Names;
use super::text::spec::TextSpec;
use super::vit::Vit;
use crate::labels::Labels;

/// Result of reading a configuration.
pub(super) struct Description {
    pub(super) library: Library,
    pub(super) family: Family,
    pub(super) architecture: String,
    pub(super) vit: Vit,
    /// Neck and head that replace pooling and classifier, if the model estimates depth.
    pub(super) depth: Option<DepthHead>,
    /// Text tower of a dual encoder, if it is present.
    pub(super) text: Option<TextSpec>,
    pub(super) names: &'static Names,
    /// Possible prefixes of the trunk's tensor names. The first that occurs is used.
    pub(super) prefixes: &'static [&'static str],
    /// Patterns of tensors that are allowed but not used, with the reason.
    pub(super) ignored: Vec<(&'static str, &'static str)>,
    pub(super) labels: Labels,
    /// True if an image may belong to several classes at once.
    pub(super) multi_label: bool,
}
