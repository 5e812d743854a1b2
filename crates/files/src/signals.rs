//! Finds the signals that the process ignores since its start.

use std::fs;
use std::os::raw::c_int;

/// Returns true if the process ignores `signal`, as under `nohup` or a shell without job control. Returns false without
/// `/proc`.
pub fn is_ignored(signal: c_int) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_mask(&status) & (1 << (signal - 1)) != 0
}

/// Parses the bit mask of ignored signals, in which bit n - 1 is signal n.
fn ignored_mask(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let mask = ignored_mask("SigBlk:\t0\nSigIgn:\t0000000000001001\n");
        assert_eq!((mask & 1, mask >> 12 & 1, mask >> 1 & 1), (1, 1, 0));
        assert_eq!(ignored_mask(""), 0);
    }
}
