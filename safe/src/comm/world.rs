//! Processes of a run, from the launcher's environment variables.

use std::env;
use std::net::IpAddr;

use super::key::Key;
use crate::error::{Error, Result};

/// Identity of this process in a run: its rank, the number of processes, its number on this host, and the address of rank 0.
///
/// Supported launchers are `torchrun` and others that set its variables (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`,
/// `MASTER_PORT`), Slurm's `srun`, Open MPI's `mpirun`, and the PMI family (MPICH, Intel MPI).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    rank: usize,
    size: usize,
    local_rank: usize,
    host: String,
    port: u16,
    ports: Vec<u16>,
    key: Key,
    is_open: bool,
}

/// Default port of launchers that name none, as in PyTorch.
const PORT: u16 = 29500;

/// Maximum number of ranks. Bounds rank 0's allocations for them.
const MAX_RANKS: usize = 1 << 16;

/// Environment variable with the secret that all ranks of a run share.
const SECRET: &str = "HIPVIT_RENDEZVOUS_SECRET";

/// Minimum length of the secret in bytes. Shorter secrets could be guessed from a recorded handshake.
const MIN_SECRET: usize = 16;

/// Number of ports to try in turn, since another run on the same host may use the first.
const PORTS: u16 = 8;

/// Environment variables of a launcher.
struct Launcher {
    rank: &'static str,
    /// Required variable. Without it the rank belongs to another launcher.
    needs: Option<&'static str>,
    size: &'static str,
    /// Names of the local rank. The first that is set counts.
    local_rank: &'static [&'static str],
    /// Names that distinguish runs.
    run: &'static [&'static str],
}

/// Launchers in order of precedence. The first with its variables set counts. MPI launchers come before Slurm, since their processes
/// inherit Slurm's variables from the batch script or from the step that started the launcher's daemons.
const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        rank: "RANK",
        needs: None,
        size: "WORLD_SIZE",
        local_rank: &["LOCAL_RANK"],
        run: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
    },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        needs: None,
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        run: &["PMIX_NAMESPACE"],
    },
    // The launcher of MPICH and Intel MPI.
    Launcher {
        rank: "PMI_RANK",
        needs: Some("MPI_LOCALRANKID"),
        size: "PMI_SIZE",
        local_rank: &["MPI_LOCALRANKID"],
        run: &["PMI_JOBID", "PMI_ID"],
    },
    Launcher {
        rank: "SLURM_PROCID",
        // Only set for tasks of `srun`. The script of a batch job has a rank and `SLURM_NTASKS` too, but is one process.
        needs: Some("SLURM_STEP_NUM_TASKS"),
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: &["SLURM_LOCALID"],
        run: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    Launcher {
        rank: "PMI_RANK",
        needs: None,
        size: "PMI_SIZE",
        local_rank: &["PMI_LOCAL_RANK"],
        run: &["PMI_JOBID", "PMI_ID"],
    },
];

impl World {
    /// Reads this process's environment. `None` if no launcher has set a rank.
    ///
    /// `HIPVIT_RENDEZVOUS_SECRET` may contain a secret of at least 16 bytes, equal at all ranks, by which they recognise each other.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a variable is missing, not a number, too large, or contradicts another, or if the secret is too short.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_variables(|name| env::var(name).ok())
    }

    /// Reads these variables. Empty variables count as not set.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a variable is missing, not a number, too large, or contradicts another, or if the secret is too short.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let set = LAUNCHERS.iter().find(|launcher| {
            let mut variables = [launcher.rank].into_iter().chain(launcher.needs);
            variables.all(|name| variable(name).is_some())
        });
        let Some(launcher) = set else { return Ok(None) };
        let number = |name: &str| -> Result<Option<usize>> {
            let parse = |value: String| {
                let parsed = value.trim().parse();
                parsed.map_err(|_| wrong(format!("{name}={value} is not a number")))
            };
            variable(name).map(parse).transpose()
        };
        let first = |names: &[&str]| -> Result<Option<usize>> {
            match names.iter().find(|name| variable(name).is_some()) {
                Some(name) => number(name),
                None => Ok(None),
            }
        };
        let rank = number(launcher.rank)?.unwrap_or(0);
        let size = number(launcher.size)?;
        let missing = || wrong(format!("{} is set, and {} is not", launcher.rank, launcher.size));
        let size = size.ok_or_else(missing)?;
        if size > MAX_RANKS {
            return Err(wrong(format!(
                "{}={size} exceeds {MAX_RANKS}, the maximum number of ranks",
                launcher.size
            )));
        }
        if rank >= size {
            return Err(wrong(format!(
                "{}={rank}, but {}={size}: ranks count from 0",
                launcher.rank, launcher.size
            )));
        }
        let local_rank = first(launcher.local_rank)?.unwrap_or(rank);
        if local_rank > rank {
            return Err(wrong(format!(
                "{}={local_rank} is above {}={rank}",
                launcher.local_rank[0], launcher.rank
            )));
        }
        let host = match variable("MASTER_ADDR") {
            Some(host) => host,
            None => match variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST")) {
                Some(list) if launcher.rank == "SLURM_PROCID" => first_host(&list),
                // On a single host the local rank equals the rank.
                _ if local_rank == rank => "127.0.0.1".to_owned(),
                _ => {
                    return Err(wrong(
                        "MASTER_ADDR is not set, and the processes are on several hosts: set it to rank 0's"
                            .to_owned(),
                    ));
                }
            },
        };
        let port = match variable("MASTER_PORT") {
            Some(text) => match text.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(wrong(format!("MASTER_PORT={text} is not a port"))),
            },
            None => match number("SLURM_JOB_ID")? {
                // Jobs that share a host use different ports.
                Some(job) => 20000 + (job % 10000) as u16,
                None => PORT,
            },
        };
        // torchrun's store listens at the port itself.
        let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
        let ports = (u16::from(taken)..PORTS).filter_map(|step| port.checked_add(step));
        let secret = variable(SECRET).unwrap_or_default();
        if !secret.is_empty() && secret.len() < MIN_SECRET {
            return Err(wrong(format!(
                "{SECRET} has {} bytes. Set it to at least {MIN_SECRET} random ones, the same at all ranks",
                secret.len()
            )));
        }
        let run: Vec<String> = launcher.run.iter().filter_map(|name| variable(name)).collect();
        // torchrun names a run "none" by default.
        let is_named = run.first().is_some_and(|name| name != "none");
        let is_open = secret.is_empty() && !is_named && !is_loopback(&host);
        Ok(Some(Self {
            rank,
            size,
            local_rank,
            host,
            port,
            ports: ports.collect(),
            key: Key::new(&secret, &run.join(".")),
            is_open,
        }))
    }

    /// Returns the rank of the process, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of processes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the local rank: the number of this process on its host, from 0. By convention it selects the GPU.
    #[must_use]
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Returns the host of rank 0.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the launcher's port. Rank 0's ports start there.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the ports of rank 0 to try, in this order.
    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns true if any peer that reaches rank 0's port can join the run.
    ///
    /// Such a run has a `MASTER_ADDR` that is not a loopback address, no `HIPVIT_RENDEZVOUS_SECRET`, and no name from its launcher.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the key by which the ranks of this run recognise each other.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the error of this process for `reason`.
    pub(super) fn error(&self, reason: String) -> Error {
        let port = self.ports.first().copied().unwrap_or_default();
        Error::Rendezvous {
            rank: self.rank,
            ranks: self.size,
            address: format!("{}:{port}", self.host),
            reason,
        }
    }
}

/// Returns true for a loopback address or a name of one.
///
/// The name of a host is not one, even if it resolves to a loopback address there: it resolves differently on other hosts.
pub(super) fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => ["localhost", "ip6-localhost", "ip6-loopback"]
            .iter()
            .any(|name| host.eq_ignore_ascii_case(name)),
    }
}

fn wrong(reason: String) -> Error {
    Error::argument("launcher", reason)
}

/// Returns the first host of a Slurm list: `node03` for `node[03-07,9],other`.
fn first_host(list: &str) -> String {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let number = rest.strip_prefix('[').unwrap_or_default();
    let number = number.split([',', '-', ']']).next().unwrap_or_default();
    // The text after the brackets is part of the name.
    let suffix = if rest.starts_with('[') {
        rest.split_once(']')
            .map_or("", |(_, rest)| rest.split(',').next().unwrap_or_default())
    } else {
        ""
    };
    format!("{name}{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(variables: &[(&str, &str)]) -> Result<Option<World>, String> {
        let find = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        World::from_variables(find).map_err(|error| error.to_string())
    }

    #[test]
    fn every_launcher_is_understood() {
        let torch = [
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "1234"),
        ];
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_JOB_ID", "4321"),
            ("SLURM_STEP_NODELIST", "10.0.0.1,10.0.0.2"),
        ];
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("MASTER_ADDR", "10.0.0.1"),
        ];
        let pmi = [
            ("PMI_RANK", "5"),
            ("PMI_SIZE", "8"),
            ("MPI_LOCALRANKID", "1"),
            ("MASTER_ADDR", "10.0.0.1"),
        ];
        let launchers: [(&[_], u16); 4] = [(&torch, 1234), (&slurm, 24321), (&open_mpi, PORT), (&pmi, PORT)];
        for (variables, port) in launchers {
            let world = world(variables).unwrap().unwrap();
            assert_eq!((world.rank(), world.size(), world.local_rank()), (5, 8, 1));
            assert_eq!((world.host(), world.ports()[0]), ("10.0.0.1", port));
        }
        assert_eq!(world(&[("MASTER_ADDR", "10.0.0.1")]), Ok(None));
    }

    #[test]
    fn the_script_of_a_batch_job_is_one_process() {
        let script = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_JOB_ID", "7"),
        ];
        assert_eq!(world(&script), Ok(None));
    }

    #[test]
    fn mpi_launchers_count_before_the_slurm_job_that_they_run_in() {
        let job = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NODELIST", "a,b"),
        ];
        for launcher in [
            [
                ("OMPI_COMM_WORLD_RANK", "6"),
                ("OMPI_COMM_WORLD_SIZE", "8"),
                ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
            ],
            [("PMI_RANK", "6"), ("PMI_SIZE", "8"), ("MPI_LOCALRANKID", "2")],
        ] {
            let address = [("MASTER_ADDR", "a")];
            let found = world(&[&job[..], &launcher, &address].concat()).unwrap().unwrap();
            assert_eq!((found.rank(), found.size(), found.local_rank()), (6, 8, 2));
        }
        // With `srun --mpi=pmi2`, Slurm is the launcher, and only Slurm reports the local rank.
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("SLURM_LOCALID", "0")];
        let found = world(&[&job[..], &pmi].concat()).unwrap().unwrap();
        assert_eq!((found.rank(), found.local_rank(), found.host()), (1, 0, "a"));
    }

    #[test]
    fn torchruns_own_port_is_left_to_it() {
        let variables = [
            ("RANK", "0"),
            ("WORLD_SIZE", "1"),
            ("MASTER_PORT", "400"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ];
        assert_eq!(world(&variables).unwrap().unwrap().ports()[0], 401);
    }

    #[test]
    fn a_single_host_needs_no_address() {
        let variables = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1")];
        assert_eq!(world(&variables).unwrap().unwrap().host(), "127.0.0.1");
    }

    #[test]
    fn contradictions_are_errors_that_name_the_variable() {
        for (variables, text) in [
            (
                &[("RANK", "x"), ("WORLD_SIZE", "2")][..],
                "launcher: RANK=x is not a number",
            ),
            (&[("RANK", "1")], "launcher: RANK is set, and WORLD_SIZE is not"),
            (
                &[("RANK", "2"), ("WORLD_SIZE", "2")],
                "launcher: RANK=2, but WORLD_SIZE=2: ranks count from 0",
            ),
            (
                &[("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "2")],
                "launcher: LOCAL_RANK=2 is above RANK=1",
            ),
            (
                &[("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")],
                "launcher: MASTER_ADDR is not set, and the processes are on several hosts: set it to rank 0's",
            ),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "99999")],
                "launcher: MASTER_PORT=99999 is not a port",
            ),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "1000000000000")],
                "launcher: WORLD_SIZE=1000000000000 exceeds 65536, the maximum number of ranks",
            ),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "2"), (SECRET, "short")],
                "launcher: HIPVIT_RENDEZVOUS_SECRET has 5 bytes. Set it to at least 16 random ones, the same at all ranks",
            ),
        ] {
            assert_eq!(world(variables), Err(text.to_owned()));
        }
    }

    #[test]
    fn a_run_is_open_without_a_secret_and_a_name() {
        let is_open = |more: &[(&str, &str)]| {
            let run = [("RANK", "0"), ("WORLD_SIZE", "2")];
            world(&[&run[..], more].concat()).unwrap().unwrap().is_open()
        };
        let remote = ("MASTER_ADDR", "10.0.0.1");
        assert!(is_open(&[remote]));
        assert!(is_open(&[
            ("MASTER_ADDR", "host"),
            ("TORCHELASTIC_RUN_ID", "none")
        ]));
        assert!(!is_open(&[remote, ("TORCHELASTIC_RUN_ID", "7c2d")]));
        assert!(!is_open(&[remote, (SECRET, "0123456789abcdef")]));
        for local in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost"] {
            assert!(!is_open(&[("MASTER_ADDR", local)]), "{local}");
        }
    }

    #[test]
    fn the_secret_is_not_printed() {
        let run = [("RANK", "0"), ("WORLD_SIZE", "2"), (SECRET, "0123456789abcdef")];
        let text = format!("{:?}", world(&run).unwrap().unwrap());
        assert!(text.contains("key: Key,") && !text.contains("0123"), "{text}");
    }

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, host) in [
            ("a", "a"),
            ("a,b", "a"),
            ("node[03-07,9],b", "node03"),
            ("n[8,9]", "n8"),
            ("rack[1-2].site,b", "rack1.site"),
        ] {
            assert_eq!(first_host(list), host);
        }
    }
}
