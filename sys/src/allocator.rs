//! The allocator of the process.

/// Returns memory that is free in the allocator to the system. Only glibc's allocator keeps much of it; elsewhere this does nothing.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes no pointer, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
