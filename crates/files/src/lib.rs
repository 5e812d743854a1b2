//! Opens, reads and recognises the files that users name: images, weights, configurations, lists, libraries, cache
//! entries.
//!
//! - [`regular_file`]: opens and reads regular files only, with a limit on their length.
//! - [`temporary`]: creates temporary files that are either completed or removed, even if a signal ends the process.
//! - [`signals`]: finds the signals that the process ignores. Handlers that remove temporary files must not replace
//!   them.
//! - [`foreign`]: recognises files whose content does not match their name.
//! - [`device`]: recognises names of devices, such as `NUL` on Windows.
//! - [`identity`]: recognises one file under several names.
//! - [`positioned`]: reads files at offsets.
//! - [`streams`]: duplicates standard output and standard error.
//! - [`encoding`]: converts UTF-16 text, and text with a byte order mark, to UTF-8.
//! - [`json`]: reads and writes JSON as Python's `json` module does.

pub mod device;
pub mod encoding;
pub mod foreign;
pub mod identity;
pub mod json;
pub mod positioned;
pub mod regular_file;
pub mod signals;
pub mod streams;
pub mod temporary;
