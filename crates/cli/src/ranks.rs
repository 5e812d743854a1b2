//! Processes (ranks) of a launcher that share the images of one command.
//!
//! All ranks list the images, load the model, and compare their settings. Then each rank runs its share: whole batches
//! in turn, so that batches equal those of a single process. Rank 0 receives the results in order and writes them. TCP
//! flow control limits how far other ranks run ahead. An error on any rank ends all ranks.

use std::fmt::Debug;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use hipvit::graph::OutputKind;
use hipvit::hip::{self, Connection, Connections, Rendezvous, World};
use hipvit::pipeline::{Pipeline, Source};
use hipvit::{Degrees, Device, Session};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::agreement::{self, Facts};
use super::decode_args::DecodeArgs;
use super::errors::{is_broken_pipe, with_causes};
use super::launcher::{self, DistributedArgs, Place, Sharing};
use super::model_args::RunArgs;
use super::outcome::{Followed, Outcome};
use super::output;
use super::partial::{Journal, Partial, Stamp};
use super::results::{Message, Results, Run};

/// Time that a failed rank waits for rank 0 to receive its error. Launchers kill all processes when one has failed.
const GRACE: Duration = Duration::from_secs(10);

/// Maximum length in bytes of an error that a rank sends. Long messages are rejected.
const MAX_ERROR: usize = 64 << 10;

/// State of this process among the ranks.
pub(crate) struct Ranks {
    stage: Stage,
    world: Option<World>,
    sharing: Sharing,
    timeout: Duration,
    /// True if the ranks divide the model. Rank 0 then runs all images; the others load their parts and follow it.
    divide: bool,
}

enum Stage {
    /// There are no other processes, their connections are lost, or they already know the outcome.
    Alone,
    Preparing(Rendezvous),
    /// State of rank 0 while it receives results.
    Merging(Vec<Connection>),
}

/// Outcome of the run, sent by rank 0.
#[derive(Serialize, Deserialize)]
enum Verdict {
    Complete,
    Failed(String),
}

/// The images to run, and the options of the run.
pub(crate) struct Work<'a> {
    /// Name of the subcommand.
    command: &'a str,
    session: &'a Session,
    model: &'a RunArgs,
    sources: Vec<Source>,
    decode: &'a DecodeArgs,
    /// True if the phases on the device are timed.
    timed: bool,
    /// File of partial results.
    partial: Option<Partial>,
}

impl DistributedArgs {
    /// Runs `command` in this process, together with the launcher's other processes if there are any.
    pub(crate) fn run(
        &self,
        model: &RunArgs,
        command: impl FnOnce(&mut Ranks) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let mut ranks = Ranks::join(self, model.is_divided())?;
        let result = command(&mut ranks);
        ranks.end(result)
    }
}

impl RunArgs {
    /// Returns the arguments with the device and the number of threads of this process.
    pub(crate) fn at(&self, ranks: &Ranks) -> anyhow::Result<Self> {
        let mut args = self.clone();
        if let Some(world) = ranks.world() {
            let config = &mut args.model.config;
            config.device = launcher::devices(world, config.device.as_ref())?;
            // Without a GPU, `auto` is not resolved yet at this point.
            let on_cpu = config
                .device
                .as_ref()
                .is_none_or(|devices| matches!(devices.set().device(), Some(Device::Cpu | Device::Auto)));
            if config.execution.threads.is_none() && ranks.sharing().processors > 1 {
                config.execution.threads = Some(ranks.sharing().threads(on_cpu));
            }
        }
        args.across = ranks.divide();
        Ok(args)
    }
}

impl Ranks {
    /// Connects to the other processes, if any. Processes that divide the model connect when they load it.
    fn join(args: &DistributedArgs, divide: bool) -> Result<Self> {
        let timeout = args.timeout();
        let world = args.world()?;
        let mut ranks = Self {
            stage: Stage::Alone,
            world: world.clone(),
            sharing: Sharing::NONE,
            timeout,
            divide,
        };
        if let Some(world) = world {
            if world.rank() > 0 {
                output::leave_to_rank_0();
            } else if world.is_open() {
                output::warn_of_strangers();
            }
            if divide {
                return Ok(ranks);
            }
            ranks.stage = Stage::Preparing(Rendezvous::new(world.clone(), timeout)?);
            let places = ranks.exchange(&serde_json::to_vec(&Place::of_this_process())?)?;
            let places: Vec<Place> = decoded(&places)?;
            ranks.sharing = Sharing::of(world.rank(), &places);
        }
        Ok(ranks)
    }

    /// Returns the rank and the number of processes; `None` for a single process.
    pub(crate) fn world(&self) -> Option<&World> {
        self.world.as_ref()
    }

    /// Returns the processes that divide the model, and their timeout; `None` if the model is not divided.
    pub(crate) fn divide(&self) -> Option<(World, Duration)> {
        let world = self.world.clone().filter(|_| self.divide);
        Some((world?, self.timeout))
    }

    /// Returns true if this process has images to run.
    pub(crate) fn runs(&self) -> bool {
        !self.divide || self.writes()
    }

    /// Returns true if this process writes the results.
    pub(crate) fn writes(&self) -> bool {
        self.world.as_ref().is_none_or(|world| world.rank() == 0)
    }

    /// Returns the number of processes that share the host with this one.
    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Sends the bytes that rank 0 reads to all ranks, because launchers forward standard input to one process only.
    pub(crate) fn read_at_rank_0(&mut self, read: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        if self.world.is_none() || self.divide {
            return read();
        }
        let own = if self.writes() { read()? } else { Vec::new() };
        let mut parts = self.exchange(&own)?;
        Ok(parts.swap_remove(0))
    }

    /// Returns the results of all images in the process that writes them. In other processes, runs their share and
    /// returns `None`.
    pub(crate) fn results(&mut self, mut work: Work<'_>) -> Result<Option<Results>> {
        let journal = work.begin()?;
        let finished = journal.as_ref().map_or(0, Journal::unread);
        let Some(world) = self.world.clone().filter(|_| !self.divide) else {
            let (sources, run) = work.remaining(finished, journal);
            let own = work.pipeline(1).run(sources)?;
            return Ok(Some(Results::new(
                work.session,
                run,
                own,
                Vec::new(),
                self.timeout,
            )));
        };
        let finished = self.read_at_rank_0(|| Ok(finished.to_le_bytes().to_vec()))?;
        let finished = usize::from_le_bytes(finished.try_into().unwrap_or_default());
        self.agree(&work)?;
        let Stage::Preparing(rendezvous) = std::mem::replace(&mut self.stage, Stage::Alone) else {
            bail!("the other processes are lost");
        };
        let pipeline = work.pipeline(self.sharing.host);
        let batch = work.session.batch();
        let (sources, run) = work.remaining(finished, journal);
        let share = share(&sources, batch, &world);
        match rendezvous.into_connections() {
            Connections::Leaf(root) => run_share(root, &pipeline.timed(false), share).map(|()| None),
            Connections::Root(others) => {
                let clones = others.iter().map(Connection::try_clone);
                self.stage = Stage::Merging(clones.collect::<hip::Result<_>>()?);
                let own = pipeline.run(share)?;
                Ok(Some(Results::new(work.session, run, own, others, self.timeout)))
            }
        }
    }

    /// Checks that all ranks are about to run the same work.
    fn agree(&mut self, work: &Work<'_>) -> Result<()> {
        let mut facts = Facts::default();
        facts.add("images", agreement::images(&work.sources));
        facts.append(work.facts()?);
        let facts = self.exchange(&serde_json::to_vec(&facts)?)?;
        if let Some(differences) = Facts::differences(&decoded(&facts)?) {
            // All ranks know the error.
            self.stage = Stage::Alone;
            bail!("the processes differ in {differences}; start all with the same options and files");
        }
        Ok(())
    }

    /// Returns the values of all ranks, or the error of one that failed.
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let Stage::Preparing(rendezvous) = &mut self.stage else {
            bail!("the other processes are lost");
        };
        let parts = rendezvous.gather(&part(Ok(own))).map_err(anyhow::Error::from);
        let gathered = parts.and_then(contents);
        if gathered.is_err() {
            self.stage = Stage::Alone;
        }
        gathered
    }

    /// Sends the outcome to the other ranks, if they do not know it yet.
    fn end(self, result: Result<Outcome>) -> Result<Outcome> {
        match (self.stage, &result) {
            (Stage::Preparing(mut rendezvous), Err(error)) => {
                // This error is more useful than an error of the exchange.
                let _ = rendezvous.gather(&part(Err(&with_causes(error))));
            }
            (Stage::Merging(others), result) => {
                let verdict = match result {
                    Err(error) if !is_broken_pipe(error) => Verdict::Failed(with_causes(error)),
                    _ => Verdict::Complete,
                };
                for mut other in others {
                    // A rank that cannot be reached has already ended.
                    let _ = other.send(&verdict);
                }
            }
            (Stage::Alone | Stage::Preparing(_), _) => {}
        }
        if result.as_ref().is_err_and(anyhow::Error::is::<Followed>) {
            return Ok(Outcome::Complete);
        }
        match self.world {
            Some(world) if world.rank() > 0 => result.map_err(|error| {
                let rank = format!("rank {} of {}: ", world.rank(), world.size());
                let text = error.to_string();
                if text.starts_with(&rank) {
                    error
                } else {
                    error.context(rank + &text)
                }
            }),
            _ => result,
        }
    }
}

impl<'a> Work<'a> {
    /// Creates the work of `command`, without timing.
    pub(crate) fn new(
        command: &'a str,
        session: &'a Session,
        model: &'a RunArgs,
        sources: Vec<Source>,
        decode: &'a DecodeArgs,
    ) -> Self {
        Self {
            command,
            session,
            model,
            sources,
            decode,
            timed: false,
            partial: None,
        }
    }

    /// Keeps partial results, from which an interrupted run can be resumed.
    pub(crate) fn resumable(self, partial: Option<Partial>) -> Self {
        Self { partial, ..self }
    }

    pub(crate) fn timed(self, timed: bool) -> Self {
        Self { timed, ..self }
    }

    /// Creates the file of partial results, or continues an existing one.
    fn begin(&mut self) -> Result<Option<Journal>> {
        match self.partial.take() {
            Some(partial) => partial.begin(|| self.facts(), &self.sources, self.session.batch()),
            None => Ok(None),
        }
    }

    /// Returns the images after the first `finished` ones.
    fn remaining(&mut self, finished: usize, journal: Option<Journal>) -> (Vec<Source>, Run) {
        let images = self.sources.len();
        let sources = self.sources.split_off(finished.min(images));
        let recorded = if journal.is_some() {
            sources.clone()
        } else {
            Vec::new()
        };
        let run = Run {
            images,
            finished,
            recorded,
            journal,
        };
        (sources, run)
    }

    /// Returns the pipeline for one of `processes` processes on the host.
    fn pipeline(&self, processes: usize) -> Pipeline {
        Pipeline::new(self.session)
            .decode_options(self.decode.options_of_one(processes))
            .timed(self.timed)
    }

    /// Returns the facts that must agree between ranks, and between an interrupted and a resumed run. Images are
    /// compared separately.
    fn facts(&self) -> Result<Facts> {
        let (session, args) = (self.session, &self.model.model);
        let mut facts = Facts::default();
        facts.add("version", env!("CARGO_PKG_VERSION"));
        facts.add("command", self.command);
        facts.add("model", agreement::model(args.model.as_deref())?);
        let device = match session.device() {
            Device::Hip(_) => "GPU",
            _ => "CPU",
        };
        facts.add("device", device);
        facts.add("--dtype", session.dtype());
        facts.add("--batch", session.batch());
        let kinds = session.graph().outputs().iter().map(|(kind, _)| match kind {
            OutputKind::HiddenLayer(block) => format!("layer {block}"),
            kind => lowercase(kind),
        });
        facts.add("outputs", kinds.collect::<Vec<_>>().join(" "));
        let [height, width] = session.info().image_size;
        facts.add("image size", format!("{height}x{width}"));
        facts.add("--resize", session.resize());
        let Degrees {
            data,
            tensor,
            pipeline,
        } = session.degrees();
        let degrees = format!("data={data},tensor={tensor},pipeline={pipeline}");
        facts.add("--parallel", degrees);
        for (option, value) in args.config.numerics() {
            facts.add(option, value);
        }
        // The memory limit of decoding does not affect results.
        facts.add("--max-pixels", self.decode.max_pixels);
        facts.add("--exif", on_or_off(self.decode.exif));
        Ok(facts)
    }
}

/// Returns the name of a variant as options spell it.
fn lowercase(variant: &impl Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Returns the images of a rank: every `world_size`-th batch, in the order of `sources`.
fn share(sources: &[Source], batch: usize, world: &World) -> Vec<Source> {
    let batches = sources.chunks(batch).skip(world.rank()).step_by(world.size());
    batches.flatten().cloned().collect()
}

/// Runs `share` and sends its results to rank 0. Rank 0 decides the outcome.
fn run_share(mut root: Connection, pipeline: &Pipeline, share: Vec<Source>) -> Result<()> {
    let verdict = watch(root.try_clone()?)?;
    if let Err(error) = send_results(&mut root, pipeline, share) {
        let _ = root.send(&Message::Failed(with_causes(&error)));
        let _ = verdict.recv_timeout(GRACE);
        return Err(error);
    }
    match verdict
        .recv()
        .context("the thread that waits for rank 0 has ended")??
    {
        Verdict::Complete => Ok(()),
        Verdict::Failed(text) => bail!("rank 0: {text}"),
    }
}

/// Sends the results. Stops early if rank 0 closes the connection; its verdict has the reason.
fn send_results(root: &mut Connection, pipeline: &Pipeline, share: Vec<Source>) -> Result<()> {
    for (result, source) in pipeline.run(share.clone())?.zip(share) {
        let message = match result {
            Ok(item) => Message::Results(item.parts(), Stamp::of(&source)),
            Err(error) if error.index().is_some() => {
                Message::ImageFailed(error.to_string(), Stamp::of(&source))
            }
            Err(error) => return Err(hipvit::Error::from(error).into()),
        };
        if root.send(&message).is_err() {
            return Ok(());
        }
    }
    let _ = root.send(&Message::Complete);
    Ok(())
}

/// Starts a thread that receives the verdict while this thread sends.
fn watch(mut root: Connection) -> Result<Receiver<hip::Result<Verdict>>> {
    let (found, verdict) = mpsc::channel();
    let thread = thread::Builder::new().name("hipvit-rank-0".into());
    thread
        .spawn(move || found.send(root.receive(None)))
        .context("cannot start a thread")?;
    Ok(verdict)
}

/// Encodes a rank's part of an exchange: its value, or its error.
fn part(own: Result<&[u8], &str>) -> Vec<u8> {
    match own {
        Ok(content) => [&[0], content].concat(),
        Err(text) => {
            let end = text.floor_char_boundary(MAX_ERROR);
            [&[1], &text.as_bytes()[..end]].concat()
        }
    }
}

/// Decodes the values of all ranks. Returns the error of a rank that failed.
fn contents(parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let ranks = parts.len();
    let content = |(rank, part): (usize, Vec<u8>)| match part.split_first() {
        Some((0, content)) => Ok(content.to_vec()),
        Some((_, text)) => Err(anyhow!(
            "rank {rank} of {ranks}: {}",
            String::from_utf8_lossy(text)
        )),
        None => Err(anyhow!(
            "rank {rank} of {ranks} runs a different command or version of hipvit"
        )),
    };
    parts.into_iter().enumerate().map(content).collect()
}

fn decoded<T: DeserializeOwned>(parts: &[Vec<u8>]) -> Result<Vec<T>> {
    let decode = |(rank, part): (usize, &Vec<u8>)| {
        let decoded = serde_json::from_slice(part);
        decoded.with_context(|| format!("rank {rank} runs a different command or version of hipvit"))
    };
    parts.iter().enumerate().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(rank: usize, size: usize) -> World {
        let find = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some(size.to_string()),
            _ => None,
        };
        World::from_variables(find).unwrap().unwrap()
    }

    #[test]
    fn whole_batches_go_to_the_ranks_by_turns() {
        let sources = ["a", "b", "c", "d", "e", "f", "g"].map(Source::from);
        let names = |rank, size, batch| -> String {
            let share = share(&sources, batch, &world(rank, size));
            share.iter().map(Source::name).collect()
        };
        assert_eq!([0, 1].map(|rank| names(rank, 2, 2)), ["abef", "cdg"]);
        assert_eq!([0, 1, 2].map(|rank| names(rank, 3, 3)), ["abc", "def", "g"]);
        assert_eq!([0, 1, 2].map(|rank| names(rank, 3, 4)), ["abcd", "efg", ""]);
    }

    #[test]
    fn the_first_rank_that_has_failed_is_named() {
        let parts = |last: &str| vec![part(Ok(b"x")), part(Err("no model")), part(Err(last))];
        assert_eq!(
            contents(parts("no GPU")).unwrap_err().to_string(),
            "rank 1 of 3: no model"
        );
        assert_eq!(contents(vec![part(Ok(b"x"))]).unwrap(), [b"x"]);
    }
}
