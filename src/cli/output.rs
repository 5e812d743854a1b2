//! Where results and messages go: standard output, files, which appear when they are complete, and standard error.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use tempfile::NamedTempFile;

/// Whether only results and errors are printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Whether another process prints all but what ends this one.
static LEFT_TO_RANK_0: AtomicBool = AtomicBool::new(false);

/// What all commands take about the terminal.
#[derive(Debug, clap::Args)]
pub struct TerminalArgs {
    /// Print results and errors only: no progress, notes or warnings
    #[arg(long, short, global = true, help_heading = "Terminal")]
    quiet: bool,
    /// When to use colours: auto does so on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Terminal"
    )]
    color: clap::ColorChoice,
}

impl TerminalArgs {
    /// Holds for all output from now on.
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

/// Whether only results and errors are printed.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// From now on rank 0 alone says what all processes of a run would say.
pub fn leave_to_rank_0() {
    QUIET.store(true, Ordering::Relaxed);
    LEFT_TO_RANK_0.store(true, Ordering::Relaxed);
}

/// Whether rank 0 says it.
pub fn is_left_to_rank_0() -> bool {
    LEFT_TO_RANK_0.load(Ordering::Relaxed)
}

/// One line on standard error. Unlike `eprintln!` it does not panic where nobody takes it: there is nowhere left to say so,
/// and the work itself goes on.
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
    // What any terminal has, if it does not tell.
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
    /// Bytes as they are.
    Binary(StdoutLock<'static>),
    /// A file, or a device or pipe, which cannot be replaced.
    File(BufWriter<Target>, PathBuf),
}

/// What is written to.
pub enum Target {
    /// Beside the file that it becomes.
    Temporary(NamedTempFile),
    Device(File),
}

impl Sink {
    /// A new file for `path`, beside it, which takes its place in [`finish`](Self::finish).
    pub fn file(path: &Path) -> hipvit::Result<Self> {
        let target = Target::new(path).map_err(super::refused(path))?;
        Ok(Self::File(BufWriter::new(target), path.to_owned()))
    }

    /// The end: until here, an existing file is as it was. A sink that is dropped instead leaves nothing behind.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        match self {
            Self::Text(_) | Self::Binary(_) => Ok(()),
            Self::File(writer, path) => {
                let target = writer.into_inner().map_err(io::IntoInnerError::into_error);
                let finished = target.and_then(|target| match target {
                    Target::Temporary(file) => Ok(file.persist(&path).map(drop)?),
                    Target::Device(_) => Ok(()),
                });
                finished.map_err(|error| at(&path, &error))
            }
        }
    }
}

impl Target {
    fn new(path: &Path) -> io::Result<Self> {
        // A device or a pipe cannot be replaced by a renamed file.
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Ok(Self::Device(File::create(path)?));
        }
        let directory = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        // The permissions of any new file, by the umask, not those of a temporary one.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(directory).map_err(|error| {
            // Without the temporary file's name, which means nothing to the user.
            let text = error.to_string();
            let cause = text.split(" at path ").next().unwrap_or(&text);
            io::Error::new(error.kind(), cause)
        })?;
        Ok(Self::Temporary(file))
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Temporary(file) => file.write(bytes),
            Self::Device(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Temporary(file) => file.flush(),
            Self::Device(file) => file.flush(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Text(out) => out.write(bytes),
            Self::Binary(out) => out.write(bytes).map_err(named),
            Self::File(file, path) => file.write(bytes).map_err(|error| at(path, &error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Text(out) => out.flush(),
            Self::Binary(out) => out.flush().map_err(named),
            Self::File(file, path) => file.flush().map_err(|error| at(path, &error)),
        }
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Writes `bytes` to `path`. On an error, an existing file is left unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut sink = Sink::file(path)?;
    sink.write_all(bytes)?;
    sink.finish()?;
    Ok(())
}
