//! This process among those of a launcher that train one model together.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use hipvit::exec::Collectives;
use hipvit::hip::{Mesh, Rendezvous, Runtime, World};
use hipvit::{Device, Error, Result};
use hipvit_train::fit::FitError;

/// Time-out for messages of other processes, as that of the command.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A rank of a training run.
pub struct Rank {
    world: World,
    collectives: Arc<Collectives>,
}

impl Rank {
    /// Connects to the other processes, which the variables of a launcher describe.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] without a launcher, or if its variables are contradictory. [`Error::Hip`] if a rank does not arrive.
    pub fn join() -> Result<Self> {
        let Some(world) = World::from_env()? else {
            let reason = "has no launcher: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set";
            return Err(Error::argument("distributed", reason));
        };
        let mesh = Mesh::join(Rendezvous::new(world.clone(), TIMEOUT)?, TIMEOUT)?;
        Ok(Self {
            collectives: Arc::new(Collectives::new(mesh)?),
            world,
        })
    }

    pub fn collectives(&self) -> Arc<Collectives> {
        self.collectives.clone()
    }

    /// Returns true if this rank writes the run directory and reports events.
    pub fn leads(&self) -> bool {
        self.world.rank() == 0
    }

    /// Returns the device of this process: of `auto` and `hip` the GPU with its number on the host, if it sees several.
    pub fn device(&self, asked: Device) -> Device {
        if !matches!(asked, Device::Auto | Device::Hip(0)) {
            return asked;
        }
        match Runtime::open().and_then(|runtime| runtime.device_count()) {
            Ok(gpus) if gpus > 1 => Device::Hip(self.world.local_rank()),
            _ => asked,
        }
    }

    /// Waits until all ranks have trained and rank 0 has written the model, or tells the others of an error.
    pub fn end<T>(&self, result: std::result::Result<T, FitError>) -> std::result::Result<T, FitError> {
        match result {
            Ok(value) => {
                self.collectives.gather(Vec::new())?;
                Ok(value)
            }
            Err(error) => {
                let mut text = error.to_string();
                if let Some(cause) = error.source() {
                    text += &format!(": {cause}");
                }
                let (rank, ranks) = (self.world.rank(), self.world.size());
                self.collectives.fail(&format!("rank {rank} of {ranks}: {text}"));
                Err(error)
            }
        }
    }
}
