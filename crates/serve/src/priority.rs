//! Priority of a request.

/// Priority of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// A user waits for the answer.
    #[default]
    Interactive,
    /// Runs when no interactive request waits, and in free places of interactive batches.
    Bulk,
}

impl Priority {
    pub(crate) const ALL: [Self; 2] = [Self::Interactive, Self::Bulk];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Bulk => "bulk",
        }
    }
}
