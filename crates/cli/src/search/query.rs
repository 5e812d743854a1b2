//! What is searched for, and what was found.

use hipvit::image::RgbImage;
use hipvit_search::{Hit, Kind};

/// An image or text to search for, and the rows found.
pub(super) struct Query {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// Decoded image, for the page.
    pub(super) picture: Option<RgbImage>,
    pub(super) hits: Vec<Hit>,
}
