//! HIP's functions for stream capture.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use hip_provider::hip::put;
use hipvit_sys::hip::{
    hipError_t, hipGraph_t, hipGraphEdgeData, hipGraphNode_t, hipStream_t, hipStreamCaptureMode,
    hipStreamCaptureStatus,
};

use super::capture::{Capture, Session};
use super::graph::{self, Graph};
use super::{capture_mode, hip, stream};

fn begin(
    stream: hipStream_t,
    graph: Arc<Graph>,
    tips: Vec<usize>,
    mode: hipStreamCaptureMode,
) -> Result<(), hipError_t> {
    capture_mode::check(mode)?;
    let stream = stream::find(stream)?;
    stream.device.alive()?;
    if stream.is_null() {
        return Err(hipError_t::hipErrorStreamCaptureUnsupported);
    }
    let mut capture = stream.member.capture();
    if capture.is_some() {
        return Err(hipError_t::hipErrorIllegalState);
    }
    let session = Session::begin(graph, stream.id, &stream.member, mode);
    *capture = Some(Capture { session, tips });
    Ok(())
}

/// Ends a stream's capture and returns its graph, or an error if the capture is invalid.
fn end(stream: hipStream_t) -> Result<Arc<Graph>, hipError_t> {
    let stream = stream::find(stream)?;
    let Some(Capture { session, tips }) = stream.member.capture().clone() else {
        return Err(hipError_t::hipErrorIllegalState);
    };
    if session.origin != stream.id {
        return Err(hipError_t::hipErrorStreamCaptureUnmatched);
    }
    session.restriction.check_thread()?;
    let joined = session.graph.ancestors(&tips);
    let mut all_joined = true;
    for member in session.members() {
        if let Some(capture) = member.capture().take() {
            all_joined &= capture.tips.iter().all(|tip| joined.contains(tip));
        }
    }
    session.end();
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
        let mut capture = stream.member.capture();
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
