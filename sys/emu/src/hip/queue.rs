//! The streams' queues and the threads that run them.
//!
//! A stream's operations run in order, on a thread of its own, and not before they are *demanded*. They are demanded if something
//! waits for them or for an operation that depends on them. The schedule, a full queue, or a time without calls demands them too.
//! So a program without the necessary synchronisation sees old data. Device operations run one at a time; a kernel that waits for
//! another [pauses](pause) meanwhile. Their order only depends on the schedule and the submissions. Host functions run
//! concurrently.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hipvit_sys::hip::hipError_t;

use crate::settings::Schedule;

/// A stream's number, which is never reused.
pub(crate) type StreamId = u64;

/// A point in a stream: after its first `index` operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    stream: StreamId,
    index: u64,
}

/// One operation.
#[derive(Clone)]
pub(super) enum Action {
    /// Work of a device. Only one runs at a time, on all devices together.
    Work(Arc<dyn Fn() + Send + Sync>),
    /// A function of the host.
    Host(Arc<dyn Fn() + Send + Sync>),
    /// Records the time, for an event.
    Mark(Arc<OnceLock<Instant>>),
    /// Waits for its dependencies, and does nothing else.
    Nothing,
    /// Waits for a condition, which work of other streams makes true.
    Until(Arc<dyn Fn() -> bool + Send + Sync>),
}

/// An operation begins after this time even if nothing demands it, since programs may poll memory without calls.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// The interval at which a condition in memory is polled.
const POLL: Duration = Duration::from_micros(200);

/// Capacity of a stream's queue; as on a GPU, submitting more waits.
const CAPACITY: u64 = 4096;

struct Operation {
    action: Action,
    after: Vec<Point>,
    submitted: Instant,
}

struct Queue {
    device: u32,
    /// The default stream that it synchronises with.
    null: Option<StreamId>,
    operations: VecDeque<Operation>,
    submitted: u64,
    demanded: u64,
    completed: u64,
    closed: bool,
    has_worker: bool,
    /// Number of the last pause of its running work; 0 if it did not pause.
    paused: u64,
}

struct Scheduler {
    streams: BTreeMap<StreamId, Queue>,
    next: StreamId,
    /// True while work is running.
    busy: bool,
    /// The stream chosen to run next.
    turn: Option<StreamId>,
    schedule: Schedule,
    random: Random,
    /// Number of pauses of work.
    pauses: u64,
}

/// A seeded generator (xorshift).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

static SCHEDULER: Mutex<Scheduler> = Mutex::new(Scheduler {
    streams: BTreeMap::new(),
    next: 1,
    busy: false,
    turn: None,
    schedule: Schedule::Late,
    random: Random(1),
    pauses: 0,
});

thread_local! {
    /// The stream whose thread this is.
    static OWN: Cell<Option<StreamId>> = const { Cell::new(None) };
}

static CHANGED: Condvar = Condvar::new();

fn scheduler() -> MutexGuard<'static, Scheduler> {
    SCHEDULER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_for_change(scheduler: MutexGuard<'static, Scheduler>) -> MutexGuard<'static, Scheduler> {
    CHANGED.wait(scheduler).unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn configure(schedule: Schedule, seed: u64) {
    let mut scheduler = scheduler();
    scheduler.schedule = schedule;
    scheduler.random = Random::new(seed);
}

/// A number below `limit` from the seed.
pub(super) fn random(limit: u64) -> u64 {
    scheduler().random.below(limit)
}

pub(super) fn schedule() -> Schedule {
    scheduler().schedule
}

/// A device's default stream.
pub(super) fn create_null(device: u32) -> StreamId {
    scheduler().create(device, None)
}

/// A stream of `device`, which synchronises with the default stream `null` if that is given.
pub(super) fn create(device: u32, null: Option<StreamId>) -> StreamId {
    scheduler().create(device, null)
}

impl Scheduler {
    fn create(&mut self, device: u32, null: Option<StreamId>) -> StreamId {
        let id = self.next;
        self.next += 1;
        let queue = Queue {
            device,
            null,
            operations: VecDeque::new(),
            submitted: 0,
            demanded: 0,
            completed: 0,
            closed: false,
            has_worker: false,
            paused: 0,
        };
        self.streams.insert(id, queue);
        id
    }

    fn end(&self, stream: StreamId) -> Option<Point> {
        let queue = self.streams.get(&stream)?;
        (queue.completed < queue.submitted).then_some(Point {
            stream,
            index: queue.submitted,
        })
    }

    /// A removed stream has completed everything.
    fn is_done(&self, point: Point) -> bool {
        let queue = self.streams.get(&point.stream);
        queue.is_none_or(|queue| queue.completed >= point.index)
    }

    fn demand(&mut self, point: Point) {
        if let Some(queue) = self.streams.get_mut(&point.stream)
            && queue.demanded < point.index
        {
            queue.demanded = point.index;
            CHANGED.notify_all();
        }
    }

    fn demand_everything(&mut self) {
        let points: Vec<_> = self.streams.keys().filter_map(|&id| self.end(id)).collect();
        points.into_iter().for_each(|point| self.demand(point));
    }

    /// The points that an operation of this stream has to wait for because of the default streams.
    fn default_stream_order(&self, stream: StreamId) -> Vec<Point> {
        match self.streams.get(&stream).and_then(|queue| queue.null) {
            Some(null) => self.end(null).into_iter().collect(),
            None => {
                let turns = self
                    .streams
                    .iter()
                    .filter(|(_, queue)| queue.null == Some(stream));
                turns.filter_map(|(&id, _)| self.end(id)).collect()
            }
        }
    }

    /// True if the stream's first operation is demanded work, with everything before it done.
    fn is_ready(&self, queue: &Queue) -> bool {
        (queue.completed < queue.demanded || queue.closed)
            && queue.operations.front().is_some_and(|operation| {
                matches!(operation.action, Action::Work(..))
                    && operation.after.iter().all(|&point| self.is_done(point))
            })
    }

    /// True if this stream's work may run now.
    fn may_work(&mut self, stream: StreamId) -> bool {
        if self.busy {
            return false;
        }
        let turn = self.turn.and_then(|turn| self.streams.get(&turn));
        if !turn.is_some_and(|queue| self.is_ready(queue)) {
            let ready = self.streams.iter().filter(|(_, queue)| self.is_ready(queue));
            // Work that waits for other work goes on last, in turn.
            let first = ready.clone().map(|(_, queue)| queue.paused).min();
            let ready = ready.filter(|(_, queue)| Some(queue.paused) == first);
            let ready: Vec<_> = ready.map(|(&id, _)| id).collect();
            let chosen = match self.schedule {
                Schedule::Random => self.random.below(ready.len().max(1) as u64) as usize,
                Schedule::Late => ready.len().saturating_sub(1),
                Schedule::Eager => 0,
            };
            self.turn = ready.get(chosen).copied();
            CHANGED.notify_all();
        }
        self.turn == Some(stream)
    }

    /// Demands operations at a submission, as the schedule says.
    fn begin_some(&mut self, submitted: Point) {
        match self.schedule {
            Schedule::Late => {}
            Schedule::Eager => self.demand(submitted),
            Schedule::Random => {
                if self.random.below(4) == 0 {
                    let stream = self.random.below(self.streams.len().max(1) as u64) as usize;
                    let end = self.streams.keys().nth(stream).and_then(|&id| self.end(id));
                    if let Some(end) = end {
                        let index = 1 + self.random.below(end.index);
                        self.demand(Point { index, ..end });
                    }
                }
            }
        }
    }
}

/// Puts an operation at the end of a stream, after `after` and the points that the default streams require.
pub(super) fn push(stream: StreamId, action: Action, mut after: Vec<Point>) -> Result<Point, hipError_t> {
    let mut scheduler = scheduler();
    // As on a GPU, submitting to a full queue waits.
    loop {
        let queue = scheduler
            .streams
            .get(&stream)
            .ok_or(hipError_t::hipErrorInvalidHandle)?;
        if queue.submitted - queue.completed < CAPACITY {
            break;
        }
        let index = queue.submitted - CAPACITY / 2;
        scheduler.demand(Point { stream, index });
        scheduler = wait_for_change(scheduler);
    }
    after.extend(scheduler.default_stream_order(stream));
    after.retain(|&point| point.stream != stream && !scheduler.is_done(point));
    let queue = scheduler
        .streams
        .get_mut(&stream)
        .ok_or(hipError_t::hipErrorInvalidHandle)?;
    queue.operations.push_back(Operation {
        action,
        after,
        submitted: Instant::now(),
    });
    queue.submitted += 1;
    let point = Point {
        stream,
        index: queue.submitted,
    };
    if !queue.has_worker {
        queue.has_worker = true;
        let worker = thread::Builder::new()
            .name(format!("stream {stream}"))
            .spawn(move || work(stream));
        worker.map_err(|_| hipError_t::hipErrorOperatingSystem)?;
    }
    scheduler.begin_some(point);
    CHANGED.notify_all();
    Ok(point)
}

/// The current end of a stream; `None` if it is idle.
pub(super) fn end(stream: StreamId) -> Option<Point> {
    scheduler().end(stream)
}

/// The ends of all streams of a device.
pub(super) fn ends(device: u32) -> Vec<Point> {
    let scheduler = scheduler();
    let streams = scheduler
        .streams
        .iter()
        .filter(|(_, queue)| queue.device == device);
    streams.filter_map(|(&id, _)| scheduler.end(id)).collect()
}

/// The ends of the streams that an operation of the default stream `null` waits for, and its own.
pub(super) fn ends_with_null(null: StreamId) -> Vec<Point> {
    let scheduler = scheduler();
    let mut ends = scheduler.default_stream_order(null);
    ends.extend(scheduler.end(null));
    ends
}

/// Waits for all of the points, which it demands.
pub(super) fn wait(points: &[Point]) {
    let mut scheduler = scheduler();
    points.iter().for_each(|&point| scheduler.demand(point));
    while !points.iter().all(|&point| scheduler.is_done(point)) {
        scheduler = wait_for_change(scheduler);
    }
}

/// Returns true if all of the points were reached. The others are demanded, so that polling ends.
pub(super) fn poll(points: &[Point]) -> bool {
    let mut scheduler = scheduler();
    points.iter().for_each(|&point| scheduler.demand(point));
    points.iter().all(|&point| scheduler.is_done(point))
}

/// Removes a stream once it has completed everything.
pub(super) fn close(stream: StreamId) {
    let mut scheduler = scheduler();
    if let Some(queue) = scheduler.streams.get_mut(&stream) {
        queue.closed = true;
        if !queue.has_worker {
            scheduler.streams.remove(&stream);
        }
    }
    CHANGED.notify_all();
}

/// Called by running work that waits for other work: lets that run. Returns when it is this work's turn again.
pub(super) fn pause() {
    let Some(stream) = OWN.get() else { return };
    let mut scheduler = scheduler();
    scheduler.busy = false;
    scheduler.pauses += 1;
    let number = scheduler.pauses;
    if let Some(queue) = scheduler.streams.get_mut(&stream) {
        queue.paused = number;
    }
    scheduler.demand_everything();
    CHANGED.notify_all();
    let mut others = scheduler.streams.iter().filter(|(id, _)| **id != stream);
    let mut alone = !others.any(|(_, queue)| scheduler.is_ready(queue));
    while alone || !scheduler.may_work(stream) {
        // Alone it would only look again.
        alone = false;
        let (again, _) = CHANGED
            .wait_timeout(scheduler, POLL)
            .unwrap_or_else(PoisonError::into_inner);
        scheduler = again;
    }
    scheduler.busy = true;
    scheduler.turn = None;
}

/// The body of a stream's thread.
fn work(stream: StreamId) {
    OWN.set(Some(stream));
    let mut scheduler = scheduler();
    loop {
        let Some(queue) = scheduler.streams.get(&stream) else {
            return;
        };
        let Some(operation) = queue.operations.front() else {
            if queue.closed {
                scheduler.streams.remove(&stream);
                CHANGED.notify_all();
                return;
            }
            scheduler = wait_for_change(scheduler);
            continue;
        };
        let next = Point {
            stream,
            index: queue.completed + 1,
        };
        if queue.completed >= queue.demanded && !queue.closed {
            let waited = operation.submitted.elapsed();
            if waited >= MAX_DELAY {
                scheduler.demand(next);
            } else {
                let (again, _) = CHANGED
                    .wait_timeout(scheduler, MAX_DELAY - waited)
                    .unwrap_or_else(PoisonError::into_inner);
                scheduler = again;
            }
            continue;
        }
        let after = operation.after.clone();
        after.iter().for_each(|&point| scheduler.demand(point));
        if !after.iter().all(|&point| scheduler.is_done(point)) {
            scheduler = wait_for_change(scheduler);
            continue;
        }
        let Some(queue) = scheduler.streams.get(&stream) else {
            return;
        };
        let Some(action) = queue.operations.front().map(|operation| operation.action.clone()) else {
            continue;
        };
        let is_work = matches!(action, Action::Work(..));
        if is_work {
            if !scheduler.may_work(stream) {
                scheduler = wait_for_change(scheduler);
                continue;
            }
            scheduler.busy = true;
            scheduler.turn = None;
        }
        if matches!(action, Action::Until(_)) {
            scheduler.demand_everything();
        }
        drop(scheduler);
        perform(&action);
        drop(action);
        scheduler = self::scheduler();
        scheduler.busy &= !is_work;
        if let Some(queue) = scheduler.streams.get_mut(&stream) {
            queue.operations.pop_front();
            queue.completed += 1;
            queue.paused = 0;
        }
        CHANGED.notify_all();
    }
}

/// Runs one operation.
fn perform(action: &Action) {
    match action {
        Action::Nothing => {}
        Action::Mark(time) => {
            let _ = time.set(Instant::now());
        }
        Action::Work(function) | Action::Host(function) => {
            let _ = catch_unwind(AssertUnwindSafe(|| function()));
        }
        Action::Until(condition) => {
            while !condition() {
                thread::sleep(POLL);
                // What it waits for may have been submitted meanwhile.
                scheduler().demand_everything();
            }
        }
    }
}
