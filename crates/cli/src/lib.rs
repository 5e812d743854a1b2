//! The command line. One file per subcommand; what they share is here (`ModelArgs`, exit codes) and in `choices`
//! (devices and the like), `errors`, `inputs` (which images), `output` (files, standard output and messages), `format` (the
//! forms of results), `arrays`, `record` (JSON lines), `results` (their stream), `partial` (interrupted runs), `ranks` (several
//! processes) and `progress`.

#![allow(unreachable_pub, reason = "its modules are written as those of a program")]

mod advise;
mod agreement;
mod arrays;
mod bench;
mod choices;
mod classify;
mod compare;
mod completions;
mod devices;
mod embed;
mod environment;
mod errors;
mod eval;
mod explain;
mod format;
mod inputs;
mod inspect;
mod interrupt;
mod labels;
mod launcher;
mod output;
mod partial;
mod preprocess;
mod profile;
mod progress;
#[cfg(feature = "hub")]
mod pull;
mod quantize;
mod ranks;
mod record;
mod results;
#[cfg(feature = "serve")]
mod serve;
mod target;
mod texts;
mod trace;
mod tune;
mod validate;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use errors::{failed, report};
use hipvit::hip::World;
use hipvit::model::{self, LoadOptions, Model};
use hipvit::pipeline::Item;
use hipvit::{
    AllReduceKind, DType, Device, GraphMode, Parallelism, ResizeOn, Session, SessionBuilder, Sparse,
};
use progress::Progress;
use ranks::Ranks;

/// Vision Transformers from pixel to logit.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    terminal: output::TerminalArgs,
}

const AFTER_HELP: &str = "\
Results go to standard output in the form that --format names (--json is short for --format json). -o FILE writes them to a file \
instead, in the form of its ending: .txt, .json or .jsonl, .csv, .md, .npy, .safetensors, .parquet, as far as the command has it. \
The file appears, or replaces an older one, when it is complete; an older one stays if every input fails. \
Progress, notes, warnings and errors go to standard error.

An image that fails has no row in any format. It is reported and counted on standard error, and the exit code is 1. An interrupted \
`embed -o FILE` or `classify -o FILE` keeps its results in FILE.partial; --resume continues it.

Exit codes: 0 success, 1 some input failed, 2 wrong usage.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Classify images: show the most likely labels of each
    Classify(classify::Args),
    /// Print or write the embedding of each image
    Embed(embed::Args),
    /// Measure accuracy over labelled images
    Eval(eval::Args),
    /// Show which parts of an image a result comes from: attention maps, rollout, attribution, as pictures and arrays
    Explain(explain::Args),
    /// Follow one pixel from the decoded image through every layer to its part of a logit
    Trace(trace::Args),
    /// Show a model's sizes, operations, memory and passes; on request its graph, plan, parameters and kernels
    Inspect(inspect::Args),
    /// Write the pixel values of images, the model's input
    Preprocess(preprocess::Args),
    /// Serve models over HTTP and gRPC, by the Open Inference Protocol
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    /// Show what a model needs, what bounds each step on a GPU, and what to change next
    Advise(advise::Args),
    /// Time models on random pixels
    Bench(bench::Args),
    /// Show where the time goes from image files to labels, and write a timeline for ui.perfetto.dev; count what kernels execute
    Profile(profile::Args),
    /// Measure which kernels are fastest for a model on a GPU, and keep the result
    Tune(tune::Args),
    /// Compare results of `bench` and of its peers, and find regressions
    Compare(compare::Args),
    /// Check every op against an f64 reference and time it
    Validate(validate::Args),
    /// Write a model in 8 bits: int8 is a quarter of the memory and faster on CPUs, fp8 a quarter of the file
    Quantize(quantize::Args),
    /// Download models from the Hugging Face hub into its local cache
    #[cfg(feature = "hub")]
    Pull(pull::Args),
    /// List the GPUs, their memory and their links, and the CPU
    Devices(devices::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
}

/// The model and where it runs.
#[derive(Clone, Debug, clap::Args)]
pub struct ModelArgs {
    /// Model directory, as timm or Hugging Face transformers write it, or a model of the Hugging Face hub that was downloaded:
    /// ORG/NAME or ORG/NAME@REVISION [default: the embedded TinyViT32]
    #[arg(long, short, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Where to run: auto (the first GPU, else the CPU), cpu, hip (the first GPU), hip:N, or several GPUs: hip:all, hip:0,1
    /// [default: auto]
    #[arg(long, value_name = "DEVICE", value_parser = choices::devices(), add = ArgValueCandidates::new(completions::device_sets))]
    device: Option<choices::Devices>,
    #[command(flatten)]
    parallel: ParallelArgs,
    /// On a GPU, keep 2:4 sparse weights packed in f16 and bf16 and skip their zeros: auto (where tune has measured that to be faster),
    /// on (by hipSPARSELt or cuSPARSELt, or without it by the crate's kernel), builtin (by the crate's kernel), off; not with several GPUs
    /// for one model
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = choices::sparse())]
    sparse: Sparse,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Maximum batch size
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = positive)]
    batch: usize,
    /// Image size, if not the model's own; position embeddings are interpolated
    #[arg(long, value_name = "N or HxW", value_parser = image_size)]
    image_size: Option<ImageSize>,
}

/// How several GPUs share the work.
#[derive(Clone, Debug, clap::Args)]
pub struct ParallelArgs {
    /// How several GPUs share the work: data (a replica of the model on each), tensor (each layer split over them), pipeline
    /// (the layers divided among them), or degrees, as tensor=2,data=2 or tensor=2,pipeline=2
    #[arg(id = "parallel", long = "parallel", default_value = "data", value_name = "KIND[=N],…", value_parser = choices::parallelism)]
    kind: Parallelism,
    /// With tensor parallelism, what sums over the GPUs: direct (this crate's kernel, over peer memory), library (RCCL or NCCL),
    /// auto (direct for small messages, where the GPUs can)
    #[arg(long, default_value = "auto", value_name = "KIND", value_parser = choices::all_reduce())]
    all_reduce: AllReduceKind,
}

impl ParallelArgs {
    fn apply(&self, builder: SessionBuilder) -> SessionBuilder {
        builder.parallel(self.kind).all_reduce(self.all_reduce)
    }
}

/// How a model computes, wherever it runs.
#[derive(Clone, Debug, clap::Args)]
pub struct ComputeArgs {
    /// Compute precision: f32, f16 or bf16; on the CPU f16 is that of the weights alone
    #[arg(long, default_value = "f32", value_name = "DTYPE", value_parser = choices::dtype())]
    dtype: DType,
    /// Replay captured HIP graphs on a GPU: auto does so where possible, but not while steps are timed
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = choices::hip_graphs())]
    hip_graphs: GraphMode,
    /// Weights and results that are NaN or infinite are errors, not warnings
    #[arg(long)]
    strict: bool,
    /// On a GPU, give an image the same bits at any batch size, under any load; costs speed
    #[arg(long)]
    reproducible: bool,
    /// Number of compute threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = positive)]
    threads: Option<usize>,
    /// Reject models that take more than N floating-point operations per image, as 2e13 [default: 1e13]
    #[arg(long, value_name = "N", value_parser = flops)]
    max_flops: Option<u64>,
}

impl ComputeArgs {
    fn builder(&self) -> SessionBuilder {
        let mut builder = Session::builder()
            .dtype(self.dtype)
            .hip_graphs(self.hip_graphs)
            .reproducible(self.reproducible)
            .strict(self.strict);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(flops) = self.max_flops {
            builder = builder.max_flops(flops);
        }
        builder
    }
}

/// As [`ModelArgs`], for commands that run images.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Where to resize and crop images: on the host or on the GPU, with the same result
    #[arg(long, default_value = "host", value_name = "WHERE", value_parser = choices::resize())]
    resize: ResizeOn,
    /// The processes that divide the model, and how long they wait for each other.
    #[arg(skip)]
    across: Option<(World, Duration)>,
}

impl RunArgs {
    /// Loads the model. If a launcher has started several processes that divide it, all but the first follow that one here, and end with
    /// [`Followed`].
    fn load_with(&self, builder: SessionBuilder) -> anyhow::Result<Session> {
        let session = self.model.load_with(match &self.across {
            Some((world, timeout)) => builder.world(world.clone()).rendezvous_timeout(*timeout),
            None => builder,
        })?;
        if session.world().is_some_and(|world| world.rank() > 0) {
            session.follow()?;
            return Err(Followed.into());
        }
        Ok(session)
    }

    fn builder(&self) -> SessionBuilder {
        self.model.builder().resize(self.resize)
    }

    /// With this process's device and number of threads.
    fn at(&self, ranks: &Ranks) -> anyhow::Result<Self> {
        let mut args = self.clone();
        if let Some(world) = ranks.world() {
            let model = &mut args.model;
            model.device = launcher::devices(world, model.device.as_ref())?.map(choices::Devices::from);
            // Without a GPU, auto is still auto here.
            let on_cpu = model
                .device
                .as_ref()
                .is_none_or(|devices| matches!(devices.set().device(), Some(Device::Cpu | Device::Auto)));
            if model.compute.threads.is_none() && ranks.sharing().processors > 1 {
                model.compute.threads = Some(ranks.sharing().threads(on_cpu));
            }
        }
        args.across = ranks.divide();
        Ok(args)
    }

    /// Whether several processes would divide the model, rather than share the images.
    fn is_divided(&self) -> bool {
        let device = self.model.device.as_ref();
        !self.model.parallel.kind.is_data() && device.is_none_or(|devices| devices.set().device().is_some())
    }

    /// Whether it is the embedded model.
    fn is_embedded(&self) -> bool {
        self.model.model.is_none()
    }

    /// Says that the model is one of digits, if none was named.
    fn note_embedded(&self) {
        if self.is_embedded() {
            output::note(
                "no model is named: TinyViT32 is used, which knows handwritten digits only. Name another with -m DIR or -m ORG/NAME",
            );
        }
    }
}

/// Height and width.
#[derive(Clone, Copy, Debug)]
struct ImageSize([usize; 2]);

fn image_size(text: &str) -> Result<ImageSize, String> {
    let (h, w) = text.split_once(['x', '×']).unwrap_or((text, text));
    Ok(ImageSize([positive(h)?, positive(w)?]))
}

fn flops(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        // A cast to an integer saturates.
        Ok(n) if n >= 1.0 => Ok(n as u64),
        Ok(_) => Err("must be at least 1".into()),
        Err(e) => Err(e.to_string()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(n) => Ok(n),
        Err(e) => Err(e.to_string()),
    }
}

/// The model at `path`, or the embedded one, without a session that runs it.
fn load_model(path: Option<&PathBuf>, options: &LoadOptions) -> hipvit::Result<Model> {
    match path {
        Some(path) => model::load(path, options),
        None => model::tinyvit32(options),
    }
}

impl ModelArgs {
    /// With the model that was named without --model.
    fn or_model(mut self, positional: Option<&PathBuf>) -> Self {
        self.model = self.model.or_else(|| positional.cloned());
        self
    }

    fn load(&self) -> hipvit::Result<Session> {
        self.load_with(self.builder())
    }

    fn load_with(&self, builder: SessionBuilder) -> hipvit::Result<Session> {
        let session = match &self.model {
            Some(path) => builder.load(path),
            None => builder.tinyvit32(),
        }?;
        if let Some(hipvit::Error::Hip(reason)) = session.no_gpu() {
            note_no_gpu(reason, self.device.is_some());
        }
        warn_non_finite_weights(&session);
        if let Some(reason) = session.hip_graphs().and_then(|runs| runs.no_direct) {
            output::warning(&format!(
                "the GPUs sum by RCCL, which may round differently, because peer memory failed: {reason}"
            ));
        }
        Ok(session)
    }

    fn builder(&self) -> SessionBuilder {
        let builder = self.parallel.apply(self.compute.builder());
        let builder = builder
            .devices(
                self.device
                    .as_ref()
                    .map(|devices| devices.set().clone())
                    .unwrap_or_default(),
            )
            .sparse(self.sparse)
            .batch(self.batch);
        match self.image_size {
            Some(ImageSize(size)) => builder.image_size(size),
            None => builder,
        }
    }
}

/// How a command ended, if no error stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All input was processed.
    Complete,
    /// Some input failed and was reported; the others were processed.
    SomeFailed,
}

impl Outcome {
    /// The outcome of a command of whose inputs `failed` failed.
    fn of(failed: usize) -> Self {
        match failed {
            0 => Self::Complete,
            _ => Self::SomeFailed,
        }
    }
}

/// This process has taken part in the runs of another one, and has no results of its own: success.
#[derive(Debug, thiserror::Error)]
#[error("the results are those of rank 0")]
pub struct Followed;

/// A wrong command line that clap does not detect: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage<T = &'static str>(T);

/// Runs the command line and returns the exit code. The first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    completions::answer();
    // A file that reaches its maximum size (`ulimit -f`) is an error of the write, where the signal would end the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let program = arguments.first().cloned();
    let cli = match environment::parse(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    cli.terminal.apply();
    let handler = match cli.command {
        // These end on signals in their own way.
        #[cfg(feature = "serve")]
        Command::Serve(_) => None,
        _ => match interrupt::start() {
            Ok(handler) => Some(handler),
            Err(error) => return failed(&error),
        },
    };
    let result = match cli.command {
        Command::Classify(args) => args.run(),
        Command::Embed(args) => args.run(),
        Command::Eval(args) => args.run(),
        Command::Explain(args) => args.run(),
        Command::Trace(args) => args.run(),
        Command::Inspect(args) => args.run(),
        Command::Preprocess(args) => args.run(),
        #[cfg(feature = "serve")]
        Command::Serve(args) => args.run(),
        Command::Advise(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Profile(args) => args.run(),
        Command::Tune(args) => args.run(),
        Command::Compare(args) => args.run(),
        Command::Validate(args) => args.run(),
        Command::Quantize(args) => args.run(),
        #[cfg(feature = "hub")]
        Command::Pull(args) => args.run(),
        Command::Devices(args) => args.run(),
        Command::Completions(args) => args.run(program),
    };
    drop(handler);
    match result {
        Ok(Outcome::Complete) => 0,
        Ok(Outcome::SomeFailed) => 1,
        Err(error) => failed(&error),
    }
}

/// Shows the help that was asked for, or what is wrong with the command line; the exit code.
fn usage(error: &clap::Error) -> u8 {
    let printed = error.print();
    if !cfg!(feature = "serve")
        && let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand)
        && command == "serve"
    {
        output::note(
            "`serve` is in a hipvit that was built with the feature `serve` (cargo install --locked --path . --features serve)",
        );
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
        && ["--port", "--host"].contains(&argument.as_str())
    {
        output::note("`hipvit serve` takes the address and the port as --listen 0.0.0.0:8000");
    }
    match printed {
        Err(refused) if !error.use_stderr() => failed(&output::named(refused).into()),
        // Nobody reads what is wrong: the exit code still tells that something is.
        _ => u8::try_from(error.exit_code()).unwrap_or(2),
    }
}

/// Says why the model runs on the CPU. Silent only where nobody asked for a GPU: no device was requested, no GPU libraries are
/// installed, and no provider is named.
fn note_no_gpu(reason: &hipvit::hip::Error, device_requested: bool) {
    let provider_requested = std::env::var_os("HIPVIT_PROVIDER").is_some_and(|value| !value.is_empty());
    let no_libraries = matches!(reason, hipvit::hip::Error::Provider { .. });
    if device_requested || provider_requested || !no_libraries {
        output::note(&format!("running on the CPU: {reason}"));
    }
}

/// One line on standard error for each weight that is NaN or infinite in places.
fn warn_non_finite_weights(session: &Session) {
    for tensor in session.non_finite_weights() {
        output::warning(&format!("{}: tensor {tensor}", session.name()));
    }
}

/// One line on standard error, beside `progress`, if an image's results are NaN or infinite in places.
fn warn_non_finite(item: &Item, progress: &Progress) {
    if let Some(results) = item.outputs().non_finite() {
        progress.report(|| output::warning(&format!("{}: {results}", item.name())));
    }
}

/// One line on standard error if HIP graphs should have been replayed and were not.
fn report_fallback(session: &Session) {
    let fallback = session.hip_graphs().and_then(|graphs| graphs.fallback);
    warn_fallback(fallback.as_deref());
}

/// The same, by the reason.
fn warn_fallback(reason: Option<&str>) {
    if let Some(reason) = reason {
        output::warning(&format!(
            "HIP graphs are not replayed, steps are launched one by one: {reason}"
        ));
    }
}

/// The text with line breaks and other control characters, which file names and labels may contain, escaped.
fn one_line(text: &str) -> String {
    escaped(text, acts_on_terminal, |c, line| line.extend(c.escape_default()))
}

/// The same of a text of several lines: a table.
fn lines(text: &str) -> String {
    let acts = |c| c != '\n' && acts_on_terminal(c);
    escaped(text, acts, |c, line| line.extend(c.escape_default()))
}

/// The text, with `escape` in place of the characters that are `escaped`.
fn escaped(text: &str, escaped: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if escaped(c) {
            escape(c, &mut line);
        } else {
            line.push(c);
        }
    }
    line
}

/// Whether a terminal does something else than print it: control characters and, though Unicode does not call them so, line
/// separators and marks that change the direction of what follows.
fn acts_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The library's error for an I/O error at `path`.
fn refused(path: &Path) -> impl Fn(io::Error) -> hipvit::Error {
    move |source| hipvit::Error::Io {
        path: path.to_owned(),
        source,
    }
}
