//! Reasons why the server ends a connection.

/// Reason why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Closed {
    /// The connection had no open request for some time.
    Idle,
    /// The connection brought no authorised request in time.
    Unauthorized,
    /// The table was full, and the connection's client had the most connections.
    Displaced,
    /// The connection received more than its requests account for.
    Flood,
}

impl Closed {
    /// Returns the label of this reason in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Unauthorized => "unauthorized",
            Self::Displaced => "displaced",
            Self::Flood => "flood",
        }
    }
}
