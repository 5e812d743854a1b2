//! Signals of Unix.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use hipvit::Error;
use hipvit_files::signals::is_ignored;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag::{register, register_conditional_default};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::{emulate_default_handler, unregister};

/// Handles signals until it is dropped.
#[derive(Debug)]
pub(crate) struct Handler {
    signals: Handle,
    defaults: Vec<SigId>,
}

impl Handler {
    /// Starts a thread that calls `caught` with each signal. A second SIGHUP does not end the process, because a closed terminal can
    /// send it twice.
    pub(super) fn start(caught: fn(i32)) -> Result<Self> {
        let signals = [SIGINT, SIGTERM, SIGHUP];
        let signals = signals.into_iter().filter(|&signal| !is_ignored(signal));
        let interrupted = Arc::new(AtomicBool::new(false));
        let defaults = signals.clone().filter(|&signal| signal != SIGHUP);
        let defaults = defaults.map(|signal| register_conditional_default(signal, interrupted.clone()));
        let defaults = defaults
            .collect::<std::io::Result<_>>()
            .context("cannot handle signals")?;
        let mut signals = Signals::new(signals).context("cannot handle signals")?;
        let handler = Self {
            signals: signals.handle(),
            defaults,
        };
        let wait = move || {
            for signal in &mut signals {
                interrupted.store(true, Ordering::SeqCst);
                caught(signal);
            }
        };
        let thread = thread::Builder::new().name("hipvit-signals".into());
        thread
            .spawn(wait)
            .map_err(|error| Error::resource("threads", error))?;
        Ok(handler)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.signals.close();
        for id in self.defaults.drain(..) {
            unregister(id);
        }
    }
}

/// Ends the process as the signal would without a handler.
pub(super) fn end(signal: i32) {
    let _ = emulate_default_handler(signal);
}

/// Makes writes return an error at the limit of `ulimit -f`. Without a handler, SIGXFSZ would end the process.
pub(crate) fn survive_file_limit() {
    let _ = register(SIGXFSZ, Arc::default());
}

/// Ends the process with success, without the exit handlers of the GPU runtime, which could wait for a device that hangs.
#[cfg(feature = "serve")]
pub(crate) fn exit_at_once() -> ! {
    signal_hook::low_level::exit(0)
}
