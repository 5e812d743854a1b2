//! What a measurement depends on beside the problem: the GPU and its libraries.

use serde::{Deserialize, Serialize};

use crate::hip::Device;

/// Name of hipBLASLt in a [`Key`].
pub const HIPBLASLT: &str = "hipBLASLt";
/// Name of hipSPARSELt in a [`Key`].
pub const HIPSPARSELT: &str = "hipSPARSELt";
/// Name of MIOpen in a [`Key`].
pub const MIOPEN: &str = "MIOpen";

/// Everything a measurement depends on beside the problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Name of the GPU.
    pub device: String,
    /// Architecture of the GPU, such as gfx942.
    pub arch: String,
    /// Libraries with versions, such as `hipBLASLt 100202, MIOpen 3.5.1`.
    pub libraries: String,
}

impl Key {
    /// Returns the key of a device without libraries.
    pub(crate) fn of(device: &Device) -> Self {
        let properties = device.properties();
        Self {
            device: properties.name.clone(),
            arch: properties.arch().to_owned(),
            libraries: String::new(),
        }
    }

    /// Adds the version of a library, if it is available.
    #[must_use]
    pub fn with(mut self, library: &str, version: Option<String>) -> Self {
        if let Some(version) = version {
            let is_other = |l: &&str| l.split_once(' ').is_some_and(|(name, _)| name != library);
            let others = self.libraries.split(", ").filter(is_other);
            let added = format!("{library} {version}");
            self.libraries = others.chain([&added[..]]).collect::<Vec<_>>().join(", ");
        }
        self
    }

    pub(super) fn version(&self, library: &str) -> Option<&str> {
        let mut libraries = self.libraries.split(", ").filter_map(|l| l.split_once(' '));
        libraries.find_map(|(name, version)| (name == library).then_some(version))
    }

    pub(super) fn is_same_device(&self, other: &Self) -> bool {
        (&self.device, &self.arch) == (&other.device, &other.arch)
    }
}
