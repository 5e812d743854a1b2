//! Capture, replay, and explicit graphs.

use std::ptr;

use hipvit_sys::hip::{
    hipError_t, hipEvent_t, hipGraph_t, hipGraphExec_t, hipGraphExecUpdateResult, hipGraphNodeType,
    hipMemcpyKind, hipMemsetParams, hipStreamCaptureMode, hipStreamCaptureStatus,
};

use crate::{Buffer, Stream, has, hip, is, ok, turn};

const MODE: hipStreamCaptureMode = hipStreamCaptureMode::hipStreamCaptureModeThreadLocal;

fn capture(stream: &Stream, work: impl FnOnce()) -> hipGraph_t {
    let mut graph = ptr::null_mut();
    ok(unsafe { hip().hipStreamBeginCapture(stream.0, MODE) });
    work();
    ok(unsafe { hip().hipStreamEndCapture(stream.0, &mut graph) });
    graph
}

fn instantiate(graph: hipGraph_t) -> hipGraphExec_t {
    let mut exec = ptr::null_mut();
    ok(unsafe { hip().hipGraphInstantiate(&mut exec, graph, ptr::null_mut(), ptr::null_mut(), 0) });
    exec
}

fn event() -> hipEvent_t {
    let mut event = ptr::null_mut();
    ok(unsafe { hip().hipEventCreate(&mut event) });
    event
}

fn copy(to: &Buffer, from: &Buffer, stream: &Stream) {
    let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
    ok(unsafe { hip().hipMemcpyAsync(to.0, from.0, 4, kind, stream.0) });
}

#[test]
fn captured_work_runs_at_replay() {
    let _turn = turn();
    let (stream, a, b) = (Stream::new(), Buffer::of(&[1]), Buffer::of(&[2]));
    let graph = capture(&stream, || {
        copy(&b, &a, &stream);
        a.fill(1, 9, &stream);
    });
    let exec = instantiate(graph);
    ok(unsafe { hip().hipGraphDestroy(graph) });
    assert_eq!((a.peek(1), b.peek(1)), (vec![1], vec![2]), "nothing ran");
    for (round, before) in [(0, 1), (1, 9)] {
        ok(unsafe { hip().hipGraphLaunch(exec, stream.0) });
        stream.wait();
        assert_eq!((a.peek(1), b.peek(1)), (vec![9], vec![before]), "round {round}");
    }
    ok(unsafe { hip().hipGraphExecDestroy(exec) });
}

#[test]
fn a_capture_forks_and_joins_by_events() {
    let _turn = turn();
    let (main, side) = (Stream::new(), Stream::new());
    let [a, b, c] = [1, 2, 3].map(|value| Buffer::of(&[value]));
    let (fork, join) = (event(), event());
    let (mut nodes, mut edges) = (0, 0);
    let graph = capture(&main, || unsafe {
        a.fill(1, 7, &main);
        ok(hip().hipEventRecord(fork, main.0));
        ok(hip().hipStreamWaitEvent(side.0, fork, 0));
        copy(&b, &a, &side);
        copy(&c, &a, &main);
        ok(hip().hipEventRecord(join, side.0));
        ok(hip().hipStreamWaitEvent(main.0, join, 0));
        copy(&a, &b, &main);
    });
    unsafe {
        ok(hip().hipGraphGetNodes(graph, ptr::null_mut(), &mut nodes));
        ok(hip().hipGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut edges));
        assert_eq!((nodes, edges), (4, 4));
        let exec = instantiate(graph);
        ok(hip().hipGraphLaunch(exec, side.0));
        side.wait();
        assert_eq!([&a, &b, &c].map(|buffer| buffer.peek(1)[0]), [7, 7, 7]);
        ok(hip().hipGraphExecDestroy(exec));
        ok(hip().hipGraphDestroy(graph));
        ok(hip().hipEventDestroy(fork));
        ok(hip().hipEventDestroy(join));
    }
}

#[test]
fn a_fork_that_is_not_joined_ends_the_capture_with_an_error() {
    let _turn = turn();
    let (main, side, a) = (Stream::new(), Stream::new(), Buffer::of(&[1]));
    let fork = event();
    let mut graph = ptr::null_mut();
    let mut status = hipStreamCaptureStatus(7);
    unsafe {
        ok(hip().hipStreamBeginCapture(main.0, MODE));
        ok(hip().hipEventRecord(fork, main.0));
        ok(hip().hipStreamWaitEvent(side.0, fork, 0));
        a.fill(1, 2, &side);
        ok(hip().hipStreamIsCapturing(side.0, &mut status));
        assert_eq!(status, hipStreamCaptureStatus::hipStreamCaptureStatusActive);
        is(
            hip().hipStreamEndCapture(main.0, &mut graph),
            hipError_t::hipErrorStreamCaptureUnjoined,
        );
        assert!(graph.is_null());
        ok(hip().hipStreamIsCapturing(side.0, &mut status));
        assert_eq!(status, hipStreamCaptureStatus::hipStreamCaptureStatusNone);
        ok(hip().hipEventDestroy(fork));
    }
}

#[test]
fn waiting_during_a_capture_invalidates_it() {
    let _turn = turn();
    let (stream, mut graph) = (Stream::new(), ptr::null_mut());
    unsafe {
        ok(hip().hipStreamBeginCapture(stream.0, MODE));
        is(
            hip().hipStreamSynchronize(stream.0),
            hipError_t::hipErrorStreamCaptureUnsupported,
        );
        is(
            hip().hipStreamEndCapture(stream.0, &mut graph),
            hipError_t::hipErrorStreamCaptureInvalidated,
        );
        ok(hip().hipStreamBeginCapture(stream.0, MODE));
        let mut memory = ptr::null_mut();
        is(
            hip().hipMalloc(&mut memory, 64),
            hipError_t::hipErrorStreamCaptureUnsupported,
        );
        is(
            hip().hipStreamEndCapture(stream.0, &mut graph),
            hipError_t::hipErrorStreamCaptureInvalidated,
        );
        // It is over.
        stream.wait();
        is(
            hip().hipStreamEndCapture(stream.0, &mut graph),
            hipError_t::hipErrorIllegalState,
        );
    }
}

#[test]
fn an_explicit_graph_follows_its_edges_and_can_be_updated() {
    let _turn = turn();
    let (stream, a, b) = (Stream::new(), Buffer::of(&[1]), Buffer::of(&[2]));
    let fill = |value| hipMemsetParams {
        dst: a.0,
        elementSize: 4,
        height: 1,
        pitch: 4,
        value,
        width: 1,
    };
    let make = |value| unsafe {
        let (mut graph, mut first, mut second) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        ok(hip().hipGraphCreate(&mut graph, 0));
        ok(hip().hipGraphAddMemsetNode(&mut first, graph, ptr::null(), 0, &fill(value)));
        let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
        ok(hip().hipGraphAddMemcpyNode1D(&mut second, graph, &first, 1, b.0, a.0, 4, kind));
        (graph, first)
    };
    let (graph, node) = make(5);
    let mut kind = hipGraphNodeType(99);
    ok(unsafe { hip().hipGraphNodeGetType(node, &mut kind) });
    assert_eq!(kind, hipGraphNodeType::hipGraphNodeTypeMemset);
    let exec = instantiate(graph);
    let run = |wanted| {
        ok(unsafe { hip().hipGraphLaunch(exec, stream.0) });
        stream.wait();
        assert_eq!(b.peek(1), [wanted]);
    };
    run(5);
    ok(unsafe { hip().hipGraphExecMemsetNodeSetParams(exec, node, &fill(6)) });
    run(6);
    let (other, _) = make(8);
    let (mut at_fault, mut result) = (ptr::null_mut(), hipGraphExecUpdateResult(99));
    ok(unsafe { hip().hipGraphExecUpdate(exec, other, &mut at_fault, &mut result) });
    assert_eq!(result, hipGraphExecUpdateResult::hipGraphExecUpdateSuccess);
    run(8);
    let mut extra = ptr::null_mut();
    unsafe {
        ok(hip().hipGraphAddEmptyNode(&mut extra, other, ptr::null(), 0));
        is(
            hip().hipGraphExecUpdate(exec, other, &mut at_fault, &mut result),
            hipError_t::hipErrorGraphExecUpdateFailure,
        );
        assert_eq!(
            result,
            hipGraphExecUpdateResult::hipGraphExecUpdateErrorTopologyChanged
        );
        assert_eq!(at_fault, extra);
        ok(hip().hipGraphExecDestroy(exec));
        ok(hip().hipGraphDestroy(graph));
        ok(hip().hipGraphDestroy(other));
        is(
            hip().hipGraphNodeGetType(node, &mut kind),
            hipError_t::hipErrorInvalidHandle,
        );
    }
}

/// Two nodes without the edge that should order them: the replay runs the later one first.
#[test]
fn a_missing_edge_changes_the_result() {
    let _turn = turn();
    let (stream, a, b) = (Stream::new(), Buffer::of(&[1]), Buffer::of(&[2]));
    let (mut graph, mut first, mut second) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let fill = hipMemsetParams {
        dst: a.0,
        elementSize: 4,
        height: 1,
        pitch: 4,
        value: 5,
        width: 1,
    };
    unsafe {
        ok(hip().hipGraphCreate(&mut graph, 0));
        ok(hip().hipGraphAddMemsetNode(&mut first, graph, ptr::null(), 0, &fill));
        let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
        ok(hip().hipGraphAddMemcpyNode1D(&mut second, graph, ptr::null(), 0, b.0, a.0, 4, kind));
        let exec = instantiate(graph);
        ok(hip().hipGraphLaunch(exec, stream.0));
        stream.wait();
        assert_eq!((a.peek(1), b.peek(1)), (vec![5], vec![1]));
        ok(hip().hipGraphExecDestroy(exec));
        ok(hip().hipGraphDestroy(graph));
    }
}

#[test]
fn a_replay_can_be_made_to_fail() {
    let settings = [("HIP_EMU_CORRUPT_REPLAY", "2")];
    if !has(&settings, "graphs::a_replay_can_be_made_to_fail") {
        return;
    }
    let (stream, a) = (Stream::new(), Buffer::of(&[1]));
    let graph = capture(&stream, || a.fill(1, 9, &stream));
    let exec = instantiate(graph);
    for wanted in [9, 1, 9] {
        a.fill(1, 1, &stream);
        ok(unsafe { hip().hipGraphLaunch(exec, stream.0) });
        stream.wait();
        assert_eq!(a.peek(1), [wanted]);
    }
}
