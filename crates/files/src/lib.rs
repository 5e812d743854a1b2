//! Files that people name: images, weights, configurations, lists, libraries, cache entries.
//!
//! - [`regular_file`]: opens and reads regular files only, with a bound on their length.
//! - [`temporary`]: temporary files that become results whole or are removed, also when a signal ends the process.
//! - [`signals`]: the signals that the process ignores, which handlers that remove temporary files must leave alone.
//! - [`foreign`]: recognises content that is not what a file's name promises.
//! - [`encoding`]: text files in UTF-16 or with a byte order mark.
//! - [`json`]: JSON as Python's `json` reads and writes it.

pub mod encoding;
pub mod foreign;
pub mod json;
pub mod regular_file;
pub mod signals;
pub mod temporary;
