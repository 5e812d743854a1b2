//! Stages of a request, which metrics and traces name alike.

/// Parts of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Waiting for a decoder thread, or for a batch.
    Queue,
    Decode,
    Resize,
    /// Tokenizing a text.
    Tokenize,
    /// Copies to and from the device, per batch.
    Copy,
    /// Computation, per batch.
    Compute,
    /// Explanation of one image.
    Explain,
    /// One token of each text in progress.
    Step,
    /// From the admission of an image to the first token of its text.
    FirstToken,
    /// From the encoding of an image to the end of its text.
    Generate,
}

impl Stage {
    /// Returns the label of this stage in metrics, which is also the name of its span in traces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Decode => "decode",
            Self::Resize => "resize",
            Self::Tokenize => "tokenize",
            Self::Copy => "copy",
            Self::Compute => "compute",
            Self::Explain => "explain",
            Self::Step => "step",
            Self::FirstToken => "first_token",
            Self::Generate => "generate",
        }
    }
}
