//! The number of connections, by the limit on open files.

use hipvit_serve::ServerLimits;

/// Number of open files reserved for models, logs and sensors.
const RESERVED_FILES: u64 = 256;

/// Raises the limit on open files to its maximum. Returns the limit, if there is one.
#[cfg(unix)]
pub(super) fn open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    limit.current
}

/// Returns `None`, because the system has no limit on open files.
#[cfg(not(unix))]
pub(super) fn open_files() -> Option<u64> {
    None
}

/// Returns the maximum number of connections: `given`, or the default reduced to fit the limit on open files.
pub(super) fn connections(given: Option<usize>, files: Option<u64>) -> usize {
    let default = ServerLimits::default().connections;
    // If the limit is low, connections get half of the files.
    let most = files.map_or(u64::MAX, |files| {
        files.saturating_sub(RESERVED_FILES).max(files / 2)
    });
    let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
    match given {
        Some(given) if given > most => {
            tracing::warn!(
                max_connections = given,
                open_files = files,
                "the limit on open files is too low for this number of connections: raise it (ulimit -n)"
            );
            given
        }
        Some(given) => given,
        None => default.min(most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_models() {
        assert_eq!(connections(None, None), 1024);
        assert_eq!(connections(None, Some(1 << 20)), 1024);
        assert_eq!(connections(None, Some(1024)), 768);
        assert_eq!(connections(None, Some(64)), 32);
        assert_eq!(connections(None, Some(0)), 1);
        assert_eq!(connections(Some(5000), Some(1024)), 5000);
    }
}
