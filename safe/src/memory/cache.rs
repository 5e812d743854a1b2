//! The pool's books: which block is in use, which stream may have which unused one. Knows no device.

use std::collections::HashMap;

use serde::Serialize;

/// Figures of a pool, in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PoolStats {
    /// Taken from the driver.
    pub held: usize,
    /// In use, as blocks: sizes are rounded up to classes.
    pub live: usize,
    /// In use, as was asked for.
    pub requested: usize,
    /// The most that was in use at once.
    pub high_water: usize,
    /// The largest unused block.
    pub largest_unused: usize,
    /// Number of blocks in use.
    pub blocks: usize,
    /// Number of requests to the driver for memory.
    pub driver_allocations: u64,
    /// Number of requests that an unused block served.
    pub reuses: u64,
}

impl PoolStats {
    /// Held, not in use.
    #[must_use]
    pub fn unused(&self) -> usize {
        self.held - self.live
    }

    /// Fragmentation of the unused bytes: the share that is outside the largest unused block. It is 0 if one block has all of it,
    /// and near 1 if many small blocks do.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        match self.unused() {
            0 => 0.0,
            unused => 1.0 - self.largest_unused as f64 / unused as f64,
        }
    }

    /// Share of the bytes in use that exceed the requested sizes.
    #[must_use]
    pub fn rounding(&self) -> f64 {
        match self.live {
            0 => 0.0,
            live => 1.0 - self.requested as f64 / live as f64,
        }
    }
}

/// The smallest block; larger than what any kernel wants for alignment.
const SMALLEST: usize = 512;

/// Returns the size of the block for `bytes`, in eighths of a power of two. So at most an eighth is lost above the smallest
/// sizes. `None` if there is no such size.
pub(crate) fn class(bytes: usize) -> Option<usize> {
    if bytes <= 8 * SMALLEST {
        return Some(bytes.max(1).next_multiple_of(SMALLEST));
    }
    let step = (bytes.checked_next_power_of_two()? / 16).max(SMALLEST);
    bytes
        .checked_next_multiple_of(step)
        .filter(|&b| isize::try_from(b).is_ok())
}

/// Whose an unused block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// Work that was submitted to the stream of this number may still access it.
    Stream(u64),
    Anyone,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    unused: HashMap<(Owner, usize), Vec<u64>>,
    /// Address to class and bytes asked for.
    live: HashMap<u64, (usize, usize)>,
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

    /// An unused block that `stream` may use at once.
    pub(crate) fn take(&mut self, stream: u64, bytes: usize) -> Option<u64> {
        let class = class(bytes)?;
        let mut pop = |owner| self.unused.get_mut(&(owner, class)).and_then(Vec::pop);
        let address = pop(Owner::Stream(stream)).or_else(|| pop(Owner::Anyone))?;
        self.stats.reuses += 1;
        self.enter(address, class, bytes);
        Some(address)
    }

    /// A block that the driver gave for `bytes`, of their class's size. It is in use.
    pub(crate) fn adopt(&mut self, address: u64, bytes: usize) {
        let Some(class) = class(bytes) else { return };
        self.stats.driver_allocations += 1;
        self.stats.held += class;
        self.enter(address, class, bytes);
    }

    fn enter(&mut self, address: u64, class: usize, bytes: usize) {
        self.live.insert(address, (class, bytes));
        self.stats.live += class;
        self.stats.requested += bytes;
        self.stats.high_water = self.stats.high_water.max(self.stats.live);
    }

    fn leave(&mut self, address: u64) -> Option<usize> {
        let (class, bytes) = self.live.remove(&address)?;
        self.stats.live -= class;
        self.stats.requested -= bytes;
        Some(class)
    }

    /// The block is no longer in use; `stream` may still have work that accesses it.
    pub(crate) fn give(&mut self, address: u64, stream: u64) {
        if let Some(class) = self.leave(address) {
            self.unused
                .entry((Owner::Stream(stream), class))
                .or_default()
                .push(address);
        }
    }

    /// The block is lost: no longer in use, and not to be used again.
    pub(crate) fn forget(&mut self, address: u64) {
        if let Some(class) = self.leave(address) {
            self.stats.held -= class;
        }
    }

    /// The stream's unused blocks become anyone's.
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

    /// Every unused block leaves the pool: their addresses, and their bytes.
    pub(crate) fn drain(&mut self) -> (Vec<u64>, usize) {
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

    /// A driver that hands out address ranges and knows which it has handed out.
    #[derive(Default)]
    struct Driver {
        next: u64,
        out: BTreeMap<u64, usize>,
    }

    impl Driver {
        fn malloc(&mut self, bytes: usize) -> u64 {
            let address = 0x1000 + self.next;
            self.next += bytes as u64;
            self.out.insert(address, bytes);
            address
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Live blocks never overlap. A block is only reused by the stream that gave it back, or after that stream retired. The
        /// figures add up, and nothing is lost.
        #[test]
        fn books_balance(steps in prop::collection::vec(step(), 1..120)) {
            let mut cache = Cache::default();
            let mut driver = Driver::default();
            let mut live: Vec<(u64, usize, u64)> = Vec::new();
            let mut last_owner: HashMap<u64, Option<u64>> = HashMap::new();
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
                            let apart = address + bytes.max(1) as u64 <= *other
                                || other + (*other_bytes).max(1) as u64 <= address;
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
                        let in_use: Vec<u64> = live.iter().map(|l| l.0).collect();
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

        /// A class holds its bytes, wastes an eighth at most above the smallest sizes, and is its own class.
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
        for address in [0x1000, 0x2000, 0x3000, 0x4000] {
            cache.adopt(address, 1024);
            cache.give(address, 1);
        }
        assert_eq!(cache.stats().fragmentation(), 0.75);
        cache.drain();
        assert_eq!(cache.stats().fragmentation(), 0.0);
    }
}
