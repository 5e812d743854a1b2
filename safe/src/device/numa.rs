//! The NUMA node of a GPU. Pinned memory is placed there, and threads can be bound to it.

use std::ffi::c_ulong;
use std::fs;
use std::marker::PhantomData;
use std::path::Path;

use super::properties::PciAddress;
use crate::error::Result;

/// NUMA node of a GPU, on a host with several: [`Device::numa_node`](crate::Device::numa_node).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    number: u32,
    cpus: Vec<usize>,
}

/// A set of nodes in the kernel's format: one bit per node, for as many nodes as any kernel supports.
type Nodes = [c_ulong; 1024 / c_ulong::BITS as usize];

impl NumaNode {
    /// Finds the node of the device at this PCI address, in the directory `sysfs` (`/sys`). `None` if there is one node or it is not
    /// reported.
    pub(crate) fn of(sysfs: &Path, pci: PciAddress) -> Option<Self> {
        let read = |path: String| fs::read_to_string(sysfs.join(path)).ok();
        let number = read(format!("bus/pci/devices/{pci}/numa_node"))?;
        // -1 if the system does not know it.
        let number: u32 = number.trim().parse().ok()?;
        let nodes = list(&read("devices/system/node/online".into())?)?;
        if nodes.len() < 2 {
            return None;
        }
        let cpus = list(&read(format!("devices/system/node/node{number}/cpulist"))?)?;
        (!cpus.is_empty()).then_some(Self { number, cpus })
    }

    /// Binds the calling thread to this node, for threads that outlive the device. See
    /// [`Device::bind_thread`](crate::Device::bind_thread).
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) if the system refuses.
    pub fn bind_thread(&self) -> Result<Option<u32>> {
        system::bind_thread(&self.cpus, &self.nodes()).map(|bound| bound.then_some(self.number))
    }

    /// Prefers this node for the calling thread's memory, until the guard is dropped. No effect if the system does not allow it.
    pub(crate) fn prefer(&self) -> Preference {
        Preference {
            before: system::prefer(&self.nodes()),
            thread: PhantomData,
        }
    }

    fn nodes(&self) -> Nodes {
        let mut nodes = Nodes::default();
        let bits = c_ulong::BITS as usize;
        if let Some(word) = nodes.get_mut(self.number as usize / bits) {
            *word = 1 << (self.number as usize % bits);
        }
        nodes
    }
}

/// A thread's preference for a node's memory. Drop it on the same thread.
pub(crate) struct Preference {
    before: Option<(i32, Nodes)>,
    thread: PhantomData<*const ()>,
}

impl Drop for Preference {
    fn drop(&mut self) {
        if let Some((mode, nodes)) = &self.before {
            system::set_policy(*mode, nodes);
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    //! Linux' calls.

    use std::{io, ptr};

    use super::{Nodes, c_ulong};
    use crate::error::{Error, Result};

    /// Binds the calling thread to those of the processors that it may use. Returns false if it may use none of them.
    pub(super) fn bind_thread(cpus: &[usize], nodes: &Nodes) -> Result<bool> {
        let failed = |call| Error::System {
            call,
            source: io::Error::last_os_error(),
        };
        // SAFETY: a set is an array of integers.
        let (mut allowed, mut wanted): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: the call writes a set of this size, for the calling thread.
        if unsafe { libc::sched_getaffinity(0, size, &mut allowed) } != 0 {
            return Err(failed("sched_getaffinity"));
        }
        let fits = |cpu: &&usize| **cpu < 8 * size;
        for &cpu in cpus.iter().filter(fits) {
            // SAFETY: the sets have a bit for this CPU.
            unsafe {
                if libc::CPU_ISSET(cpu, &allowed) {
                    libc::CPU_SET(cpu, &mut wanted);
                }
            }
        }
        // SAFETY: the call reads the set.
        if unsafe { libc::CPU_COUNT(&wanted) } == 0 {
            return Ok(false);
        }
        // SAFETY: the call reads a set of this size, for the calling thread.
        if unsafe { libc::sched_setaffinity(0, size, &wanted) } != 0 {
            return Err(failed("sched_setaffinity"));
        }
        // Containers often forbid it. Memory then comes from the node that the thread runs on, which is the same.
        set_policy(libc::MPOL_PREFERRED, nodes);
        Ok(true)
    }

    /// Prefers these nodes for the calling thread's memory. Returns the policy before, if it could be changed.
    pub(super) fn prefer(nodes: &Nodes) -> Option<(i32, Nodes)> {
        let (mut mode, mut before) = (0, Nodes::default());
        // SAFETY: the call writes the thread's policy, and as many bits as its arguments say.
        let told = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &mut mode,
                before.as_mut_ptr(),
                Nodes::default().len() * c_ulong::BITS as usize,
                ptr::null::<u8>(),
                0,
            )
        };
        (told == 0 && set_policy(libc::MPOL_PREFERRED, nodes)).then_some((mode, before))
    }

    /// Sets the calling thread's policy. Returns true on success.
    pub(super) fn set_policy(mode: i32, nodes: &Nodes) -> bool {
        let none = nodes.iter().all(|&word| word == 0);
        let (mask, bits) = if none {
            (ptr::null(), 0)
        } else {
            // The kernel uses one bit less than this number.
            (nodes.as_ptr(), nodes.len() * c_ulong::BITS as usize + 1)
        };
        // SAFETY: the call reads as many bits as its arguments say. It only affects later allocations of the calling thread.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! Other systems, which have no `/sys`, so that no node is found.

    use super::Nodes;
    use crate::error::Result;

    pub(super) fn bind_thread(_: &[usize], _: &Nodes) -> Result<bool> {
        Ok(false)
    }

    pub(super) fn prefer(_: &Nodes) -> Option<(i32, Nodes)> {
        None
    }

    pub(super) fn set_policy(_: i32, _: &Nodes) -> bool {
        false
    }
}

/// Parses the numbers of a list such as `0-3,8,10-11`.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No host has more. Limits the memory for a damaged file.
        if last >= 1 << 20 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::thread;

    use super::*;

    const PCI: PciAddress = PciAddress {
        domain: 0,
        bus: 0xc1,
        device: 0,
    };

    fn sysfs(numa_node: &str, online: &str, cpus: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join(format!("bus/pci/devices/{PCI}"));
        let node = root.path().join("devices/system/node/node1");
        fs::create_dir_all(&device).unwrap();
        fs::create_dir_all(&node).unwrap();
        fs::write(device.join("numa_node"), numa_node).unwrap();
        fs::write(root.path().join("devices/system/node/online"), online).unwrap();
        fs::write(node.join("cpulist"), cpus).unwrap();
        root
    }

    #[cfg(target_os = "linux")]
    fn affinity() -> Vec<usize> {
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: a set is an array of integers, and the call writes all of them.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size, &mut set), 0);
            (0..8 * size).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
        }
    }

    #[test]
    fn lists_are_ranges_and_numbers() {
        assert_eq!(list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list("\n"), Some(vec![]));
        for damaged in ["x", "1-", "-1", "0-99999999999"] {
            assert_eq!(list(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn the_node_is_that_of_the_pci_device() {
        let root = sysfs("1\n", "0-1\n", "4-7\n");
        let node = NumaNode::of(root.path(), PCI).unwrap();
        assert_eq!((node.number, node.cpus), (1, vec![4, 5, 6, 7]));
    }

    #[test]
    fn one_node_or_none_has_no_effect() {
        for (node, online, cpus) in [
            ("-1\n", "0-1\n", "0\n"),
            ("1\n", "1\n", "0\n"),
            ("1\n", "0-1\n", "\n"),
            ("7\n", "0-1\n", "0\n"),
        ] {
            let root = sysfs(node, online, cpus);
            assert_eq!(
                NumaNode::of(root.path(), PCI),
                None,
                "{node:?} {online:?} {cpus:?}"
            );
        }
        assert_eq!(NumaNode::of(Path::new("/nowhere"), PCI), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_is_bound_to_the_cpus_that_it_may_use() {
        let before = affinity();
        let (last, beyond) = (before[before.len() - 1], before[before.len() - 1] + 1);
        let root = sysfs("1", "0-1", &format!("{last}-{beyond}"));
        let node = NumaNode::of(root.path(), PCI).unwrap();
        thread::spawn(move || {
            // This host does not have the node, and pinning continues without it.
            drop(node.prefer());
            assert_eq!(node.bind_thread().unwrap(), Some(1));
            assert_eq!(affinity(), [last]);
            let elsewhere = NumaNode {
                cpus: vec![beyond, 1 << 19],
                ..node
            };
            assert_eq!(elsewhere.bind_thread().unwrap(), None);
            assert_eq!(affinity(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(affinity(), before);
    }
}
