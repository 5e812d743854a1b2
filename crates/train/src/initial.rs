//! The model that training starts from: new weights for an architecture, or a checkpoint with a classifier for the
//! classes of the data.

mod boxes;
mod config;
mod maps;
mod pairs;
pub(crate) mod random;
mod texts;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit::model::{self, Checkpoint};
use hipvit::tensor::DType;
use hipvit_files::{json, regular_file};
use rayon::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

use self::config::{architecture_config, for_classes, layer_scale};
use self::random::Numbers;

/// Standard deviation of linear layers, positions and tables, as in timm.
const DEVIATION: f64 = 0.02;
/// Standard deviation of class and register tokens, as in timm.
const TOKEN_DEVIATION: f64 = 1e-6;
/// Standard deviation of a normal distribution that is truncated to (-2, 2).
const TRUNCATED_DEVIATION: f64 = 0.879_625_661_034_239_8;
/// Initial logarithm of the attention scale of Swin V2.
const LOGIT_SCALE: f32 = std::f32::consts::LN_10;

const CONFIG: &str = "config.json";
const PREPROCESSOR: &str = "preprocessor_config.json";
const WEIGHTS: &str = "model.safetensors";
const OPEN_CLIP: &str = "open_clip_config.json";
const OPEN_CLIP_WEIGHTS: &str = "open_clip_model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where the first weights come from.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// A model with weights: a directory, a file, or a name on the Hugging Face hub.
    Checkpoint(&'a Path),
    /// New weights for a `config.json` of timm or transformers.
    Config(&'a Path),
    /// New weights for an architecture of timm, by its name.
    Architecture {
        /// Name of the architecture, such as `vit_small_patch16_224`.
        name: &'a str,
        /// Side of the images in pixels, if it differs from that in the name.
        image_size: Option<usize>,
    },
}

/// Model that training starts from.
#[derive(Debug)]
pub struct InitialModel {
    config: Value,
    preprocessor: Option<Value>,
    tensors: BTreeMap<String, Content>,
    /// Names of the tensors with new weights.
    new: Vec<String>,
    /// Names of the files with the configuration and the weights.
    names: [&'static str; 2],
    /// Other files, which are written as they are.
    files: Vec<(&'static str, Vec<u8>)>,
}

/// Shape and values of a tensor.
#[derive(Debug)]
struct Content {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Distribution of a new tensor's values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Constant(f32),
    Normal(f64),
    /// Normal distribution without values beyond two standard deviations.
    Truncated(f64),
}

/// Returns true for a file of weights, in safetensors or of PyTorch.
fn has_weights(file: &Path) -> bool {
    let extension = file.extension().unwrap_or_default();
    ["safetensors", "bin", "pt", "pth"]
        .iter()
        .any(|known| extension == *known)
}

impl<'a> Start<'a> {
    /// Finds out what `model` names: a configuration if it is a `.json` file or a directory without weights, a
    /// checkpoint if it exists or has a slash, and otherwise an architecture.
    #[must_use]
    pub fn of(model: &'a Path, image_size: Option<usize>) -> Self {
        let is_json = model.extension().is_some_and(|extension| extension == "json");
        let lacks_weights = |directory: &Path| {
            let mut files = fs::read_dir(directory).into_iter().flatten().flatten();
            [CONFIG, OPEN_CLIP]
                .iter()
                .any(|name| directory.join(name).exists())
                && !directory.join(INDEX).exists()
                && !files.any(|file| has_weights(&file.path()))
        };
        match model.to_str() {
            _ if is_json => Self::Config(model),
            _ if model.is_dir() && lacks_weights(model) => Self::Config(model),
            Some(name) if !model.exists() && !name.contains('/') => Self::Architecture { name, image_size },
            _ => Self::Checkpoint(model),
        }
    }

    /// Returns true if no weights exist yet.
    #[must_use]
    pub fn is_from_scratch(&self) -> bool {
        !matches!(self, Self::Checkpoint(_))
    }
}

impl InitialModel {
    /// Creates the model for the given classes. `seed` determines all new weights.
    ///
    /// A checkpoint keeps its classifier if it has the same classes. Otherwise the classifier is new.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`] for a configuration that is not supported, and [`Error::Tensor`] for a tensor for which
    /// no initial distribution is known.
    pub fn new(start: Start<'_>, classes: &[String], seed: u64) -> Result<Self> {
        match start {
            Start::Checkpoint(path) => Self::of_checkpoint(path, classes, seed),
            Start::Config(path) => {
                let (directory, config, preprocessor) = read_config(path, CONFIG)?;
                let config = for_classes(&config, classes);
                Self::from_scratch(&directory.to_string_lossy(), config, preprocessor, seed)
            }
            Start::Architecture { name, image_size } => {
                let config = architecture_config(name, image_size);
                Self::from_scratch(name, for_classes(&config, classes), None, seed)
            }
        }
    }

    /// Creates a model with new weights.
    fn from_scratch(place: &str, config: Value, preprocessor: Option<Value>, seed: u64) -> Result<Self> {
        let shapes = shapes(place, &config, preprocessor.as_ref())?;
        let scale = layer_scale(&config);
        let create = |(name, shape): (String, Vec<usize>)| {
            let content = new_tensor(place, &name, shape, scale, seed)?;
            Ok((name, content))
        };
        let tensors: BTreeMap<_, _> = shapes.into_iter().map(create).collect::<Result<_>>()?;
        Ok(Self {
            config,
            preprocessor,
            new: tensors.keys().cloned().collect(),
            tensors,
            names: [CONFIG, WEIGHTS],
            files: Vec::new(),
        })
    }

    /// Reads a checkpoint, and replaces its classifier unless it has the same classes.
    fn of_checkpoint(path: &Path, classes: &[String], seed: u64) -> Result<Self> {
        let checkpoint = Checkpoint::open(Some(path))?;
        let (old, preprocessor) = (checkpoint.config(), checkpoint.preprocessor().cloned());
        let config = for_classes(old, classes);
        let classifier = if config == *old {
            BTreeMap::new()
        } else {
            classifier(&path.to_string_lossy(), &config, preprocessor.as_ref(), classes)?
        };
        let mut tensors = contents(&checkpoint, |name| !classifier.contains_key(name));
        let new = classifier.keys().cloned().collect();
        for (name, shape) in classifier {
            let content = new_tensor(&path.to_string_lossy(), &name, shape, 1.0, seed)?;
            tensors.insert(name, content);
        }
        Ok(Self {
            config,
            preprocessor,
            tensors,
            new,
            names: checkpoint.file_names(),
            files: Vec::new(),
        })
    }

    /// Returns the names of the tensors with new weights.
    #[must_use]
    pub fn new_tensors(&self) -> &[String] {
        &self.new
    }

    /// Writes the model to `directory`, as timm or transformers do.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] for the file that cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
        let write = |name: &str, bytes: &[u8]| {
            let file = directory.join(name);
            fs::write(&file, bytes).map_err(|error| Error::io(&file, error))
        };
        let text = |value: &Value| (json::indented(value) + "\n").into_bytes();
        if let Some(preprocessor) = &self.preprocessor {
            write(PREPROCESSOR, &text(preprocessor))?;
        }
        let [config, weights] = self.names;
        write(config, &text(&self.config))?;
        for (name, bytes) in &self.files {
            write(name, bytes)?;
        }
        let views = self.tensors.iter().map(|(name, content)| {
            let Content { dtype, shape, bytes } = content;
            let view = TensorView::new(*dtype, shape.clone(), bytes);
            view.map(|view| (name, view))
        });
        let views = views.collect::<Result<Vec<_>, _>>();
        // transformers writes this entry and requires it.
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let bytes = views.and_then(|views| safetensors::serialize(views, Some(metadata)));
        let bytes = bytes.map_err(|error| Error::internal("initial model", error))?;
        write(weights, &bytes)
    }
}

impl Content {
    /// Creates a tensor of f32.
    fn of_f32(shape: Vec<usize>, values: impl IntoIterator<Item = f32>) -> Self {
        Self {
            dtype: Dtype::F32,
            shape,
            bytes: values.into_iter().flat_map(f32::to_le_bytes).collect(),
        }
    }
}

/// Reads the tensors of a checkpoint whose names pass `keep`. Buffers of integers are left out. The libraries compute them.
fn contents(checkpoint: &Checkpoint, keep: impl Fn(&str) -> bool) -> BTreeMap<String, Content> {
    let mut tensors = BTreeMap::new();
    for name in checkpoint.names().filter(|name| keep(name)) {
        let Ok(tensor) = checkpoint.tensor(name) else {
            continue;
        };
        let content = Content {
            dtype: match tensor.dtype() {
                DType::F16 => Dtype::F16,
                DType::BF16 => Dtype::BF16,
                _ => Dtype::F32,
            },
            shape: tensor.shape().to_vec(),
            bytes: tensor.to_le_bytes().into_owned(),
        };
        tensors.insert(name.to_owned(), content);
    }
    tensors
}

/// Returns the names of the files with the configuration and the weights, as the library writes them.
fn file_names(config: &Value) -> [&'static str; 2] {
    if config.get("model_cfg").is_some() {
        [OPEN_CLIP, OPEN_CLIP_WEIGHTS]
    } else {
        [CONFIG, WEIGHTS]
    }
}

/// Returns the name and shape of each tensor of the model.
fn shapes(place: &str, config: &Value, preprocessor: Option<&Value>) -> Result<BTreeMap<String, Vec<usize>>> {
    let preprocessor = preprocessor.map(|value| json::text(value).into_bytes());
    model::tensor_shapes(place, json::text(config).as_bytes(), preprocessor.as_deref())
}

/// Returns the tensors whose shape depends on the number of classes.
fn classifier(
    place: &str,
    config: &Value,
    preprocessor: Option<&Value>,
    classes: &[String],
) -> Result<BTreeMap<String, Vec<usize>>> {
    let one_more: Vec<String> = classes.iter().cloned().chain([String::from("_")]).collect();
    let other = shapes(place, &for_classes(config, &one_more), preprocessor)?;
    let mut all = shapes(place, config, preprocessor)?;
    all.retain(|name, shape| other.get(name) != Some(shape));
    Ok(all)
}

/// Returns a tensor with new values.
fn new_tensor(place: &str, name: &str, shape: Vec<usize>, layer_scale: f32, seed: u64) -> Result<Content> {
    let Some(rule) = rule(name, &shape, layer_scale) else {
        let reason = "has no known initial distribution. Start from a checkpoint instead";
        return Err(Error::tensor(Path::new(place), name, reason));
    };
    let count: usize = shape.iter().product();
    let normal = Numbers::new(seed, name);
    let value = |index: usize| match rule {
        Rule::Constant(value) => value,
        Rule::Normal(deviation) => (deviation * normal.value(index as u64)) as f32,
        Rule::Truncated(deviation) => (deviation * normal.truncated(index as u64)) as f32,
    };
    let bytes = (0..count)
        .into_par_iter()
        .flat_map_iter(|index| value(index).to_le_bytes());
    Ok(Content {
        dtype: Dtype::F32,
        bytes: bytes.collect(),
        shape,
    })
}

/// Returns the initial distribution of the tensor `name`, if it is known.
///
/// Linear layers and positions are those of timm's Vision Transformers. The patch projection is LeCun's normal
/// distribution, as in JAX's original.
fn rule(name: &str, shape: &[usize], layer_scale: f32) -> Option<Rule> {
    const SCALES: [&str; 6] = ["gamma", "gamma_1", "gamma_2", "lambda1", "lambda_1", "lambda_2"];
    const TOKENS: [&str; 5] = [
        "cls_token",
        "reg_token",
        "register_tokens",
        "class_embedding",
        "mask_token",
    ];
    const TABLES: [&str; 9] = [
        "pos_embed",
        "position_embedding",
        "positional_embedding",
        "dist_token",
        "distillation_token",
        "relative_position_bias_table",
        "probe",
        "rel_pos_h",
        "rel_pos_w",
    ];
    let last = name.rsplit('.').next().unwrap_or(name);
    // Vectors of SAM that stand for points and masks, and frequencies of positions.
    const VECTORS: [&str; 5] = [
        "iou_token",
        "mask_tokens",
        "point_embed",
        "no_mask_embed",
        "image_embedding.positional_embedding",
    ];
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    match *shape {
        _ if has(&VECTORS) => Some(Rule::Normal(1.0)),
        _ if SCALES.contains(&last) => Some(Rule::Constant(layer_scale)),
        _ if last == "logit_scale" => Some(Rule::Constant(LOGIT_SCALE)),
        _ if has(&TOKENS) => Some(Rule::Normal(TOKEN_DEVIATION)),
        _ if has(&TABLES) => Some(Rule::Normal(DEVIATION)),
        [_, _, dim] if last == "latent" => Some(Rule::Normal(1.0 / (dim as f64).sqrt())),
        // Projections to the space of images and texts.
        [inputs, _] if ["proj", "text_projection"].contains(&last) => {
            Some(Rule::Normal((inputs as f64).sqrt().recip()))
        }
        [_, inputs] if name.starts_with("visual_projection.") || name.starts_with("text_projection.") => {
            Some(Rule::Normal((inputs as f64).sqrt().recip()))
        }
        [_] if last.ends_with("bias") => Some(Rule::Constant(0.0)),
        [_] if last == "weight" => Some(Rule::Constant(1.0)),
        [_, channels, height, width] if last == "weight" => {
            let inputs = (channels * height * width) as f64;
            Some(Rule::Truncated(inputs.sqrt().recip() / TRUNCATED_DEVIATION))
        }
        [_, _] if last.ends_with("weight") => Some(Rule::Normal(DEVIATION)),
        _ => None,
    }
}

/// Reads the configuration of a model and, if it exists, of its image processor. `path` is the configuration, or a directory that has it as
/// `name`. Returns the directory too.
fn read_config(path: &Path, name: &str) -> Result<(PathBuf, Value, Option<Value>)> {
    let (directory, file) = if path.is_dir() {
        (path, path.join(name))
    } else {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        (parent.unwrap_or(Path::new(".")), path.to_owned())
    };
    let config = read_json(&file)?;
    let preprocessor = directory.join(PREPROCESSOR);
    let preprocessor = preprocessor.exists().then(|| read_json(&preprocessor));
    Ok((directory.to_owned(), config, preprocessor.transpose()?))
}

/// Reads a JSON file.
fn read_json(file: &Path) -> Result<Value> {
    let bytes = regular_file::read(file).map_err(|error| Error::io(file, error))?;
    json::parse(&bytes).map_err(|reason| Error::config(file, reason))
}

#[cfg(test)]
mod tests {
    use hipvit::Session;
    use serde_json::json;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("class-{index}")).collect()
    }

    fn tiny() -> Value {
        json!({
            "architecture": "vit_tiny_patch16_224",
            "num_classes": 10,
            "label_names": ["x"],
            "model_args": { "img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 10, "init_values": 1e-4 },
            "pretrained_cfg": { "input_size": [3, 16, 16], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5] },
        })
    }

    fn scratch(seed: u64) -> InitialModel {
        InitialModel::from_scratch("tiny", for_classes(&tiny(), &names(3)), None, seed).unwrap()
    }

    fn values(content: &Content) -> Vec<f32> {
        content
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect()
    }

    #[test]
    fn a_new_model_loads_with_its_classes() {
        let directory = tempfile::tempdir().unwrap();
        let model = scratch(0);
        model.write(directory.path()).unwrap();
        let session = Session::load(directory.path()).unwrap();
        assert_eq!(session.labels().iter().collect::<Vec<_>>(), names(3));
        assert_eq!(model.new_tensors().len(), model.tensors.len());
    }

    #[test]
    fn weights_have_the_distributions_of_timm() {
        let model = scratch(0);
        let of = |name: &str| values(&model.tensors[name]);
        let deviation = |values: &[f32]| {
            let squares = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
            (squares / values.len() as f64).sqrt()
        };
        let within = |name: &str, expected: f64| {
            let ratio = deviation(&of(name)) / expected;
            assert!((0.85..1.15).contains(&ratio), "{name}: {ratio}");
        };
        within("blocks.0.mlp.fc1.weight", 0.02);
        within("pos_embed", 0.02);
        let patch = of("patch_embed.proj.weight");
        within("patch_embed.proj.weight", 48f64.sqrt().recip());
        let limit = 2.0 / 48f64.sqrt() / TRUNCATED_DEVIATION;
        assert!(patch.iter().all(|&value| f64::from(value).abs() <= limit));
        assert!(deviation(&of("cls_token")) < 1e-5);
        assert!(of("blocks.1.norm2.weight").iter().all(|&value| value == 1.0));
        assert!(of("blocks.1.attn.qkv.bias").iter().all(|&value| value == 0.0));
        assert!(of("blocks.1.ls2.gamma").iter().all(|&value| value == 1e-4));
    }

    #[test]
    fn the_seed_and_the_name_determine_a_tensor() {
        let [first, again, other] = [0, 0, 1].map(scratch);
        let bytes = |model: &InitialModel, name: &str| model.tensors[name].bytes.clone();
        let fc1 = "blocks.0.mlp.fc1.weight";
        assert_eq!(bytes(&first, fc1), bytes(&again, fc1));
        assert_ne!(bytes(&first, fc1), bytes(&other, fc1));
        assert_ne!(bytes(&first, fc1), bytes(&first, "blocks.1.mlp.fc1.weight"));
    }

    #[test]
    fn a_checkpoint_keeps_all_but_a_classifier_of_other_classes() {
        let directory = tempfile::tempdir().unwrap();
        let first = scratch(0);
        first.write(directory.path()).unwrap();
        let of = |classes: usize| {
            InitialModel::new(Start::of(directory.path(), None), &names(classes), 7).unwrap()
        };
        let (kept, replaced) = (of(3), of(5));
        assert_eq!(kept.new_tensors().len(), 0);
        assert_eq!(replaced.new_tensors(), ["head.bias", "head.weight"]);
        assert_eq!(replaced.tensors["head.weight"].shape, [5, 32]);
        for (name, content) in &first.tensors {
            assert_eq!(kept.tensors[name].bytes, content.bytes, "{name}");
            let is_head = name.starts_with("head.");
            assert_eq!(replaced.tensors[name].bytes == content.bytes, !is_head, "{name}");
        }
    }

    #[test]
    fn architectures_are_created_by_name() {
        let start = Start::of(Path::new("vit_tiny_patch16_224"), Some(32));
        let model = InitialModel::new(start, &names(2), 0).unwrap();
        assert_eq!(model.tensors["pos_embed"].shape, [1, 5, 192]);
        assert_eq!(model.tensors["head.weight"].shape, [2, 192]);
        let unknown = InitialModel::new(Start::of(Path::new("vit_tinny"), None), &names(2), 0);
        assert!(unknown.unwrap_err().to_string().contains("vit_tinny"));
    }
}
