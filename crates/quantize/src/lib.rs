//! Quantises a model's linear layers to 8 bits, or to bf16: `hipvit quantize`.
//!
//! The layers of the blocks are quantised, which have nearly all weights; the patch embedding and the head stay as they are.
//! A weight is rounded to `scale · q` with a scale for each output channel.
//!
//! In FP8 q is E4M3. Without images that is all, and the weights are dequantised when the model is loaded. With images the
//! activations are in FP8 too, [`ops::float8`](hipvit::ops::float8): the largest magnitude of what a layer multiplies, over all
//! images, becomes E4M3's, 448, or a smaller one by which the few above it are clipped ([`ActivationRange`]). A weight then has one scale, and so have those that multiply the same: GPUs apply both to the
//! result of a GEMM. Or, without images, each token's largest magnitude becomes 448 when it is multiplied, and a weight keeps a scale
//! for each output channel.
//!
//! In int8 |q| ≤ 127. Activations are quantised when they
//! are multiplied, by each token's own range ([`ops::int8`](hipvit::ops::int8)), so that images are not required. With them,
//! the channels of what a norm passes to linear layers are balanced first: where a channel's activations are much larger than
//! the others', a factor moves from the norm's weight to the layers' columns (SmoothQuant, <https://arxiv.org/abs/2211.10438>).
//!
//! In bf16 activations are rounded to bf16, too, when they are multiplied on the CPU ([`ops::Rounding::Bf16`](hipvit::ops::Rounding::Bf16));
//! GPUs compute such layers in the dtype of the others. By a bound on the error a layer may get either precision, or none ([`Options::budget`]).
//!
//! Before that, two of each four weights may be pruned ([`Sparsity`]).

mod activations;
mod auto;
mod fidelity;
mod observation;
mod range;
mod rounding;
mod sparse;
mod times;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

pub use self::auto::{Candidate, Choice, Decision, Reverted};
pub use self::fidelity::{Fidelity, OnGpu};
pub use self::range::ActivationRange;
pub use self::sparse::Sparsity;
pub use self::times::GpuTarget;
use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, ValueId};
use hipvit::image::RgbImage;
use hipvit::model::{self, Checkpoint, Format, LoadOptions, Model, Replacement};
use hipvit::ops::Op;
use hipvit_files::temporary::Listed;

/// The share of a channel's range that balancing moves to the weight, as in SmoothQuant.
const BALANCE: f32 = 0.5;

/// What weights are written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// int8, and activations that are rounded to 8 bits when they are multiplied.
    #[default]
    Int8,
    /// FP8 (E4M3); with images, activations too.
    Fp8,
    /// FP8 (E4M3), and activations that are rounded to FP8 when they are multiplied.
    Fp8Dynamic,
    /// bf16, and activations that the CPU rounds to bf16 when they are multiplied.
    Bf16,
    /// What they are, so that the model is changed only by [`Options::sparsity`].
    Full,
}

impl Precision {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Fp8 => "fp8",
            Self::Fp8Dynamic => "fp8-dynamic",
            Self::Bf16 => "bf16",
            Self::Full => "full",
        }
    }

    fn format(self, images: usize) -> Format {
        match self {
            Self::Int8 => Format::Int8,
            Self::Fp8 if images > 0 => Format::Float8Activations,
            Self::Fp8 => Format::Float8,
            Self::Fp8Dynamic => Format::Float8Dynamic,
            Self::Bf16 | Self::Full => Format::Full,
        }
    }
}

/// How the scale of a weight's row is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scales {
    /// The row's largest magnitude is the type's.
    #[default]
    Largest,
    /// The least mean square error, where the largest magnitudes may be clipped.
    MeanSquare,
}

/// How [`quantize`] does it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What weights are written as.
    pub precision: Precision,
    /// How their scales are found.
    pub scales: Scales,
    /// The largest error of the outputs on the images, as a part of the outputs' root mean square; 0.005 is half a percent. With it,
    /// each layer gets a precision by its error and its time: its own, `precision`, which is int8 then, or bf16; where there is a
    /// `target`, FP8 instead of bf16. A fifth of the images, at least one of two or more, is held out: the model is not calibrated with them,
    /// and the error must be within the budget on them, too.
    pub budget: Option<f64>,
    /// Up to which magnitude activations are represented, where they are in FP8 by images.
    pub activation_range: ActivationRange,
    /// With a budget, the GPU that the model is to run on; the CPU if there is none. Errors are bounded as the CPU computes them in
    /// f32; that on the GPU is measured in the end, [`Decision::on_gpu`], and may be larger.
    pub target: Option<GpuTarget>,
    /// Which weights are pruned, if any, before the others are rounded. Errors of the outputs are then relative to the pruned
    /// model.
    pub sparsity: Option<Sparsity>,
}

/// What [`quantize`] did.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The type of the quantised weights.
    pub precision: Precision,
    /// Weights that were quantised.
    pub quantized: usize,
    /// Linear layers that were not.
    pub unquantized: Vec<String>,
    /// Norms whose channels were balanced with the layers that follow.
    pub balanced: usize,
    /// Images that the model was calibrated with.
    pub images: usize,
    /// What was decided of each layer, if there was a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The weights that were pruned and packed, if any were to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sparsity: Option<model::Sparsity>,
    /// Linear layers of the blocks that could not be pruned: their input channels are not a multiple of four.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unpruned: Vec<String>,
    /// The bytes of all tensors before.
    pub bytes_before: u64,
    /// The bytes of all tensors after.
    pub bytes_after: u64,
}

/// Quantises the model at `path`, or the embedded one, and writes it to the directory `out`, which must not exist or be empty.
/// `images` are for calibration and may be none.
///
/// # Errors
///
/// As [`model::load`]; the first image's error; [`Error::Argument`] for a budget without images or of another precision than int8, or if nothing is to be changed; [`Error::Tensor`] for weights that are NaN or infinite; [`Error::Io`] for what
/// cannot be written. Then `out` is as it was.
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
            "is full and nothing is pruned: the model would stay as it is",
        ));
    }
    options.activation_range.check()?;
    check_vacant(out)?;
    let mut checkpoint = Checkpoint::open(path)?;
    let mut model = match path {
        Some(path) => model::load(path, &LoadOptions::default())?,
        None => model::tinyvit32(&LoadOptions::default())?,
    };
    let pixels = |image: Result<RgbImage>| Ok(model.preprocess.apply(&image?)?.data);
    let mut images: Vec<Vec<u8>> = images.into_iter().map(pixels).collect::<Result<_>>()?;
    let mut held_out = Vec::new();
    if budget.is_some() && (images.is_empty() || precision != Precision::Int8) {
        let reason = "is an error on images, which only int8 is chosen by";
        return Err(Error::argument("budget", reason));
    }
    if budget.is_some() {
        (images, held_out) = fidelity::hold_out(images);
    }
    let mut layers = Layers::of(&model.graph);
    let mut unpruned = Vec::new();
    if let Some(sparsity) = sparsity {
        unpruned = sparse::prune(&mut checkpoint, &model, &layers, sparsity, &images)?;
        model = checkpoint.changed(Format::Full, &BTreeMap::new(), &[])?;
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

/// The names of the linear layers' weights in the weight file.
struct Layers {
    quantized: BTreeSet<String>,
    /// Without `.weight`.
    others: Vec<String>,
}

impl Layers {
    fn of(graph: &Graph) -> Self {
        let (mut quantized, mut others) = (BTreeSet::new(), BTreeSet::new());
        for node in graph
            .nodes()
            .iter()
            .filter(|node| matches!(node.op, Op::Linear(_)))
        {
            let in_block = node.name.starts_with("blocks.");
            for name in stored_names(&graph.value(node.inputs[1]).name) {
                match name.strip_suffix(".weight") {
                    Some(_) if in_block => _ = quantized.insert(name),
                    Some(layer) => _ = others.insert(layer.to_owned()),
                    None => {}
                }
            }
        }
        Self {
            quantized,
            others: others.into_iter().collect(),
        }
    }
}

/// The names in the weight file of a constant that the builder or a pass made of some tensors, `a + b`, of a part of one or around
/// one, `a[…]`, or with factors, `a · b`, where `a` is the layer's.
fn stored_names(constant: &str) -> impl Iterator<Item = String> {
    let parts = constant.split(" + ");
    parts.map(|part| {
        let end = [part.find('['), part.find(" · ")].into_iter().flatten().min();
        part[..end.unwrap_or(part.len())].to_owned()
    })
}

/// A norm, and the linear layers that alone read what it gives.
#[derive(Debug)]
struct Group {
    output: ValueId,
    /// Its tensors.
    norm: Vec<String>,
    weights: BTreeSet<String>,
}

fn groups(graph: &Graph, layers: &Layers) -> Vec<Group> {
    let mut readers: HashMap<ValueId, Vec<&Node>> = HashMap::new();
    for node in graph.nodes() {
        for &id in &node.inputs {
            readers.entry(id).or_default().push(node);
        }
    }
    let is_output = |id| graph.outputs().iter().any(|&(_, output)| output == id);
    let norms = graph.nodes().iter().filter_map(|node| {
        let (Op::LayerNorm(_) | Op::RmsNorm(_)) = node.op else {
            return None;
        };
        let output = node.output();
        let readers = readers.get(&output).filter(|_| !is_output(output))?;
        let mut weights = BTreeSet::new();
        for reader in readers {
            match reader.op {
                Op::Linear(_) if reader.inputs[0] == output => {
                    weights.extend(stored_names(&graph.value(reader.inputs[1]).name));
                }
                _ => return None,
            }
        }
        let all = weights.iter().all(|name| layers.quantized.contains(name));
        // A norm of each head has fewer weights than there are channels.
        let whole = graph.value(node.inputs[1]).shape.last() == graph.value(output).shape.last();
        let norm = node.inputs[1..].iter().map(|&id| graph.value(id).name.clone());
        (all && whole).then(|| Group {
            output,
            norm: norm.collect(),
            weights,
        })
    });
    norms.collect()
}

/// The largest magnitude of each channel of these values over all images' pixels, none without images.
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

/// The weights in the precision of `options`, and the norms that are balanced with them.
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

/// What the norm's channels are divided by and the columns of the weights are multiplied by; `None` if nothing is known of the
/// activations.
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
        // A channel that is always 0, or that no layer reads.
        if factor.is_normal() { factor } else { 1.0 }
    };
    Ok(Some(range.iter().zip(&largest).map(factor).collect()))
}

/// Fails unless `out` can be written: it does not exist, or is an empty directory.
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

/// Writes the files beside `out`, checks that they load, and moves them there. Returns the bytes of the tensors, and which are packed.
///
/// A directory that exists may be a mount point, which cannot be replaced: the files are moved into it.
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
    // Of a directory of its own, whose permissions are the usual ones.
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
