//! Helpers of the fuzz targets.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allocation_counter::measure;
use hipvit::{Device, Session, SessionBuilder};
use tempfile::TempDir;

/// Runs `read` and checks that it holds at most `limit` bytes at once on this thread.
///
/// # Panics
///
/// Panics if `read` panics or holds more.
pub fn within<T>(limit: u64, read: impl FnOnce() -> T) -> T {
    let mut result = None;
    let info = measure(|| result = Some(read()));
    assert!(
        info.bytes_max <= limit,
        "{} bytes where {limit} are allowed",
        info.bytes_max
    );
    result.expect("the closure has run")
}

/// Checks that an error is one line, and that it comes from no caught panic.
///
/// # Panics
///
/// Panics if it is not.
pub fn check_error(error: &hipvit::Error) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    assert!(!text.contains("the decoder failed"), "{text}");
}

/// The repository's file or folder `path`.
pub fn repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A small model's files in memory.
pub struct Model {
    pub config: Vec<u8>,
    pub weights: Vec<u8>,
    pub preprocessor: Option<Vec<u8>>,
}

impl Model {
    /// Reads the golden model `name`.
    pub fn golden(name: &str) -> Self {
        let file = |file: &str| fs::read(repository("tests/golden").join(name).join(file));
        Self {
            config: file("config.json").expect("the model has a configuration"),
            weights: file("model.safetensors").expect("the model has weights"),
            preprocessor: file("preprocessor_config.json").ok(),
        }
    }
}

fn builder() -> SessionBuilder {
    Session::builder().device(Device::Cpu).threads(1).batch(1)
}

/// Maximum memory of a model and its graphs: position embeddings may be resampled to a size whose work is allowed.
const MODEL_BYTES: u64 = 512 << 20;

/// Loads a model from its files.
///
/// # Panics
///
/// Panics if loading takes too much memory, or its error is not one line.
pub fn load(config: &[u8], weights: Vec<u8>, preprocessor: Option<&[u8]>) {
    let loaded = within(MODEL_BYTES, || {
        builder().from_bytes(config, weights, preprocessor)
    });
    if let Err(error) = loaded {
        check_error(&error);
    }
}

/// A folder in memory, where there is one.
pub fn folder() -> TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a temporary folder can be made")
}

/// A loaded dual encoder whose tokenizer has one file that changes.
pub struct Texts {
    folder: TempDir,
    session: Session,
}

impl Texts {
    /// Copies the dual encoder `name` of the golden models without the files `left_out`, and loads it.
    pub fn new(name: &str, left_out: &[&str]) -> Self {
        let folder = folder();
        let files = fs::read_dir(repository("tests/golden/zero_shot").join(name)).expect("the model exists");
        for file in files {
            let file = file.expect("the folder can be read");
            if !left_out.iter().any(|left_out| file.file_name() == *left_out) {
                fs::copy(file.path(), folder.path().join(file.file_name())).expect("the file can be copied");
            }
        }
        let session = builder().load(folder.path()).expect("the model can be loaded");
        Self { folder, session }
    }

    /// Configures the tokenizer of `spiece.model`.
    pub fn with_sentence_piece(self) -> Self {
        let config = r#"{"tokenizer_class": "SiglipTokenizer", "pad_token": "</s>", "unk_token": "<unk>"}"#;
        fs::write(self.folder.path().join("tokenizer_config.json"), config).expect("the file can be written");
        self
    }

    /// Embeds texts with `content` as the tokenizer's file `name`.
    ///
    /// # Panics
    ///
    /// Panics if the error is not one line.
    pub fn embed(&self, name: &str, content: &[u8]) {
        fs::write(self.folder.path().join(name), content).expect("the file can be written");
        // Letters of several bytes, a special token, and more than the context takes.
        let long = "ab ".repeat(200);
        for text in [
            "a photo of a cat",
            "Çağ\u{2581}日本 \u{1f600}</s><|endoftext|>",
            &long,
        ] {
            if let Err(error) = self.session.embed_texts([text]) {
                check_error(&error);
            }
        }
    }
}

/// Lets the library catch panics of other crates. libFuzzer's own hook ends the process at any panic.
pub fn allow_caught_panics() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}

/// Maximum time of an answer for which nothing is computed.
pub const AT_ONCE: Duration = Duration::from_secs(10);
