//! Which images a command works on: files, directories, glob patterns, `-`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use hipvit::image::Limits;
use hipvit::pipeline::Source;

/// Images on the command line.
#[derive(Debug, clap::Args)]
pub struct Inputs {
    /// Image files, directories (searched recursively), glob patterns, or - for standard input
    #[arg(value_name = "IMAGE|DIR|GLOB|-")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// What is too large an image.
#[derive(Debug, clap::Args)]
pub struct LimitArgs {
    /// Refuse images of more pixels than this
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_pixels)]
    max_pixels: u64,
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits {
            max_pixels: self.max_pixels,
        }
    }
}

/// Endings that a directory search takes for images; named files are opened whatever their name is.
const EXTENSIONS: [&str; 9] = ["png", "jpg", "jpeg", "jpe", "webp", "bmp", "gif", "tif", "tiff"];

impl Inputs {
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Everything named, in order; a directory's files by name. What cannot be listed comes as an error beside.
    pub fn sources(&self) -> (Vec<Source>, Vec<anyhow::Error>) {
        let (mut sources, mut errors) = (Vec::new(), Vec::new());
        for path in &self.images {
            if path == Path::new("-") {
                sources.push(Source::Stdin);
                continue;
            }
            match files(path) {
                Ok(files) => sources.extend(files.into_iter().map(Source::File)),
                Err(error) => errors.push(error),
            }
        }
        (sources, errors)
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_dir() {
        let files = images_below(path)?;
        return if files.is_empty() {
            Err(anyhow!("{}: no image in this directory", path.display()))
        } else {
            Ok(files)
        };
    }
    match path.to_str() {
        Some(pattern) if !path.exists() && pattern.contains(['*', '?', '[']) => {
            let mut found = Vec::new();
            for entry in glob::glob(pattern).map_err(|e| anyhow!("{pattern}: {e}"))? {
                let entry = entry.map_err(|e| anyhow!("{}: {}", e.path().display(), e.error()))?;
                if entry.is_file() {
                    found.push(entry);
                }
            }
            if found.is_empty() {
                Err(anyhow!("{pattern}: no file matches"))
            } else {
                Ok(found)
            }
        }
        // A missing file is reported by whoever opens it.
        _ => Ok(vec![path.to_owned()]),
    }
}

/// The image files in `directory` and below, sorted by path.
pub fn images_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(directory)
        .follow_links(true)
        .sort_by_file_name()
    {
        let entry = entry?;
        let extension = entry
            .path()
            .extension()
            .and_then(OsStr::to_str)
            .unwrap_or_default();
        if entry.file_type().is_file() && EXTENSIONS.iter().any(|e| extension.eq_ignore_ascii_case(e)) {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}
