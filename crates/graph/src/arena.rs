//! Placement of storages with known lifetimes in one arena, for a [`Plan`](super::plan::Plan).
//!
//! Greedy by size and related orders, as in Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
//! <https://arxiv.org/abs/2001.03288>. Each storage goes into the smallest gap that fits, among the placed storages with overlapping
//! lifetimes. No single order is always the best, so a few are tried. A graph has hundreds of storages, so this takes microseconds.

use std::cmp::Reverse;
use std::ops::Range;

/// Alignment of storages in bytes. Enough for any vector load and for coalescing on GPUs.
pub const ALIGNMENT: usize = 256;

/// A size and a lifetime: the first and the last step that need the storage, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) bytes: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Storage {
    /// Returns the bytes, rounded up to the alignment.
    fn padded(&self) -> usize {
        self.bytes.next_multiple_of(ALIGNMENT)
    }

    fn lives_with(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Returns the offset of every storage, and the bytes of the arena.
pub(super) fn place(storages: &[Storage]) -> (Vec<usize>, usize) {
    let by_size = |s: &Storage| (Reverse(s.padded()), s.first);
    let by_area = |s: &Storage| (Reverse(s.padded() * (s.last + 1 - s.first)), s.first);
    let by_lifetime = |s: &Storage| (Reverse(s.last + 1 - s.first), s.first);
    [
        greedy(storages, by_size),
        greedy(storages, by_area),
        greedy(storages, by_lifetime),
        greedy(storages, |s| s.first),
    ]
    .into_iter()
    .min_by_key(|(_, bytes)| *bytes)
    .unwrap_or_default()
}

/// As [`place`], with the storages of `adjacent` behind each other in this order. They become one storage that lives as long as any.
pub(super) fn place_adjacent(storages: &[Storage], adjacent: &[usize]) -> (Vec<usize>, usize) {
    let mut is_adjacent = vec![false; storages.len()];
    adjacent.iter().for_each(|&index| is_adjacent[index] = true);
    let apart = |&index: &usize| !is_adjacent[index];
    let mut reduced: Vec<Storage> = (0..storages.len())
        .filter(apart)
        .map(|index| storages[index])
        .collect();
    let together = adjacent.iter().map(|&index| storages[index]);
    reduced.extend(together.reduce(|all, one| Storage {
        bytes: all.padded() + one.padded(),
        first: all.first.min(one.first),
        last: all.last.max(one.last),
    }));
    let (placed, bytes) = place(&reduced);
    let mut offsets = vec![0; storages.len()];
    for (index, &offset) in (0..storages.len()).filter(apart).zip(&placed) {
        offsets[index] = offset;
    }
    let mut end = placed.last().copied().unwrap_or(0);
    for &index in adjacent {
        offsets[index] = end;
        end += storages[index].padded();
    }
    (offsets, bytes)
}

/// Returns the peak of live bytes, a lower bound for any arena.
pub(super) fn lower_bound(storages: &[Storage]) -> usize {
    let live = |step| {
        storages
            .iter()
            .filter(|s| (s.first..=s.last).contains(&step))
            .map(Storage::padded)
            .sum()
    };
    // The live set only grows at the start of a storage.
    storages.iter().map(|s| live(s.first)).max().unwrap_or(0)
}

/// Returns the bytes of an arena without any reuse.
pub(super) fn naive(bytes: impl Iterator<Item = usize>) -> usize {
    bytes.map(|b| b.next_multiple_of(ALIGNMENT)).sum()
}

fn greedy<K: Ord>(storages: &[Storage], key: impl Fn(&Storage) -> K) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..storages.len()).collect();
    order.sort_by_key(|&i| key(&storages[i]));
    let mut offsets = vec![0; storages.len()];
    let mut placed: Vec<(Range<usize>, Storage)> = Vec::with_capacity(storages.len());
    for i in order {
        let storage = storages[i];
        let offset = best_gap(&placed, &storage);
        let range = offset..offset + storage.padded();
        let at = placed.partition_point(|(other, _)| other.start < range.start);
        placed.insert(at, (range, storage));
        offsets[i] = offset;
    }
    let bytes = placed.iter().map(|(range, _)| range.end).max().unwrap_or(0);
    (offsets, bytes)
}

/// Returns the offset of the tightest gap for `storage` among the `placed` ones with overlapping lifetimes. `placed` is sorted by offset.
fn best_gap(placed: &[(Range<usize>, Storage)], storage: &Storage) -> usize {
    let mut end = 0;
    let mut best: Option<Range<usize>> = None;
    for (range, _) in placed.iter().filter(|(_, other)| other.lives_with(storage)) {
        let gap = end..range.start.max(end);
        if gap.len() >= storage.padded() && best.as_ref().is_none_or(|b| gap.len() < b.len()) {
            best = Some(gap);
        }
        end = end.max(range.end);
    }
    best.map_or(end, |gap| gap.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn storage() -> impl Strategy<Value = Storage> {
        (1usize..4000, 0usize..20, 0usize..20).prop_map(|(bytes, a, b)| Storage {
            bytes,
            first: a.min(b),
            last: a.max(b),
        })
    }

    proptest! {
        #[test]
        fn storages_that_live_together_do_not_overlap(storages in prop::collection::vec(storage(), 0..40)) {
            let (offsets, bytes) = place(&storages);
            for (i, a) in storages.iter().enumerate() {
                prop_assert_eq!(offsets[i] % ALIGNMENT, 0);
                prop_assert!(offsets[i] + a.bytes <= bytes);
                for (j, b) in storages.iter().enumerate().skip(i + 1) {
                    let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                    prop_assert!(apart || !a.lives_with(b), "{:?} at {}, {:?} at {}", a, offsets[i], b, offsets[j]);
                }
            }
            prop_assert!(bytes >= lower_bound(&storages));
            prop_assert!(bytes <= naive(storages.iter().map(|s| s.bytes)));
        }

        #[test]
        fn adjacent_storages_follow_each_other(storages in prop::collection::vec(storage(), 3..40), first in 0usize..2) {
            let adjacent = [2, first];
            let (offsets, bytes) = place_adjacent(&storages, &adjacent);
            prop_assert_eq!(offsets[first], offsets[2] + storages[2].padded());
            for (i, a) in storages.iter().enumerate() {
                prop_assert!(offsets[i] + a.bytes <= bytes);
                for (j, b) in storages.iter().enumerate().skip(i + 1) {
                    let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                    prop_assert!(apart || !a.lives_with(b), "{:?} at {}, {:?} at {}", a, offsets[i], b, offsets[j]);
                }
            }
        }
    }

    #[test]
    fn a_gap_is_reused() {
        let at = |first, last, bytes| Storage { bytes, first, last };
        // The second storage ends before the third begins. The first overlaps both.
        let storages = [at(0, 9, 256), at(0, 1, 512), at(2, 9, 512)];
        let (offsets, bytes) = place(&storages);
        assert_eq!(bytes, 768);
        assert_eq!(offsets[1], offsets[2]);
    }
}
