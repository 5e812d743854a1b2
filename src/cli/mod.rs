//! The command line. One file a subcommand; what they share is here ([`ModelArgs`], exit codes) and in [`choices`]
//! (devices and the like), [`inputs`] (which images), [`output`] (files and standard output), [`record`] (JSON lines) and
//! [`progress`].

mod bench;
mod choices;
mod classify;
mod completions;
mod devices;
mod embed;
mod eval;
mod inputs;
mod inspect;
mod output;
mod preprocess;
mod progress;
mod record;
mod validate;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::eprintln;
use anstyle::{AnsiColor, Style};
use clap::{Parser, Subcommand};
use hipvit::GraphMode;
use hipvit::{DType, Device, ResizeOn, Session, SessionBuilder};

/// Vision Transformers from pixel to logit.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "Exit codes: 0 all is well, 1 some input failed, 2 wrong usage.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Classify images: show the most likely labels of each
    Classify(classify::Args),
    /// Print the embedding of each image
    Embed(embed::Args),
    /// Measure accuracy over labelled images
    Eval(eval::Args),
    /// Show a model's graph before and after optimisation, its plan, its memory and its parameters
    Inspect(inspect::Args),
    /// Write an image's pixel values as the model sees them
    Preprocess(preprocess::Args),
    /// Time a model on random pixels
    Bench(bench::Args),
    /// Hold every op against the oracle, and time it
    Validate(validate::Args),
    /// List the GPUs, their memory and their links, and the CPU
    Devices(devices::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
}

/// Which model, and where it runs.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// Model directory (timm's or Hugging Face's layout); the embedded TinyViT32 if left out
    #[arg(long, short, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Where to run: auto (the first GPU, else the CPU), cpu, hip (the first GPU) or hip:N [default: auto]
    #[arg(long, value_name = "DEVICE", value_parser = choices::device())]
    device: Option<Device>,
    /// What to compute in: f32; on a GPU also f16 or bf16
    #[arg(long, default_value = "f32", value_name = "DTYPE", value_parser = choices::dtype())]
    dtype: DType,
    /// Replay captured graphs on a GPU: auto does where it can, but not while steps are timed
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = choices::graph())]
    graph: GraphMode,
    /// The most images that run at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = positive)]
    batch: usize,
    /// Threads to compute with [default: one a core]
    #[arg(long, value_name = "N", value_parser = positive)]
    threads: Option<usize>,
    /// Run at another image size than the model's own; position embeddings are interpolated
    #[arg(long, value_name = "N or HxW", value_parser = image_size)]
    image_size: Option<ImageSize>,
}

/// As [`ModelArgs`], for commands that take images to their results.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Where to resize and crop the images: on the host, or on the GPU, to the same bytes
    #[arg(long, default_value = "host", value_name = "WHERE", value_parser = choices::resize())]
    resize: ResizeOn,
}

impl RunArgs {
    fn load(&self) -> hipvit::Result<Session> {
        self.model.load_with(self.model.builder().resize(self.resize))
    }

    /// Whether it is the embedded model.
    fn is_embedded(&self) -> bool {
        self.model.model.is_none()
    }
}

/// Height and width.
#[derive(Clone, Copy, Debug)]
struct ImageSize([usize; 2]);

fn image_size(text: &str) -> Result<ImageSize, String> {
    let (h, w) = text.split_once(['x', '×']).unwrap_or((text, text));
    Ok(ImageSize([positive(h)?, positive(w)?]))
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(n) => Ok(n),
        Err(e) => Err(e.to_string()),
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
        if let Some(reason) = session.no_gpu()
            && (self.device.is_some()
                || !matches!(reason, hipvit::Error::Hip(hipvit::hip::Error::Provider { .. })))
        {
            // Without a word only where no device was asked for and no GPU's libraries are installed.
            eprintln!("note: running on the CPU: {}", one_line(&reason.to_string()));
        }
        Ok(session)
    }

    fn builder(&self) -> SessionBuilder {
        let mut builder = Session::builder()
            .device(self.device.unwrap_or_default())
            .dtype(self.dtype)
            .graph(self.graph)
            .batch(self.batch);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(ImageSize(size)) = self.image_size {
            builder = builder.image_size(size);
        }
        builder
    }
}

/// How a command ended, if no error stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Complete,
    /// Some input failed and was reported; the rest went on.
    SomeFailed,
}

impl Outcome {
    /// The end of a command that could not use `failed` of its inputs.
    fn of(failed: usize) -> Self {
        match failed {
            0 => Self::Complete,
            _ => Self::SomeFailed,
        }
    }
}

/// A command line that clap accepts and the command cannot: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(&'static str);

/// Runs the command line and says how it ended.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Classify(args) => args.run(),
        Command::Embed(args) => args.run(),
        Command::Eval(args) => args.run(),
        Command::Inspect(args) => args.run(),
        Command::Preprocess(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Validate(args) => args.run(),
        Command::Devices(args) => args.run(),
        Command::Completions(args) => args.run(),
    };
    match result {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::SomeFailed) => ExitCode::from(1),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// One line on standard error.
fn report(error: impl std::fmt::Display) {
    const RED: Style = AnsiColor::Red.on_default().bold();
    eprintln!("{RED}error{RED:#}: {}", one_line(&error.to_string()));
}

/// One line on standard error if graphs should have been replayed on a GPU and were not.
fn report_fallback(session: &Session) {
    const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
    if let Some(reason) = session.replays().and_then(|replays| replays.fallback) {
        let reason = one_line(&reason);
        eprintln!("{YELLOW}warning{YELLOW:#}: no captured graph is replayed, steps run one by one: {reason}");
    }
}

/// The text with its line breaks and other control characters, which a file's name may have, as escapes.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

/// Whoever read our output has seen enough (`hipvit classify … | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// The system's reason for refusing `path`, as the library words it.
fn refused(path: &Path) -> impl Fn(io::Error) -> hipvit::Error {
    move |source| hipvit::Error::Io {
        path: path.to_owned(),
        source,
    }
}
