//! The command line. Each subcommand has a file of its own. Shared code:
//!
//! - this file: `ModelArgs` and the exit codes
//! - `options`: help and parsing
//! - `environment`: environment variables
//! - `errors`: reports on standard error
//! - `inputs`: selection of the images
//! - `output`: files, standard output and messages
//! - `format`, `arrays`, `record`, `results`: forms of results
//! - `partial`: results of interrupted runs
//! - `ranks`: runs of several processes
//! - `progress`: the progress bar

#![allow(unreachable_pub, reason = "its modules are written as those of a program")]

mod advise;
mod agreement;
mod arrays;
mod bench;
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
mod options;
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
use errors::{failed, report};
use hipvit::hip::World;
use hipvit::model::{self, LoadOptions, Model};
use hipvit::pipeline::Item;
use hipvit::run_config::Devices;
use hipvit::run_config::parsers::positive;
use hipvit::{Device, RunConfig, Session, SessionBuilder};
use progress::Progress;
use ranks::Ranks;

/// Vision Transformers from pixel to logit.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, disable_help_flag = true)]
#[command(after_help = AFTER_HELP, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    terminal: output::TerminalArgs,
}

const AFTER_HELP: &str = "\
Results go to standard output, or to a file with -o FILE. Notes, warnings and errors go to standard error.
Exit codes: 0 success, 1 some input failed, 2 wrong usage.";

const EXAMPLES: &str = "\
Results go to standard output, or to a file with -o FILE. Notes, warnings and errors go to standard error.
The extension of FILE selects the format. The file appears when it is complete.
An image that fails has no row in the results. It is reported on standard error.
An interrupted `embed -o FILE` or `classify -o FILE` leaves FILE.partial, which --resume continues.
Exit codes: 0 success, 1 some input failed, 2 wrong usage.

Examples:
  hipvit classify photos/ -m timm/vit_base_patch16_224 -o results.csv
  hipvit embed photos/ -m facebook/dinov2-base --device hip -o embeddings.npy
  hipvit serve timm/vit_base_patch16_224
  hipvit help environment";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the most likely labels of images
    Classify(classify::Args),
    /// Print or write the embedding of each image
    Embed(embed::Args),
    /// Measure accuracy over labelled images
    Eval(eval::Args),
    /// Show which parts of an image a result comes from
    Explain(explain::Args),
    /// Follow one pixel through every layer to its part of a logit
    Trace(trace::Args),
    /// Show a model's sizes, operations, memory, graph and kernels
    Inspect(inspect::Args),
    /// Write the pixel values that the model gets as input
    Preprocess(preprocess::Args),
    /// Serve models over HTTP and gRPC
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    /// Predict what limits a model on a device, and what to change
    Advise(advise::Args),
    /// Time models on random pixels
    Bench(bench::Args),
    /// Show where time is spent, or what the kernels execute
    Profile(profile::Args),
    /// Measure which kernels are fastest on a GPU, for later runs
    Tune(tune::Args),
    /// Compare `bench` results and find regressions
    Compare(compare::Args),
    /// Check every op against an f64 reference and time it
    Validate(validate::Args),
    /// Write a model with quantised or pruned weights
    Quantize(quantize::Args),
    /// Download models from the Hugging Face hub
    #[cfg(feature = "hub")]
    Pull(pull::Args),
    /// List the GPUs, their memory and links, and the CPU
    Devices(devices::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
    /// List the environment variables that hipvit reads
    #[command(after_help = environment::table())]
    Environment,
}

/// Options that select the model and the device.
#[derive(Clone, Debug, clap::Args)]
pub struct ModelArgs {
    /// Model directory, or ORG/NAME on the hub [default: TinyViT32]
    ///
    /// The directory has the layout of timm or transformers. A model on the hub is downloaded first; ORG/NAME@REVISION
    /// selects a revision.
    #[arg(long, short, value_name = "MODEL", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    config: RunConfig,
}

/// A model that is given as an argument or an option.
#[derive(Clone, Debug, clap::Args)]
pub struct NamedModel {
    /// Model directory, or ORG/NAME on the hub [default: TinyViT32]
    ///
    /// The directory has the layout of timm or transformers. A model on the hub is downloaded first; ORG/NAME@REVISION
    /// selects a revision.
    #[arg(value_name = "MODEL", help_heading = "Model")]
    positional: Option<PathBuf>,
    /// Same as the MODEL argument
    #[arg(
        long,
        short,
        value_name = "MODEL",
        conflicts_with = "positional",
        help_heading = "Model",
        hide_short_help = true
    )]
    model: Option<PathBuf>,
}

impl NamedModel {
    /// Returns the model's directory or name; `None` for the embedded model.
    fn path(&self) -> Option<&PathBuf> {
        self.model.as_ref().or(self.positional.as_ref())
    }

    /// Returns the model together with a session's options.
    fn with(&self, config: &RunConfig) -> ModelArgs {
        ModelArgs {
            model: self.path().cloned(),
            config: config.clone(),
        }
    }
}

/// [`ModelArgs`] for commands that run images.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The processes that share the model's work, and their rendezvous timeout.
    #[arg(skip)]
    across: Option<(World, Duration)>,
}

impl RunArgs {
    /// Loads the model. If several processes divide it, every rank but the first follows rank 0 and returns
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
        self.model.builder()
    }

    /// Returns the arguments with the device and the number of threads of this process.
    fn at(&self, ranks: &Ranks) -> anyhow::Result<Self> {
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

    /// Returns true if several processes divide the model, and false if they share the images instead.
    fn is_divided(&self) -> bool {
        let RunConfig {
            device, execution, ..
        } = &self.model.config;
        let is_one = |devices: &Devices| devices.set().device().is_some();
        !execution.parallel.is_data() && device.as_ref().is_none_or(is_one)
    }

    /// Returns true if the model is the embedded one.
    fn is_embedded(&self) -> bool {
        self.model.model.is_none()
    }

    /// Prints a note that the embedded model only recognises digits, if no model was named.
    fn note_embedded(&self) {
        if self.is_embedded() {
            output::note(
                "no model is given: using TinyViT32, which only recognises handwritten digits. Select another with -m DIR or -m ORG/NAME",
            );
        }
    }
}

/// Loads the model at `path`, or the embedded model, without creating a session.
fn load_model(path: Option<&PathBuf>, options: &LoadOptions) -> hipvit::Result<Model> {
    match path {
        Some(path) => model::load(path, options),
        None => model::tinyvit32(options),
    }
}

impl ModelArgs {
    fn load(&self) -> hipvit::Result<Session> {
        self.load_with(self.builder())
    }

    fn load_with(&self, builder: SessionBuilder) -> hipvit::Result<Session> {
        let session = match &self.model {
            Some(path) => builder.load(path),
            None => builder.tinyvit32(),
        }?;
        if let Some(hipvit::Error::Hip(reason)) = session.no_gpu() {
            note_no_gpu(reason, self.config.device.is_some());
        }
        warn_non_finite_weights(&session);
        if let Some(reason) = session.hip_graphs().and_then(|runs| runs.no_direct) {
            output::warning(&format!(
                "using RCCL for all-reduces, whose rounding may differ, because peer memory failed: {reason}"
            ));
        }
        Ok(session)
    }

    fn builder(&self) -> SessionBuilder {
        self.config.builder()
    }
}

/// How a command ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All inputs were processed.
    Complete,
    /// Some inputs failed and were reported. The others were processed.
    SomeFailed,
}

impl Outcome {
    /// Returns the outcome of a command in which `failed` inputs failed.
    fn of(failed: usize) -> Self {
        match failed {
            0 => Self::Complete,
            _ => Self::SomeFailed,
        }
    }
}

/// Successful end of a process whose results are reported by rank 0.
#[derive(Debug, thiserror::Error)]
#[error("rank 0 reports the results")]
pub struct Followed;

/// An error in the usage that clap does not detect. The exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage<T = &'static str>(T);

/// Runs the command line and returns the exit code. The first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    completions::answer();
    // Without a handler, SIGXFSZ (`ulimit -f`) would kill the process. With one, the write returns an error.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let program = arguments.first().cloned();
    let cli = match environment::parse(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    cli.terminal.apply();
    let handler = match cli.command {
        // These commands handle signals themselves.
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
        Command::Environment => environment::print(),
    };
    drop(handler);
    match result {
        Ok(Outcome::Complete) => 0,
        Ok(Outcome::SomeFailed) => 1,
        Err(error) => failed(&error),
    }
}

/// Prints the requested help, or the error in the command line. Returns the exit code.
fn usage(error: &clap::Error) -> u8 {
    let printed = error.print();
    if !cfg!(feature = "serve")
        && let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand)
        && command == "serve"
    {
        output::note(
            "`serve` needs a build with the feature `serve` (cargo install --locked --path crates/cli --features serve)",
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
        // Standard error is closed. The exit code still reports the failure.
        _ => u8::try_from(error.exit_code()).unwrap_or(2),
    }
}

/// Prints a note on why the model runs on the CPU. Prints nothing on a machine without GPU libraries if neither a
/// device nor a provider was named.
fn note_no_gpu(reason: &hipvit::hip::Error, device_requested: bool) {
    let provider_requested = std::env::var_os("HIPVIT_PROVIDER").is_some_and(|value| !value.is_empty());
    let no_libraries = matches!(reason, hipvit::hip::Error::Provider { .. });
    if device_requested || provider_requested || !no_libraries {
        output::note(&format!("running on the CPU: {reason}"));
    }
}

/// Warns about each weight that has NaN or infinite values.
fn warn_non_finite_weights(session: &Session) {
    for tensor in session.non_finite_weights() {
        output::warning(&format!("{}: tensor {tensor}", session.name()));
    }
}

/// Warns if an image's results have NaN or infinite values.
fn warn_non_finite(item: &Item, progress: &Progress) {
    if let Some(results) = item.outputs().non_finite() {
        progress.report(|| output::warning(&format!("{}: {results}", item.name())));
    }
}

/// Warns if HIP graphs were requested and not replayed.
fn report_fallback(session: &Session) {
    let fallback = session.hip_graphs().and_then(|graphs| graphs.fallback);
    warn_fallback(fallback.as_deref());
}

/// Warns that HIP graphs are not replayed, if `reason` is given.
fn warn_fallback(reason: Option<&str>) {
    if let Some(reason) = reason {
        output::warning(&format!(
            "HIP graphs are not replayed; steps are launched one by one: {reason}"
        ));
    }
}

/// Escapes line breaks and other control characters, which can occur in file names and labels.
fn one_line(text: &str) -> String {
    escaped(text, acts_on_terminal, |c, line| line.extend(c.escape_default()))
}

/// Escapes all control characters of a text except line breaks.
fn lines(text: &str) -> String {
    let acts = |c| c != '\n' && acts_on_terminal(c);
    escaped(text, acts, |c, line| line.extend(c.escape_default()))
}

/// Replaces each character for which `escaped` returns true with the output of `escape`.
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

/// Returns true if a terminal would interpret the character instead of printing it. These are control characters, line
/// separators and marks that change the direction of text.
fn acts_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Converts an I/O error at `path` to the library's error.
fn refused(path: &Path) -> impl Fn(io::Error) -> hipvit::Error {
    move |source| hipvit::Error::Io {
        path: path.to_owned(),
        source,
    }
}
