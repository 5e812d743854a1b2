//! Reads the parts of timm's `config.json` that all architectures share: name, `model_args` and `pretrained_cfg`, with
//! the resulting sizes, classes and labels.
//!
//! The rules follow timm's `_parse_model_cfg` and `build_model_with_cfg`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::labels::Labels;
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::{Family, Library};
use crate::model::names::Names;
use crate::model::vit::Vit;
use crate::model::weights::Weights;
use hipvit_files::json::{is_true, scalar_text};

const IMAGENET_CLASSES: usize = 1000;
const DEFAULT_IMAGE: [usize; 2] = [224, 224];
/// Maximum side of an image in `input_size`, in pixels.
const LARGEST_SIDE: u64 = 1 << 20;

/// Tensors of timm's classifiers, with the reason why a model without classes skips them.
const CLASSIFIERS: [(&str, &str); 2] = [("head.*", NO_CLASSES), ("head_dist.*", NO_CLASSES)];
const NO_CLASSES: &str = "`model_args.num_classes` is 0, so timm drops the classifier";

/// Arguments of timm's factory that have no effect unless they are true. A model for which they are true is not
/// supported.
const FACTORY: &[&str] = &["device", "dtype", "features_only", "pruned"];

/// Returns true if transformers wrote the model with its wrapper for timm models.
pub(in crate::model) fn is_wrapped(config: Fields<'_>) -> Result<bool> {
    Ok(config.text("model_type")? == Some("timm_wrapper"))
}

/// Parts of a `config.json`.
#[derive(Clone, Copy)]
pub(super) struct Config<'a> {
    pub(super) top: Fields<'a>,
    /// `pretrained_cfg`, or the top level in files older than this key.
    pub(super) pretrained: Fields<'a>,
    /// `model_args`.
    pub(super) given: Fields<'a>,
    /// True if `pretrained_cfg` is missing.
    older: bool,
}

/// Image sizes in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Size for which the stored positions were trained, as far as the file tells.
    pub(super) stored: [usize; 2],
    /// Size for which timm creates the model.
    pub(super) model: [usize; 2],
    /// Size to which images are preprocessed.
    pub(super) image: [usize; 2],
}

/// Number of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classes {
    pub(super) count: usize,
    /// True if timm drops the stored classifier.
    dropped: bool,
}

impl<'a> Config<'a> {
    pub(super) fn new(top: Fields<'a>) -> Result<Self> {
        let pretrained = top.object("pretrained_cfg")?;
        Ok(Self {
            top,
            pretrained: pretrained.unwrap_or(top),
            given: top.object_or_empty("model_args")?,
            older: pretrained.is_none(),
        })
    }

    /// Returns the architecture's name. timm drops a tag, which starts at the first dot.
    pub(super) fn architecture(&self) -> Result<&'a str> {
        let name = self.top.text("architecture")?.unwrap_or_default();
        Ok(name.split_once('.').map_or(name, |(name, _)| name))
    }

    /// Returns an error for arguments that would be ignored. Every key must be in one of the lists, and keys of
    /// `must_be_off` must be false.
    pub(super) fn check_arguments(
        &self,
        applied: &[&str],
        without_effect: &[&str],
        must_be_off: &[&str],
    ) -> Result<()> {
        let given = self.given;
        for key in given.keys() {
            if must_be_off.contains(&key) || FACTORY.contains(&key) {
                match given.get(key) {
                    Some(value) if is_true(value) => {
                        return Err(given.unexpected(key, value, "false: it is not supported"));
                    }
                    _ => {}
                }
            } else if !without_effect.contains(&key) && !applied.contains(&key) {
                return Err(given.error(key, "is not a supported argument"));
            }
        }
        Ok(())
    }

    /// Reads the image sizes. `size` is the architecture's own size. `dynamic` is true for an architecture that takes
    /// any size.
    pub(super) fn sizes(&self, size: Option<[usize; 2]>, dynamic: bool) -> Result<Sizes> {
        let given = self.given.extent("img_size")?;
        let flexible = truth(self.given, "dynamic_img_size") == Some(true);
        let fixed = truth(self.pretrained, "fixed_input_size").unwrap_or(false) && !flexible;
        let input = match given {
            // timm replaces the input size before it is used.
            Some(size) if fixed => size,
            _ => self.input_size()?.unwrap_or(DEFAULT_IMAGE),
        };
        let own = given.or(size);
        let model = own.unwrap_or(if fixed { input } else { DEFAULT_IMAGE });
        Ok(Sizes {
            stored: given.unwrap_or(input),
            model,
            // A model of a fixed size takes images of that size, whatever the preprocessing was written for.
            image: if fixed && !dynamic { model } else { input },
        })
    }

    /// Reads `pretrained_cfg.input_size`, without its channels.
    fn input_size(&self) -> Result<Option<[usize; 2]>> {
        let Some(value) = self.pretrained.get("input_size") else {
            return Ok(None);
        };
        let size = |value: &Value| {
            let size = value.as_u64().filter(|size| (1..=LARGEST_SIDE).contains(size));
            size.map(|size| size as usize)
        };
        let extents: Option<Vec<usize>> = value.as_array().and_then(|list| list.iter().map(size).collect());
        match extents.as_deref() {
            Some(&[channels, height, width]) if channels == 3 || self.given.has("in_chans") => {
                Ok(Some([height, width]))
            }
            _ => Err(self
                .pretrained
                .unexpected("input_size", value, "[3, height, width]")),
        }
    }

    /// Reads the number of classes from `model_args`, otherwise from the top level, otherwise from `pretrained_cfg`.
    pub(super) fn classes(&self) -> Result<Classes> {
        if self.is_without_head()? {
            return Ok(Classes {
                count: 0,
                dropped: false,
            });
        }
        let stored = match whole(self.top, "num_classes")? {
            Some(count) => Some(count),
            None => whole(self.pretrained, "num_classes")?,
        };
        // timm leaves a negative number to the architecture's class.
        let stored = stored.map_or(IMAGENET_CLASSES, |count| count.unwrap_or(IMAGENET_CLASSES));
        let Some(given) = whole(self.given, "num_classes")? else {
            return Ok(Classes {
                count: stored,
                dropped: false,
            });
        };
        let count = given.unwrap_or(0);
        let checked = self.pretrained.get("classifier").is_some_and(is_true);
        if checked && count != stored && count > 0 {
            let reason = format_args!(
                "is {count}, but `num_classes` of the checkpoint is {stored}: timm would give the model a random classifier"
            );
            return Err(self.given.error("num_classes", reason));
        }
        Ok(Classes {
            count,
            dropped: checked && count != stored,
        })
    }

    /// Returns true if transformers' wrapper created the model without its classifier, whatever `num_classes` says.
    fn is_without_head(&self) -> Result<bool> {
        let classes = self.top.get("architectures").and_then(|list| list.get(0));
        let without = is_wrapped(self.top)? && classes.and_then(Value::as_str) == Some("TimmWrapperModel");
        if without && self.top.flag("do_pooling")? == Some(false) {
            let reason = "is false, so the model makes no embedding of an image";
            return Err(self.top.error("do_pooling", reason));
        }
        Ok(without)
    }

    /// Returns an error for a checkpoint whose classifier has rows before the first class.
    pub(super) fn check_label_offset(&self) -> Result<()> {
        match self.pretrained.count("label_offset")? {
            Some(1..) => Err(self.pretrained.error("label_offset", "is not supported")),
            _ => Ok(()),
        }
    }

    /// Reads the labels: `label_names` (a list, or an object by index), replaced by `label_descriptions` where there is
    /// one.
    pub(super) fn labels(&self, classes: usize) -> Result<Labels> {
        let place = |key| match self.top.get(key) {
            Some(_) => self.top,
            None => self.pretrained,
        };
        // The older layout uses this name.
        let key = if self.older && self.top.get("labels").is_some() {
            "labels"
        } else {
            "label_names"
        };
        let holder = place(key);
        let mut names: BTreeMap<usize, Cow<'_, str>> = BTreeMap::new();
        match holder.get(key) {
            None => {}
            Some(Value::Array(list)) => {
                let named = list.iter().enumerate();
                names.extend(named.filter_map(|(index, name)| Some((index, scalar_text(name)?))));
            }
            Some(Value::Object(map)) => {
                let named = map.iter();
                names.extend(
                    named.filter_map(|(index, name)| Some((index.trim().parse().ok()?, scalar_text(name)?))),
                );
            }
            Some(other) => return Err(holder.unexpected(key, other, "a list or an object")),
        }
        let descriptions = place("label_descriptions").object("label_descriptions")?;
        let known = |index: usize| {
            let name: &str = names.get(&index)?;
            let description = descriptions.and_then(|map| map.get(name)).and_then(Value::as_str);
            // A name with a description is an id, as in ImageNet.
            Some((descriptions.map(|_| name), description.unwrap_or(name)))
        };
        Ok(Labels::of_model(classes, known, |index| format!("class {index}")))
    }

    /// Returns the description of the model `name`. `ignored` are the tensors that timm skips, besides a dropped classifier.
    pub(super) fn description(
        &self,
        name: &str,
        family: Family,
        names: &'static Names,
        vit: Vit,
        classes: Classes,
        ignored: &[(&'static str, &'static str)],
    ) -> Result<Description> {
        Ok(Description {
            library: Library::Timm,
            family,
            architecture: name.to_owned(),
            vit,
            depth: None,
            text: None,
            names,
            prefixes: &[""],
            ignored: ignored.iter().copied().chain(classes.ignored()).collect(),
            labels: self.labels(classes.count)?,
            multi_label: false,
        })
    }

    /// Returns an error about the file as a whole.
    pub(super) fn error(&self, reason: impl std::fmt::Display) -> Error {
        Error::config(self.top.file(), reason)
    }
}

impl Classes {
    /// Iterates over the tensors that timm drops, with the reason.
    pub(super) fn ignored(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        CLASSIFIERS.into_iter().filter(move |_| self.dropped)
    }
}

/// Returns the grid of the stored positions: `size` divided by the patch size of the stored weights, which may differ
/// from the model's.
pub(super) fn stored_grid(
    size: [usize; 2],
    patch: [usize; 2],
    tensor: &str,
    weights: &Weights,
) -> [usize; 2] {
    let stored = match weights.shape(tensor) {
        Some(&[_, _, height, width]) if height > 0 && width > 0 => [height, width],
        _ => patch,
    };
    [0, 1].map(|axis| size[axis] / stored[axis])
}

/// Returns an error if images do not have three channels.
pub(super) fn check_channels(given: Fields<'_>) -> Result<()> {
    match given.count("in_chans")? {
        None | Some(3) => Ok(()),
        Some(channels) => Err(given.error(
            "in_chans",
            format_args!("is {channels}; only 3 channels are supported"),
        )),
    }
}

/// Returns true if the value of `key` is truthy in Python, or `None` if the key is missing.
pub(super) fn truth(fields: Fields<'_>, key: &str) -> Option<bool> {
    fields.has(key).then(|| fields.get(key).is_some_and(is_true))
}

/// Reads a number of classes. Returns `Some(None)` for a negative one.
fn whole(fields: Fields<'_>, key: &str) -> Result<Option<Option<usize>>> {
    match fields.get(key).and_then(Value::as_i64) {
        Some(..0) => Ok(Some(None)),
        _ => Ok(fields.count(key)?.map(Some)),
    }
}
