//! RCCL: collectives of f32 on host memory. Each rank's part is work of its stream; the last rank to arrive
//! computes.
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::{LAUNCH_FAILURE, SUCCESS, Slot, Status, add, queue, access};

const INVALID_ARGUMENT: Status = 4;
const INVALID_USAGE: Status = 5;
const REMOTE: Status = 6;
const F32: u32 = 7;

/// State shared by the ranks of a communicator.
struct Shared {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
    aborted: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Parts of the ranks for each collective in progress, true if it is computed, and the number of ranks
    /// that have finished.
    collectives: HashMap<u64, (Vec<Option<Part>>, bool, usize)>,
    /// Sent but not yet received values: from, to, values.
    sent: Vec<(usize, usize, Vec<f32>)>,
}

#[derive(Clone, Copy)]
struct Part {
    from: usize,
    to: usize,
    count: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    AllReduce(u32),
    AllGather,
    ReduceScatter(u32),
    Broadcast(usize),
}

struct Comm {
    shared: Arc<Shared>,
    rank: usize,
    /// Number of submitted collectives.
    next: AtomicU64,
}

fn comm<'a>(handle: *mut c_void) -> &'a Comm {
    unsafe { &*handle.cast::<Comm>() }
}

fn shared(ranks: usize) -> Arc<Shared> {
    Arc::new(Shared {
        ranks,
        state: Mutex::default(),
        changed: Condvar::new(),
        aborted: AtomicBool::new(false),
    })
}

fn create(shared: Arc<Shared>, rank: usize) -> *mut c_void {
    add(Slot::Handles, 1);
    let next = AtomicU64::new(0);
    Box::into_raw(Box::new(Comm { shared, rank, next })).cast()
}

/// Communicators being created, by their id.
static MEETING: Mutex<Vec<([u8; 128], Arc<Shared>, usize)>> = Mutex::new(Vec::new());

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut [u8; 128]) -> Status {
    static IDS: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&IDS.fetch_add(1, SeqCst).to_le_bytes());
    unsafe { *id = bytes };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(out: *mut *mut c_void, count: c_int, _devices: *const c_int) -> Status {
    let shared = shared(count as usize);
    for rank in 0..count as usize {
        unsafe { *out.add(rank) = create(shared.clone(), rank) };
    }
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(out: *mut *mut c_void, ranks: c_int, id: [u8; 128], rank: c_int) -> Status {
    let mut meeting = MEETING.lock().unwrap();
    if !meeting.iter().any(|(known, _, _)| *known == id) {
        meeting.push((id, shared(ranks as usize), 0));
    }
    let (_, shared, arrived) = meeting.iter_mut().find(|(known, _, _)| *known == id).unwrap();
    *arrived += 1;
    let shared = shared.clone();
    drop(meeting);
    let all = || {
        let meeting = MEETING.lock().unwrap();
        meeting.iter().any(|(known, _, arrived)| *known == id && *arrived == ranks as usize)
    };
    let begun = Instant::now();
    while !all() {
        if begun.elapsed() > Duration::from_secs(10) {
            return REMOTE;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    unsafe { *out = create(shared, rank as usize) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(handle: *mut c_void) -> Status {
    add(Slot::Handles, -1);
    drop(unsafe { Box::from_raw(handle.cast::<Comm>()) });
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(handle: *mut c_void) -> Status {
    comm(handle).shared.aborted.store(true, SeqCst);
    comm(handle).shared.changed.notify_all();
    ncclCommDestroy(handle)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(handle: *mut c_void, error: *mut Status) -> Status {
    let aborted = comm(handle).shared.aborted.load(SeqCst);
    unsafe { *error = if aborted { REMOTE } else { SUCCESS } };
    SUCCESS
}

thread_local! {
    /// Submissions of the current group, if there is one.
    static GROUP: RefCell<Option<Vec<Box<dyn FnOnce()>>>> = const { RefCell::new(None) };
}

/// Submits immediately outside of a group, otherwise at the end of the group.
fn enqueue(submission: impl FnOnce() + 'static) {
    GROUP.with_borrow_mut(|group| match group {
        Some(group) => group.push(Box::new(submission)),
        None => submission(),
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> Status {
    GROUP.with_borrow_mut(|group| match group {
        Some(_) => INVALID_USAGE,
        None => {
            *group = Some(Vec::new());
            SUCCESS
        }
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> Status {
    let Some(group) = GROUP.with_borrow_mut(Option::take) else {
        return INVALID_USAGE;
    };
    for submission in group {
        submission();
    }
    SUCCESS
}

fn values<'a>(address: usize, count: usize) -> &'a [f32] {
    unsafe { std::slice::from_raw_parts(address as *const f32, count) }
}
fn put(address: usize, values: &[f32]) {
    unsafe { std::ptr::copy(values.as_ptr(), address as *mut f32, values.len()) };
}

fn reduced(parts: &[Part], count: usize, op: u32) -> Vec<f32> {
    let n = parts.len() as f32;
    (0..count)
        .map(|i| {
            let mut all = parts.iter().map(|part| values(part.from, count)[i]);
            match op {
                0 => all.sum(),
                1 => all.product(),
                2 => all.fold(f32::NEG_INFINITY, f32::max),
                3 => all.fold(f32::INFINITY, f32::min),
                _ => all.sum::<f32>() / n,
            }
        })
        .collect()
}

fn compute(parts: &[Part]) {
    let Part { count, kind, .. } = parts[0];
    let results: Vec<Vec<f32>> = match kind {
        Kind::AllReduce(op) => vec![reduced(parts, count, op); parts.len()],
        Kind::ReduceScatter(op) => {
            let all = reduced(parts, count * parts.len(), op);
            all.chunks(count).map(<[f32]>::to_vec).collect()
        }
        Kind::AllGather => {
            let all: Vec<f32> = parts.iter().flat_map(|part| values(part.from, count).to_vec()).collect();
            vec![all; parts.len()]
        }
        Kind::Broadcast(root) => vec![values(parts[root].from, count).to_vec(); parts.len()],
    };
    for (part, result) in parts.iter().zip(results) {
        put(part.to, &result);
    }
}

fn collective(handle: *mut c_void, stream: *mut c_void, dtype: u32, part: Part) -> Status {
    let Comm { shared, rank, next } = comm(handle);
    if dtype != F32 {
        return INVALID_ARGUMENT;
    }
    let (shared, rank, number, stream) = (shared.clone(), *rank, next.fetch_add(1, SeqCst), stream as usize);
    enqueue(move || {
        queue::submit(stream as *mut c_void, move || {
            let many = shared.ranks * 4 * part.count;
            let (reads, writes) = match part.kind {
                Kind::AllGather => (4 * part.count, many),
                Kind::ReduceScatter(_) => (many, 4 * part.count),
                _ => (4 * part.count, 4 * part.count),
            };
            if !access(part.from, reads) || !access(part.to, writes) {
                return LAUNCH_FAILURE;
            }
            let mut state = shared.state.lock().unwrap();
            let entry = state.collectives.entry(number).or_insert_with(|| (vec![None; shared.ranks], false, 0));
            entry.0[rank] = Some(part);
            if let Some(parts) = entry.0.iter().copied().collect::<Option<Vec<_>>>() {
                if parts.iter().any(|other| other.kind != part.kind || other.count != part.count) {
                    add(Slot::Violations, 1);
                }
                compute(&parts);
                entry.1 = true;
                shared.changed.notify_all();
            }
            while !state.collectives[&number].1 {
                if shared.aborted.load(SeqCst) {
                    return LAUNCH_FAILURE;
                }
                state = shared.changed.wait_timeout(state, Duration::from_millis(10)).unwrap().0;
            }
            let entry = state.collectives.get_mut(&number).unwrap();
            entry.2 += 1;
            if entry.2 == shared.ranks {
                state.collectives.remove(&number);
            }
            SUCCESS
        });
    });
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    from: usize,
    to: usize,
    count: usize,
    dtype: u32,
    op: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let kind = Kind::AllReduce(op);
    collective(comm, stream, dtype, Part { from, to, count, kind })
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    from: usize,
    to: usize,
    count: usize,
    dtype: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let kind = Kind::AllGather;
    collective(comm, stream, dtype, Part { from, to, count, kind })
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    from: usize,
    to: usize,
    count: usize,
    dtype: u32,
    op: u32,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let kind = Kind::ReduceScatter(op);
    collective(comm, stream, dtype, Part { from, to, count, kind })
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    from: usize,
    to: usize,
    count: usize,
    dtype: u32,
    root: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let kind = Kind::Broadcast(root as usize);
    collective(comm, stream, dtype, Part { from, to, count, kind })
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    from: usize,
    count: usize,
    dtype: u32,
    peer: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let Comm { shared, rank, .. } = comm(handle);
    let (shared, rank, stream) = (shared.clone(), *rank, stream as usize);
    if dtype != F32 {
        return INVALID_ARGUMENT;
    }
    enqueue(move || {
        queue::submit(stream as *mut c_void, move || {
            if !access(from, 4 * count) {
                return LAUNCH_FAILURE;
            }
            let values = values(from, count).to_vec();
            shared.state.lock().unwrap().sent.push((rank, peer as usize, values));
            shared.changed.notify_all();
            SUCCESS
        });
    });
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    to: usize,
    count: usize,
    dtype: u32,
    peer: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> Status {
    let Comm { shared, rank, .. } = comm(handle);
    let (shared, rank, stream) = (shared.clone(), *rank, stream as usize);
    if dtype != F32 {
        return INVALID_ARGUMENT;
    }
    enqueue(move || {
        queue::submit(stream as *mut c_void, move || {
            let mut state = shared.state.lock().unwrap();
            loop {
                let sent = |(from, to, _): &(usize, usize, Vec<f32>)| *from == peer as usize && *to == rank;
                if let Some(at) = state.sent.iter().position(sent) {
                    let (_, _, values) = state.sent.remove(at);
                    if values.len() != count || !access(to, 4 * count) {
                        return LAUNCH_FAILURE;
                    }
                    put(to, &values);
                    return SUCCESS;
                }
                if shared.aborted.load(SeqCst) {
                    return LAUNCH_FAILURE;
                }
                state = shared.changed.wait_timeout(state, Duration::from_millis(10)).unwrap().0;
            }
        });
    });
    SUCCESS
}
