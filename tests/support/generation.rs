//! Small decoders with the texts and logits of transformers' greedy `generate`: `scripts/golden_generation.py`.

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::image::{Limits, RgbImage, decode};
use hipvit::reference::model_tolerance;
use hipvit::{DType, Device, Session, SessionBuilder};
use hipvit_generate::{Finish, GenerateOptions, Generated, Generator};
use ndarray::Array2;
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::at;
use super::server::base64;

/// A model with its texts.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) prompt: Option<String>,
    pub(crate) texts: Vec<Text>,
}

/// The text of an image.
#[derive(Deserialize)]
pub(crate) struct Text {
    image: String,
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    /// True if a token of the model ended the text.
    pub(crate) ended: bool,
}

/// Texts by beam search.
#[derive(Deserialize)]
pub(crate) struct Searched {
    pub(crate) name: String,
    pub(crate) num_beams: usize,
    length_penalty: f64,
    early_stopping: Value,
    /// The text of each image.
    pub(crate) tokens: Vec<Vec<u32>>,
}

/// Texts after a prompt, by a model whose texts begin with a token of their own.
#[derive(Deserialize)]
pub(crate) struct Prompted {
    pub(crate) name: String,
    pub(crate) prompt: String,
    /// The text of each image.
    pub(crate) tokens: Vec<Vec<u32>>,
}

pub(crate) fn prompted() -> Vec<Prompted> {
    let file = fs::read(at("tests/golden/generation/prompts.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

/// A model whose decoder has images in its sequence: `scripts/golden_smolvlm.py`.
#[derive(Deserialize)]
pub(crate) struct Tiled {
    pub(crate) name: String,
    pub(crate) prompt: Option<String>,
    pub(crate) texts: Vec<TiledText>,
}

#[derive(Deserialize)]
pub(crate) struct TiledText {
    pub(crate) image: String,
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    ended: bool,
    /// Tokens by beam search with three beams.
    pub(crate) beams: Vec<u32>,
}

pub(crate) fn tiled() -> Vec<Tiled> {
    let file = fs::read(at("tests/golden/smolvlm/cases.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

impl Tiled {
    pub(crate) fn path(&self) -> PathBuf {
        at("tests/golden/smolvlm").join(&self.name)
    }

    pub(crate) fn images(&self) -> Vec<RgbImage> {
        let read = |text: &TiledText| {
            let bytes = fs::read(at("tests/golden/images").join(&text.image)).unwrap();
            decode(&text.image, &bytes, Limits::default()).unwrap()
        };
        self.texts.iter().map(read).collect()
    }

    pub(crate) fn options(&self) -> GenerateOptions {
        GenerateOptions {
            max_tokens: Some(LENGTH),
            prompt: self.prompt.clone(),
            ..GenerateOptions::default()
        }
    }

    /// Checks greedy texts, with `draft` guessed tokens, and those by three beams.
    pub(crate) fn check(&self, builder: &SessionBuilder, draft: usize) {
        let options = GenerateOptions {
            draft,
            ..self.options()
        };
        let mut generator = Generator::load(self.path(), builder, &options).unwrap();
        let made = generator
            .generate(&self.images(), &options, &mut |_, _| {})
            .unwrap();
        for (made, expected) in made.iter().zip(&self.texts) {
            let which = format!("{}: {}", self.name, expected.image);
            assert_eq!(made.tokens, expected.tokens, "{which}");
            assert_eq!(made.text, expected.text, "{which}");
            let finish = if expected.ended {
                Finish::End
            } else {
                Finish::Length
            };
            assert_eq!(made.finish, finish, "{which}");
        }
        assert_eq!(
            (generator.pages().0, generator.vacant()),
            (0, generator.session().batch())
        );
        let options = GenerateOptions {
            beams: Some(3),
            ..self.options()
        };
        let mut generator = Generator::load(self.path(), builder, &options).unwrap();
        let made = generator
            .generate(&self.images(), &options, &mut |_, _| {})
            .unwrap();
        let tokens: Vec<Vec<u32>> = made.into_iter().map(|text| text.tokens).collect();
        let expected: Vec<Vec<u32>> = self.texts.iter().map(|text| text.beams.clone()).collect();
        assert_eq!(tokens, expected, "{} by beams", self.name);
    }

    /// Checks the logits of each token.
    pub(crate) fn check_logits(&self, device: Device, dtype: DType) {
        let builder = Session::builder().device(device).dtype(dtype).batch(3);
        let mut generator = Generator::load(self.path(), &builder, &self.options()).unwrap();
        let tokens: Vec<&[u32]> = self.texts.iter().map(|text| text.tokens.as_slice()).collect();
        let logits = generator.logits(&self.images(), self.prompt.as_deref(), &tokens);
        compare_logits(
            &self.name,
            &self.path(),
            &logits.unwrap(),
            dtype,
            // The decoder of two layers has more nodes than the encoder.
            3 * generator.session().graph().nodes().len(),
        );
    }
}

/// Compares logits with those in a golden file.
fn compare_logits(name: &str, path: &Path, logits: &[Array2<f32>], dtype: DType, nodes: usize) {
    let file = fs::read(path.join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let golden = file.tensor("logits").unwrap();
    let (values, _) = golden.data().as_chunks();
    let values: Vec<f32> = values.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let (length, vocabulary) = (golden.shape()[1], golden.shape()[2]);
    let (mut error, mut whole) = (0.0, 0.0);
    for (image, logits) in logits.iter().enumerate() {
        assert_eq!(logits.dim().1, vocabulary);
        for ((step, token), &logit) in logits.indexed_iter() {
            let expected = f64::from(values[(image * length + step) * vocabulary + token]);
            error += (f64::from(logit) - expected).powi(2);
            whole += expected.powi(2);
        }
    }
    // Root mean square. Single logits of these models are ill-conditioned: transformers' own in bf16 are off by up to 0.08 of the largest.
    let error = (error / whole).sqrt();
    let bound = model_tolerance(dtype, nodes);
    println!("{name} in {dtype}: {error:.2e} of {bound:.2e}");
    assert!(
        error <= bound,
        "{name} in {dtype}: {error:.2e}, more than {bound:.2e}"
    );
}

/// Returns the case with this name.
pub(crate) fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap()
}

impl Searched {
    /// Checks the texts on a device, for `batch` images at a time. Returns the generator.
    pub(crate) fn check(&self, case: &Case, device: Device, batch: usize) -> Generator {
        let model = self.model(case);
        let builder = Session::builder().device(device).batch(batch);
        let options = case.options();
        let mut generator = Generator::load(model.path(), &builder, &options).unwrap();
        let options = GenerateOptions {
            beams: self.name.starts_with("blip").then_some(self.num_beams),
            ..options
        };
        let mut streamed = vec![Vec::new(); case.texts.len()];
        let texts = generator.generate(&case.images(), &options, &mut |image, token| {
            streamed[image].push(token);
        });
        let tokens: Vec<Vec<u32>> = texts.unwrap().into_iter().map(|text| text.tokens).collect();
        assert_eq!(tokens, self.tokens, "{} {}", self.name, self.num_beams);
        assert_eq!(streamed, self.tokens);
        assert_eq!((generator.pages().0, generator.vacant()), (0, batch));
        generator
    }

    /// Returns a copy of the model whose files ask for this search. BLIP's generation reads none.
    pub(crate) fn model(&self, case: &Case) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in fs::read_dir(case.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        let path = folder.path().join("generation_config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["num_beams"] = self.num_beams.into();
        config["length_penalty"] = self.length_penalty.into();
        config["early_stopping"] = self.early_stopping.clone();
        fs::write(path, config.to_string()).unwrap();
        folder
    }
}

pub(crate) fn searched() -> Vec<Searched> {
    let file = fs::read(at("tests/golden/generation/beams.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

/// Path of chats.
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// New tokens of each text.
pub(crate) const LENGTH: usize = 24;

pub(crate) fn cases() -> Vec<Case> {
    let file = fs::read(at("tests/golden/generation/cases.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

pub(crate) fn data_url(file: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64(file))
}

/// Returns a chat about an image with more keys. The model is `trocr_base`, unless there is another one.
pub(crate) fn chat(file: &[u8], more: Value) -> Value {
    let image = json!({"type": "image_url", "image_url": {"url": data_url(file), "detail": "auto"}});
    let mut body = json!({"model": "trocr_base", "messages": [{"role": "user", "content": [image]}]});
    let more = more.as_object().unwrap().iter();
    more.for_each(|(key, value)| body[key] = value.clone());
    body
}

impl Case {
    /// Returns the file of an image.
    pub(crate) fn file(&self, index: usize) -> Vec<u8> {
        fs::read(at("tests/golden/images").join(&self.texts[index].image)).unwrap()
    }

    pub(crate) fn path(&self) -> PathBuf {
        at("tests/golden/generation").join(&self.name)
    }

    pub(crate) fn images(&self) -> Vec<RgbImage> {
        let read = |text: &Text| {
            let bytes = fs::read(at("tests/golden/images").join(&text.image)).unwrap();
            decode(&text.image, &bytes, Limits::default()).unwrap()
        };
        self.texts.iter().map(read).collect()
    }

    pub(crate) fn load(&self, builder: &SessionBuilder) -> Generator {
        Generator::load(self.path(), builder, &self.options()).unwrap()
    }

    /// Returns the options of the texts.
    pub(crate) fn options(&self) -> GenerateOptions {
        GenerateOptions {
            max_tokens: Some(LENGTH),
            prompt: self.prompt.clone(),
            ..GenerateOptions::default()
        }
    }

    pub(crate) fn generate(&self, generator: &mut Generator, each: &mut dyn FnMut(usize, u32)) {
        self.check(&generator.generate(&self.images(), &self.options(), each).unwrap());
    }

    fn check(&self, generated: &[Generated]) {
        assert_eq!(generated.len(), self.texts.len());
        for (generated, expected) in generated.iter().zip(&self.texts) {
            let which = format!("{}: {}", self.name, expected.image);
            assert_eq!(generated.tokens, expected.tokens, "{which}");
            assert_eq!(generated.text, expected.text, "{which}");
            let finish = if expected.ended {
                Finish::End
            } else {
                Finish::Length
            };
            assert_eq!(generated.finish, finish, "{which}");
        }
    }

    /// Checks the logits of each token against those of transformers in double precision.
    pub(crate) fn check_logits(&self, device: Device, dtype: DType) {
        let mut generator = self.load(&Session::builder().device(device).dtype(dtype).batch(3));
        let tokens: Vec<&[u32]> = self.texts.iter().map(|text| text.tokens.as_slice()).collect();
        let prompt = self.prompt.as_deref();
        let logits = generator.logits(&self.images(), prompt, &tokens).unwrap();
        for (logits, tokens) in logits.iter().zip(&tokens) {
            assert_eq!(logits.dim().0, tokens.len());
        }
        compare_logits(
            &self.name,
            &self.path(),
            &logits,
            dtype,
            // The decoder has about as many nodes as the encoder.
            2 * generator.session().graph().nodes().len(),
        );
    }
}
