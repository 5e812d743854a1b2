//! Facts about the embeddings of a file: the model that computed them, and what they describe.

use serde::{Deserialize, Serialize};

/// What the rows of an index describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Images, named by their paths.
    Image,
    /// Texts, which are their own names.
    Text,
}

/// Facts about the embeddings of a file. `hipvit embed` writes them as JSON: beside a `.npy` file as `NAME.index.json`, in `.safetensors`
/// and Parquet files as the metadata [`KEY`](Self::KEY).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the model.
    pub model: String,
    /// Model as the command line named it. `None` for the embedded model.
    pub source: Option<String>,
    /// Digest of the model's files.
    pub digest: String,
    /// What the rows describe.
    pub kind: Kind,
    /// True if the rows were scaled to unit length.
    pub normalized: bool,
    /// Index of the shard from 0, and the number of shards. `None` if the file is the whole index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<(usize, usize)>,
}

impl Description {
    /// Key of the description in the metadata of a file.
    pub const KEY: &'static str = "hipvit.index";

    /// Extension of the file with the description of a `.npy` file.
    pub const EXTENSION: &'static str = "index.json";

    /// Returns the description as JSON on one line.
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Returns true if both descriptions are of shards of one index.
    pub(crate) fn belongs_to(&self, other: &Self) -> bool {
        let without_shard = |description: &Self| Self {
            shard: description.shard.map(|(_, count)| (0, count)),
            ..description.clone()
        };
        without_shard(self) == without_shard(other)
    }
}
