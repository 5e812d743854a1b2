//! Ctrl-C and Ctrl-Break, and the end of a console or of the session, all of which are one kind of signal here.
//!
//! After a console was closed, the system ends the process within five seconds, whatever it does.

use std::thread;

use anyhow::{Context, Result};
use hipvit::Error;
use tokio::runtime::Builder;
use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};
use tokio::sync::oneshot;

/// Exit status of a process that Ctrl-C ends: `STATUS_CONTROL_C_EXIT`.
const CONTROL_C_EXIT: i32 = 0xC000_013A_u32.cast_signed();

/// Number that stands for all signals.
const INTERRUPT: i32 = 2;

/// Handles signals until it is dropped.
#[derive(Debug)]
pub(crate) struct Handler {
    /// Ends the thread when it is dropped.
    _thread: oneshot::Sender<()>,
}

impl Handler {
    /// Starts a thread that calls `caught` with the first signal, and ends the process at the second.
    pub(super) fn start(caught: fn(i32)) -> Result<Self> {
        let runtime = Builder::new_current_thread().build();
        let runtime = runtime.context("cannot handle Ctrl-C")?;
        let mut signals = Signals::catch().context("cannot handle Ctrl-C")?;
        let (handler, mut dropped) = oneshot::channel();
        let thread = thread::Builder::new().name("hipvit-signals".into());
        let wait = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = signals.next() => {}
                    _ = &mut dropped => return,
                }
                // On a thread of its own, in case the file system hangs.
                thread::spawn(move || caught(INTERRUPT));
                tokio::select! {
                    () = signals.next() => end(INTERRUPT),
                    _ = dropped => {}
                }
            });
        };
        thread
            .spawn(wait)
            .map_err(|error| Error::resource("threads", error))?;
        Ok(Self { _thread: handler })
    }
}

/// The events of a console that end a process.
struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
    stop: tokio::signal::windows::CtrlBreak,
    close: tokio::signal::windows::CtrlClose,
    logoff: tokio::signal::windows::CtrlLogoff,
    shutdown: tokio::signal::windows::CtrlShutdown,
}

impl Signals {
    /// Catches the events from now on, until the value is dropped.
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            stop: ctrl_break()?,
            close: ctrl_close()?,
            logoff: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Waits for an event.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
            _ = self.logoff.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}

/// Ends the process as Ctrl-C would without a handler.
pub(super) fn end(_: i32) {
    std::process::exit(CONTROL_C_EXIT);
}

/// Does nothing, because there is no limit on the size of files.
pub(crate) fn survive_file_limit() {}

/// Ends the process with success.
#[cfg(feature = "serve")]
pub(crate) fn exit_at_once() -> ! {
    std::process::exit(0)
}
