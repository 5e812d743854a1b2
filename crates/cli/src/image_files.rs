//! Files that a command writes for each image, in one directory: the image's name without its extension, then a suffix.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hipvit::pipeline::Source;
use hipvit_files::identity;

use super::inputs::Listing;
use super::outcome::{Usage, refused};
use super::output::Sink;

/// The directory, and the names of the files of each image.
#[derive(Debug)]
pub(crate) struct ImageFiles<'a> {
    directory: &'a Path,
    stems: Vec<OsString>,
}

impl<'a> ImageFiles<'a> {
    /// Plans the files with these suffixes, and creates the directory.
    ///
    /// # Errors
    ///
    /// Returns an error if the files of two images would have the same names, or a file would replace an image.
    pub(crate) fn plan(directory: &'a Path, suffixes: &[&str], images: &Listing) -> Result<Self> {
        let files = Self {
            directory,
            stems: images.sources().iter().map(stem).collect(),
        };
        let mut inputs = HashMap::new();
        for source in images.sources() {
            if let Source::File(path) = source
                && let Ok(identity) = identity::of(path)
            {
                inputs.insert(identity, path);
            }
        }
        let mut known = BTreeMap::new();
        for (index, source) in images.sources().iter().enumerate() {
            let stem = &files.stems[index];
            if let Some(other) = known.insert(stem, source.name()) {
                let (name, stem, suffix) = (source.name(), Path::new(stem).display(), suffixes[0]);
                let text = format!(
                    "{other} and {name} would both write {stem}{suffix}. Run them with different --output directories"
                );
                return Err(Usage(text).into());
            }
            for suffix in suffixes {
                let path = files.path(index, suffix);
                let replaced = identity::of(&path).ok();
                if let Some(input) = replaced.and_then(|identity| inputs.get(&identity)) {
                    let (path, input) = (path.display(), input.display());
                    let text = format!(
                        "{path}: would replace the image {input}. Name another directory with --output"
                    );
                    return Err(Usage(text).into());
                }
            }
        }
        fs::create_dir_all(directory).map_err(refused(directory))?;
        Ok(files)
    }

    /// Returns the path of the file of image `index` with a suffix.
    pub(crate) fn path(&self, index: usize, suffix: &str) -> PathBuf {
        let mut name = self.stems[index].clone();
        name.push(suffix);
        self.directory.join(name)
    }

    /// Writes files of image `index`, with their suffixes. They appear together.
    pub(crate) fn write(&self, index: usize, files: &[(&str, Vec<u8>)]) -> Result<()> {
        let mut sinks = Vec::with_capacity(files.len());
        for (suffix, bytes) in files {
            let mut sink = Sink::file(&self.path(index, suffix))?;
            sink.write_all(bytes)?;
            sinks.push(sink);
        }
        Ok(Sink::finish_all(sinks)?)
    }
}

fn stem(source: &Source) -> OsString {
    let stem = match source {
        Source::File(path) => path.file_stem().unwrap_or(path.as_os_str()),
        _ => OsStr::new("stdin"),
    };
    stem.to_owned()
}
