//! Where results and messages go: standard output, files, which appear when they are complete, and standard error.

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
pub struct TerminalArgs {
    /// Print no progress, notes or warnings
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
    /// Print help; --help has all options, and examples
    #[arg(long, short, global = true, action = clap::ArgAction::Help, help_heading = "Output")]
    help: Option<bool>,
}

impl TerminalArgs {
    /// Applies the options to all output from now on.
    pub fn apply(&self) {
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
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Leaves the messages that all processes of a run would print to rank 0.
pub fn leave_to_rank_0() {
    QUIET.store(true, Ordering::Relaxed);
    LEFT_TO_RANK_0.store(true, Ordering::Relaxed);
}

/// Returns true if rank 0 prints for this process.
pub fn is_left_to_rank_0() -> bool {
    LEFT_TO_RANK_0.load(Ordering::Relaxed)
}

/// Prints one line on standard error. Unlike `eprintln!` it does not panic if standard error is closed: the work itself goes on.
pub fn say(text: &str) {
    // In one piece, so that the lines of several processes are not mixed.
    let _ = anstream::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// One line on standard error, unless quiet: what a user may want to know.
pub fn note(text: &str) {
    if !is_quiet() {
        say(&format!("note: {}", super::one_line(text)));
    }
}

/// One line on standard error, unless quiet: what a user should know.
pub fn warning(text: &str) {
    const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
    if !is_quiet() {
        say(&format!("{YELLOW}warning{YELLOW:#}: {}", super::one_line(text)));
    }
}

/// The number of characters on a line of standard output: that of the terminal, or what COLUMNS says. `None` where it is
/// neither: other programs get every column on one line.
pub fn width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok();
    if let Some(columns @ 1..) = columns.and_then(|columns| columns.parse().ok()) {
        return Some(columns);
    }
    let terminal = io::stdout().is_terminal();
    // A terminal of unknown width has at least 80 columns.
    terminal.then(|| {
        console::Term::stdout()
            .size_checked()
            .map_or(80, |(_, columns)| columns.into())
    })
}

/// Standard output with styles where they are enabled, and errors that name it. Unlike `println!` it does not panic on
/// them.
pub struct Stdout(AutoStream<StdoutLock<'static>>);

/// Standard output, locked.
pub fn stdout() -> Stdout {
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

/// An error of standard output, with its name.
pub fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Where a command's results go.
pub enum Sink {
    /// Text, whose styles are removed where they are not enabled.
    Text(Stdout),
    /// Values on a terminal, such as CSV, whose control characters are escaped.
    Terminal(Escaping<Stdout>),
    /// Bytes as they are.
    Binary(StdoutLock<'static>),
    /// A file, or a device or pipe, which cannot be replaced.
    File(BufWriter<Target>, PathBuf),
}

impl Sink {
    /// Standard output for values without styles. On a terminal their control characters are escaped.
    pub fn values() -> Self {
        if io::stdout().is_terminal() {
            Self::Terminal(Escaping::new(stdout()))
        } else {
            Self::Text(stdout())
        }
    }

    /// Begins to write `path`. An existing file stays as it is until [`finish`](Self::finish).
    ///
    /// # Errors
    ///
    /// [`hipvit::Error::Io`] if the file cannot be written.
    pub fn file(path: &Path) -> hipvit::Result<Self> {
        let target = Target::open(path).map_err(super::refused(path))?;
        Ok(Self::File(
            BufWriter::with_capacity(BUFFER, target),
            path.to_owned(),
        ))
    }

    /// Path of the file, if results go to a file rather than to a device or pipe.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(writer, path) if writer.get_ref().is_file() => Some(path),
            _ => None,
        }
    }

    /// Directory for temporary files that are as large as the results.
    pub fn directory(&self) -> PathBuf {
        match self {
            Self::File(writer, _) => writer.get_ref().directory(),
            Self::Text(_) | Self::Terminal(_) | Self::Binary(_) => std::env::temp_dir(),
        }
    }

    /// Writes `bytes`, which are the whole content, and ends the results.
    ///
    /// # Errors
    ///
    /// [`io::Error`] that names the file.
    pub fn write_whole(mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.write_all(bytes)?;
        Ok(self.finish()?)
    }

    /// Ends the results. A file appears, or replaces an older one. A sink that is dropped instead leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`io::Error`] that names the file, and where its results are kept if they are complete.
    pub fn finish(self) -> io::Result<()> {
        Self::finish_all([self])
    }

    /// Ends several results, whose files appear together.
    ///
    /// # Errors
    ///
    /// [`io::Error`] as from [`finish`](Self::finish).
    pub fn finish_all(sinks: impl IntoIterator<Item = Self>) -> io::Result<()> {
        let staged: Vec<_> = sinks.into_iter().map(Self::stage).collect::<io::Result<_>>()?;
        let mut files = staged.into_iter().flatten();
        files.try_for_each(|(file, path)| file.commit().map_err(|error| at(&path, &error)))
    }

    /// Writes what is buffered. Returns a file that is not in place yet.
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

/// Reports on a terminal what was written to `path`, such as its shape.
pub fn wrote(path: &Path, what: &str) {
    if !is_quiet() && io::stderr().is_terminal() {
        say(&super::one_line(&format!("{}: {what}", path.display())));
    }
}

/// Makes sure that `path` can be written.
///
/// # Errors
///
/// [`hipvit::Error::Io`] if it cannot.
pub fn check(path: &Path) -> hipvit::Result<()> {
    Sink::file(path).map(drop)
}

/// Writes `bytes` to `path`. On an error, an existing file is left unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    Sink::file(path)?.write_whole(bytes)
}
