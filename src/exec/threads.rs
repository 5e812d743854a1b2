//! Threads for work on the host.

use std::io;
use std::sync::Arc;
use std::thread;

use rayon::ThreadPool;

use super::cpu::{cores, thread_pool};
use crate::error::{Error, Result};
use crate::hip::Device;

/// Threads for work on the host. Cheap to clone: clones share the threads.
#[derive(Clone, Debug)]
pub struct HostThreads {
    pool: Arc<ThreadPool>,
    decode: usize,
}

impl HostThreads {
    /// Wraps a pool whose threads compute; as many decode.
    pub(super) fn computing(pool: Arc<ThreadPool>) -> Self {
        let decode = pool.current_num_threads();
        Self { pool, decode }
    }

    /// Starts `threads` threads on the NUMA node of `device`, by default one per physical core of the node.
    ///
    /// Decoding is bound by memory latency and branches rather than by vector units, so that two threads share a core well. By default, one
    /// thread per logical core of the host decodes.
    ///
    /// # Errors
    ///
    /// [`Error::Resource`] if the threads cannot be started.
    pub(super) fn near(device: &Device, threads: Option<usize>) -> Result<Self> {
        Self::on_node(device, threads, threads)
    }

    /// Starts `threads` threads on the NUMA node of `device`, where `requested` threads decode.
    pub(super) fn on_node(device: &Device, threads: Option<usize>, requested: Option<usize>) -> Result<Self> {
        let node = device.numa_node().cloned();
        // A failed binding only costs speed.
        let bind = move || {
            if let Some(node) = &node {
                let _ = node.bind_thread();
            }
        };
        let threads = match threads {
            Some(threads) => Some(threads),
            None => {
                let count = || {
                    bind();
                    cores()
                };
                // Binds a temporary thread instead of the caller's.
                let counted = thread::scope(|scope| {
                    let thread = thread::Builder::new().spawn_scoped(scope, count)?;
                    Ok(thread.join().ok())
                });
                counted.map_err(|error: io::Error| Error::resource("threads", error))?
            }
        };
        Ok(Self {
            // The threads do not hold the device, since they may outlive the pool.
            pool: Arc::new(thread_pool(threads, bind)?),
            decode: requested.unwrap_or_else(num_cpus::get),
        })
    }

    /// Returns the number of threads.
    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Returns the number of threads for decoding.
    pub fn decode_count(&self) -> usize {
        self.decode
    }

    /// Runs `work` on the threads.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    pub(super) fn pool(&self) -> &ThreadPool {
        &self.pool
    }

    /// Returns true if both have the same threads.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool)
    }
}
