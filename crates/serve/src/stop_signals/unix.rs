//! The signals of Unix that stop a server.

use std::io;

use hipvit_files::signals::is_ignored;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Caught signals that stop a server, created by [`Server::catch_signals`](crate::Server::catch_signals).
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Catches the signals from now on. Call it in a runtime.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: if is_ignored(SignalKind::hangup().as_raw_value()) {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            },
        })
    }

    /// Waits for any of the signals.
    pub(super) async fn first(&mut self) {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = hung_up => {}
        }
    }

    /// Waits for another of the signals, except SIGHUP.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
