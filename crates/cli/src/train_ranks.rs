//! Processes (ranks) of a launcher that train one model together.

use std::sync::Arc;

use anyhow::Result;
use hipvit::Device;
use hipvit::exec::Collectives;
use hipvit::hip::{Mesh, Rendezvous, World};

use super::errors::with_causes;
use super::launcher::{self, DistributedArgs, Place, Sharing};
use super::output;

/// This process among the ranks.
pub(crate) struct TrainRanks {
    world: World,
    collectives: Arc<Collectives>,
    sharing: Sharing,
}

impl DistributedArgs {
    /// Connects to the launcher's other processes. `None` for a single process.
    ///
    /// # Errors
    ///
    /// Returns an error if the launcher's variables are contradictory, or if a rank does not arrive.
    pub(crate) fn train_ranks(&self) -> Result<Option<TrainRanks>> {
        let Some(world) = self.world()? else {
            return Ok(None);
        };
        if world.rank() > 0 {
            output::leave_to_rank_0();
        } else if world.is_open() {
            output::warn_of_strangers();
        }
        let mut rendezvous = Rendezvous::new(world.clone(), self.timeout())?;
        let places = rendezvous.gather(&serde_json::to_vec(&Place::of_this_process())?)?;
        let places: Vec<Place> = places
            .iter()
            .map(|place| serde_json::from_slice(place))
            .collect::<Result<_, _>>()?;
        let mesh = Mesh::join(rendezvous, self.timeout())?;
        Ok(Some(TrainRanks {
            sharing: Sharing::of(world.rank(), &places),
            collectives: Arc::new(Collectives::new(mesh)?),
            world,
        }))
    }
}

impl TrainRanks {
    pub(crate) fn collectives(&self) -> Arc<Collectives> {
        self.collectives.clone()
    }

    /// Returns the device of this process: of `auto` and `hip` the GPU with its number on the host, if there are GPUs.
    pub(crate) fn device(&self, asked: Device) -> Result<Device> {
        if !matches!(asked, Device::Auto | Device::Hip(0)) {
            return Ok(asked);
        }
        let devices = launcher::devices(&self.world, None)?;
        Ok(devices
            .and_then(|devices| devices.set().device())
            .unwrap_or(asked))
    }

    /// Returns the number of threads of this process, if processes share the processors and the user has named none.
    pub(crate) fn threads(&self, asked: Option<usize>) -> Option<usize> {
        asked.or_else(|| (self.sharing.processors > 1).then(|| self.sharing.threads(true)))
    }

    /// Waits until all ranks have trained, and rank 0 has written the model.
    pub(crate) fn wait(&self) -> Result<()> {
        self.collectives.gather(Vec::new())?;
        Ok(())
    }

    /// Returns true if this process prints the results.
    pub(crate) fn prints(&self) -> bool {
        self.world.rank() == 0
    }

    /// Tells the other ranks of an error, and returns it with this rank's number.
    pub(crate) fn end<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let rank = format!("rank {} of {}: ", self.world.rank(), self.world.size());
            let text = with_causes(&error);
            let (text, is_new) = match text.strip_prefix(&rank) {
                Some(text) => (text.to_owned(), false),
                None => (text, true),
            };
            self.collectives.fail(&format!("{rank}{text}"));
            if is_new && self.world.rank() > 0 {
                error.context(rank + &text)
            } else {
                error
            }
        })
    }
}
