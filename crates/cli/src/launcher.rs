//! Launchers of several processes (torchrun, mpirun, srun, Kubernetes jobs): this process's rank, and its share of the
//! host.

use std::fs;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use hipvit::Device;
use hipvit::hip::{Runtime, World};
use hipvit::run_config::Devices;
use serde::{Deserialize, Serialize};

/// Options for running several processes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub(crate) struct DistributedArgs {
    /// When to share the work with the launcher's processes
    ///
    /// Supports torchrun --no-python, mpirun, srun, and others that set RANK and WORLD_SIZE. The processes share the
    /// images, or divide the model with --parallel tensor. Rank 0 writes all results.
    #[arg(long, default_value = "auto", value_name = "WHEN", hide_short_help = true)]
    distributed: Distributed,
    /// Timeout for other processes
    #[arg(long, hide_short_help = true, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    distributed_timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Distributed {
    /// If a launcher started several processes
    Auto,
    /// Never
    Off,
}

impl DistributedArgs {
    /// Returns the rank and the number of processes; `None` for a single process and with `--distributed off`.
    ///
    /// # Errors
    ///
    /// Returns an error if the launcher's variables are incomplete or contradictory.
    pub(crate) fn world(&self) -> Result<Option<World>> {
        if self.distributed == Distributed::Off {
            return Ok(None);
        }
        let world = World::from_env();
        let world = world.map_err(|error| anyhow!("{error}; --distributed off ignores the launcher"))?;
        Ok(world.filter(|world| world.size() > 1))
    }

    /// Returns the timeout for messages of other processes.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.distributed_timeout)
    }
}

/// Returns the devices of this process. `auto` and `hip` become the GPU with this process's local rank. Without GPUs
/// they do not change.
///
/// # Errors
///
/// Returns an error if the host has several GPUs, but fewer than processes.
pub(crate) fn devices(world: &World, asked: Option<&Devices>) -> Result<Option<Devices>> {
    let unchanged = asked.cloned();
    let is_own =
        asked.is_none_or(|devices| devices.is_any_gpu() || devices.set().device() == Some(Device::Auto));
    if !is_own {
        return Ok(unchanged);
    }
    let gpus = Runtime::open().and_then(|runtime| {
        // Fails if no GPU can be used.
        runtime.device(0)?;
        runtime.device_count()
    });
    match gpus {
        Ok(gpus) => Ok(Some(Device::Hip(local_gpu(world, gpus)?).into())),
        Err(_) => Ok(unchanged),
    }
}

/// Returns the GPU of a process that can see `gpus` GPUs.
fn local_gpu(world: &World, gpus: usize) -> Result<usize> {
    match world.local_rank() {
        // The launcher made a different GPU visible to each process.
        _ if gpus == 1 => Ok(0),
        local if local < gpus => Ok(local),
        local => bail!(
            "rank {} of {} is process {local} of its host (LOCAL_RANK, counted from 0), which has {gpus} GPUs: start no more than \
             {gpus} processes there, show each one GPU (HIP_VISIBLE_DEVICES), or name devices with --device",
            world.rank(),
            world.size()
        ),
    }
}

/// Host and processors of a process. Each process sends its own to the others.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Identifies the host or container.
    pub(crate) host: String,
    /// Processors that the process may use, because launchers can set its affinity.
    pub(crate) processors: String,
}

impl Place {
    /// Returns the place of this process. Unknown parts have the same value in all processes.
    pub(crate) fn of_this_process() -> Self {
        let line = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Self {
            host: line("/proc/sys/kernel/hostname") + " " + &line("/proc/sys/kernel/random/boot_id"),
            processors: allowed.unwrap_or_default().trim().to_owned(),
        }
    }
}

/// Number of processes that share this process's host and processors, including itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    pub(crate) host: usize,
    pub(crate) processors: usize,
}

impl Sharing {
    /// Sharing of a single process.
    pub(crate) const NONE: Self = Self {
        host: 1,
        processors: 1,
    };

    /// Returns the sharing of rank `rank`, given the places of all ranks.
    pub(crate) fn of(rank: usize, places: &[Place]) -> Self {
        let Some(own) = places.get(rank) else {
            return Self::NONE;
        };
        let host = places.iter().filter(|place| place.host == own.host);
        Self {
            host: host.clone().count(),
            processors: host.filter(|place| place.processors == own.processors).count(),
        }
    }

    /// Returns this process's number of threads: its share of the physical cores for computation, or of the logical cores
    /// otherwise.
    pub(crate) fn threads(self, computes: bool) -> usize {
        let cores = if computes {
            num_cpus::get_physical().min(num_cpus::get())
        } else {
            num_cpus::get()
        };
        (cores / self.processors).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(rank: usize, local_rank: usize) -> World {
        let find = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some("8".to_owned()),
            "LOCAL_RANK" => Some(local_rank.to_string()),
            "MASTER_ADDR" => Some("localhost".to_owned()),
            _ => None,
        };
        World::from_variables(find).unwrap().unwrap()
    }

    #[test]
    fn a_process_has_the_gpu_of_its_number_or_the_only_one_that_it_sees() {
        assert_eq!(local_gpu(&world(5, 1), 4).unwrap(), 1);
        assert_eq!(local_gpu(&world(5, 1), 1).unwrap(), 0);
        let error = local_gpu(&world(6, 2), 2).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "rank 6 of 8 is process 2 of its host (LOCAL_RANK, counted from 0), which has 2 GPUs: "
            ),
            "{error}"
        );
    }

    #[test]
    fn processes_that_are_bound_to_processors_share_only_the_host() {
        let place = |host: &str, processors: &str| Place {
            host: host.into(),
            processors: processors.into(),
        };
        let places = [
            place("a", "0-3"),
            place("a", "0-3"),
            place("a", "4-7"),
            place("b", "0-3"),
        ];
        let sharing = |rank| {
            let Sharing { host, processors } = Sharing::of(rank, &places);
            (host, processors)
        };
        assert_eq!([0, 1, 2, 3].map(sharing), [(3, 2), (3, 2), (3, 1), (1, 1)]);
    }

    #[test]
    fn every_process_has_a_thread() {
        let sharing = Sharing {
            host: 100_000,
            processors: 100_000,
        };
        assert_eq!((sharing.threads(true), sharing.threads(false)), (1, 1));
        assert_eq!(Sharing::NONE.threads(false), num_cpus::get());
    }
}
