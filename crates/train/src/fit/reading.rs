//! How well texts were read.

use serde::{Deserialize, Serialize};

/// How texts of the validation images were read, each token the most likely one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reading {
    /// Share of the texts that are equal to those of the dataset.
    pub exact_lines: f64,
    /// Insertions, deletions and replacements of characters that are needed, per character of the dataset's texts.
    pub character_error_rate: f64,
}
