//! Quantises the linear layers of a model to 8 bits or bf16: `hipvit quantize`.
//!
//! Quantisation covers the layers of the blocks, which have nearly all weights. The patch embedding and the
//! head do not change. A weight is rounded to `scale · q` with a scale for each output channel.
//!
//! # FP8
//!
//! q is an E4M3 number. There are three forms ([`Precision`]):
//!
//! - [`Precision::Fp8`] without images: weights only. They are dequantised when the model is loaded.
//! - [`Precision::Fp8`] with images: activations are in FP8 too ([`float8`](hipvit::float8)). The
//!   largest magnitude of a layer's input over all images becomes 448, the maximum of E4M3. A smaller range
//!   clips the few values above it ([`ActivationRange`]). Each weight then has one scale, shared by all
//!   weights with the same input. GPUs apply both scales to the result of a GEMM.
//! - [`Precision::Fp8Dynamic`]: the largest magnitude of each token becomes 448 at run time. No images are
//!   needed. A weight keeps a scale for each output channel.
//!
//! # int8
//!
//! |q| ≤ 127. Activations are quantised at run time by the range of each token ([`cpu::int8`](hipvit::cpu::int8)), so images are not
//! required. With images, the channels between a norm and its linear layers are balanced first (SmoothQuant,
//! <https://arxiv.org/abs/2211.10438>). For channels with much larger activations, a factor moves from the
//! norm's weight to the layers' columns.
//!
//! # bf16
//!
//! The CPU also rounds activations to bf16 in these layers
//! ([`ops::Rounding::Bf16`](hipvit::ops::Rounding::Bf16)). GPUs compute them in the dtype of the other layers.
//!
//! # Options
//!
//! - [`Options::budget`] bounds the error. Each layer then gets the precision that saves the most time.
//! - [`Options::sparsity`] first prunes two of every four weights ([`Sparsity`]).

mod activations;
mod auto;
mod fidelity;
mod layers;
mod observation;
mod options;
mod precision;
mod range;
mod rounding;
mod sparse;
mod times;
mod unit;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

pub use self::auto::{Candidate, Choice, Decision, Reverted};
pub use self::fidelity::{Fidelity, OnGpu};
use self::layers::{Group, Layers, groups};
pub use self::options::Options;
pub use self::precision::{Precision, Scales};
pub use self::range::ActivationRange;
pub use self::sparse::Sparsity;
pub use self::times::GpuTarget;
use hipvit::error::{Error, Result};
use hipvit::graph::ValueId;
use hipvit::image::RgbImage;
use hipvit::model::{self, Checkpoint, Format, LoadOptions, Model, Replacement};
use hipvit_files::temporary::Listed;

/// Fraction of a channel's range that balancing moves to the weights, as in SmoothQuant.
const BALANCE: f32 = 0.5;

/// Result of [`quantize`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Precision of the quantised weights.
    pub precision: Precision,
    /// Number of quantised weights.
    pub quantized: usize,
    /// Linear layers that were not quantised.
    pub unquantized: Vec<String>,
    /// Number of norms whose channels were balanced with the following layers.
    pub balanced: usize,
    /// Number of calibration images.
    pub images: usize,
    /// Decision about each layer, if there was a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Pruned and packed weights, if pruning was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sparsity: Option<model::Sparsity>,
    /// Linear layers of the blocks that could not be pruned, because the number of input channels is not a
    /// multiple of four.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unpruned: Vec<String>,
    /// Bytes of all tensors before quantisation.
    pub bytes_before: u64,
    /// Bytes of all tensors after quantisation.
    pub bytes_after: u64,
}

/// Quantises the model at `path`, or the embedded model, and writes it to the directory `out`. The directory
/// must be empty or not exist. `images` are the calibration images and may be empty.
///
/// # Errors
///
/// After an error, `out` is unchanged.
///
/// - Errors of [`model::load`], and of reading the first image that fails.
/// - [`Error::Argument`] for a budget without images or with a precision other than int8, or if nothing would
///   change.
/// - [`Error::Tensor`] if a weight is NaN or infinite.
/// - [`Error::Io`] if a file cannot be written.
pub fn quantize(
    path: Option<&Path>,
    out: &Path,
    options: Options,
    images: impl IntoIterator<Item = Result<RgbImage>>,
) -> Result<Report> {
    let Options {
        precision,
        budget,
        sparsity,
        ..
    } = options;
    if precision == Precision::Full && sparsity.is_none() {
        return Err(Error::argument(
            "precision",
            "is full and no pruning is requested, so the model would not change",
        ));
    }
    options.activation_range.check()?;
    check_vacant(out)?;
    let mut checkpoint = Checkpoint::open(path)?;
    let mut model = match path {
        Some(path) => model::load(path, &LoadOptions::default())?,
        None => model::tinyvit32(&LoadOptions::default())?,
    };
    // All images get the size of the graph, also those of a processor that keeps their aspect ratio.
    let (height, width) = model.preprocess.output_size();
    let rule = model.preprocess.for_image(height, width)?;
    let pixels = |image: Result<RgbImage>| Ok(rule.apply(&image?)?.data);
    let mut images: Vec<Vec<u8>> = images.into_iter().map(pixels).collect::<Result<_>>()?;
    let mut held_out = Vec::new();
    if budget.is_some() && (images.is_empty() || precision != Precision::Int8) {
        let reason = "needs calibration images and the precision int8";
        return Err(Error::argument("budget", reason));
    }
    if budget.is_some() {
        (images, held_out) = fidelity::hold_out(images);
    }
    let mut layers = Layers::of(&model.graph);
    let mut unpruned = Vec::new();
    if let Some(sparsity) = sparsity {
        unpruned = sparse::prune(&mut checkpoint, &model, &layers, sparsity, &images)?;
        model = checkpoint.changed(Format::Full, &BTreeMap::new(), &[], &LoadOptions::default())?;
    }
    if precision == Precision::Full {
        layers.quantized.clear();
    }
    let groups = match precision {
        Precision::Int8 => groups(&model.graph, &layers),
        Precision::Fp8 | Precision::Fp8Dynamic | Precision::Bf16 | Precision::Full => Vec::new(),
    };
    let by_images = precision == Precision::Fp8 && !images.is_empty();
    let range = options.activation_range;
    let mut replaced = if by_images {
        activations::round(&checkpoint, &model, &layers, &images, range)?
    } else {
        balanced(&checkpoint, &model, &groups, &layers, &images, &options)?
    };
    let mut unquantized = match precision {
        Precision::Full => Vec::new(),
        _ => layers.others.clone(),
    };
    let mut decision = None;
    if let Some(budget) = budget {
        let search = auto::Search {
            checkpoint: &checkpoint,
            model: &model,
            layers: &layers,
            groups: &groups,
            calibration: &images,
            held_out: &held_out,
            options: &options,
        };
        let (decided, chosen) = search.run(budget, replaced)?;
        replaced = chosen;
        unquantized.extend(decided.layers(Precision::Full).cloned());
        decision = Some(decided);
    }
    let of = |name: &String| replaced.contains_key(name);
    let balanced = groups.iter().filter(|group| group.norm.iter().any(of)).count();
    let quantized = layers.quantized.iter().filter(|name| of(name)).count();
    let (written, sparsity) = write(
        &checkpoint,
        out,
        precision.format(images.len()),
        &replaced,
        &unquantized,
    )?;
    Ok(Report {
        precision,
        quantized,
        unquantized,
        balanced,
        images: images.len(),
        decision,
        sparsity,
        unpruned,
        bytes_before: checkpoint.bytes(),
        bytes_after: written,
    })
}

/// Returns the largest magnitude of each channel of `values` over all images. Empty without images.
fn channel_ranges(model: &Model, values: &[ValueId], images: &[Vec<u8>]) -> Result<Vec<Vec<f32>>> {
    let mut ranges: Vec<Vec<f32>> = vec![Vec::new(); values.len()];
    observation::observe(model, values, images, |value, activations| {
        let range = &mut ranges[value];
        range.resize(activations.ncols(), 0.0);
        for row in activations.rows() {
            for (range, value) in range.iter_mut().zip(row) {
                *range = range.max(value.abs());
            }
        }
    })?;
    Ok(ranges)
}

/// Rounds the weights to the precision of `options`, and balances norms with them.
fn balanced(
    checkpoint: &Checkpoint,
    model: &Model,
    groups: &[Group],
    layers: &Layers,
    images: &[Vec<u8>],
    options: &Options,
) -> Result<BTreeMap<String, Replacement>> {
    let outputs: Vec<ValueId> = groups.iter().map(|group| group.output).collect();
    let ranges = channel_ranges(model, &outputs, images)?;
    let mut replaced = BTreeMap::new();
    let mut factors: HashMap<&str, Arc<Vec<f32>>> = HashMap::new();
    for (group, range) in groups.iter().zip(&ranges) {
        if let Some(factor) = balance(checkpoint, group, range)? {
            for name in &group.norm {
                let values = checkpoint.tensor(name)?;
                let values = values.to_f32().iter().zip(&factor).map(|(v, f)| v / f).collect();
                replaced.insert(name.clone(), Replacement::F32(values));
            }
            let factor = Arc::new(factor);
            factors.extend(group.weights.iter().map(|name| (name.as_str(), factor.clone())));
        }
    }
    for name in &layers.quantized {
        let factor = factors.get(name.as_str()).map(|factor| factor.as_slice());
        let rounded = rounding::round(checkpoint, name, factor, options.precision, options.scales)?;
        replaced.insert(name.clone(), rounded);
    }
    Ok(replaced)
}

/// Returns the factors that divide the norm's channels and multiply the weights' columns. `None` if the
/// activations are unknown.
fn balance(checkpoint: &Checkpoint, group: &Group, range: &[f32]) -> Result<Option<Vec<f32>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let mut largest = vec![0f32; range.len()];
    for name in &group.weights {
        let weight = checkpoint.tensor(name)?;
        for row in weight.to_f32().chunks(range.len()) {
            for (largest, value) in largest.iter_mut().zip(row) {
                *largest = largest.max(value.abs());
            }
        }
    }
    let factor = |(&x, &w): (&f32, &f32)| {
        let factor = x.powf(BALANCE) / w.powf(1.0 - BALANCE);
        // Skip a channel that is always 0 or that no layer reads.
        if factor.is_normal() { factor } else { 1.0 }
    };
    Ok(Some(range.iter().zip(&largest).map(factor).collect()))
}

/// Fails unless `out` does not exist or is an empty directory.
fn check_vacant(out: &Path) -> Result<()> {
    match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
        Ok(true) => check_writable(out),
        Ok(false) => Err(Error::argument(
            "output",
            format_args!("{} exists and is not empty", out.display()),
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !out.is_symlink() => {
            check_writable(out)
        }
        Err(error) => Err(Error::io(out, error)),
    }
}

/// Fails unless files can be created in `out`, or in the directory in which `out` will be created.
fn check_writable(out: &Path) -> Result<()> {
    let existing = out.ancestors().find(|path| path.exists());
    let directory = existing.unwrap_or(Path::new("."));
    let tried = tempfile::tempfile_in(directory);
    tried.map(drop).map_err(|error| Error::io(directory, error))
}

/// Writes the files to a temporary directory next to `out`, checks that they load, and moves them. Returns
/// the size of the tensors and the packed weights.
///
/// An existing directory may be a mount point, which cannot be replaced, so the files are moved into it.
fn write(
    checkpoint: &Checkpoint,
    out: &Path,
    format: Format,
    replaced: &BTreeMap<String, Replacement>,
    unquantised: &[String],
) -> Result<(u64, Option<model::Sparsity>)> {
    let exists = out.is_dir();
    let parent = match out.parent() {
        _ if exists => out,
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(|error| Error::io(parent, error))?;
    let temporary = tempfile::Builder::new()
        .prefix(".hipvit-quantize-")
        .tempdir_in(parent)
        .map_err(|error| Error::io(parent, error))?;
    let _listed = Listed::new(temporary.path());
    // Use a new subdirectory, which has the usual permissions.
    let files = temporary.path().join("model");
    fs::create_dir(&files).map_err(|error| Error::io(&files, error))?;
    let bytes = checkpoint.write(&files, format, replaced, unquantised)?;
    let model = model::load(&files, &LoadOptions::default())?;
    let moved = if exists {
        move_files(&files, out)
    } else {
        fs::rename(&files, out)
    };
    moved.map_err(|error| Error::io(out, error))?;
    Ok((bytes, model.info.sparsity))
}

/// Moves the files of one directory into another on the same file system.
fn move_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
