//! Processes that have met to run one model, and the messages that they exchange before it runs.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::hip::{Device, Rendezvous, UniqueId};

/// Processes that have met to run one model, each with a GPU.
#[derive(Debug)]
pub struct Processes {
    pub(super) rendezvous: Rendezvous,
    /// Name of each rank's GPU and host.
    pub(super) gpus: Vec<String>,
}

/// Message of a rank to the others.
#[derive(Serialize, Deserialize)]
pub(crate) enum Report {
    /// The rank continues, and passes on these bytes.
    Ready(Vec<u8>),
    /// The rank cannot continue, for this reason.
    Failed(String),
}

impl<E: ToString> From<Result<Vec<u8>, E>> for Report {
    fn from(bytes: Result<Vec<u8>, E>) -> Self {
        bytes.map_or_else(|error| Self::Failed(error.to_string()), Self::Ready)
    }
}

/// A report with the name of its rank.
#[derive(Serialize, Deserialize)]
struct Given {
    name: String,
    report: Report,
}

impl Processes {
    /// Exchanges a message between the processes that have met. Returns the messages by rank.
    ///
    /// `gpu` is the name of this process's GPU. `own` is its message.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`] for the first rank that cannot continue. [`Error::Hip`] if a process has ended.
    pub(crate) fn meet(
        mut rendezvous: Rendezvous,
        gpu: String,
        own: impl Into<Report>,
    ) -> Result<(Self, Vec<Vec<u8>>)> {
        let given = exchange(&mut rendezvous, gpu, own.into())?;
        let (gpus, told) = given.into_iter().unzip();
        Ok((Self { rendezvous, gpus }, told))
    }

    /// Returns the rank of this process.
    pub(crate) fn rank(&self) -> usize {
        self.rendezvous.world().rank()
    }

    /// Returns the messages of all ranks. Waits for all of them, which must call it equally often.
    pub(super) fn exchange(&mut self, own: impl Into<Report>) -> Result<Vec<Vec<u8>>> {
        let gpu = self.gpus[self.rank()].clone();
        let given = exchange(&mut self.rendezvous, gpu, own.into())?;
        Ok(given.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// Distributes rank 0's id for a communicator to all ranks.
    pub(super) fn unique_id(&mut self, device: &Device) -> Result<UniqueId> {
        let own = match self.rank() {
            0 => UniqueId::new(device).map(|id| id.to_bytes().to_vec()),
            _ => Ok(Vec::new()),
        };
        let given = self.exchange(own)?;
        let id = given.first().and_then(|bytes| bytes.as_slice().try_into().ok());
        let id = id.ok_or_else(|| Error::internal("communicator", "rank 0 has given no id for it"))?;
        Ok(UniqueId::from_bytes(id))
    }
}

/// Exchanges messages, each with the name of its rank.
fn exchange(rendezvous: &mut Rendezvous, name: String, report: Report) -> Result<Vec<(String, Vec<u8>)>> {
    let ranks = rendezvous.world().size();
    let encoded = serde_json::to_vec(&Given { name, report });
    let gathered = rendezvous.gather(&encoded.map_err(|error| Error::internal("processes", error))?)?;
    let given = |(rank, bytes): (usize, Vec<u8>)| {
        let other_version = |error| {
            let reason = format!("rank {rank} has another version of hipvit: {error}");
            Error::argument("processes", reason)
        };
        let Given { name, report } = serde_json::from_slice(&bytes).map_err(other_version)?;
        match report {
            Report::Ready(bytes) => Ok((name, bytes)),
            Report::Failed(reason) => Err(Error::Rank {
                rank,
                ranks,
                device: name,
                reason,
            }),
        }
    };
    gathered.into_iter().enumerate().map(given).collect()
}
