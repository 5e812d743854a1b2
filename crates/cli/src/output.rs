//! Destinations of results and messages: standard output, standard error, and files that appear when they are complete.

mod terminal;

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use self::terminal::Escaping;
use super::target::{Staged, Target};

/// True if only results and errors are printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// True if rank 0 prints all messages except the error that ends this process.
static LEFT_TO_RANK_0: AtomicBool = AtomicBool::new(false);

/// Options of all commands.
#[derive(Debug, clap::Args)]
pub(crate) struct TerminalArgs {
    /// Suppress progress, notes and warnings
    #[arg(long, short, global = true, help_heading = "Output")]
    quiet: bool,
    /// When to use colours
    #[arg(
        long,
        global = true,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Output",
        hide_short_help = true
    )]
    color: clap::ColorChoice,
    /// Print help; --help has all options and examples
    #[arg(long, short, global = true, action = clap::ArgAction::Help, help_heading = "Output")]
    help: Option<bool>,
}

impl TerminalArgs {
    /// Applies the options to all further output.
    pub(crate) fn apply(&self) {
        QUIET.store(self.quiet, Ordering::Relaxed);
        match self.color {
            clap::ColorChoice::Auto => ColorChoice::Auto,
            clap::ColorChoice::Always => ColorChoice::Always,
            clap::ColorChoice::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

/// Returns true if only results and errors are printed.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Suppresses the messages that rank 0 prints for all processes.
pub(crate) fn leave_to_rank_0() {
    QUIET.store(true, Ordering::Relaxed);
    LEFT_TO_RANK_0.store(true, Ordering::Relaxed);
}

/// Returns true if rank 0 prints the messages of this process.
pub(crate) fn is_left_to_rank_0() -> bool {
    LEFT_TO_RANK_0.load(Ordering::Relaxed)
}

/// Prints one line on standard error. Unlike `eprintln!`, does not panic if standard error is closed, so the work goes
/// on.
pub(crate) fn say(text: &str) {
    // Write it in one call, so that lines of several processes do not interleave.
    let _ = anstream::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// Prints a note on standard error, unless quiet.
pub(crate) fn note(text: &str) {
    if !is_quiet() {
        say(&format!("note: {}", super::escape::one_line(text)));
    }
}

/// Prints a warning on standard error, unless quiet.
pub(crate) fn warning(text: &str) {
    const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
    if !is_quiet() {
        say(&format!(
            "{YELLOW}warning{YELLOW:#}: {}",
            super::escape::one_line(text)
        ));
    }
}

/// Warns that strangers can join a run of several processes.
pub(crate) fn warn_of_strangers() {
    warning(
        "any host that can reach rank 0's port can join this run. Set HIPVIT_RENDEZVOUS_SECRET to the same 16 or more random characters on all ranks",
    );
}

/// Returns the line width of standard output: COLUMNS, or the terminal's width. `None` if standard output is not a
/// terminal and COLUMNS is unset, so that other programs get all columns.
pub(crate) fn width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok();
    if let Some(columns @ 1..) = columns.and_then(|columns| columns.parse().ok()) {
        return Some(columns);
    }
    let terminal = io::stdout().is_terminal();
    // A terminal of unknown width counts as 80 columns.
    terminal.then(|| {
        console::Term::stdout()
            .size_checked()
            .map_or(80, |(_, columns)| columns.into())
    })
}

/// Standard output, with styles if they are enabled. Errors name it. Unlike `println!`, does not panic on errors.
pub(crate) struct Stdout(AutoStream<StdoutLock<'static>>);

/// Locks standard output.
pub(crate) fn stdout() -> Stdout {
    Stdout(AutoStream::auto(io::stdout().lock()))
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// Adds the name of standard output to an error.
pub(crate) fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Destination of a command's results.
pub(crate) enum Sink {
    /// Text. Styles are removed unless they are enabled.
    Text(Stdout),
    /// Values on a terminal, such as CSV. Control characters are escaped.
    Terminal(Escaping<Stdout>),
    /// Unchanged bytes.
    Binary(StdoutLock<'static>),
    /// A file, device or pipe.
    File(BufWriter<Target>, PathBuf),
}

impl Sink {
    /// Returns standard output for values without styles. On a terminal, control characters are escaped.
    pub(crate) fn values() -> Self {
        if io::stdout().is_terminal() {
            Self::Terminal(Escaping::new(stdout()))
        } else {
            Self::Text(stdout())
        }
    }

    /// Opens `path` for writing. An existing file does not change until [`finish`](Self::finish).
    ///
    /// # Errors
    ///
    /// Returns [`hipvit::Error::Io`] if the file cannot be written.
    pub(crate) fn file(path: &Path) -> hipvit::Result<Self> {
        let target = Target::open(path).map_err(super::outcome::refused(path))?;
        Ok(Self::File(
            BufWriter::with_capacity(BUFFER, target),
            path.to_owned(),
        ))
    }

    /// Returns the path if the results go to a file; `None` for a device or pipe.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(writer, path) if writer.get_ref().is_file() => Some(path),
            _ => None,
        }
    }

    /// Returns a directory for temporary files that are as large as the results.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Self::File(writer, _) => writer.get_ref().directory(),
            Self::Text(_) | Self::Terminal(_) | Self::Binary(_) => std::env::temp_dir(),
        }
    }

    /// Writes `bytes` as the whole content, and finishes the results.
    ///
    /// # Errors
    ///
    /// Returns an [`io::Error`] that names the file.
    pub(crate) fn write_whole(mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.write_all(bytes)?;
        Ok(self.finish()?)
    }

    /// Finishes the results: the file is created or replaced. A sink that is dropped instead leaves no file.
    ///
    /// # Errors
    ///
    /// Returns an [`io::Error`] that names the file. If the results are complete, it also names the file that keeps
    /// them.
    pub(crate) fn finish(self) -> io::Result<()> {
        Self::finish_all([self])
    }

    /// Finishes several results. Their files appear together.
    ///
    /// # Errors
    ///
    /// Returns an [`io::Error`], as [`finish`](Self::finish) does.
    pub(crate) fn finish_all(sinks: impl IntoIterator<Item = Self>) -> io::Result<()> {
        let staged: Vec<_> = sinks.into_iter().map(Self::stage).collect::<io::Result<_>>()?;
        let mut files = staged.into_iter().flatten();
        files.try_for_each(|(file, path)| file.commit().map_err(|error| at(&path, &error)))
    }

    /// Flushes the buffer. Returns the file if it is not in place yet.
    fn stage(mut self) -> io::Result<Option<(Staged, PathBuf)>> {
        self.flush()?;
        match self {
            Self::Text(_) | Self::Terminal(_) | Self::Binary(_) => Ok(None),
            Self::File(writer, path) => {
                let target = writer.into_inner().map_err(io::IntoInnerError::into_error);
                let staged = target
                    .and_then(Target::stage)
                    .map_err(|error| at(&path, &error))?;
                Ok(Some((staged, path)))
            }
        }
    }
}

/// Buffer size of a file in bytes.
const BUFFER: usize = 64 << 10;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Text(out) => out.write(bytes),
            Self::Terminal(out) => out.write(bytes),
            Self::Binary(out) => out.write(bytes).map_err(named),
            Self::File(file, path) => file.write(bytes).map_err(|error| at(path, &error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Text(out) => out.flush(),
            Self::Terminal(out) => out.flush(),
            Self::Binary(out) => out.flush().map_err(named),
            Self::File(file, path) => file.flush().map_err(|error| at(path, &error)),
        }
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Prints on the terminal `what` was written to `path`, such as its shape.
pub(crate) fn wrote(path: &Path, what: &str) {
    if !is_quiet() && io::stderr().is_terminal() {
        say(&super::escape::one_line(&format!("{}: {what}", path.display())));
    }
}

/// Checks that `path` can be written.
///
/// # Errors
///
/// Returns [`hipvit::Error::Io`] if it cannot.
pub(crate) fn check(path: &Path) -> hipvit::Result<()> {
    Sink::file(path).map(drop)
}

/// Writes `bytes` to `path`. If this fails, an existing file does not change.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    Sink::file(path)?.write_whole(bytes)
}
