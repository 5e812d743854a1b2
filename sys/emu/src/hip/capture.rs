//! Stream capture: tasks go into a graph instead of the stream's queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{cell::Cell, ptr};

use hip_provider::hip::put;
use hipvit_sys::hip::{
    hipError_t, hipGraph_t, hipGraphEdgeData, hipGraphNode_t, hipStream_t, hipStreamCaptureMode,
    hipStreamCaptureStatus,
};

use super::capture_mode::{self, Restriction};
use super::graph::{self, Graph};
use super::hip;
use super::queue::StreamId;
use super::stream::{self, Stream};
use super::task::Task;

/// A stream's part in a capture: the dependencies of its next task.
#[derive(Clone)]
pub(super) struct Capture {
    session: Arc<Session>,
    tips: Vec<usize>,
}

/// The state of an event that was recorded in a capture.
pub(super) type Captured = Capture;

/// A capture, over all the streams that have joined it.
struct Session {
    id: u64,
    graph: Arc<Graph>,
    origin: StreamId,
    restriction: Arc<Restriction>,
    streams: Mutex<Vec<Weak<Stream>>>,
}

static SESSIONS: Mutex<Vec<Arc<Session>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Stream {
    fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
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

    /// For calls that query the stream's work: an error while it is captured.
    pub(super) fn forbid_capture(&self) -> Result<(), hipError_t> {
        if let Some(capture) = &*self.capture() {
            capture.session.restriction.invalidate();
            return Err(hipError_t::hipErrorStreamCaptureUnsupported);
        }
        if self.is_null() {
            self.forbid_implicit()
        } else {
            Ok(())
        }
    }

    /// The default stream synchronises with blocking streams, which is an error while one is captured.
    fn forbid_implicit(&self) -> Result<(), hipError_t> {
        for session in lock(&SESSIONS).iter() {
            let streams = session.streams();
            let mut turns = streams
                .iter()
                .filter(|s| s.is_blocking() && s.device.ordinal == self.device.ordinal);
            if turns.next().is_some() {
                session.restriction.invalidate();
                return Err(hipError_t::hipErrorStreamCaptureImplicit);
            }
        }
        Ok(())
    }

    /// Captures a task; whether the stream is being captured.
    pub(super) fn capture_task(&self, task: &Task) -> Result<bool, hipError_t> {
        if self.is_null() {
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
        if self.is_null() {
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
                lock(&captured.session.streams).push(Arc::downgrade(self));
                *capture = Some(captured);
            }
        }
        Ok(())
    }
}

fn begin(
    stream: hipStream_t,
    graph: Arc<Graph>,
    tips: Vec<usize>,
    mode: hipStreamCaptureMode,
) -> Result<(), hipError_t> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    capture_mode::check(mode)?;
    let stream = stream::find(stream)?;
    stream.device.alive()?;
    if stream.is_null() {
        return Err(hipError_t::hipErrorStreamCaptureUnsupported);
    }
    let mut capture = stream.capture();
    if capture.is_some() {
        return Err(hipError_t::hipErrorIllegalState);
    }
    let session = Arc::new(Session {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        graph,
        origin: stream.id,
        restriction: Restriction::begin(mode),
        streams: Mutex::new(vec![Arc::downgrade(&stream)]),
    });
    lock(&SESSIONS).push(session.clone());
    *capture = Some(Capture { session, tips });
    Ok(())
}

/// Ends a stream's capture and returns its graph, or an error if the capture is invalid.
fn end(stream: hipStream_t) -> Result<Arc<Graph>, hipError_t> {
    let stream = stream::find(stream)?;
    let Some(Capture { session, tips }) = stream.capture().clone() else {
        return Err(hipError_t::hipErrorIllegalState);
    };
    if session.origin != stream.id {
        return Err(hipError_t::hipErrorStreamCaptureUnmatched);
    }
    session.restriction.check_thread()?;
    let joined = session.graph.ancestors(&tips);
    let mut all_joined = true;
    for member in session.streams() {
        if let Some(capture) = member.capture().take() {
            all_joined &= capture.tips.iter().all(|tip| joined.contains(tip));
        }
    }
    lock(&SESSIONS).retain(|other| !Arc::ptr_eq(other, &session));
    session.restriction.end();
    if session.restriction.is_invalid() {
        Err(hipError_t::hipErrorStreamCaptureInvalidated)
    } else if !all_joined {
        Err(hipError_t::hipErrorStreamCaptureUnjoined)
    } else {
        Ok(session.graph.clone())
    }
}

hip! {
    fn hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) {
        begin(stream, Graph::new(), Vec::new(), mode)
    }

    /// Captures into an existing graph, after some of its nodes. Edge data is not supported.
    fn hipStreamBeginCaptureToGraph(
        stream: hipStream_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, edges: *const hipGraphEdgeData,
        count: usize, mode: hipStreamCaptureMode,
    ) {
        if !edges.is_null() {
            return Err(hipError_t::hipErrorNotSupported);
        }
        let graph = graph::find(graph)?;
        let tips = graph::indices(&graph, dependencies, count)?;
        begin(stream, graph, tips, mode)
    }

    fn hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) {
        if graph.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        graph.write(ptr::null_mut());
        graph.write(graph::handle(end(stream)?));
        Ok(())
    }

    fn hipStreamIsCapturing(stream: hipStream_t, status: *mut hipStreamCaptureStatus) {
        let stream = stream::find(stream)?;
        put(status, match stream.captured() {
            Ok(None) => hipStreamCaptureStatus::hipStreamCaptureStatusNone,
            Ok(Some(_)) => hipStreamCaptureStatus::hipStreamCaptureStatusActive,
            Err(_) => hipStreamCaptureStatus::hipStreamCaptureStatusInvalidated,
        })
    }

    /// The array of dependencies is valid until the thread's next call.
    fn hipStreamGetCaptureInfo_v2(
        stream: hipStream_t, status: *mut hipStreamCaptureStatus, id: *mut u64, graph: *mut hipGraph_t,
        dependencies: *mut *const hipGraphNode_t, count: *mut usize,
    ) {
        thread_local! {
            static TIPS: Cell<Vec<hipGraphNode_t>> = const { Cell::new(Vec::new()) };
        }
        let stream = stream::find(stream)?;
        let Some(capture) = stream.captured()? else {
            return put(status, hipStreamCaptureStatus::hipStreamCaptureStatusNone);
        };
        put(status, hipStreamCaptureStatus::hipStreamCaptureStatusActive)?;
        if !id.is_null() {
            id.write(capture.session.id);
        }
        if !graph.is_null() {
            graph.write(graph::handle(capture.session.graph.clone()));
        }
        let nodes = capture.session.graph.handles(&capture.tips);
        if !count.is_null() {
            count.write(nodes.len());
        }
        if !dependencies.is_null() {
            dependencies.write(nodes.as_ptr());
        }
        // Moving the vector does not move its elements.
        TIPS.set(nodes);
        Ok(())
    }

    /// Flag 0 adds dependencies of the next task, 1 replaces them.
    fn hipStreamUpdateCaptureDependencies(
        stream: hipStream_t, dependencies: *mut hipGraphNode_t, count: usize, flags: u32,
    ) {
        if flags > 1 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let stream = stream::find(stream)?;
        stream.captured()?;
        let mut capture = stream.capture();
        let capture = capture.as_mut().ok_or(hipError_t::hipErrorIllegalState)?;
        let tips = graph::indices(&capture.session.graph, dependencies, count)?;
        if flags == 1 {
            capture.tips.clear();
        }
        capture.tips.extend(tips);
        capture.tips.sort_unstable();
        capture.tips.dedup();
        Ok(())
    }
}
