//! Preprocessing and labels of an ONNX model: from a rule of the caller, or from the configuration beside the file.

use std::path::Path;

use serde_json::{Value, json};

use super::image_input::{ImageInput, NotImages};
use crate::error::{Error, Result};
use crate::image::{Preprocess, Resize, TimmOptions};
use crate::labels::Labels;
use crate::model::document::Document;
use crate::model::file_names::CONFIG;
use crate::model::options::LoadOptions;
use crate::model::source::Source;
use crate::model::{hugging_face, preprocessing, timm};

/// What prepares images for a model and names its classes.
pub(super) struct Prepared {
    pub(super) image: ImageInput,
    pub(super) preprocess: Preprocess,
    beside: Beside,
}

impl Prepared {
    /// Returns the labels of the classes.
    pub(super) fn labels(&self, classes: usize) -> Result<Labels> {
        match &self.beside.config {
            Some(config) if self.beside.is_timm() => timm::labels(config.fields()?, classes),
            Some(config) => hugging_face::labels(config.fields()?, classes),
            None => Ok(Labels::of_model(
                classes,
                |_| None,
                |index| format!("class {index}"),
            )),
        }
    }

    /// Returns the `model_type` of transformers' configuration, if there is one.
    pub(super) fn model_type(&self) -> Option<&str> {
        self.beside.config.as_ref()?.value.get("model_type")?.as_str()
    }

    /// Returns true if an image may belong to several classes at once.
    pub(super) fn is_multi_label(&self) -> bool {
        let config = self.beside.config.as_ref();
        let kind = config.and_then(|config| config.value.get("problem_type"));
        kind.and_then(Value::as_str) == Some("multi_label_classification")
    }
}

/// Returns the configuration beside the file `path`, if there is one.
pub(in crate::model) fn config_beside(path: &Path) -> Result<Option<Document>> {
    Ok(Beside::open(path)?.config)
}

/// The configuration in the directory of the file, or in the one above if that is called `onnx`.
struct Beside {
    source: Source<'static>,
    config: Option<Document>,
    has_processor: bool,
}

impl Beside {
    fn open(path: &Path) -> Result<Self> {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let of_parent = Self::of_directory(parent)?;
        let is_empty = of_parent.config.is_none() && !of_parent.has_processor;
        match parent
            .canonicalize()
            .ok()
            .filter(|parent| is_empty && parent.ends_with("onnx"))
        {
            Some(parent) => Self::of_directory(&parent.join("..")),
            None => Ok(of_parent),
        }
    }

    fn of_directory(directory: &Path) -> Result<Self> {
        let source = Source::of_directory(directory.to_owned(), None);
        Ok(Self {
            config: source.json(CONFIG)?,
            has_processor: preprocessing::has_processor(&source)?,
            source,
        })
    }

    /// Returns true if the configuration is timm's.
    fn is_timm(&self) -> bool {
        let has = |key| {
            self.config
                .as_ref()
                .is_some_and(|config| config.value.get(key).is_some())
        };
        has("architecture") || has("pretrained_cfg")
    }

    /// Returns the preprocessing for images of this size, or of the configuration's own size. `None` if there is no configuration.
    fn rule(&self, size: Option<[usize; 2]>) -> Result<Option<Preprocess>> {
        match &self.config {
            Some(config) if self.is_timm() && !self.has_processor => {
                let rules = config.value.get("pretrained_cfg").unwrap_or(&config.value);
                Ok(Some(of_timm(&config.file, rules, size)?))
            }
            _ if !self.has_processor => Ok(None),
            Some(config) => Ok(Some(preprocessing::transformers(
                &self.source,
                config.fields()?,
                size,
            )?)),
            None => {
                let empty = Document {
                    file: self.source.place(CONFIG),
                    value: json!({}),
                };
                Ok(Some(preprocessing::transformers(
                    &self.source,
                    empty.fields()?,
                    size,
                )?))
            }
        }
    }
}

fn of_timm(file: &Path, rules: &Value, size: Option<[usize; 2]>) -> Result<Preprocess> {
    let options = TimmOptions {
        input_size: size.map(|[height, width]| (height, width)),
        use_test_size: false,
    };
    Ok(Preprocess::from_timm(file, rules, &options)?)
}

/// Finds the preprocessing of the model at `path`, which has the input `image`.
pub(super) fn prepare(
    path: &Path,
    image: ImageInput,
    options: &LoadOptions,
) -> Result<Result<Prepared, NotImages>> {
    let size = options.image_size.or(image.fixed_size());
    if let Some([height, width]) = size.filter(|&size| !image.takes(size)) {
        let reason = format!(
            "{} does not take images of {height}×{width}: its size is fixed",
            path.display()
        );
        return Err(Error::argument("image size", reason));
    }
    let beside = Beside::open(path)?;
    let rule = match &options.image_rule {
        Some(_) if size.is_none() => {
            let reason = "its file does not say how large images are. Give their size with SessionBuilder::image_size or --image-size";
            return Ok(Err(NotImages::new(reason)));
        }
        Some(rule) => {
            let rules = json!({
                "mean": rule.mean,
                "std": rule.std,
                "crop_pct": rule.crop_pct,
                "interpolation": rule.filter.to_string(),
            });
            Some(of_timm(path, &rules, size)?)
        }
        None => beside.rule(size)?,
    };
    let Some(preprocess) = rule else {
        let reason = "no config.json or preprocessor_config.json beside the file says how images are prepared. Add the one of the model, \
                      or give the values of training with SessionBuilder::image_rule, or --mean and --std";
        return Ok(Err(NotImages::new(reason)));
    };
    if matches!(preprocess.resize(), Some((Resize::Patches { .. }, _))) {
        return Ok(Err(NotImages::new(
            "its images keep their aspect ratio, which ONNX models do not support",
        )));
    }
    let (height, width) = preprocess.output_size();
    if !image.takes([height, width]) {
        let reason =
            format!("its configuration prepares images of {height}×{width}, which its input does not take");
        return Ok(Err(NotImages(reason)));
    }
    Ok(Ok(Prepared {
        image,
        preprocess,
        beside,
    }))
}
