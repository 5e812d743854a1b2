//! Which images a command works on: files, directories, glob patterns, `-`; and the loop over them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use hipvit::Session;
use hipvit::image::Limits;
use hipvit::pipeline::{Item, Pipeline, Source};
use hipvit::timing::Timing;

use super::progress::Progress;
use super::{Outcome, Usage, report, warn_non_finite};

/// Images on the command line.
#[derive(Debug, clap::Args)]
pub struct Inputs {
    /// Image files, directories (searched recursively), glob patterns, or - for standard input
    #[arg(value_name = "IMAGE|DIR|GLOB|-")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// What decoding an image may take.
#[derive(Debug, clap::Args)]
pub struct LimitArgs {
    /// Reject images with more than N pixels
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_pixels)]
    max_pixels: u64,
    /// Memory for images that are being decoded, all threads together, as 800M or 4G; others wait, and larger ones are
    /// rejected [default: half of the machine's or container's memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_decode_memory: Option<u64>,
}

/// A number of bytes, with a suffix K, M, G or T for the powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let (number, power) = match text.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g', 'T', 't']) {
        Some(number) => match text.as_bytes()[number.len()].to_ascii_uppercase() {
            b'K' => (number, 1),
            b'M' => (number, 2),
            b'G' => (number, 3),
            _ => (number, 4),
        },
        None => (text, 0),
    };
    let number: u64 = number
        .parse()
        .map_err(|e: std::num::ParseIntError| e.to_string())?;
    number
        .checked_mul(1 << (10 * power))
        .ok_or_else(|| "is too large".into())
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits {
            max_pixels: self.max_pixels,
            max_memory: self
                .max_decode_memory
                .unwrap_or_else(|| Limits::default().max_memory),
        }
    }
}

/// The extensions of images in directories; files given by name are opened whatever their extension.
const EXTENSIONS: [&str; 9] = ["png", "jpg", "jpeg", "jpe", "webp", "bmp", "gif", "tif", "tiff"];

impl Inputs {
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// All given images in order, those of a directory sorted by name. What cannot be listed is reported.
    pub fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for path in &self.images {
            if path == Path::new("-") {
                if listing.sources.iter().any(|s| matches!(s, Source::Stdin)) {
                    return Err(Usage("-: standard input can be read only once").into());
                }
                listing.sources.push(Source::Stdin);
                continue;
            }
            let (files, errors) = files(path);
            listing.sources.extend(files.into_iter().map(Source::File));
            listing.failed += errors.len();
            errors.iter().for_each(report);
        }
        Ok(listing)
    }
}

/// Images to run.
#[derive(Debug, Default)]
pub struct Listing {
    sources: Vec<Source>,
    /// How many could not be listed.
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
    /// Runs every image and calls `each` with its results. An image that fails is reported, and the others go on. The
    /// device's phases are measured if `timed`.
    pub fn run(
        self,
        session: &Session,
        limits: Limits,
        timed: bool,
        mut each: impl FnMut(&Item) -> Result<()>,
    ) -> Result<(Timing, Outcome)> {
        let progress = Progress::images(self.sources.len());
        let mut failed = self.failed;
        let pipeline = Pipeline::new(session).limits(limits).timed(timed);
        let mut results = pipeline.run(self.sources)?;
        for item in &mut results {
            progress.step();
            match item {
                Ok(item) => {
                    if item.outputs().non_finite().is_some() {
                        progress.report(|| warn_non_finite(&item));
                    }
                    progress.print(|| each(&item))?;
                }
                Err(error) if error.index().is_some() => {
                    failed += 1;
                    progress.report(|| report(error));
                }
                Err(error) => return Err(hipvit::Error::from(error).into()),
            }
        }
        Ok((results.timing().clone(), Outcome::of(failed)))
    }
}

/// The files that `path` stands for, and errors for those that cannot be listed.
fn files(path: &Path) -> (Vec<PathBuf>, Vec<Error>) {
    if path.is_dir() {
        let (files, mut errors) = images_below(path);
        if files.is_empty() && errors.is_empty() {
            errors.push(anyhow!("{}: no image in this directory", path.display()));
        }
        return (files, errors);
    }
    match path.to_str() {
        Some(pattern) if !path.exists() && pattern.contains(['*', '?', '[']) => matches(pattern),
        // A missing file is an error when it is opened.
        _ => (vec![path.to_owned()], Vec::new()),
    }
}

fn matches(pattern: &str) -> (Vec<PathBuf>, Vec<Error>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    match glob::glob(pattern) {
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Ok(path) if path.is_file() => files.push(path),
                    Ok(_) => {}
                    Err(e) => errors.push(anyhow!("{}: {}", e.path().display(), e.error())),
                }
            }
            if files.is_empty() && errors.is_empty() {
                errors.push(anyhow!("{pattern}: no file matches"));
            }
        }
        Err(e) => errors.push(anyhow!("{pattern}: {e}")),
    }
    (files, errors)
}

/// The image files in `directory` and below, sorted by path, and errors for what cannot be listed.
pub fn images_below(directory: &Path) -> (Vec<PathBuf>, Vec<Error>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    let entries = walkdir::WalkDir::new(directory)
        .follow_links(true)
        .sort_by_file_name();
    for entry in entries {
        match entry {
            Ok(entry) if entry.file_type().is_file() && is_image(entry.path()) => {
                files.push(entry.into_path());
            }
            Ok(_) => {}
            // A broken link whose name is not an image's.
            Err(error) if error.io_error().is_some() && error.path().is_some_and(is_other_link) => {}
            Err(error) => errors.push(match (error.path(), error.io_error()) {
                (Some(path), Some(reason)) => anyhow!("{}: {reason}", path.display()),
                _ => anyhow!("{error}"),
            }),
        }
    }
    (files, errors)
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    EXTENSIONS.iter().any(|e| extension.eq_ignore_ascii_case(e))
}

fn is_other_link(path: &Path) -> bool {
    path.is_symlink() && !is_image(path)
}
