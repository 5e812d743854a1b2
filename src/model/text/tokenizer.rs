//! Converts texts to tokens with the `tokenizers` crate, and with the steps that the libraries perform around it.

use std::path::{Path, PathBuf};

use tokenizers::{PostProcessor, TruncationParams};

use super::guard::guarded;
use super::open_clip::replace::Fault;
use super::open_clip::{Cleaner, Options, SimpleTokenizer};
use super::siglip::{canonicalize, canonicalize_after_space};
use super::spec::{TextPooling, TextSpec, TokenizerKind};
use super::tokens::Tokens;
use super::transformers::{self, Loaded, TOKENIZER, clip_vocabulary, json_or_empty};
use crate::error::{Error, Result};
use crate::model::source::Source;

const OPEN_CLIP: &str = "open_clip_config.json";

/// Converts texts to tokens as the model's library does.
pub struct Tokenizer {
    file: PathBuf,
    /// open_clip's cleaning of a text.
    cleaner: Option<Cleaner>,
    kind: Kind,
    context: usize,
}

enum Kind {
    OpenClip(Box<SimpleTokenizer>),
    Transformers(Box<Transformers>),
}

/// A tokenizer of transformers.
struct Transformers {
    inner: tokenizers::Tokenizer,
    /// Set if texts are cleaned as SigLIP's are. True if that converts them to lower case.
    canonicalize: Option<bool>,
    sentence_piece: bool,
    /// Tokens that SigLIP's texts cannot contain.
    cuts: Vec<String>,
    padding: Option<Padding>,
    /// Token that is replaced by 0.
    stripped: Option<u32>,
}

/// Padding of a text up to the context.
#[derive(Clone, Copy)]
struct Padding {
    id: u32,
    left: bool,
}

impl Tokenizer {
    pub(super) fn load(source: &Source<'_>, spec: &TextSpec) -> Result<Self> {
        guarded(&source.place(TOKENIZER), || Self::set_up(source, spec))
    }

    fn set_up(source: &Source<'_>, spec: &TextSpec) -> Result<Self> {
        if spec.tokenizer == TokenizerKind::OpenClip {
            return Self::open_clip(source, spec);
        }
        let loaded = transformers::load(source, spec.tokenizer)?;
        Self::new(loaded, spec, None)
    }

    /// Creates the tokenizer that open_clip's `get_tokenizer` creates for the directory.
    fn open_clip(source: &Source<'_>, spec: &TextSpec) -> Result<Self> {
        let config = json_or_empty(source, OPEN_CLIP)?;
        let model = config.fields()?.object_or_empty("model_cfg")?;
        let options = Options::read(model.object_or_empty("text_cfg")?)?;
        let fault = |error: Fault| Error::config(source.place(OPEN_CLIP), error);
        if options.transformers {
            let loaded = transformers::load(source, spec.tokenizer)?;
            return Self::new(loaded, spec, Some(options));
        }
        let (model, file) = clip_vocabulary(source)?;
        let tokenizer = SimpleTokenizer::new(model).map_err(fault)?;
        let tokenizer = tokenizer.ok_or_else(|| {
            Error::config(
                &file,
                "has no tokens <|startoftext|> and <|endoftext|>, so it is not CLIP's",
            )
        })?;
        Ok(Self {
            file,
            cleaner: Some(Cleaner::new(options.cleaning).map_err(fault)?),
            kind: Kind::OpenClip(Box::new(tokenizer)),
            context: spec.context,
        })
    }

    fn new(mut loaded: Loaded, spec: &TextSpec, options: Option<Options>) -> Result<Self> {
        let file = loaded.file.clone();
        let unusable = |reason: String| Error::config(&file, reason);
        let context = context(spec, &file, loaded.longest, options.is_some())?;
        let added = loaded
            .inner
            .get_post_processor()
            .map_or(0, |p| p.added_tokens(false));
        if added >= context {
            return Err(unusable(format!(
                "adds {added} tokens to each text, but the model's context is {context}"
            )));
        }
        let truncation = TruncationParams {
            max_length: context,
            direction: loaded.truncation,
            ..TruncationParams::default()
        };
        loaded
            .inner
            .with_truncation(Some(truncation))
            .map_err(|error| unusable(error.to_string()))?;
        let padding = if spec.tokenizer == TokenizerKind::Clip {
            check_clip_padding(&loaded, spec)?;
            None
        } else {
            let id = loaded.pad.ok_or_else(|| {
                unusable("has no padding token. Set `pad_token` in tokenizer_config.json".to_owned())
            })?;
            Some(Padding {
                id,
                left: loaded.pads_left,
            })
        };
        let cleaner = options.map(|options| Cleaner::new(options.cleaning)).transpose();
        let strips = options.is_some_and(|options| options.strip_separator);
        Ok(Self {
            cleaner: cleaner.map_err(|error| Error::config(&file, error))?,
            kind: Kind::Transformers(Box::new(Transformers {
                inner: loaded.inner,
                canonicalize: loaded.canonicalize,
                sentence_piece: loaded.sentence_piece,
                cuts: loaded.cuts,
                padding,
                stripped: loaded.separator.filter(|_| strips),
            })),
            context,
            file,
        })
    }

    /// Converts `text` to tokens.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the text contains a special token that is not allowed. Returns [`Error::Config`]
    /// if the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<Tokens> {
        guarded(&self.file, || self.tokens(text))
    }

    fn tokens(&self, text: &str) -> Result<Tokens> {
        let failed = |error: &dyn std::fmt::Display| {
            let reason = format!("cannot convert \"{text}\" to tokens: {error}");
            Error::config(&self.file, reason)
        };
        let cleaned = self.cleaner.as_ref().map(|cleaner| cleaner.clean(text));
        let cleaned = cleaned.transpose().map_err(|error| failed(&error))?;
        let clean = cleaned.as_deref().unwrap_or(text);
        let tokens = match &self.kind {
            Kind::OpenClip(tokenizer) => tokenizer.encode(clean, self.context),
            Kind::Transformers(tokenizer) => {
                if let Some(token) = tokenizer.cuts.iter().find(|cut| clean.contains(cut.as_str())) {
                    let reason = format!("\"{text}\" contains the special token {token}. Leave it out");
                    return Err(Error::argument("text", reason));
                }
                tokenizer.encode(clean, self.context)
            }
        };
        tokens.map_err(|error| failed(&error))
    }
}

impl Transformers {
    fn encode(&self, text: &str, context: usize) -> std::result::Result<Tokens, tokenizers::Error> {
        let encoding = match self.canonicalize {
            None => self.inner.encode(text, true)?,
            Some(lower) if self.sentence_piece => {
                self.inner.encode(canonicalize_after_space(text, lower), true)?
            }
            Some(lower) => self.inner.encode(canonicalize(text, lower), true)?,
        };
        let mut ids = encoding.get_ids().to_vec();
        if let Some(Padding { id, left }) = self.padding {
            let missing = context.saturating_sub(ids.len());
            let at = if left { 0 } else { ids.len() };
            ids.splice(at..at, std::iter::repeat_n(id, missing));
        }
        if let Some(stripped) = self.stripped {
            ids.iter_mut()
                .filter(|id| **id == stripped)
                .for_each(|id| *id = 0);
        }
        Ok(Tokens {
            ids,
            truncated: !encoding.get_overflowing().is_empty(),
        })
    }
}

/// Returns the maximum number of tokens of a text: the model's context, or the tokenizer's limit if it is lower.
fn context(spec: &TextSpec, file: &Path, longest: Option<f64>, open_clip: bool) -> Result<usize> {
    let shorter = longest.filter(|&longest| longest >= 1.0 && longest < spec.context as f64 && !open_clip);
    match (shorter, spec.tokenizer) {
        (None, _) => Ok(spec.context),
        (Some(longest), TokenizerKind::Clip) => Ok(longest as usize),
        (Some(longest), _) => Err(Error::config(
            file.with_file_name("tokenizer_config.json"),
            format!(
                "`model_max_length` is {longest}, but the model's context is {}: transformers' processor and its pipeline fill texts up \
                 to different lengths. Set both to the length of training",
                spec.context
            ),
        )),
    }
}

/// Returns an error for padding that would make a text's embedding depend on other texts. The library pads texts to the
/// longest.
fn check_clip_padding(loaded: &Loaded, spec: &TextSpec) -> Result<()> {
    let refused = |key: &str, reason: &str| {
        let file = loaded.file.with_file_name("tokenizer_config.json");
        Err(Error::config(file, format!("`{key}` {reason}")))
    };
    if loaded.pads_left {
        return refused(
            "padding_side",
            "is \"left\", so that a text's embedding depends on the longest text of its batch",
        );
    }
    let end = loaded
        .inner
        .encode("", true)
        .ok()
        .and_then(|encoding| encoding.get_ids().iter().max().copied());
    if spec.pooling == TextPooling::Largest && loaded.pad.zip(end).is_some_and(|(pad, end)| pad > end) {
        return refused(
            "pad_token",
            "has a larger id than the end token, which the model finds by its id",
        );
    }
    Ok(())
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}
#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use safetensors::SafeTensors;
    use serde_json::{Map, Value, json};

    use super::Tokenizer;
    use crate::model::source::Source;
    use crate::model::{self, LoadOptions, TextTower};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
    }

    fn tower(case: &str) -> TextTower {
        let directory = root().join("golden/zero_shot").join(case);
        model::load(&directory, &LoadOptions::default())
            .unwrap()
            .text
            .unwrap()
    }

    #[test]
    fn ids_are_those_of_transformers() {
        for case in ["hf_clip", "hf_clip_older", "open_clip", "hf_siglip", "hf_siglip2"] {
            let directory = root().join("golden/zero_shot").join(case);
            let tokenizer = tower(case).tokenizer().unwrap();
            let golden: Value =
                serde_json::from_slice(&fs::read(directory.join("golden.json")).unwrap()).unwrap();
            let bytes = fs::read(directory.join("golden.safetensors")).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let ids: Vec<i64> = tensors
                .tensor("input_ids")
                .unwrap()
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|&b| i64::from_le_bytes(b))
                .collect();
            let texts = golden["texts"].as_array().unwrap();
            for (text, expected) in texts.iter().zip(ids.chunks(ids.len() / texts.len())) {
                let text = text.as_str().unwrap();
                let got = tokenizer.encode(text).unwrap().ids;
                // CLIP's tokenizer does not pad; these positions are −1.
                let expected: Vec<u32> = expected.iter().filter_map(|&id| u32::try_from(id).ok()).collect();
                assert_eq!(got, expected, "{case}: {text}");
            }
        }
    }

    /// Returns a copy of a golden's directory with the keys of `edits` set in its files.
    fn edited(base: &str, edits: &Map<String, Value>, remove: &[Value]) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(root().join("golden/zero_shot").join(base)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.extension().is_some_and(|ending| ending != "safetensors")
                && !remove.contains(&name.into())
            {
                fs::copy(&path, copy.path().join(name)).unwrap();
            }
        }
        for (file, keys) in edits {
            let path = copy.path().join(file);
            let text = fs::read(&path).unwrap_or_else(|_| b"{}".to_vec());
            let mut content: Value = serde_json::from_slice(&text).unwrap();
            let target = match file.as_str() {
                "open_clip_config.json" => &mut content["model_cfg"]["text_cfg"],
                _ => &mut content,
            };
            let target = target.as_object_mut().unwrap();
            for (key, value) in keys.as_object().unwrap() {
                if value == "absent" {
                    target.remove(key);
                } else {
                    target.insert(key.clone(), value.clone());
                }
            }
            fs::write(&path, content.to_string()).unwrap();
        }
        copy
    }

    /// Expected value `None` if the library fails.
    #[test]
    fn keys_do_what_they_do_in_the_libraries() {
        let data: Vec<Value> =
            serde_json::from_slice(&fs::read(root().join("data/text/tokens.json")).unwrap()).unwrap();
        let texts: Vec<&str> = data[0]["texts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| text.as_str().unwrap())
            .collect();
        let mut wrong = Vec::new();
        for case in &data[1..] {
            let base = case["base"].as_str().unwrap();
            let edits = case["edits"].as_object().unwrap();
            let directory = edited(base, edits, case["remove"].as_array().unwrap());
            for name in case["add"].as_array().unwrap() {
                let name = name.as_str().unwrap();
                fs::copy(root().join("data/text").join(name), directory.path().join(name)).unwrap();
            }
            let source = Source::open(directory.path()).unwrap();
            let tokenizer = Tokenizer::load(&source, &tower(base).spec);
            let Some(expected) = case["ids"].as_array() else {
                // SiglipTokenizer reads only spiece.model. hipvit reads tokenizer.json in its place.
                let siglip = base == "hf_siglip" && !format!("{edits:?}").contains("pad_token");
                assert!(siglip || tokenizer.is_err(), "{base} {edits:?}");
                continue;
            };
            let tokenizer = tokenizer.unwrap_or_else(|error| panic!("{base} {edits:?}: {error}"));
            for (text, expected) in texts.iter().zip(expected) {
                let got = tokenizer.encode(text);
                if text.contains("</s>") && directory.path().join("spiece.model").is_file() {
                    let error = got.unwrap_err().to_string();
                    assert!(error.contains("contains the special token </s>"), "{error}");
                    continue;
                }
                let got = Value::from(got.unwrap().ids);
                if got != *expected {
                    wrong.push(format!("{base} {edits:?} {text:?}: {got}, expected {expected}"));
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(20)].join("\n")
        );
    }

    #[test]
    fn keys_that_are_not_followed_are_named() {
        let config = "tokenizer_config.json";
        for (base, file, key, value, reason) in [
            (
                "hf_clip",
                config,
                "tokenizer_class",
                serde_json::json!("BertTokenizer"),
                "is \"BertTokenizer\"",
            ),
            (
                "hf_clip",
                config,
                "padding_side",
                "left".into(),
                "depends on the longest text",
            ),
            (
                "hf_clip",
                config,
                "padding_side",
                "top".into(),
                "expected \"left\" or \"right\"",
            ),
            (
                "hf_clip",
                config,
                "auto_map",
                serde_json::json!({"AutoTokenizer": ["a.B", null]}),
                "does not run",
            ),
            (
                "hf_clip",
                config,
                "fast_tokenizer_files",
                serde_json::json!(["tokenizer.4.json"]),
                "expected [\"tokenizer.json\"]",
            ),
            (
                "hf_siglip",
                config,
                "model_max_length",
                8.into(),
                "the model's context is 16",
            ),
            (
                "open_clip",
                "open_clip_config.json",
                "tokenizer_kwargs",
                serde_json::json!({"reduction_mask": "simple"}),
                "reduction_mask",
            ),
            (
                "open_clip",
                "open_clip_config.json",
                "tokenizer_kwargs",
                serde_json::json!({"clean": "all"}),
                "expected \"whitespace\"",
            ),
            (
                "open_clip",
                "open_clip_config.json",
                "tokenizer_kwargs",
                serde_json::json!({"bpe_path": "x"}),
                "bpe_path",
            ),
        ] {
            let keys = serde_json::json!({ key: value });
            let edits = Map::from_iter([(file.to_owned(), keys)]);
            let directory = edited(base, &edits, &[]);
            let source = Source::open(directory.path()).unwrap();
            let error = Tokenizer::load(&source, &tower(base).spec)
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason) && error.contains(key), "{error}");
        }
    }

    /// Returns the error for the golden's tokenizer with these parts of `tokenizer.json`, from loading it or from
    /// converting a text.
    fn refused_with(base: &str, parts: &Value) -> String {
        let edits = Map::from_iter([("tokenizer.json".to_owned(), parts.clone())]);
        let directory = edited(base, &edits, &[]);
        refused_in(base, directory.path())
    }

    fn refused_in(base: &str, directory: &Path) -> String {
        let source = Source::open(directory).unwrap();
        let loaded = Tokenizer::load(&source, &tower(base).spec);
        let error = loaded.and_then(|tokenizer| tokenizer.encode("a photo of the digit 7"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("tokenizer.json"), "{error}");
        error
    }

    /// On these files the `tokenizers` crate panics, or aborts because it allocates what the file says.
    #[test]
    fn files_on_which_the_library_fails_are_errors_that_name_them() {
        let backend = "TokenizersBackend";
        let template = |pieces: Value| json!({"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": {}});
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        for (parts, reason) in [
            (
                json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}),
                "damaged",
            ),
            (
                json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}}),
                "damaged",
            ),
            (
                json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": 7}}),
                "fail",
            ),
            (
                json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}}),
                "fail",
            ),
            (
                json!({"post_processor": template(json!([{"Sequence": {"id": "B", "type_id": 0}}]))}),
                "second one",
            ),
            (
                json!({"post_processor": template(json!([text, {"SpecialToken": {"id": "none", "type_id": 0}}]))}),
                "tokenizer",
            ),
            (
                json!({"post_processor": template(Value::from(vec![text; 100]))}),
                "repeats the text",
            ),
        ] {
            let edits = [
                ("tokenizer.json", parts.clone()),
                ("tokenizer_config.json", json!({"tokenizer_class": backend})),
            ];
            let edits = Map::from_iter(edits.map(|(file, keys)| (file.to_owned(), keys)));
            let directory = edited("hf_clip", &edits, &[]);
            let error = refused_in("hf_clip", directory.path());
            assert!(error.contains(reason), "{parts}: {error}");
        }
        // The continuing prefix is longer than a merge.
        let mut model = file("hf_clip")["model"].clone();
        model["continuing_subword_prefix"] = "x".repeat(100).into();
        refused_with("hf_clip", &json!({ "model": model }));
    }

    /// The crate overflows the stack on the piece of 200,000 bytes, which cannot be caught.
    #[test]
    fn long_pieces_are_errors_that_name_the_file() {
        for base in ["hf_siglip", "hf_clip"] {
            let mut model = file(base)["model"].clone();
            let long = "x".repeat(200_000);
            match &mut model["vocab"] {
                Value::Array(pieces) => pieces.push(json!([long, -5.0])),
                Value::Object(pieces) => drop(pieces.insert(long, 0.into())),
                _ => panic!("no vocabulary"),
            }
            let error = refused_with(base, &json!({ "model": model }));
            assert!(error.contains("`vocab` has 200000 bytes in a piece"), "{error}");
        }
    }

    fn file(base: &str) -> Value {
        let path = root().join("golden/zero_shot").join(base).join("tokenizer.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn a_damaged_decoder_is_an_error_though_texts_do_not_need_it() {
        for decoder in [
            &b"{\"type\": \"\xb5\"}"[..],
            b"{\"type\": }",
            b"{\"type\": \"\\ud800\"}",
            b"7",
        ] {
            let directory = edited("hf_clip", &Map::new(), &[]);
            let path = directory.path().join("tokenizer.json");
            let mut parts = file("hf_clip");
            parts.as_object_mut().unwrap().remove("decoder");
            let mut text = parts.to_string().into_bytes();
            text.pop();
            text.extend([b",\"decoder\":", decoder, b"}"].concat());
            fs::write(&path, text).unwrap();
            refused_in("hf_clip", directory.path());
        }
    }

    #[test]
    fn a_file_that_is_too_long_or_not_regular_is_not_read() {
        let directory = edited("hf_clip", &Map::new(), &[]);
        let path = directory.path().join("tokenizer.json");
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        assert!(refused_in("hf_clip", directory.path()).contains("is longer than 64 MiB"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(refused_in("hf_clip", directory.path()).contains("is a device"));
    }
}
