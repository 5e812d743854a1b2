//! Files of labels, text or JSON; and the same bytes as a map of folders to classes.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use hipvit::Labels;
use hipvit::evaluate::ClassMap;
use hipvit_fuzz::{check_error, folder, within};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(folder);

fuzz_target!(|data: &[u8]| {
    let file = FOLDER.path().join("labels");
    fs::write(&file, data).expect("the file can be written");
    // JSON's values, and each label with its id.
    let limit = (1 << 20) + 256 * data.len() as u64;
    let labels = within(limit, || Labels::from_file(&file));
    if let Err(error) = &labels {
        check_error(error);
    }
    let labels = labels.unwrap_or_else(|_| Labels::imagenet_1k());
    if let Err(error) = ClassMap::from_file(&file, &labels) {
        check_error(&error);
    }
});
