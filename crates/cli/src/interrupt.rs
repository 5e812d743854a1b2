//! Signal handling: keeps results and removes temporary files on Ctrl-C, `kill`, and a closed terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Result;
use hipvit_files::temporary;
use parking_lot::Mutex;

use super::journal_file::JournalFile;
use super::output;

#[cfg(unix)]
#[path = "interrupt/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "interrupt/windows.rs"]
mod system;

#[cfg(feature = "serve")]
pub(crate) use self::system::exit_at_once;
pub(crate) use self::system::{Handler, survive_file_limit};

/// Results to keep. Set when a run has started.
static JOURNAL: Mutex<Option<Arc<Mutex<JournalFile>>>> = Mutex::new(None);

/// The command that ends on its own after a signal.
static DEFERRED: Mutex<Option<(Arc<AtomicI32>, &str)>> = Mutex::new(None);

/// The signal after which a command ends on its own, once there is one.
#[derive(Debug)]
pub(crate) struct Deferred(Arc<AtomicI32>);

impl Deferred {
    /// Returns true after a signal.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Ends the process as the signal would have done. Returns if there was no signal.
    pub(crate) fn end(&self) {
        let signal = self.0.load(Ordering::SeqCst);
        if signal != 0 {
            end(signal);
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        *DEFERRED.lock() = None;
    }
}

/// Makes the next signal set the returned [`Deferred`] instead of ending the process, until it is dropped. `what` tells the user what happens
/// then.
pub(crate) fn defer(what: &'static str) -> Deferred {
    let signal = Arc::<AtomicI32>::default();
    *DEFERRED.lock() = Some((signal.clone(), what));
    Deferred(signal)
}

/// Starts a thread that keeps results and removes temporary files when a signal ends the process, until the handler is dropped.
///
/// A second Ctrl-C or SIGTERM ends the process at once, in case the file system hangs.
///
/// # Errors
///
/// Returns an error if the handler or its thread cannot be started.
pub(crate) fn start() -> Result<Handler> {
    Handler::start(caught)
}

/// Acts on a signal.
fn caught(signal: i32) {
    match &*DEFERRED.lock() {
        Some((deferred, what)) => {
            deferred.store(signal, Ordering::SeqCst);
            output::say(&format!("interrupted: {what}. Interrupt again to end at once"));
        }
        None => end(signal),
    }
}

/// Ends the process as the signal would without a handler.
fn end(signal: i32) {
    let journal = JOURNAL.lock().clone();
    // Hold the lock until the end, so that no more results are written.
    let mut journal = journal.as_ref().map(|journal| journal.lock());
    let kept = journal.as_mut().map(|journal| journal.keep());
    temporary::remove_all();
    if kept.is_some() && std::io::stderr().is_terminal() {
        // Move below the progress bar.
        output::say("");
    }
    if let Some(kept) = kept.flatten() {
        output::say(&format!("interrupted: {}", super::escape::one_line(&kept)));
    }
    system::end(signal);
}

/// Sets `file` as the results to keep when a signal ends the process.
pub(crate) fn keep(file: &Arc<Mutex<JournalFile>>) {
    *JOURNAL.lock() = Some(file.clone());
}
