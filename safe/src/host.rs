//! Facts about this process on the host.

/// Returns the maximum resident set size of this process so far, in bytes. `None` if the system does not report it.
#[cfg(unix)]
#[must_use]
pub fn peak_rss() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writes of a `rusage`.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all zeros is a valid `rusage`, even if the call failed.
    let usage = unsafe { usage.assume_init() };
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    (result == 0).then_some(u64::try_from(usage.ru_maxrss).ok()? * unit)
}

/// Returns the maximum resident set size of this process so far, in bytes. `None` if the system does not report it.
#[cfg(not(unix))]
#[must_use]
pub fn peak_rss() -> Option<u64> {
    None
}
