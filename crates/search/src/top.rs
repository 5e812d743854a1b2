//! The best rows found so far.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The best rows of one query: a bounded heap.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    capacity: usize,
    heap: BinaryHeap<Reverse<Key>>,
    /// Smallest score that can still enter.
    bound: f32,
}

/// A score and a row, ordered by score, then by descending row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

impl Key {
    fn new(score: f32, row: u32) -> Self {
        // Both zeros are equal.
        let bits = (score + 0.0).to_bits();
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        Self(u64::from(ordered) << 32 | u64::from(!row))
    }

    fn row(self) -> u32 {
        !(self.0 as u32)
    }

    fn score(self) -> f32 {
        let ordered = (self.0 >> 32) as u32;
        f32::from_bits(if ordered >> 31 == 1 {
            ordered & !(1 << 31)
        } else {
            !ordered
        })
    }
}

impl Top {
    /// Creates an empty list of at most `capacity` rows.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            heap: BinaryHeap::with_capacity(capacity + 1),
            bound: f32::NEG_INFINITY,
        }
    }

    /// Adds a row if it is among the best. NaN never is.
    #[inline]
    pub(crate) fn push(&mut self, score: f32, row: u32) {
        if score >= self.bound {
            self.insert(Key::new(score, row));
        }
    }

    fn insert(&mut self, key: Key) {
        self.heap.push(Reverse(key));
        if self.heap.len() > self.capacity {
            self.heap.pop();
        }
        if self.heap.len() == self.capacity
            && let Some(Reverse(worst)) = self.heap.peek()
        {
            self.bound = worst.score();
        }
    }

    /// Adds the rows of another list.
    pub(crate) fn merge(&mut self, other: Self) {
        for Reverse(key) in other.heap {
            self.insert(key);
        }
    }

    /// Returns the rows, in no particular order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|Reverse(key)| key.row())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_scores_stay_and_ties_go_to_lower_rows() {
        let mut top = Top::new(3);
        for (row, score) in [1.0, -2.0, f32::NAN, 3.0, 1.0, f32::INFINITY, 1.0]
            .into_iter()
            .enumerate()
        {
            top.push(score, row as u32);
        }
        let mut other = Top::new(3);
        other.push(1.0, 9);
        top.merge(other);
        let mut rows: Vec<u32> = top.rows().collect();
        rows.sort_unstable();
        assert_eq!(rows, [0, 3, 5]);
    }

    #[test]
    fn keys_order_as_scores_do() {
        let scores = [
            f32::NEG_INFINITY,
            -1.5,
            -f32::MIN_POSITIVE,
            0.0,
            1e-30,
            2.0,
            f32::INFINITY,
        ];
        for pair in scores.windows(2) {
            assert!(Key::new(pair[0], 0) < Key::new(pair[1], 5), "{pair:?}");
        }
        assert_eq!(Key::new(-0.0, 1), Key::new(0.0, 1));
        assert!(Key::new(1.0, 1) > Key::new(1.0, 2));
        for score in scores {
            assert_eq!(Key::new(score, 3).score(), score);
        }
    }
}
