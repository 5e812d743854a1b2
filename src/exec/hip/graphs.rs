//! Whether runs replay captured graphs, and how many did.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Whether runs on a GPU replay captured graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphMode {
    /// Where the provider can, but not while steps are timed: inside a replay they cannot be told apart.
    #[default]
    Auto,
    /// Where the provider can. All steps are one phase of the timing then.
    On,
    /// Never.
    Off,
}

impl FromStr for GraphMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(Error::argument(
                "graph",
                format!("`{text}` is not one of auto, on, off"),
            )),
        }
    }
}

/// How runs were carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Replays {
    /// Runs that replayed a captured graph, with those that captured one.
    pub replayed_runs: u64,
    /// Runs whose steps were submitted one by one.
    pub eager_runs: u64,
    /// Why no graph is replayed any more, if capturing one failed or a replay differed from the steps.
    pub fallback: Option<String>,
}

/// One line: how many runs of either kind, and why no more are replayed.
impl fmt::Display for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<15} {:>10} runs replayed, {} step by step",
            "HIP graphs", self.replayed_runs, self.eager_runs
        )?;
        match &self.fallback {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
