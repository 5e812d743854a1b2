//! Bookkeeping of the pool: which blocks are in use, and which streams may use the unused ones. Independent of a device.

use std::collections::HashMap;

use serde::Serialize;

use crate::address::DeviceAddress;

/// Statistics of a pool, in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PoolStats {
    /// Allocated from the driver.
    pub held: usize,
    /// In use, as blocks. Sizes are rounded up to size classes.
    pub live: usize,
    /// In use, as requested.
    pub requested: usize,
    /// Maximum of the bytes in use so far.
    pub high_water: usize,
    /// Largest unused block.
    pub largest_unused: usize,
    /// Number of blocks in use.
    pub blocks: usize,
    /// Number of requests to the driver for memory.
    pub driver_allocations: u64,
    /// Number of requests that an unused block served.
    pub reuses: u64,
}

impl PoolStats {
    /// Returns the allocated bytes that are not in use.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.held - self.live
    }

    /// Returns the fragmentation of the unused bytes: the share outside the largest unused block. It is 0 if one block has all of them, and
    /// near 1 for many small blocks.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        match self.unused() {
            0 => 0.0,
            unused => 1.0 - self.largest_unused as f64 / unused as f64,
        }
    }

    /// Returns the share of the bytes in use that exceeds the requested sizes.
    #[must_use]
    pub fn rounding(&self) -> f64 {
        match self.live {
            0 => 0.0,
            live => 1.0 - self.requested as f64 / live as f64,
        }
    }
}

/// Minimum bytes of a block. Larger than the alignment that any kernel requires.
const SMALLEST: usize = 512;

/// Returns the size class for `bytes`, in steps of an eighth of a power of two. Except for the smallest sizes, at most an eighth is wasted.
/// `None` if there is no such class.
pub(crate) fn class(bytes: usize) -> Option<usize> {
    if bytes <= 8 * SMALLEST {
        return Some(bytes.max(1).next_multiple_of(SMALLEST));
    }
    let step = (bytes.checked_next_power_of_two()? / 16).max(SMALLEST);
    bytes
        .checked_next_multiple_of(step)
        .filter(|&b| isize::try_from(b).is_ok())
}

/// Owner of an unused block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// A stream, whose submitted work may still access the block.
    Stream(u64),
    Anyone,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    unused: HashMap<(Owner, usize), Vec<DeviceAddress>>,
    /// Size class and requested bytes by address.
    live: HashMap<DeviceAddress, (usize, usize)>,
    stats: PoolStats,
}

impl Cache {
    pub(crate) fn stats(&self) -> PoolStats {
        let classes = self.unused.iter().filter(|(_, blocks)| !blocks.is_empty());
        PoolStats {
            largest_unused: classes.map(|((_, class), _)| *class).max().unwrap_or(0),
            blocks: self.live.len(),
            ..self.stats
        }
    }

    /// Takes an unused block that `stream` may use immediately.
    pub(crate) fn take(&mut self, stream: u64, bytes: usize) -> Option<DeviceAddress> {
        let class = class(bytes)?;
        let mut pop = |owner| self.unused.get_mut(&(owner, class)).and_then(Vec::pop);
        let address = pop(Owner::Stream(stream)).or_else(|| pop(Owner::Anyone))?;
        self.stats.reuses += 1;
        self.enter(address, class, bytes);
        Some(address)
    }

    /// Adds a block that the driver allocated for the size class of `bytes`. It is in use.
    pub(crate) fn adopt(&mut self, address: DeviceAddress, bytes: usize) {
        let Some(class) = class(bytes) else { return };
        self.stats.driver_allocations += 1;
        self.stats.held += class;
        self.enter(address, class, bytes);
    }

    fn enter(&mut self, address: DeviceAddress, class: usize, bytes: usize) {
        self.live.insert(address, (class, bytes));
        self.stats.live += class;
        self.stats.requested += bytes;
        self.stats.high_water = self.stats.high_water.max(self.stats.live);
    }

    fn leave(&mut self, address: DeviceAddress) -> Option<usize> {
        let (class, bytes) = self.live.remove(&address)?;
        self.stats.live -= class;
        self.stats.requested -= bytes;
        Some(class)
    }

    /// Returns a block that is no longer in use. Work of `stream` may still access it.
    pub(crate) fn give(&mut self, address: DeviceAddress, stream: u64) {
        if let Some(class) = self.leave(address) {
            self.unused
                .entry((Owner::Stream(stream), class))
                .or_default()
                .push(address);
        }
    }

    /// Removes a block that is no longer in use and must not be reused.
    pub(crate) fn forget(&mut self, address: DeviceAddress) {
        if let Some(class) = self.leave(address) {
            self.stats.held -= class;
        }
    }

    /// Releases the unused blocks of the stream for all streams.
    pub(crate) fn retire(&mut self, stream: u64) {
        let mine: Vec<_> = self
            .unused
            .keys()
            .filter(|(owner, _)| *owner == Owner::Stream(stream))
            .copied()
            .collect();
        for key in mine {
            if let Some(blocks) = self.unused.remove(&key) {
                self.unused
                    .entry((Owner::Anyone, key.1))
                    .or_default()
                    .extend(blocks);
            }
        }
    }

    /// Removes all unused blocks. Returns their addresses and their total bytes.
    pub(crate) fn drain(&mut self) -> (Vec<DeviceAddress>, usize) {
        let mut addresses = Vec::new();
        let mut bytes = 0;
        for ((_, class), blocks) in self.unused.drain() {
            bytes += class * blocks.len();
            addresses.extend(blocks);
        }
        self.stats.held -= bytes;
        (addresses, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Allocate { stream: u64, bytes: usize },
        Free { which: usize },
        Retire { stream: u64 },
        Trim,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3u64, 0..200_000usize).prop_map(|(stream, bytes)| Step::Allocate { stream, bytes }),
            3 => any::<usize>().prop_map(|which| Step::Free { which }),
            1 => (0..3u64).prop_map(|stream| Step::Retire { stream }),
            1 => Just(Step::Trim),
        ]
    }

    /// A driver that hands out address ranges and records them.
    #[derive(Default)]
    struct Driver {
        next: u64,
        out: BTreeMap<DeviceAddress, usize>,
    }

    impl Driver {
        fn malloc(&mut self, bytes: usize) -> DeviceAddress {
            let address = DeviceAddress::from_raw(0x1000 + self.next);
            self.next += bytes as u64;
            self.out.insert(address, bytes);
            address
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Live blocks do not overlap. A block is only reused by the stream that returned it, or after that stream was retired. The
        /// statistics are consistent, and no block is lost.
        #[test]
        fn books_balance(steps in prop::collection::vec(step(), 1..120)) {
            let mut cache = Cache::default();
            let mut driver = Driver::default();
            let mut live: Vec<(DeviceAddress, usize, u64)> = Vec::new();
            let mut last_owner: HashMap<DeviceAddress, Option<u64>> = HashMap::new();
            let mut high_water = 0;
            for step in steps {
                match step {
                    Step::Allocate { stream, bytes } => {
                        let address = match cache.take(stream, bytes) {
                            Some(address) => {
                                let owner = last_owner[&address];
                                prop_assert!(owner.is_none_or(|o| o == stream), "{owner:?} is not {stream}");
                                address
                            }
                            None => {
                                let address = driver.malloc(class(bytes).unwrap());
                                cache.adopt(address, bytes);
                                address
                            }
                        };
                        prop_assert!(driver.out[&address] >= bytes);
                        for (other, other_bytes, _) in &live {
                            let apart = address.offset(bytes.max(1)) <= *other
                                || other.offset((*other_bytes).max(1)) <= address;
                            prop_assert!(apart, "{address:x}+{bytes} and {other:x}+{other_bytes}");
                        }
                        live.push((address, bytes, stream));
                    }
                    Step::Free { which } if !live.is_empty() => {
                        let (address, _, stream) = live.swap_remove(which % live.len());
                        cache.give(address, stream);
                        last_owner.insert(address, Some(stream));
                    }
                    Step::Free { .. } => {}
                    Step::Retire { stream } => {
                        cache.retire(stream);
                        let in_use: Vec<DeviceAddress> = live.iter().map(|l| l.0).collect();
                        for (address, owner) in &mut last_owner {
                            if *owner == Some(stream) && !in_use.contains(address) {
                                *owner = None;
                            }
                        }
                    }
                    Step::Trim => {
                        let (addresses, bytes) = cache.drain();
                        let mut freed = 0;
                        for address in addresses {
                            prop_assert!(live.iter().all(|l| l.0 != address));
                            freed += driver.out.remove(&address).unwrap();
                        }
                        prop_assert_eq!(freed, bytes);
                        prop_assert_eq!(cache.stats().unused(), 0);
                    }
                }
                let stats = cache.stats();
                let requested: usize = live.iter().map(|l| l.1).sum();
                let blocks: usize = live.iter().map(|l| class(l.1).unwrap()).sum();
                high_water = high_water.max(blocks);
                prop_assert_eq!(stats.requested, requested);
                prop_assert_eq!(stats.live, blocks);
                prop_assert_eq!(stats.held, driver.out.values().sum::<usize>());
                prop_assert_eq!(stats.high_water, high_water);
                prop_assert_eq!(stats.blocks, live.len());
                prop_assert!((0.0..=1.0).contains(&stats.fragmentation()));
                prop_assert!((0.0..=1.0).contains(&stats.rounding()));
            }
        }

        /// A size class holds its bytes, wastes at most an eighth above the smallest sizes, and is its own class.
        #[test]
        fn classes_fit(bytes in 0usize..1 << 40) {
            let block = class(bytes).unwrap();
            prop_assert!(block >= bytes);
            prop_assert_eq!(block % SMALLEST, 0);
            prop_assert_eq!(class(block), Some(block));
            if bytes > 8 * SMALLEST {
                prop_assert!(block - bytes <= bytes / 8, "{bytes} gets {block}");
            }
        }
    }

    #[test]
    fn no_class_overflows() {
        assert_eq!(class(usize::MAX), None);
        assert_eq!(class(isize::MAX as usize), None);
    }

    #[test]
    fn fragmentation_tells_many_small_blocks_from_one() {
        let mut cache = Cache::default();
        for address in [0x1000, 0x2000, 0x3000, 0x4000].map(DeviceAddress::from_raw) {
            cache.adopt(address, 1024);
            cache.give(address, 1);
        }
        assert_eq!(cache.stats().fragmentation(), 0.75);
        cache.drain();
        assert_eq!(cache.stats().fragmentation(), 0.0);
    }
}
