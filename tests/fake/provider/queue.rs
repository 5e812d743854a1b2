//! Streams, events and graphs: work that runs late, on other threads.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::{CAPTURING, CURRENT, INVALID, NOT_READY, SUCCESS, Slot, Status, UNSUPPORTED, add, get};

/// Delay of work, and its minimum duration.
const LATE: Duration = Duration::from_micros(100);

type Work = Arc<dyn Fn() -> Status + Send + Sync>;

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    running: bool,
    closed: bool,
    capture: Option<Vec<Work>>,
}

#[derive(Default)]
struct Stream {
    /// Current device of the thread that created the stream.
    device: i32,
    state: Mutex<State>,
    changed: Condvar,
    /// Error of failed work, until a call reports it.
    error: AtomicU32,
}

/// Number of streams that run work other than waiting for events.
static RUNNING: AtomicU32 = AtomicU32::new(0);
static STREAMS: Mutex<Vec<Weak<Stream>>> = Mutex::new(Vec::new());

impl Stream {
    fn run(&self) {
        loop {
            let mut state = self.state.lock().unwrap();
            let work = loop {
                if let Some(work) = state.queue.pop_front() {
                    break work;
                }
                if state.closed {
                    return;
                }
                state = self.changed.wait(state).unwrap();
            };
            state.running = true;
            drop(state);
            thread::sleep(LATE);
            let status = work();
            if status != SUCCESS {
                let _ = self.error.compare_exchange(SUCCESS, status, SeqCst, SeqCst);
            }
            drop(work);
            self.state.lock().unwrap().running = false;
            self.changed.notify_all();
        }
    }

    fn submit(&self, work: Work) {
        let mut state = self.state.lock().unwrap();
        match &mut state.capture {
            Some(captured) => captured.push(work),
            None => state.queue.push_back(work),
        }
        self.changed.notify_all();
    }

    fn synchronize(&self) -> Status {
        let mut state = self.state.lock().unwrap();
        if state.capture.is_some() {
            return CAPTURING;
        }
        while state.running || !state.queue.is_empty() {
            state = self.changed.wait(state).unwrap();
        }
        self.error.swap(SUCCESS, SeqCst)
    }
}

fn stream(handle: *mut c_void) -> Arc<Stream> {
    let raw = handle.cast::<Stream>();
    unsafe { Arc::increment_strong_count(raw) };
    unsafe { Arc::from_raw(raw) }
}

pub fn device_of(handle: *mut c_void) -> i32 {
    stream(handle).device
}

pub fn submit(handle: *mut c_void, work: impl Fn() -> Status + Send + Sync + 'static) -> Status {
    stream(handle).submit(Arc::new(move || {
        if RUNNING.fetch_add(1, SeqCst) > 0 {
            add(Slot::Overlaps, 1);
        }
        thread::sleep(LATE);
        let status = work();
        RUNNING.fetch_sub(1, SeqCst);
        status
    }));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreateWithFlags(out: *mut *mut c_void, _flags: u32) -> Status {
    let stream = Arc::new(Stream {
        device: CURRENT.get(),
        ..Stream::default()
    });
    STREAMS.lock().unwrap().push(Arc::downgrade(&stream));
    let worker = stream.clone();
    thread::spawn(move || worker.run());
    add(Slot::Streams, 1);
    unsafe { *out = Arc::into_raw(stream).cast_mut().cast() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreateWithPriority(out: *mut *mut c_void, flags: u32, _priority: i32) -> Status {
    unsafe { hipStreamCreateWithFlags(out, flags) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> Status {
    unsafe { (*least, *greatest) = (1, -1) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamDestroy(handle: *mut c_void) -> Status {
    let stream = unsafe { Arc::from_raw(handle.cast::<Stream>()) };
    stream.state.lock().unwrap().closed = true;
    stream.changed.notify_all();
    add(Slot::Streams, -1);
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamSynchronize(handle: *mut c_void) -> Status {
    stream(handle).synchronize()
}
#[unsafe(no_mangle)]
pub extern "C" fn hipDeviceSynchronize() -> Status {
    let streams: Vec<_> = STREAMS.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
    let of_device = streams.iter().filter(|s| s.device == CURRENT.get());
    let statuses: Vec<_> = of_device.map(|s| s.synchronize()).collect();
    statuses.into_iter().find(|&s| s != SUCCESS).unwrap_or(SUCCESS)
}

#[derive(Default)]
struct Event {
    /// Time at which the event was passed, and the error of the work before it.
    passed: Mutex<Option<(Instant, Status)>>,
    changed: Condvar,
}

fn event(handle: *mut c_void) -> Arc<Event> {
    let raw = handle.cast::<Event>();
    unsafe { Arc::increment_strong_count(raw) };
    unsafe { Arc::from_raw(raw) }
}

impl Event {
    fn wait(&self) -> (Instant, Status) {
        let mut passed = self.passed.lock().unwrap();
        loop {
            match *passed {
                Some(passed) => return passed,
                None => passed = self.changed.wait(passed).unwrap(),
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventCreateWithFlags(out: *mut *mut c_void, _flags: u32) -> Status {
    add(Slot::Events, 1);
    add(Slot::EventsMade, 1);
    unsafe { *out = Arc::into_raw(Arc::new(Event::default())).cast_mut().cast() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipEventDestroy(handle: *mut c_void) -> Status {
    drop(unsafe { Arc::from_raw(handle.cast::<Event>()) });
    add(Slot::Events, -1);
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipEventRecord(handle: *mut c_void, on: *mut c_void) -> Status {
    let (event, on) = (event(handle), stream(on));
    // From now on the event refers to this record and its error.
    if on.state.lock().unwrap().capture.is_none() {
        *event.passed.lock().unwrap() = None;
    }
    let queue = Arc::downgrade(&on);
    on.submit(Arc::new(move || {
        let error = queue
            .upgrade()
            .map_or(SUCCESS, |queue| queue.error.swap(SUCCESS, SeqCst));
        *event.passed.lock().unwrap() = Some((Instant::now(), error));
        event.changed.notify_all();
        SUCCESS
    }));
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamWaitEvent(on: *mut c_void, handle: *mut c_void, _flags: u32) -> Status {
    let event = event(handle);
    stream(on).submit(Arc::new(move || {
        event.wait();
        SUCCESS
    }));
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipEventSynchronize(handle: *mut c_void) -> Status {
    event(handle).wait().1
}
#[unsafe(no_mangle)]
pub extern "C" fn hipEventQuery(handle: *mut c_void) -> Status {
    event(handle)
        .passed
        .lock()
        .unwrap()
        .map_or(NOT_READY, |passed| passed.1)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventElapsedTime(out: *mut f32, from: *mut c_void, to: *mut c_void) -> Status {
    let elapsed = event(to).wait().0.duration_since(event(from).wait().0);
    unsafe { *out = 1e3 * elapsed.as_secs_f32() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn hipStreamBeginCapture(handle: *mut c_void, _mode: u32) -> Status {
    if get(Slot::FailCapture) != 0 || std::env::var_os("FAKE_FAIL_CAPTURE").is_some() {
        return UNSUPPORTED;
    }
    stream(handle).state.lock().unwrap().capture = Some(Vec::new());
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamEndCapture(handle: *mut c_void, graph: *mut *mut c_void) -> Status {
    let Some(work) = stream(handle).state.lock().unwrap().capture.take() else {
        return INVALID;
    };
    add(Slot::Graphs, 1);
    unsafe { *graph = Box::into_raw(Box::new(work)).cast() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGraphInstantiate(
    out: *mut *mut c_void,
    graph: *mut c_void,
    _node: *mut c_void,
    _log: *mut c_void,
    _bytes: usize,
) -> Status {
    let work = unsafe { &*graph.cast::<Vec<Work>>() }.clone();
    add(Slot::Graphs, 1);
    unsafe { *out = Box::into_raw(Box::new(work)).cast() };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphDestroy(graph: *mut c_void) -> Status {
    drop(unsafe { Box::from_raw(graph.cast::<Vec<Work>>()) });
    add(Slot::Graphs, -1);
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphExecDestroy(graph: *mut c_void) -> Status {
    hipGraphDestroy(graph)
}
#[unsafe(no_mangle)]
pub extern "C" fn hipGraphLaunch(graph: *mut c_void, on: *mut c_void) -> Status {
    add(Slot::Replays, 1);
    let work = unsafe { &*graph.cast::<Vec<Work>>() };
    let left_out = match get(Slot::CorruptReplay) {
        0 => None,
        1 => work.len().checked_sub(1),
        _ => Some(0),
    };
    for (index, work) in work.iter().enumerate() {
        if Some(index) != left_out {
            stream(on).submit(work.clone());
        }
    }
    SUCCESS
}
