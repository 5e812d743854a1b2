//! Stream capture: tasks go into a graph instead of the stream's queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipvit_sys::hip::{hipError_t, hipStreamCaptureMode};

use super::capture_mode::Restriction;
use super::graph::Graph;
use super::queue::StreamId;
use super::task::Task;

/// A stream's part in a capture: the dependencies of its next task.
#[derive(Clone)]
pub(super) struct Capture {
    pub(super) session: Arc<Session>,
    pub(super) tips: Vec<usize>,
}

/// The state of an event that was recorded in a capture.
pub(super) type Captured = Capture;

/// A capture, over all the streams that have joined it.
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) graph: Arc<Graph>,
    pub(super) origin: StreamId,
    pub(super) restriction: Arc<Restriction>,
    members: Mutex<Vec<Weak<Member>>>,
}

static SESSIONS: Mutex<Vec<Arc<Session>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Begins a session with the stream that it captures first.
    pub(super) fn begin(
        graph: Arc<Graph>,
        origin: StreamId,
        member: &Arc<Member>,
        mode: hipStreamCaptureMode,
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let session = Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            graph,
            origin,
            restriction: Restriction::begin(mode),
            members: Mutex::new(vec![Arc::downgrade(member)]),
        });
        lock(&SESSIONS).push(session.clone());
        session
    }

    /// Ends a session: no stream can join it any more.
    pub(super) fn end(self: &Arc<Self>) {
        lock(&SESSIONS).retain(|other| !Arc::ptr_eq(other, self));
        self.restriction.end();
    }

    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        lock(&self.members).iter().filter_map(Weak::upgrade).collect()
    }
}

/// A stream as captures see it.
pub(super) struct Member {
    device: u32,
    /// True for the legacy default stream.
    is_null: bool,
    /// True if the stream synchronises with the default stream.
    is_blocking: bool,
    capture: Mutex<Option<Capture>>,
}

impl Member {
    pub(super) fn new(device: u32, is_null: bool, is_blocking: bool) -> Arc<Self> {
        Arc::new(Self {
            device,
            is_null,
            is_blocking,
            capture: Mutex::default(),
        })
    }

    pub(super) fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        lock(&self.capture)
    }

    /// The stream's part in a capture.
    pub(super) fn captured(&self) -> Result<Option<Captured>, hipError_t> {
        match &*self.capture() {
            Some(capture) if capture.session.restriction.is_invalid() => {
                Err(hipError_t::hipErrorStreamCaptureInvalidated)
            }
            capture => Ok(capture.clone()),
        }
    }

    /// Returns an error while the stream is captured, for calls that query its work.
    pub(super) fn forbid_capture(&self) -> Result<(), hipError_t> {
        if let Some(capture) = &*self.capture() {
            capture.session.restriction.invalidate();
            return Err(hipError_t::hipErrorStreamCaptureUnsupported);
        }
        if self.is_null {
            self.forbid_implicit()
        } else {
            Ok(())
        }
    }

    /// The default stream synchronises with blocking streams, which is an error while one is captured.
    fn forbid_implicit(&self) -> Result<(), hipError_t> {
        for session in lock(&SESSIONS).iter() {
            let waits = |member: &Arc<Member>| member.is_blocking && member.device == self.device;
            if session.members().iter().any(waits) {
                session.restriction.invalidate();
                return Err(hipError_t::hipErrorStreamCaptureImplicit);
            }
        }
        Ok(())
    }

    /// Captures a task; whether the stream is being captured.
    pub(super) fn capture_task(&self, task: &Task) -> Result<bool, hipError_t> {
        if self.is_null {
            self.forbid_implicit()?;
        }
        if self.captured()?.is_none() {
            return Ok(false);
        }
        if let Some(capture) = &mut *self.capture() {
            let node = capture.session.graph.add(task.clone(), capture.tips.clone())?;
            capture.tips = vec![node];
        }
        Ok(true)
    }

    /// Makes the stream's next task come after an event that was recorded in a capture.
    pub(super) fn join(self: &Arc<Self>, captured: Captured) -> Result<(), hipError_t> {
        self.captured()?;
        let live = lock(&SESSIONS)
            .iter()
            .any(|session| Arc::ptr_eq(session, &captured.session));
        if !live {
            return Err(hipError_t::hipErrorCapturedEvent);
        }
        if self.is_null {
            return Err(hipError_t::hipErrorStreamCaptureImplicit);
        }
        let mut capture = self.capture();
        match &mut *capture {
            Some(own) if !Arc::ptr_eq(&own.session, &captured.session) => {
                return Err(hipError_t::hipErrorStreamCaptureMerge);
            }
            Some(own) => {
                own.tips.extend(captured.tips);
                own.tips.sort_unstable();
                own.tips.dedup();
            }
            None => {
                lock(&captured.session.members).push(Arc::downgrade(self));
                *capture = Some(captured);
            }
        }
        Ok(())
    }
}
