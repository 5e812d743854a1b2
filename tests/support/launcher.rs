//! The program in several processes, as a launcher starts them.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::at;

/// Processes with the variables that launchers set.
pub(crate) struct Launcher {
    size: usize,
    port: u16,
    /// Working folder of the processes.
    folder: PathBuf,
    program: fn() -> Command,
}

/// Returns the program without a GPU's provider.
pub(crate) fn on_cpu() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    command.env_remove("HIPVIT_PROVIDER");
    command
}

impl Launcher {
    pub(crate) fn new(size: usize, folder: &Path) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Self {
            size,
            port: listener.local_addr().unwrap().port(),
            folder: folder.to_owned(),
            program: on_cpu,
        }
    }

    /// Launches `program` instead of the command line on the CPU.
    pub(crate) fn of(self, program: fn() -> Command) -> Self {
        Self { program, ..self }
    }

    pub(crate) fn command<A: AsRef<OsStr>>(&self, rank: usize, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = (self.program)();
        command
            .args(args)
            .current_dir(&self.folder)
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", self.size.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", self.port.to_string())
            // Concurrent tests do not use adjacent ports.
            .env(
                "TORCHELASTIC_RUN_ID",
                format!("{}.{}", std::process::id(), self.port),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start<A: AsRef<OsStr>>(&self, rank: usize, args: impl IntoIterator<Item = A>) -> Child {
        self.command(rank, args).spawn().unwrap()
    }

    /// Returns the output of each rank; all have the same arguments.
    pub(crate) fn run(&self, args: &[&str]) -> Vec<Output> {
        self.run_each(|_| args.to_vec())
    }

    pub(crate) fn run_each<'a>(&self, args: impl Fn(usize) -> Vec<&'a str>) -> Vec<Output> {
        let ranks: Vec<Child> = (0..self.size).map(|rank| self.start(rank, args(rank))).collect();
        ranks
            .into_iter()
            .map(|rank| rank.wait_with_output().unwrap())
            .collect()
    }
}

/// Creates a folder with images in `in`. Their number is no multiple of the batch sizes below.
pub(crate) fn images(count: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    let samples = fs::read_dir(at("assets/samples")).unwrap();
    let samples: Vec<PathBuf> = samples.map(|sample| sample.unwrap().path()).collect();
    for (index, sample) in samples.iter().cycle().take(count).enumerate() {
        fs::copy(sample, folder.path().join(format!("in/{index:02}.png"))).unwrap();
    }
    folder
}

/// Returns the output of a rank that ends soon.
pub(crate) fn ends_soon(mut rank: Child) -> Output {
    let begun = Instant::now();
    while rank.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            rank.kill().unwrap();
            panic!("a rank has not ended");
        }
        thread::sleep(Duration::from_millis(10));
    }
    rank.wait_with_output().unwrap()
}
