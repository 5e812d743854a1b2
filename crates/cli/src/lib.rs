//! The command line. Each subcommand has a file of its own. Shared code:
//!
//! - this file: the subcommands and the exit codes
//! - `options`: help and parsing
//! - `model_args`, `decode_args`, `data_args`: arguments of several commands
//! - `environment`: environment variables
//! - `outcome`, `errors`: outcomes, and reports on standard error
//! - `inputs`: selection of the images
//! - `output`: files, standard output and messages
//! - `format`, `arrays`, `record`, `results`: forms of results
//! - `partial`, `journal_file`: results of interrupted runs
//! - `ranks`: runs of several processes
//! - `progress`: the progress bar

mod advise;
mod agreement;
mod arrays;
mod bench;
mod classify;
mod compare;
mod completions;
mod data_args;
mod decode_args;
mod depth;
mod detect;
mod device_names;
mod devices;
mod embed;
mod environment;
mod errors;
mod escape;
mod eval;
mod explain;
mod format;
mod image_files;
mod inputs;
mod inspect;
mod interrupt;
mod journal_file;
mod kernels;
mod labels;
mod launcher;
mod model_args;
mod npy;
mod options;
mod outcome;
mod output;
mod partial;
mod preprocess;
mod probe;
mod profile;
mod progress;
#[cfg(feature = "hub")]
mod pull;
mod quantize;
mod ranks;
mod read;
mod record;
mod results;
mod run;
mod search;
mod segment;
#[cfg(feature = "serve")]
mod serve;
mod target;
mod texts;
mod trace;
mod train;
mod train_ranks;
mod tune;
mod validate;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use self::errors::failed;
use self::outcome::Outcome;

/// Vision Transformers from pixel to logit.
#[derive(Debug, Parser)]
#[command(
    name = "hipvit",
    version,
    arg_required_else_help = true,
    disable_help_flag = true
)]
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
    /// Describe images in words
    #[command(after_long_help = read::CAPTIONS)]
    Caption(read::Args),
    /// Read the text in images of lines
    #[command(after_long_help = read::LINES)]
    Read(read::Args),
    /// Estimate the depth of each pixel of images
    Depth(depth::Args),
    /// Detect objects in images, by an ONNX model
    Detect(detect::Args),
    /// Segment the objects at points or in boxes of images
    Segment(segment::Args),
    /// Find the embeddings nearest to an image or a text
    Search(search::Args),
    /// Measure accuracy over labelled images
    Eval(eval::Args),
    /// Show which parts of an image a result comes from
    Explain(explain::Args),
    /// Follow one pixel through every layer to its part of a logit
    Trace(trace::Args),
    /// Show a model's sizes, operations, memory, graph and kernels
    Inspect(inspect::Args),
    /// Run an ONNX model on arrays, by the names of its inputs
    Run(run::Args),
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
    /// Train or fine-tune a model on labelled images
    Train(train::Args),
    /// Measure how well features separate the classes of labelled images
    Probe(probe::Args),
    /// Write a model with quantised or pruned weights
    Quantize(quantize::Args),
    /// Download models from the Hugging Face hub
    #[cfg(feature = "hub")]
    Pull(pull::Args),
    /// List the GPUs, their memory and links, and the CPU
    Devices(devices::Args),
    /// List the kernels that were compiled on this machine
    Kernels(kernels::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
    /// List the environment variables that hipvit reads
    #[command(after_help = environment::table())]
    Environment,
}

/// Runs the command line and returns the exit code. The first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    completions::answer::<Cli>();
    interrupt::survive_file_limit();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let program = arguments.first().cloned();
    let cli = match options::parse::<Cli>(arguments) {
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
        Command::Caption(args) | Command::Read(args) => args.run(),
        Command::Depth(args) => args.run(),
        Command::Detect(args) => args.run(),
        Command::Segment(args) => args.run(),
        Command::Search(args) => args.run(),
        Command::Eval(args) => args.run(),
        Command::Explain(args) => args.run(),
        Command::Trace(args) => args.run(),
        Command::Inspect(args) => args.run(),
        Command::Run(args) => args.run(),
        Command::Preprocess(args) => args.run(),
        #[cfg(feature = "serve")]
        Command::Serve(args) => args.run(),
        Command::Advise(args) => args.run(),
        Command::Bench(args) => args.run(),
        Command::Profile(args) => args.run(),
        Command::Tune(args) => args.run(),
        Command::Compare(args) => args.run(),
        Command::Validate(args) => args.run(),
        Command::Train(args) => args.run(),
        Command::Probe(args) => args.run(),
        Command::Quantize(args) => args.run(),
        #[cfg(feature = "hub")]
        Command::Pull(args) => args.run(),
        Command::Devices(args) => args.run(),
        Command::Kernels(args) => args.run(),
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
