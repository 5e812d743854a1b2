//! Returns memory to the system after a burst of requests, because glibc's allocator keeps freed memory.

use std::sync::Weak;
use std::time::Duration;

use super::service::Service;
use hipvit::hip::allocator;

/// Interval between checks of the memory in use.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum bytes freed since the peak.
const MIN_FREED: u64 = 32 << 20;
/// Divisor of the peak: memory is trimmed if at most this part is still in use.
const MAX_PART_IN_USE: u64 = 4;

/// Watches the memory in use until the service is dropped.
pub(super) async fn watch(service: Weak<Service>) {
    let mut peak = Peak::default();
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(in_use) = service.upgrade().map(|service| service.memory_in_use()) else {
            return;
        };
        if peak.is_over(in_use) {
            // Trimming may take milliseconds.
            let _ = tokio::task::spawn_blocking(allocator::trim).await;
        }
    }
}

/// Peak of the memory in use since the last trim.
#[derive(Debug, Default)]
struct Peak(u64);

impl Peak {
    /// Returns true if most of the peak is free again. A steady load never is, so that its memory is not
    /// trimmed repeatedly.
    fn is_over(&mut self, in_use: u64) -> bool {
        self.0 = self.0.max(in_use);
        let is_over = self.0 - in_use >= MIN_FREED && in_use <= self.0 / MAX_PART_IN_USE;
        if is_over {
            self.0 = in_use;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_over_once_most_of_it_is_free() {
        let mut peak = Peak::default();
        let mib = |n: u64| n << 20;
        for (in_use, expected) in [
            (0, false),
            (20, false),
            (0, false),
            (200, false),
            (60, false),
            (50, true),
            (50, false),
            (400, false),
            (0, true),
            (0, false),
        ] {
            assert_eq!(peak.is_over(mib(in_use)), expected, "{in_use}");
        }
    }
}
