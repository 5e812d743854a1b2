//! Conversion of token ids to text.

use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit_files::regular_file;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::BPE;
use tokenizers::{AddedToken, Tokenizer};

/// Maximum size of `tokenizer.json` in bytes. The largest published ones have some 30 MB.
const MAX_BYTES: u64 = 1 << 27;
/// Special tokens of RoBERTa, whose vocabulary TrOCR has if there is no `tokenizer.json`.
const SPECIAL: [&str; 5] = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"];

/// A model's tokenizer.
#[derive(Clone, Debug)]
pub(crate) struct Detokenizer {
    tokenizer: Tokenizer,
    file: PathBuf,
}

impl Detokenizer {
    /// Reads `tokenizer.json`, or `vocab.json` and `merges.txt` of a byte-level BPE.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for files that are missing or damaged.
    pub(crate) fn load(directory: &Path) -> Result<Self> {
        let file = directory.join("tokenizer.json");
        let [vocabulary, merges] = ["vocab.json", "merges.txt"].map(|name| directory.join(name));
        let tokenizer = if file.exists() {
            let bytes =
                regular_file::read_within(&file, MAX_BYTES).map_err(|error| Error::io(&file, error))?;
            Tokenizer::from_bytes(bytes).map_err(|error| Error::config(&file, error))?
        } else if vocabulary.exists() && merges.exists() {
            for file in [&vocabulary, &merges] {
                regular_file::check(file).map_err(|error| Error::io(file, error))?;
            }
            let name = |path: &Path| path.to_string_lossy().into_owned();
            let model = BPE::from_file(&name(&vocabulary), &name(&merges)).build();
            let mut tokenizer = Tokenizer::new(model.map_err(|error| Error::config(&vocabulary, error))?);
            tokenizer.with_decoder(Some(ByteLevel::default()));
            let special = SPECIAL.map(|token| AddedToken::from(token, true));
            let added = tokenizer.add_special_tokens(special);
            added.map_err(|error| Error::config(&vocabulary, error))?;
            tokenizer
        } else {
            let reason = "is missing, and so are vocab.json and merges.txt. SentencePiece files are not read: save the tokenizer with \
                          `AutoTokenizer.from_pretrained(…).save_pretrained(…)`";
            return Err(Error::config(&file, reason));
        };
        Ok(Self { tokenizer, file })
    }

    /// Returns the text of tokens, without special ones and without blanks around it.
    pub(crate) fn text(&self, tokens: &[u32]) -> Result<String> {
        let text = self.tokenizer.decode(tokens, true);
        let text = text.map_err(|error| Error::config(&self.file, error))?;
        Ok(text.trim().to_owned())
    }
}
