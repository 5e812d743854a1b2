//! Runs long work off the threads that serve connections.

/// Bytes above which a body is parsed on a separate thread, so that other requests do not wait.
const LONG_BODY_BYTES: usize = 256 << 10;

/// Runs work that may take long without blocking other connections.
pub(super) fn at_length<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > LONG_BODY_BYTES {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
