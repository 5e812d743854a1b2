//! Memory of the machine or container.

use std::sync::OnceLock;

/// Returns half of the memory that the machine, its container and `ulimit -v` allow the process, in bytes.
pub(super) fn half_of_memory() -> u64 {
    static HALF: OnceLock<u64> = OnceLock::new();
    /// Assumed memory if the system does not report it.
    const ASSUMED: u64 = 4 << 30;
    *HALF.get_or_init(|| system::limits().into_iter().flatten().min().unwrap_or(ASSUMED) / 2)
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::path::Path;

    /// Returns the memory of the machine, of the container, and the limit of addresses, in bytes.
    pub(super) fn limits() -> [Option<u64>; 3] {
        let read = |path: &str| fs::read_to_string(path).ok();
        [
            read("/proc/meminfo").and_then(|text| total_memory(&text)),
            read("/proc/self/cgroup").and_then(|text| container_limit(&text, Path::new("/sys/fs/cgroup"))),
            read("/proc/self/limits").and_then(|text| address_space(&text)),
        ]
    }

    /// Parses `MemTotal` of `/proc/meminfo`, in bytes.
    fn total_memory(meminfo: &str) -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    /// Parses the soft limit of the address space in `/proc/self/limits`, in bytes.
    fn address_space(limits: &str) -> Option<u64> {
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max address space"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Returns the lowest memory limit of the control groups in `own`, the content of `/proc/self/cgroup`.
    fn container_limit(own: &str, root: &Path) -> Option<u64> {
        let limit = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let groups = own.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
            match controllers {
                "" => Some((root.to_owned(), path, "memory.max")),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    Some((root.join("memory"), path, "memory.limit_in_bytes"))
                }
                _ => None,
            }
        });
        groups
            .flat_map(|(root, path, file)| {
                // In a container the path may be the one on the host. The container's own group is then the root.
                Path::new(path)
                    .ancestors()
                    .filter_map(|group| limit(&root.join(group).join(file)))
                    .collect::<Vec<_>>()
            })
            .min()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_system_and_its_containers_tell_their_memory() {
            assert_eq!(
                total_memory("MemTotal:  32594456 kB\nMemFree: 1 kB\n"),
                Some(32_594_456 << 10)
            );
            assert_eq!(total_memory("MemFree: 1 kB\n"), None);
            let limits = |soft: &str| {
                format!(
                    "Max stack size 8388608 unlimited bytes\nMax address space   {soft} unlimited bytes\n"
                )
            };
            assert_eq!(address_space(&limits("2147483648")), Some(2 << 30));
            assert_eq!(address_space(&limits("unlimited")), None);
            let root = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("a/memory.max", "3000\n");
            write("a/b/memory.max", "max\n");
            write("memory/c/memory.limit_in_bytes", "2000\n");
            let limit = |own: &str| container_limit(own, root.path());
            assert_eq!(limit("0::/a/b\n"), Some(3000));
            assert_eq!(limit("0::/\n"), None);
            assert_eq!(limit("0::/a/b\n4:cpu,memory:/c\n"), Some(2000));
            assert_eq!(limit("4:cpu:/c\n"), None);
            write("memory.max", "9\n");
            assert_eq!(limit("0::/outside/of/it\n"), Some(9));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};

    /// Returns the memory of the machine, in bytes.
    pub(super) fn limits() -> [Option<u64>; 1] {
        let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
        let total = System::new_with_specifics(memory).total_memory();
        [(total > 0).then_some(total)]
    }
}
