//! Watchdog that ends collectives without progress.
//!
//! A collective waits for all ranks, so a lost rank, or one that calls something else, blocks all others. RCCL detects some errors by
//! itself ([`Comm::check`](super::Comm::check)), but never stops waiting. One thread per process watches all communicators. It polls for
//! those errors, and uses an event on the rank's stream to check whether submissions end in time. A rank that fails either check is
//! aborted, and its stream returns the reason from every wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::rank::Inner;
use crate::error::{Error, Result};

/// Interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Minimum age of an event before it is polled. Most events are reached by then, and an emulated GPU treats a poll as a wait.
const FIRST_POLL_DELAY: Duration = Duration::from_millis(500);

static WATCHED: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// True while the thread runs. Changed only while `WATCHED` is locked.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Watches a rank until it is dropped.
pub(super) fn watch(rank: &Arc<Inner>) -> Result<()> {
    let mut watched = WATCHED.lock();
    watched.push(Arc::downgrade(rank));
    if RUNNING.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let named = thread::Builder::new().name("RCCL watchdog".into());
    let started = named.spawn(look_after_all);
    started.map(drop).map_err(|source| {
        watched.clear();
        RUNNING.store(false, Ordering::Release);
        Error::System {
            call: "starting the watchdog of RCCL",
            source,
        }
    })
}

/// Removes a rank that its last owner drops. The watchdog is then not the last owner, so that the rank is destroyed on its owner's thread.
pub(super) fn release(rank: &Arc<Inner>) {
    // The watchdog owns the ranks during a check, and holds the lock.
    let mut watched = WATCHED.lock();
    if Arc::strong_count(rank) == 1 {
        watched.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(rank)));
    }
}

/// The thread's function. It returns after the last rank.
fn look_after_all() {
    loop {
        thread::sleep(CHECK_INTERVAL);
        let mut watched = WATCHED.lock();
        watched.retain(|rank| rank.strong_count() > 0);
        if watched.is_empty() {
            RUNNING.store(false, Ordering::Release);
            return;
        }
        for rank in watched.iter().filter_map(Weak::upgrade) {
            if let Err(reason) = look_after(&rank) {
                rank.fail(reason);
            }
            if rank.must_abort() {
                abort(rank);
            }
        }
    }
}

/// Aborts a rank on a separate thread, because this waits for the rank's kernels, which may wait for other ranks.
fn abort(rank: Arc<Inner>) {
    let _ = thread::Builder::new().spawn(move || {
        let result = rank.abort();
        rank.stream.device().park(result);
    });
}

/// Checks a rank.
///
/// # Errors
///
/// The reason why the rank failed.
fn look_after(rank: &Inner) -> Result<(), String> {
    if rank.is_over() {
        return Ok(());
    }
    if let Some(error) = rank.asynchronous_error() {
        return Err(error);
    }
    let Some(timeout) = rank.timeout else {
        return Ok(());
    };
    let mut looked = rank.progress.looked.lock();
    if let Some((event, since)) = &looked.waiting {
        let elapsed = since.elapsed();
        if elapsed < FIRST_POLL_DELAY.min(timeout) {
            return Ok(());
        }
        match event.poll() {
            Ok(true) => {}
            Ok(false) if elapsed > timeout => {
                return Err(format!(
                    "a collective, send or receive did not end within {} s (of {} submissions so far); a rank is \
                     missing, slower, or calls something else",
                    timeout.as_secs_f64(),
                    looked.covered
                ));
            }
            Ok(false) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
    looked.waiting = None;
    let submitted = rank.progress.submitted.load(Ordering::Acquire);
    if submitted == looked.covered {
        return Ok(());
    }
    // During a stream's capture, an event would become part of the graph.
    let Some(_guard) = rank.stream.device().try_between_captures() else {
        return Ok(());
    };
    match rank.mark_end() {
        Ok(event) => {
            looked.covered = submitted;
            looked.waiting = Some((event, Instant::now()));
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}
