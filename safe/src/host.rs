//! Facts about this process on the host.

/// The largest resident set size of this process so far, in bytes; `None` where the system does not tell.
#[cfg(unix)]
#[must_use]
pub fn peak_rss() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writes of a `rusage`.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a valid `rusage`, whether the call has filled it or not.
    let usage = unsafe { usage.assume_init() };
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    (result == 0).then_some(u64::try_from(usage.ru_maxrss).ok()? * unit)
}

/// The largest resident set size of this process so far, in bytes; `None` where the system does not tell.
#[cfg(not(unix))]
#[must_use]
pub fn peak_rss() -> Option<u64> {
    None
}
