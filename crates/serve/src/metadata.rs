//! Name of the server, and the extensions of the protocol that it supports.

/// Name of the server in metadata.
pub(super) const NAME: &str = "hipvit";

/// Extensions of the protocol that the server supports.
pub(super) const EXTENSIONS: [&str; 5] = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "statistics",
];
