//! Dual encoders that training on pairs of images and captions starts from.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::model::{self, Checkpoint, LoadOptions, TOKENIZER_FILES};
use hipvit_files::regular_file;

use super::config::layer_scale;
use super::{
    CONFIG, Content, InitialModel, OPEN_CLIP, Start, contents, file_names, new_tensor, read_config, shapes,
};
use crate::ContrastiveOptions;
use crate::fit::text_tower;
use crate::objective::{BIAS_TENSOR, SCALE_TENSOR};

impl InitialModel {
    /// Creates a model with both towers and its tokenizer. `seed` determines all new weights.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] for a model without a text tower, and the errors of [`new`](Self::new) and of the tokenizer.
    pub(crate) fn of_pairs(start: Start<'_>, seed: u64) -> Result<Self> {
        match start {
            Start::Checkpoint(path) => Self::of_dual_encoder(path),
            Start::Config(path) => Self::dual_encoder_from_scratch(path, seed),
            Start::Architecture { name, .. } => {
                let reason = format!(
                    "`{name}` is neither a directory nor a model of the hub, and architectures of timm have no text tower. Give a \
                     directory with config.json and a tokenizer"
                );
                Err(Error::argument("model", reason))
            }
        }
    }

    fn of_dual_encoder(path: &Path) -> Result<Self> {
        let loaded = model::load(path, &LoadOptions::default())?;
        text_tower(loaded.text.as_ref(), path)?.tokenizer()?;
        let checkpoint = Checkpoint::open(Some(path))?;
        Ok(Self {
            config: checkpoint.config().clone(),
            preprocessor: checkpoint.preprocessor().cloned(),
            tensors: contents(&checkpoint, |_| true),
            new: Vec::new(),
            names: checkpoint.file_names(),
            files: tokenizer_files(&model::directory(path)?)?,
        })
    }

    fn dual_encoder_from_scratch(path: &Path, seed: u64) -> Result<Self> {
        let has_config = path.join(CONFIG).exists();
        let name = if has_config { CONFIG } else { OPEN_CLIP };
        let (directory, config, preprocessor) = read_config(path, name)?;
        let place = directory.to_string_lossy();
        let shapes = shapes(&place, &config, preprocessor.as_ref())?;
        if !shapes.contains_key(SCALE_TENSOR) {
            text_tower(None, &directory)?;
        }
        let files = tokenizer_files(&directory)?;
        if files.is_empty() {
            let reason =
                "has no tokenizer, such as tokenizer.json. Copy the one with which captions become tokens";
            return Err(Error::config(&directory, reason));
        }
        let scale = layer_scale(&config);
        let family = if shapes.contains_key(BIAS_TENSOR) {
            ContrastiveOptions::sigmoid()
        } else {
            ContrastiveOptions::info_nce()
        };
        let mut tensors = BTreeMap::new();
        for (name, shape) in shapes {
            let of_loss = match name.as_str() {
                SCALE_TENSOR => Some(family.scale.ln()),
                BIAS_TENSOR => Some(family.bias),
                _ => None,
            };
            let content = match of_loss {
                Some(value) => Content::of_f32(shape, [value]),
                None => new_tensor(&place, &name, shape, scale, seed)?,
            };
            tensors.insert(name, content);
        }
        Ok(Self {
            names: file_names(&config),
            config,
            preprocessor,
            new: tensors.keys().cloned().collect(),
            tensors,
            files,
        })
    }
}

/// Reads the files of a tokenizer that a directory has.
pub(super) fn tokenizer_files(directory: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let places = TOKENIZER_FILES
        .into_iter()
        .map(|name| (name, directory.join(name)));
    let existing = places.filter(|(_, file)| fs::metadata(file).is_ok());
    existing
        .map(|(name, file)| {
            let bytes = regular_file::read(&file).map_err(|error| Error::io(&file, error))?;
            Ok((name, bytes))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use hipvit::Session;
    use hipvit::session::TextEncoder;
    use safetensors::SafeTensors;

    use super::super::PREPROCESSOR;
    use super::*;
    use crate::tests::golden;

    /// Models of random weights have the tensors of trained ones, the family's scale and bias, and the tokenizer.
    #[test]
    fn new_dual_encoders_have_the_tensors_of_trained_ones() {
        for (name, weights) in [
            ("hf_clip", "model.safetensors"),
            ("hf_clip_older", "model.safetensors"),
            ("hf_siglip", "model.safetensors"),
            ("open_clip", "open_clip_model.safetensors"),
        ] {
            let trained = golden("zero_shot").join(name);
            let [without, written] = [(), ()].map(|()| tempfile::tempdir().unwrap());
            for entry in fs::read_dir(&trained).unwrap() {
                let file = entry.unwrap().path();
                if file
                    .extension()
                    .is_some_and(|extension| extension != "safetensors")
                {
                    fs::copy(&file, without.path().join(file.file_name().unwrap())).unwrap();
                }
            }
            let start = Start::of(without.path(), None);
            assert!(start.is_from_scratch(), "{name}");
            let model = InitialModel::of_pairs(start, 0).unwrap();
            model.write(written.path()).unwrap();
            let shapes = |directory: &Path| {
                let bytes = fs::read(directory.join(weights)).unwrap();
                let tensors = SafeTensors::deserialize(&bytes).unwrap();
                let shapes = tensors
                    .iter()
                    .map(|(name, view)| (name.to_owned(), view.shape().to_vec()));
                shapes.collect::<BTreeMap<_, _>>()
            };
            assert_eq!(shapes(written.path()), shapes(&trained), "{name}");

            let session = Session::load(written.path()).unwrap();
            let texts = TextEncoder::new(&session).unwrap();
            let loaded = model::load(written.path(), &LoadOptions::default()).unwrap();
            let tower = loaded.text.as_ref().unwrap();
            let ids = tower.tokenizer().unwrap().encode("a photo of a cat").unwrap().ids;
            assert!(texts.embed(&[&ids]).unwrap().iter().any(|&value| value != 0.0));
            let expected = if name == "hf_siglip" {
                [10.0, -10.0]
            } else {
                [1.0 / 0.07, 0.0]
            };
            for (found, expected) in tower.scale_and_bias().into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{name}: {found}");
            }
        }
    }

    #[test]
    fn models_that_cannot_be_trained_on_pairs_are_refused() {
        let refused = |start: Start<'_>, reasons: &[&str]| {
            let error = InitialModel::of_pairs(start, 0).unwrap_err().to_string();
            for reason in reasons {
                assert!(error.contains(reason), "{error}");
            }
        };
        let vit = golden("hf_vit");
        refused(Start::Checkpoint(&vit), &["hf_vit", "no text tower"]);
        refused(Start::Config(&vit), &["hf_vit", "no text tower"]);
        let name = "vit_tiny_patch16_224";
        let image_size = None;
        refused(Start::Architecture { name, image_size }, &[name, "no text tower"]);
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join(CONFIG);
        for name in [CONFIG, PREPROCESSOR] {
            fs::copy(
                golden("zero_shot/hf_clip").join(name),
                directory.path().join(name),
            )
            .unwrap();
        }
        refused(Start::Config(&config), &["has no tokenizer", "tokenizer.json"]);
    }
}
