//! The events of a console on Windows that stop a server.

use std::io;

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

/// Caught events that stop a server, created by [`Server::catch_signals`](crate::Server::catch_signals).
///
/// After the console was closed, or when it shuts down, the system ends the process within seconds.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: CtrlC,
    breaking: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl StopSignals {
    /// Catches the events from now on. Call it in a runtime.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            breaking: ctrl_break()?,
            close: ctrl_close()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Waits for any of the events.
    pub(super) async fn first(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.breaking.recv() => {}
            _ = self.close.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }

    /// Waits for another Ctrl-C or Ctrl-Break.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.breaking.recv() => {}
        }
    }
}
