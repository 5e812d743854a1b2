//! Optimised graphs kept on disk: [`SessionBuilder::plan_cache`](super::SessionBuilder::plan_cache).
//!
//! A graph is one safetensors file. Its tensors are the constants that the passes computed; the others are named as parts of
//! the model's own, which are mapped anyway. Its metadata has
//!
//! - `format`: [`FORMAT`];
//! - `key`: the SHA-256 of what the passes start from (`key`), which is also the file's name;
//! - `plan`: [`Plan`] as JSON, the graph and where its constants lie, with the CRC-32 of those in this file;
//! - `sha256`: that of the three, so that damage is noticed before anything is made of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::graph::{self, Graph, Passes, Value};
use crate::model::{self, WeightFile};
use crate::safetensors_file;
use crate::tensor::{DType, Tensor};
use crate::timeline::{self, Activity};
use hipvit_files::temporary;

/// Counted up when the file's form changes, or what the passes' code calls computes something else.
const FORMAT: &str = "hipvit plan 3";

/// What became of a session's optimised graph in its [folder](super::SessionBuilder::plan_cache). The results are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlanCache {
    /// It was read, and no pass ran.
    Cached {
        /// The file.
        file: PathBuf,
    },
    /// The passes ran, and what they made was written.
    Written {
        /// The file.
        file: PathBuf,
        /// Its size.
        bytes: u64,
        /// Why the file that was there could not be used, if there was one.
        replaced: Option<String>,
    },
    /// The passes ran, and nothing was written.
    NotWritten {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for PlanCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cached { file } => write!(f, "cached in {}, no pass ran", file.display()),
            Self::Written {
                file,
                bytes,
                replaced,
            } => {
                write!(f, "written to {} ({:.1} MB)", file.display(), *bytes as f64 / 1e6)?;
                let reason = replaced.as_ref();
                reason.map_or(Ok(()), |reason| {
                    write!(f, ", in place of one that was not used: {reason}")
                })
            }
            Self::NotWritten { reason } => write!(f, "not cached: {reason}"),
        }
    }
}

/// Why there is no usable graph.
type Reason = String;

/// What a file has beside tensors.
#[derive(Serialize, Deserialize)]
struct Plan<G> {
    graph: G,
    /// By the constant's name.
    constants: BTreeMap<String, Constant>,
}

/// Where a constant of an optimised graph lies.
#[derive(Serialize, Deserialize)]
struct Constant {
    elements: Elements,
    /// CRC-32 of an int8 tensor's scales, which are stored as the tensor [`scales_of`] its name.
    scales: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Elements {
    /// Elements of the model's constant `of`, from number `start` on.
    Model { of: String, start: usize },
    /// The file's tensor of this name, with its CRC-32.
    File(u32),
}

fn scales_of(name: &str) -> String {
    format!("scales of {name}")
}

/// What [`graph::optimize`] makes of a model's graph, from `folder` if it is there, else put there.
///
/// # Errors
///
/// The errors of the passes.
pub(super) fn optimize(
    graph: Graph,
    passes: &Passes,
    files: &[WeightFile],
    folder: &Path,
) -> Result<(Graph, PlanCache)> {
    let reading = timeline::named_span(Activity::PlanCache, || "plan cache: read".into());
    let key = key(&graph, passes, files);
    let file = folder.join(format!("{key}.safetensors"));
    let replaced = match read(&file, &key, &graph) {
        Ok(Some(cached)) => return Ok((cached, PlanCache::Cached { file })),
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    drop(reading);
    let optimizing = timeline::span(Activity::Optimize);
    let (optimized, _) = graph::optimize(graph.clone(), passes)?;
    drop(optimizing);
    let _writing = timeline::named_span(Activity::PlanCache, || "plan cache: write".into());
    let state = match write(&file, &key, &graph, &optimized, files) {
        Ok(bytes) => PlanCache::Written {
            file,
            bytes,
            replaced,
        },
        Err(reason) => PlanCache::NotWritten { reason },
    };
    Ok((optimized, state))
}

/// A SHA-256 of everything on which the optimised graph depends: the code, the passes, the model's graph, which is what
/// configuration and options have become, and its constants. Those in files stand there for their version and place.
fn key(graph: &Graph, passes: &Passes, files: &[WeightFile]) -> String {
    let mut hash = Hash::default();
    hash.add(FORMAT.as_bytes());
    hash.add(env!("CARGO_PKG_VERSION").as_bytes());
    hash.add(&graph::CODE.to_le_bytes());
    // JSON would not tell apart numbers that are not finite.
    hash.add(format!("{passes:?} {graph:?}").as_bytes());
    for file in files {
        hash.add(file.version().as_bytes());
    }
    for (_, tensor) in constants(graph) {
        let addresses = addresses(tensor);
        let mut places = files.iter().enumerate();
        match places.find_map(|(index, file)| Some((index, file.locate(&addresses)?))) {
            Some((index, place)) => hash.add(format!("{index} {place:?}").as_bytes()),
            None => hash.add(&tensor.to_le_bytes()),
        }
        if let Some((_, scales)) = tensor.scaled_parts() {
            hash.add(bytemuck::cast_slice(scales));
        }
    }
    hash.hex()
}

/// The parts' lengths go into it too, so that no two lists give the same bytes.
#[derive(Default)]
struct Hash(Sha256);

impl Hash {
    fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn hex(self) -> String {
        let sum = self.0.finalize();
        sum.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The sum of a file's metadata.
fn sum(key: &str, plan: &str) -> String {
    let mut hash = Hash::default();
    for part in [FORMAT, key, plan] {
        hash.add(part.as_bytes());
    }
    hash.hex()
}

fn constants(graph: &Graph) -> impl Iterator<Item = (&Value, &Tensor)> {
    let values = graph.values().iter();
    values.filter_map(|value| Some((value, value.constant.as_ref()?)))
}

/// Where a tensor's elements are.
fn addresses(tensor: &Tensor) -> Range<usize> {
    let start = tensor.address();
    start..start + tensor.len() * tensor.dtype().size()
}

/// The graph in `file`, with constants of `model` or mapped from the file; `None` if there is no file.
///
/// # Errors
///
/// Why the file is not used.
fn read(file: &Path, key: &str, model: &Graph) -> std::result::Result<Option<Graph>, Reason> {
    let bytes = match model::map(file) {
        Ok((bytes, _)) => bytes,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let (header, info) = SafeTensors::read_metadata((*bytes).as_ref()).map_err(|error| error.to_string())?;
    let entry = |name: &str| -> std::result::Result<&String, Reason> {
        let entry = info.metadata().as_ref().and_then(|all| all.get(name));
        entry.ok_or_else(|| format!("it has no `{name}`"))
    };
    if entry("format")? != FORMAT {
        return Err(format!(
            "its format is \"{}\", not \"{FORMAT}\"",
            entry("format")?
        ));
    }
    if entry("key")? != key {
        return Err("it is of another model or other options".into());
    }
    let plan = entry("plan")?;
    if entry("sha256")? != &sum(key, plan) {
        return Err("it is damaged: its metadata does not have its checksum".into());
    }
    let plan: Plan<Graph> = serde_json::from_str(plan).map_err(|error| error.to_string())?;

    let stored = |name: &str, dtype: DType, shape: &[usize], crc: u32| {
        let place = info
            .info(name)
            .filter(|place| place.dtype == st_dtype(dtype) && place.shape == shape);
        let (begin, end) = place
            .ok_or_else(|| format!("it has no tensor `{name}`"))?
            .data_offsets;
        let start = size_of::<u64>() + header;
        let tensor = Tensor::view(shape, dtype, bytes.clone(), start + begin..start + end);
        let tensor = tensor.ok_or_else(|| format!("`{name}` does not have the bytes of its shape"))?;
        if crc32fast::hash(&tensor.to_le_bytes()) == crc {
            Ok(tensor.computed())
        } else {
            Err(format!("it is damaged: `{name}` does not have its checksum"))
        }
    };
    let models: HashMap<&str, &Tensor> = constants(model)
        .map(|(value, tensor)| (value.name.as_str(), tensor))
        .collect();
    let restored = plan.graph.restored(|value| {
        let Value {
            name, dtype, shape, ..
        } = value;
        let constant = plan.constants.get(name);
        let constant = constant.ok_or_else(|| format!("`{name}` is nowhere"))?;
        let tensor = match &constant.elements {
            Elements::File(crc) => stored(name, *dtype, shape, *crc)?,
            Elements::Model { of, start } => models
                .get(of.as_str())
                .and_then(|tensor| tensor.part(*start, shape.clone()))
                .ok_or_else(|| format!("`{name}` is no part of the model's `{of}`"))?,
        };
        let Some(crc) = constant.scales else {
            return Ok(tensor);
        };
        let scales = stored(&scales_of(name), DType::F32, &shape[..shape.len().min(1)], crc)?;
        Ok(tensor.with_scales(scales.to_f32().into()))
    })?;
    let interface = |graph: &Graph| {
        let shape = |id| graph.value(id).shape.clone();
        let outputs = graph.outputs().iter().map(|&(kind, id)| (kind, shape(id)));
        (
            graph.value(graph.input()).dtype,
            shape(graph.input()),
            outputs.collect::<Vec<_>>(),
        )
    };
    if interface(&restored) == interface(model) {
        Ok(Some(restored))
    } else {
        Err("its inputs or outputs are not the model's".into())
    }
}

/// Writes `optimized`, which the passes have made of `model`, and reads it back before it takes the place of `file`.
fn write(
    file: &Path,
    key: &str,
    model: &Graph,
    optimized: &Graph,
    files: &[WeightFile],
) -> std::result::Result<u64, Reason> {
    files.iter().try_for_each(WeightFile::check_settled)?;
    let mut originals: BTreeMap<usize, (&Value, &Tensor)> = BTreeMap::new();
    for (value, tensor) in constants(model).filter(|(_, tensor)| !tensor.is_empty()) {
        let slot = originals.entry(tensor.address()).or_insert((value, tensor));
        if slot.1.len() < tensor.len() {
            *slot = (value, tensor);
        }
    }
    let mut stored = Vec::new();
    let mut places = BTreeMap::new();
    for (value, tensor) in constants(optimized) {
        let name = &value.name;
        let elements = part_of(&originals, tensor).unwrap_or_else(|| {
            let bytes = tensor.to_le_bytes();
            let crc = crc32fast::hash(&bytes);
            stored.push((name.clone(), st_dtype(value.dtype), value.shape.clone(), bytes));
            Elements::File(crc)
        });
        let scales = tensor.scaled_parts().map(|(_, scales)| {
            let bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            let crc = crc32fast::hash(&bytes);
            stored.push((scales_of(name), Dtype::F32, vec![scales.len()], bytes.into()));
            crc
        });
        places.insert(name.clone(), Constant { elements, scales });
    }
    let plan = Plan {
        graph: optimized,
        constants: places,
    };
    let plan = serde_json::to_string(&plan).map_err(|error| error.to_string())?;
    let metadata = HashMap::from([
        ("format".to_owned(), FORMAT.to_owned()),
        ("key".to_owned(), key.to_owned()),
        ("sha256".to_owned(), sum(key, &plan)),
        ("plan".to_owned(), plan),
    ]);
    let views = stored.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes);
        Ok((name.clone(), view.map_err(|error| error.to_string())?))
    });
    let views: Vec<_> = views.collect::<std::result::Result<_, Reason>>()?;

    let folder = file.parent().unwrap_or(Path::new("."));
    let io = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(io)?;
    let (mut unfinished, _listed) = temporary::file_in(folder, ".part").map_err(io)?;
    safetensors_file::write(views, metadata, &mut unfinished)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let read = read(unfinished.path(), key, model)?;
    if read.is_none_or(|read| format!("{read:?}") != format!("{optimized:?}")) {
        return Err("it does not read as what was written".into());
    }
    let bytes = unfinished.as_file().metadata().map_err(io)?.len();
    unfinished.persist(file).map_err(|error| io(error.error))?;
    Ok(bytes)
}

/// Where `tensor` lies in the model's constants, which are by address, if it does.
fn part_of(originals: &BTreeMap<usize, (&Value, &Tensor)>, tensor: &Tensor) -> Option<Elements> {
    let wanted = addresses(tensor);
    let (begin, (value, original)) = originals.range(..=wanted.start).next_back()?;
    let start = (wanted.start - begin) / tensor.dtype().size();
    // Of another dtype it is no view of this one, and only of its own storage there is a part at its address.
    let part = original.part(start, tensor.shape().to_vec())?;
    let same = part.dtype() == tensor.dtype() && addresses(&part) == wanted && !tensor.is_empty();
    let of = value.name.clone();
    same.then_some(Elements::Model { of, start })
}

/// safetensors' name of a dtype.
fn st_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::F8E4M3 | DType::F8E4M3Fnuz => Dtype::F8_E4M3,
        DType::I32 => Dtype::I32,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
    }
}
