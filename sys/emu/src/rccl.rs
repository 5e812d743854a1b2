//! RCCL: collectives, sends and receives between emulated GPUs, of one process or several.
//!
//! Modules:
//! - `call`: the data that a call moves and computes;
//! - `reduce`: the reduction of elements;
//! - `communicator`: the work of a rank's stream;
//! - `mailbox`: the data that ranks give each other;
//! - `bootstrap`: brings the ranks of a unique id together;
//! - `connection`: links two ranks of different processes.

mod bootstrap;
mod call;
mod communicator;
mod connection;
mod error;
mod mailbox;
mod reduce;

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use std::{mem, ptr, slice, thread};

use hip_provider::export::{c_name, caught};
use hip_provider::{Handles, export, not_offered};
use hipvit_sys::hip::{hipError_t, hipStream_t};
use hipvit_sys::rccl::{
    self, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};

use self::call::{Call, Kind, Operation};
use self::communicator::Communicator;
use self::error::Error;
use self::reduce::Format;
use crate::hip::machine::{self, Device, machine};
use crate::hip::{current, device_of, on_loss, submit_joint};

/// The version of RCCL whose interface is implemented.
const VERSION: i32 = 22_707;

static COMMUNICATORS: Handles<Communicator> = Handles::new();

/// The text of the process's last error.
static LAST: Mutex<&'static str> = Mutex::new("");

fn run(body: impl FnOnce() -> Result<(), Error>) -> ncclResult_t {
    caught(ncclResult_t::ncclSuccess, ncclResult_t::ncclInternalError, || {
        body().map_err(|error| {
            if let Some(text) = error.text {
                *LAST.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
            error.result
        })
    })
}

/// # Safety
/// `to` is null or may be written.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Error> {
    // SAFETY: the caller says that `to` is null or may be written.
    let written = unsafe { hip_provider::export::put(to, value) };
    written.ok_or_else(|| Error::argument("a result's address is null"))
}

fn find(comm: ncclComm_t) -> Result<Arc<Communicator>, Error> {
    let found = COMMUNICATORS.get(comm);
    found.map_err(|_| Error::argument("the communicator does not exist or was destroyed"))
}

fn remove(comm: ncclComm_t) -> Result<Arc<Communicator>, Error> {
    let found = COMMUNICATORS.remove(comm);
    found.map_err(|_| Error::argument("the communicator does not exist or was destroyed"))
}

/// Returns a handle for a communicator, and reports lost devices to it from now on.
fn handle(communicator: Communicator) -> ncclComm_t {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| on_loss(lose));
    COMMUNICATORS.insert(Arc::new(communicator))
}

/// A device was lost: all ranks of its communicators fail.
fn lose(device: u32) {
    for communicator in COMMUNICATORS.all() {
        if communicator.device.ordinal == device {
            communicator.lose();
        }
    }
}

fn timeout() -> Result<Duration, Error> {
    Ok(machine()?.settings.rccl_timeout)
}

/// A rank that is to be made.
struct Init {
    /// Address for the handle.
    to: usize,
    device: &'static Device,
    id: ncclUniqueId,
    rank: usize,
    ranks: usize,
}

impl Init {
    /// Waits for the other ranks.
    fn run(&self) -> Result<Communicator, Error> {
        bootstrap::join(self.device, &self.id, self.rank, self.ranks, timeout()?)
    }

    /// # Safety
    /// The handle's place may be written.
    unsafe fn finish(&self, made: Result<Communicator, Error>) -> Result<(), Error> {
        let to: *mut ncclComm_t = ptr::with_exposed_provenance_mut(self.to);
        // SAFETY: as the caller says.
        unsafe { put(to, handle(made?)) }
    }
}

/// Makes a rank of a communicator; in a group, at the group's end.
///
/// # Safety
/// `to` is null or may be written, in a group until its end.
unsafe fn create(to: *mut ncclComm_t, ranks: i32, id: ncclUniqueId, rank: i32) -> Result<(), Error> {
    let wrong = || Error::argument(format!("there is no rank {rank} of {ranks}"));
    let (number, count) = (usize::try_from(rank), usize::try_from(ranks));
    let (Ok(rank), Ok(ranks)) = (number, count) else {
        return Err(wrong());
    };
    if rank >= ranks {
        return Err(wrong());
    }
    let init = Init {
        to: to.expose_provenance(),
        device: current()?,
        id,
        rank,
        ranks,
    };
    // SAFETY: as the caller says.
    unsafe { put(to, ptr::null_mut()) }?;
    GROUP.with_borrow_mut(|group| match group.depth {
        0 => {
            let made = init.run();
            // SAFETY: as the caller says.
            unsafe { init.finish(made) }
        }
        _ => {
            group.inits.push(init);
            Ok(())
        }
    })
}

/// Makes a group's ranks, which wait for each other, at once.
///
/// # Safety
/// The addresses of the handles may be written.
unsafe fn create_all(inits: &[Init]) -> Result<(), Error> {
    let made: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = inits.iter().map(|init| scope.spawn(|| init.run())).collect();
        let panicked = |_| Err(ncclResult_t::ncclInternalError.into());
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    });
    // SAFETY: as the caller says.
    let finish = |(init, made): (&Init, _)| unsafe { init.finish(made) };
    inits.iter().zip(made).map(finish).fold(Ok(()), Result::and)
}

thread_local! {
    static GROUP: RefCell<Group> = const { RefCell::new(Group { depth: 0, inits: Vec::new(), calls: Vec::new(), failed: false }) };
}

/// The calls since `ncclGroupStart`.
struct Group {
    depth: usize,
    inits: Vec<Init>,
    calls: Vec<Submission>,
    /// True if one of the calls was an error.
    failed: bool,
}

/// The calls of one communicator on one stream.
struct Submission {
    communicator: Arc<Communicator>,
    /// The stream's handle, as a number.
    stream: usize,
    operations: Vec<Operation>,
}

impl Submission {
    fn submit(self) -> Result<(), Error> {
        let machine = machine()?;
        let hangs = machine.collectives.fires(machine.settings.faults.collective);
        let names: Vec<_> = self
            .operations
            .iter()
            .map(|operation| operation.call.to_string())
            .collect();
        let stream = ptr::with_exposed_provenance_mut(self.stream);
        let start = move || self.communicator.start(&self.operations, hangs);
        Ok(submit_joint(stream, &names.join(", "), start)?)
    }
}

/// Buffers of a call, each of `count` elements for a rank.
#[derive(Clone, Copy)]
struct Buffers {
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
}

/// Submits a call, or puts it into the thread's group.
fn call(
    kind: Kind,
    buffers: Buffers,
    op: Option<ncclRedOp_t>,
    rank: Option<i32>,
    comm: ncclComm_t,
    stream: hipStream_t,
) -> Result<(), Error> {
    let checked = check(kind, buffers, op, rank, comm, stream);
    GROUP.with_borrow_mut(|group| {
        if checked.is_err() {
            group.failed = true;
        }
        let submission = checked?;
        if group.depth == 0 {
            return submission.submit();
        }
        let same = group.calls.iter_mut().find(|other| {
            Arc::ptr_eq(&other.communicator, &submission.communicator) && other.stream == submission.stream
        });
        match same {
            Some(other) => other.operations.extend(submission.operations),
            None => group.calls.push(submission),
        }
        Ok(())
    })
}

fn check(
    kind: Kind,
    buffers: Buffers,
    op: Option<ncclRedOp_t>,
    rank: Option<i32>,
    comm: ncclComm_t,
    stream: hipStream_t,
) -> Result<Submission, Error> {
    let Buffers {
        from,
        to,
        count,
        datatype,
    } = buffers;
    let function = kind.function();
    let wrong = |text: String| Error::argument(format!("{function}: {text}"));
    let communicator = find(comm)?;
    if let Some(failed) = communicator.mailbox().failed() {
        return Err(Error {
            result: failed.result,
            text: Some(failed.text),
        });
    }
    let format = Format::of(datatype, communicator.device.part.arch);
    let format = format.ok_or_else(|| wrong(format!("there is no type {}", datatype.0)))?;
    if let Some(op) = op.filter(|op| op.0 >= ncclRedOp_t::ncclNumOps.0) {
        return Err(wrong(format!("there is no operation {}", op.0)));
    }
    let ranks = communicator.ranks();
    let other = match rank {
        None => None,
        Some(rank) => match usize::try_from(rank) {
            Ok(rank) if rank < ranks => Some(rank),
            _ => return Err(wrong(format!("there is no rank {rank} of {ranks}"))),
        },
    };
    if count.checked_mul(format.size() * ranks).is_none() {
        return Err(wrong(format!("{count} elements")));
    }
    let is_transfer = matches!(kind, Kind::Send | Kind::Receive);
    let is_root = other == Some(communicator.rank);
    let reads = match kind {
        Kind::Receive => false,
        Kind::Broadcast | Kind::Scatter => is_root,
        _ => true,
    };
    let writes = match kind {
        Kind::Send => false,
        Kind::Reduce | Kind::Gather => is_root,
        _ => true,
    };
    if count > 0 && ((reads && from.is_null()) || (writes && to.is_null())) {
        return Err(wrong("a buffer's address is null".into()));
    }
    let of = device_of(stream)?;
    if of != communicator.device.ordinal {
        return Err(wrong(format!(
            "the stream belongs to device {of}, rank {} to device {}",
            communicator.rank, communicator.device.ordinal
        )));
    }
    Ok(Submission {
        operations: vec![Operation {
            call: Call {
                kind,
                count: count as u64,
                datatype: datatype.0,
                op: op.map(|op| op.0),
                root: other.filter(|_| !is_transfer),
            },
            format,
            from: from.expose_provenance() as u64,
            to: to.expose_provenance() as u64,
            peer: other.filter(|_| is_transfer),
        }],
        communicator,
        stream: stream.expose_provenance(),
    })
}

hip_provider::shared_rccl!();

/// Returns the reason for which the communicator failed. Without a communicator, or if it did not fail, returns the process's
/// last error.
#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(comm: ncclComm_t) -> *const c_char {
    let failed = COMMUNICATORS
        .get(comm)
        .ok()
        .and_then(|comm| comm.mailbox().failed());
    c_name(match failed {
        Some(failed) => failed.text,
        None => *LAST.lock().unwrap_or_else(PoisonError::into_inner),
    })
}
const _: rccl::prototypes::ncclGetLastError = ncclGetLastError;

export! { rccl, ncclResult_t, run;
    fn ncclGetVersion(version: *mut i32) {
        put(version, VERSION)
    }

    fn ncclGetUniqueId(id: *mut ncclUniqueId) {
        put(id, bootstrap::unique_id(timeout()?)?)
    }

    fn ncclCommInitRank(comm: *mut ncclComm_t, ranks: i32, id: ncclUniqueId, rank: i32) {
        create(comm, ranks, id, rank)
    }

    /// The configuration is not used: every communicator blocks.
    fn ncclCommInitRankConfig(
        comm: *mut ncclComm_t, ranks: i32, id: ncclUniqueId, rank: i32, _config: *mut ncclConfig_t,
    ) {
        create(comm, ranks, id, rank)
    }

    /// Without a list, the first devices.
    fn ncclCommInitAll(comms: *mut ncclComm_t, count: i32, devices: *const i32) {
        let Some(count) = usize::try_from(count).ok().filter(|&count| count > 0) else {
            return Err(Error::argument(format!("ncclCommInitAll: {count} ranks")));
        };
        if comms.is_null() {
            return Err(Error::argument("a result's address is null"));
        }
        let ordinals: Vec<i32> = if devices.is_null() { (0..count as i32).collect() } else { slice::from_raw_parts(devices, count).to_vec() };
        let found = ordinals.iter().map(|&ordinal| {
            let device = machine::device(ordinal)?;
            device.alive()?;
            Ok(device)
        });
        let devices: Vec<&'static Device> = found.collect::<Result<_, hipError_t>>()?;
        if let Some(twice) = (1..count).find(|&index| ordinals[..index].contains(&ordinals[index])) {
            return Err(Error::new(
                ncclResult_t::ncclInvalidUsage,
                format!("ncclCommInitAll: device {} has two ranks", ordinals[twice]),
            ));
        }
        for (rank, communicator) in Communicator::all(&devices, timeout()?).into_iter().enumerate() {
            put(comms.add(rank), handle(communicator))?;
        }
        Ok(())
    }

    fn ncclCommFinalize(comm: ncclComm_t) {
        find(comm).map(drop)
    }

    /// Work under way goes on.
    fn ncclCommDestroy(comm: ncclComm_t) {
        remove(comm).map(drop)
    }

    fn ncclCommAbort(comm: ncclComm_t) {
        remove(comm)?.abort();
        Ok(())
    }

    fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t) {
        let failed = find(comm)?.mailbox().failed();
        put(error, failed.map_or(ncclResult_t::ncclSuccess, |failed| failed.result))
    }

    fn ncclCommCount(comm: ncclComm_t, count: *mut i32) {
        put(count, find(comm)?.ranks() as i32)
    }

    fn ncclCommCuDevice(comm: ncclComm_t, device: *mut i32) {
        put(device, find(comm)?.device.ordinal as i32)
    }

    fn ncclCommUserRank(comm: ncclComm_t, rank: *mut i32) {
        put(rank, find(comm)?.rank as i32)
    }

    fn ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, root: i32,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        call(Kind::Reduce, Buffers { from, to, count, datatype }, Some(op), Some(root), comm, stream)
    }

    fn ncclBcast(
        memory: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t, stream: hipStream_t,
    ) {
        call(Kind::Broadcast, Buffers { from: memory, to: memory, count, datatype }, None, Some(root), comm, stream)
    }

    fn ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        call(Kind::Broadcast, Buffers { from, to, count, datatype }, None, Some(root), comm, stream)
    }

    fn ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        call(Kind::AllReduce, Buffers { from, to, count, datatype }, Some(op), None, comm, stream)
    }

    fn ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t,
        comm: ncclComm_t, stream: hipStream_t,
    ) {
        call(Kind::ReduceScatter, Buffers { from, to, count, datatype }, Some(op), None, comm, stream)
    }

    fn ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        call(Kind::AllGather, Buffers { from, to, count, datatype }, None, None, comm, stream)
    }

    fn ncclGather(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        call(Kind::Gather, Buffers { from, to, count, datatype }, None, Some(root), comm, stream)
    }

    fn ncclScatter(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, root: i32, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        call(Kind::Scatter, Buffers { from, to, count, datatype }, None, Some(root), comm, stream)
    }

    fn ncclAllToAll(
        from: *const c_void, to: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t,
        stream: hipStream_t,
    ) {
        call(Kind::AllToAll, Buffers { from, to, count, datatype }, None, None, comm, stream)
    }

    fn ncclSend(
        from: *const c_void, count: usize, datatype: ncclDataType_t, peer: i32, comm: ncclComm_t, stream: hipStream_t,
    ) {
        call(Kind::Send, Buffers { from, to: ptr::null_mut(), count, datatype }, None, Some(peer), comm, stream)
    }

    fn ncclRecv(
        to: *mut c_void, count: usize, datatype: ncclDataType_t, peer: i32, comm: ncclComm_t, stream: hipStream_t,
    ) {
        call(Kind::Receive, Buffers { from: ptr::null(), to, count, datatype }, None, Some(peer), comm, stream)
    }

    fn ncclGroupStart() {
        GROUP.with_borrow_mut(|group| {
            if group.depth == 0 {
                group.failed = false;
            }
            group.depth += 1;
        });
        Ok(())
    }

    /// Nothing is submitted if one of the calls was an error.
    fn ncclGroupEnd() {
        let (inits, calls) = GROUP.with_borrow_mut(|group| match group.depth {
            0 => Err(Error::new(
                ncclResult_t::ncclInvalidUsage,
                "ncclGroupEnd without ncclGroupStart",
            )),
            1 => {
                group.depth = 0;
                let (inits, calls) = (mem::take(&mut group.inits), mem::take(&mut group.calls));
                Ok(if group.failed { (Vec::new(), Vec::new()) } else { (inits, calls) })
            }
            _ => {
                group.depth -= 1;
                Ok((Vec::new(), Vec::new()))
            }
        })?;
        create_all(&inits)?;
        calls.into_iter().try_for_each(Submission::submit)
    }
}

not_offered! { rccl, ncclResult_t, ncclResult_t::ncclInvalidUsage;
    ncclCommSplit
    ncclCommRegister
    ncclCommDeregister
    ncclMemAlloc
    ncclMemFree
    ncclRedOpCreatePreMulSum
    ncclRedOpDestroy
}
