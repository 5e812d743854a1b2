//! The images that a command processes, and the loop over their pixels. Images are files, directories, glob patterns,
//! `-`, or lists of paths.

mod paths;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use hipvit::image::{RgbImage, has_image_extension};
use hipvit::pipeline::Source;
use hipvit_files::identity;
use rayon::prelude::*;

use super::decode_args::DecodeArgs;
use super::errors::report;
use super::outcome::{Outcome, Usage, refused};
use super::output;
use super::output::Sink;
use super::progress::Progress;
use super::ranks::Ranks;

/// Returns the image that an argument names: a file, or standard input for `-`.
///
/// # Errors
///
/// Returns an error for a URL that does not name a file on this machine.
pub(crate) fn source(path: &Path) -> Result<Source> {
    Ok(if path == Path::new("-") {
        Source::Stdin
    } else {
        Source::File(paths::to_local_path(path)?)
    })
}

/// Images that the command line names.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct Inputs {
    /// Images, directories, patterns, or - for stdin
    #[arg(value_name = "IMAGE|DIR|GLOB|-")]
    images: Vec<PathBuf>,
    /// File that lists more paths, one per line
    #[arg(long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    files_from: Option<PathBuf>,
    /// Paths in --files-from are NUL-separated
    #[arg(short = '0', long = "null", requires = "files_from")]
    null: bool,
    #[command(flatten)]
    pub(crate) decode: DecodeArgs,
}

impl Inputs {
    pub(crate) fn is_empty(&self) -> bool {
        self.images.is_empty() && self.files_from.is_none()
    }

    /// Returns an error if there are no images.
    pub(crate) fn require(&self) -> Result<()> {
        if self.is_empty() {
            Err(Usage("an image, a directory, a glob pattern, - or --files-from is required").into())
        } else {
            Ok(())
        }
    }

    /// Lists the images in order. The images of a directory are sorted by name. Reports paths that cannot be listed.
    pub(crate) fn list(&self) -> Result<Listing> {
        self.list_after(None)
    }

    /// Lists the images in one of several processes.
    pub(crate) fn list_at(&self, ranks: &mut Ranks) -> Result<Listing> {
        if !ranks.runs() {
            return Ok(Listing::default());
        }
        if ranks.world().is_some()
            && ranks.divide().is_none()
            && self.images.iter().any(|path| path == Path::new("-"))
        {
            return Err(Usage(
                "-: several processes cannot share an image on standard input. Name files, list them with --files-from, or add --distributed off",
            )
            .into());
        }
        self.list_with(None, || ranks.read_at_rank_0(read_stdin))
    }

    /// Lists the images of the path `first`, followed by the other images.
    pub(crate) fn list_after(&self, first: Option<&PathBuf>) -> Result<Listing> {
        self.list_with(first, read_stdin)
    }

    /// Rejects an output file that is also an input image or the list of images, because the results would replace it.
    ///
    /// # Errors
    ///
    /// Returns [`Usage`] if an output is also an input.
    pub(crate) fn check_outputs<'a>(
        &self,
        images: &Listing,
        outputs: impl IntoIterator<Item = &'a Sink>,
    ) -> Result<()> {
        let identify = |path: &Path| identity::of(path).ok();
        let outputs = outputs.into_iter().filter_map(Sink::path);
        let outputs: Vec<_> = outputs.filter_map(|path| Some((path, identify(path)?))).collect();
        if outputs.is_empty() {
            return Ok(());
        }
        let files = images.sources.iter().filter_map(|source| match source {
            Source::File(path) => Some(path),
            _ => None,
        });
        for input in self.files_from.iter().chain(files) {
            let found = identify(input);
            if let Some((output, _)) = outputs.iter().find(|(_, output)| found == Some(*output)) {
                let output = output.display();
                let text = format!(
                    "{output}: this is an input, which the results would replace. Name another file with --output"
                );
                return Err(Usage(text).into());
            }
        }
        Ok(())
    }

    fn list_with(
        &self,
        first: Option<&PathBuf>,
        read_stdin: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut stdin = self.files_from.as_deref() == Some(Path::new("-"));
        for path in first.into_iter().chain(&self.images) {
            if path == Path::new("-") {
                if std::mem::replace(&mut stdin, true) {
                    return Err(Usage("-: standard input can be read only once").into());
                }
                listing.sources.push(Source::Stdin);
                continue;
            }
            listing.add(files(path));
        }
        if let Some(list) = &self.files_from {
            let bytes = if list == Path::new("-") {
                read_stdin()?
            } else {
                read_list(list).map_err(refused(list))?
            };
            for path in paths::parse_list(list, &bytes, self.null)? {
                listing.add(match paths::to_local_path(&path) {
                    Ok(path) if path.is_dir() => files(&path),
                    Ok(path) => (vec![path], Vec::new()),
                    Err(error) => (Vec::new(), vec![error]),
                });
            }
        }
        Ok(listing)
    }
}

fn read_stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(refused(Path::new("standard input")))?;
    Ok(bytes)
}

/// Images to process.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    sources: Vec<Source>,
    /// Number of paths that could not be listed.
    failed: usize,
}

impl FromIterator<Source> for Listing {
    fn from_iter<I: IntoIterator<Item = Source>>(sources: I) -> Self {
        Self {
            sources: sources.into_iter().collect(),
            failed: 0,
        }
    }
}

impl Listing {
    fn add(&mut self, (files, errors): (Vec<PathBuf>, Vec<Error>)) {
        self.sources.extend(files.into_iter().map(Source::File));
        self.failed += errors.len();
        errors.into_iter().for_each(report);
    }

    /// Returns the images, in order.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Returns the images, and the number of paths that could not be listed.
    pub(crate) fn into_sources(self) -> (Vec<Source>, usize) {
        (self.sources, self.failed)
    }

    /// Returns the number of images.
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Calls `each` with the index, name and pixels of every image. Several threads call `read` for the pixels. An
    /// image that fails is reported and skipped.
    pub(crate) fn for_each<T: Send>(
        self,
        read: impl Fn(&Source) -> hipvit::Result<T> + Sync,
        mut each: impl FnMut(usize, &str, T) -> Result<()>,
    ) -> Result<Outcome> {
        /// Maximum number of images in memory.
        const TOGETHER: usize = 32;
        let progress = Progress::images(self.sources.len());
        let mut failed = self.failed;
        let mut index = 0;
        for sources in self.sources.chunks(TOGETHER) {
            let read: Vec<_> = sources.par_iter().map(&read).collect();
            for (source, result) in sources.iter().zip(read) {
                progress.step();
                match result {
                    Ok(value) => each(index, &source.name(), value)?,
                    Err(error) => {
                        failed += 1;
                        progress.report(|| report(error));
                    }
                }
                index += 1;
            }
        }
        Ok(Outcome::of(failed))
    }

    /// Calls `each` with `size` images at a time, and at last with the rest. Returns the number of images too. An image that fails is
    /// reported and skipped.
    pub(crate) fn for_each_batch(
        self,
        size: usize,
        read: impl Fn(&Source) -> hipvit::Result<RgbImage> + Sync,
        mut each: impl FnMut(Batch) -> Result<()>,
    ) -> Result<(Outcome, usize)> {
        let (mut batch, mut count) = (Batch::default(), 0);
        let outcome = self.for_each(read, |index, name, image| {
            batch.names.push(name.to_owned());
            batch.indices.push(index);
            batch.images.push(image);
            count += 1;
            if batch.images.len() < size {
                return Ok(());
            }
            each(std::mem::take(&mut batch))
        })?;
        if !batch.images.is_empty() {
            each(batch)?;
        }
        Ok((outcome, count))
    }
}

/// Decoded images, in the order of their listing.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) names: Vec<String>,
    /// Indices of the images among all that are listed.
    pub(crate) indices: Vec<usize>,
    pub(crate) images: Vec<RgbImage>,
}

/// Returns the files of a path or pattern, and an error for each one that cannot be listed.
pub(crate) fn files(path: &Path) -> (Vec<PathBuf>, Vec<Error>) {
    let path = match paths::to_local_path(path) {
        Ok(path) => path,
        Err(error) => return (Vec::new(), vec![error]),
    };
    if path.is_dir() {
        let (files, mut errors) = images_below(&path);
        if files.is_empty() && errors.is_empty() {
            errors.push(anyhow!("{}: no image in this directory", path.display()));
        }
        return (files, errors);
    }
    match path.to_str() {
        Some(pattern) if !path.exists() && pattern.contains(['*', '?', '[']) => matches(pattern),
        // Opening a missing file fails later.
        _ => (vec![path], Vec::new()),
    }
}

fn matches(pattern: &str) -> (Vec<PathBuf>, Vec<Error>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    let mut skipped = Skipped::default();
    match glob::glob(pattern) {
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Ok(path) if is_apple_double(&path) => skipped.add(APPLE_DOUBLE.into()),
                    Ok(path) if path.is_file() => files.push(path),
                    Ok(_) => {}
                    Err(e) => errors.push(anyhow!("{}: {}", e.path().display(), e.error())),
                }
            }
            skipped.note(pattern);
            if files.is_empty() && errors.is_empty() {
                errors.push(anyhow!("{pattern}: no file matches"));
            }
        }
        Err(e) => errors.push(anyhow!("{pattern}: {e}")),
    }
    (files, errors)
}

/// Returns the image files in `directory` and its subdirectories, sorted by path, and errors for paths that cannot be
/// listed. Prints a note with the number of other files.
pub(crate) fn images_below(directory: &Path) -> (Vec<PathBuf>, Vec<Error>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    let mut skipped = Skipped::default();
    let entries = walkdir::WalkDir::new(directory)
        .follow_links(true)
        .sort_by_file_name();
    for entry in entries {
        match entry {
            Ok(entry) if !entry.file_type().is_file() => {}
            Ok(entry) if !is_image(entry.path()) => skipped.add(kind(entry.path())),
            Ok(entry) if is_apple_double(entry.path()) => skipped.add(APPLE_DOUBLE.into()),
            Ok(entry) => files.push(entry.into_path()),
            // A broken link without an image's extension.
            Err(error) if error.io_error().is_some() && error.path().is_some_and(is_other_link) => {}
            Err(error) => errors.push(match (error.path(), error.io_error()) {
                (Some(path), Some(reason)) => anyhow!("{}: {reason}", path.display()),
                _ => anyhow!("{error}"),
            }),
        }
    }
    skipped.note(directory.display());
    (files, errors)
}

/// Returns the extension for which a file is skipped.
fn kind(path: &Path) -> String {
    let extension = path
        .extension()
        .map(|extension| extension.to_string_lossy().to_lowercase());
    extension.map_or_else(|| "no extension".into(), |extension| format!(".{extension}"))
}

/// Reads a list of images. The list can be a pipe, such as a shell's `<(…)`.
fn read_list(list: &Path) -> io::Result<Vec<u8>> {
    /// Maximum length in bytes. Enough for millions of paths, and a limit for `/dev/zero`.
    const LONGEST: u64 = 1 << 30;
    let mut bytes = Vec::new();
    File::open(list)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "is longer than 1 GiB",
        ));
    }
    Ok(bytes)
}

/// Kind of files such as `._a.png`, in which macOS stores the attributes of other files, e.g. in a ZIP archive.
const APPLE_DOUBLE: &str = "AppleDouble (._*)";

/// Returns true for an AppleDouble file, recognised by its name and first bytes. It has an image's extension, but
/// contains attributes only.
fn is_apple_double(path: &Path) -> bool {
    const MAGIC: [u8; 4] = [0, 5, 0x16, 7];
    let name = path.file_name().unwrap_or_default();
    if !name.as_encoded_bytes().starts_with(b"._") || !path.is_file() {
        return false;
    }
    let mut begin = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == MAGIC
}

/// Number of skipped files by kind.
#[derive(Debug, Default)]
struct Skipped(BTreeMap<String, usize>);

impl Skipped {
    fn add(&mut self, kind: String) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// Prints a note with the number of files skipped below `place`, if any.
    fn note(&self, place: impl Display) {
        if !self.0.is_empty() {
            output::note(&format!("{place}: {self}"));
        }
    }
}

/// Lists the most frequent kinds first.
impl Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Maximum number of kinds that are listed.
        const KINDS: usize = 8;
        let files: usize = self.0.values().sum();
        let mut kinds: Vec<(&String, &usize)> = self.0.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let rest: usize = kinds.iter().skip(KINDS).map(|(_, count)| *count).sum();
        let named = kinds.into_iter().take(KINDS);
        let mut named: Vec<String> = named.map(|(kind, count)| format!("{count} {kind}")).collect();
        if rest > 0 {
            named.push(format!("{rest} others"));
        }
        let s = if files == 1 { "" } else { "s" };
        let named = named.join(", ");
        write!(f, "skipped {files} file{s} of unsupported types: {named}")
    }
}

/// Returns true if a file in a directory is an image by its name. Files that are named explicitly can have any name.
pub(crate) fn is_image(path: &Path) -> bool {
    has_image_extension(path)
}

fn is_other_link(path: &Path) -> bool {
    path.is_symlink() && !is_image(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_kinds_are_named_and_the_rest_is_counted() {
        let one = BTreeMap::from([(".heic".to_owned(), 1)]);
        assert_eq!(
            Skipped(one).to_string(),
            "skipped 1 file of unsupported types: 1 .heic"
        );
        let many = (0..10).map(|i| (format!(".{i}"), if i == 7 { 5 } else { 1 }));
        let text = Skipped(many.collect()).to_string();
        assert!(
            text.starts_with("skipped 14 files of unsupported types: 5 .7, 1 .0, "),
            "{text}"
        );
        assert!(text.ends_with("1 .6, 2 others"), "{text}");
    }
}
