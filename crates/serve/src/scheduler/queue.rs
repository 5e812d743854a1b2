//! Queue of one model and the formation of batches. It is plain data and takes the time as an argument, so
//! that every decision can be tested without threads or clocks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::priority::Priority;

/// Properties of a waiting image.
pub(crate) trait Waiting {
    fn priority(&self) -> Priority;
    /// Returns true if the result is not needed at `now`: the client has left, or the deadline has passed.
    fn is_abandoned(&self, now: Instant) -> bool;
    /// Returns true if the image runs alone, because an earlier batch with it failed.
    fn runs_alone(&self) -> bool {
        false
    }
}

/// Rule that completes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchRule {
    pub(crate) max_batch: usize,
    /// Maximum time that the first image of a batch waits for others.
    pub(crate) max_delay: Duration,
}

/// Result of [`Queue::take`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<T> {
    /// A batch from 1 to the maximum size, interactive images first, otherwise in the order of arrival.
    Batch(Vec<T>),
    /// Time at which the batch is complete, unless it is full before.
    WaitUntil(Instant),
    /// No image waits.
    Empty,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    since: Instant,
}

/// Waiting images, by priority.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    rule: BatchRule,
    classes: [VecDeque<Entry<T>>; 2],
}

impl<T: Waiting> Queue<T> {
    pub(crate) fn new(rule: BatchRule) -> Self {
        Self {
            rule,
            classes: Default::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    pub(crate) fn push(&mut self, item: T, now: Instant) {
        let class = item.priority() as usize;
        self.classes[class].push_back(Entry { item, since: now });
    }

    /// Puts an image back at the front. It has waited long enough.
    pub(crate) fn push_front(&mut self, item: T, now: Instant) {
        let class = item.priority() as usize;
        let since = now.checked_sub(self.rule.max_delay).unwrap_or(now);
        self.classes[class].push_front(Entry { item, since });
    }

    /// Takes a batch, if one is complete at `now`.
    ///
    /// - A batch is complete if it is full, or if its oldest image has waited for the maximum time.
    /// - With `flush`, any number of images is complete.
    /// - An image that [runs alone](Waiting::runs_alone) is a batch by itself.
    ///
    /// Abandoned images are moved to `dropped`.
    pub(crate) fn take(&mut self, now: Instant, flush: bool, dropped: &mut Vec<T>) -> Taken<T> {
        self.take_at_most(self.rule.max_batch, now, flush, dropped)
    }

    /// Takes up to `most` images that wait at `now`, without waiting for more. `most` is at least 1.
    pub(crate) fn take_waiting(&mut self, most: usize, now: Instant, dropped: &mut Vec<T>) -> Vec<T> {
        match self.take_at_most(most, now, true, dropped) {
            Taken::Batch(batch) => batch,
            Taken::WaitUntil(_) | Taken::Empty => Vec::new(),
        }
    }

    fn take_at_most(&mut self, most: usize, now: Instant, flush: bool, dropped: &mut Vec<T>) -> Taken<T> {
        for class in &mut self.classes {
            // Check only images that could be taken, because a queue may be longer than a batch.
            let mut kept = 0;
            while kept < most.min(class.len()) {
                if class[kept].item.is_abandoned(now) {
                    dropped.extend(class.remove(kept).map(|entry| entry.item));
                } else {
                    kept += 1;
                }
            }
        }
        let Some(oldest) = self
            .classes
            .iter()
            .filter_map(VecDeque::front)
            .map(|entry| entry.since)
            .min()
        else {
            return Taken::Empty;
        };
        let complete = oldest + self.rule.max_delay;
        if !flush && self.len() < most && now < complete {
            return Taken::WaitUntil(complete);
        }
        let mut batch = Vec::with_capacity(most.min(self.len()));
        for class in &mut self.classes {
            while batch.len() < most
                && let Some(entry) = class.pop_front_if(|entry| batch.is_empty() || !entry.item.runs_alone())
            {
                let alone = entry.item.runs_alone();
                batch.push(entry.item);
                if alone {
                    return Taken::Batch(batch);
                }
            }
        }
        Taken::Batch(batch)
    }

    /// Moves all abandoned images to `dropped`.
    pub(crate) fn remove_abandoned(&mut self, now: Instant, dropped: &mut Vec<T>) {
        for class in &mut self.classes {
            let (gone, kept) = class.drain(..).partition(|entry| entry.item.is_abandoned(now));
            *class = kept;
            let gone: VecDeque<Entry<T>> = gone;
            dropped.extend(gone.into_iter().map(|entry| entry.item));
        }
    }

    /// Takes all waiting images, abandoned or not.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let classes = self.classes.iter_mut();
        classes
            .flat_map(|class| class.drain(..))
            .map(|entry| entry.item)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Image {
        name: u32,
        priority: Priority,
        deadline: Option<Instant>,
        alone: bool,
    }

    impl Waiting for Image {
        fn priority(&self) -> Priority {
            self.priority
        }

        fn is_abandoned(&self, now: Instant) -> bool {
            self.deadline.is_some_and(|deadline| deadline <= now)
        }

        fn runs_alone(&self) -> bool {
            self.alone
        }
    }

    fn interactive(name: u32) -> Image {
        Image {
            name,
            priority: Priority::Interactive,
            deadline: None,
            alone: false,
        }
    }

    fn bulk(name: u32) -> Image {
        Image {
            priority: Priority::Bulk,
            ..interactive(name)
        }
    }

    fn queue(max_batch: usize, max_delay: u64) -> Queue<Image> {
        Queue::new(BatchRule {
            max_batch,
            max_delay: Duration::from_micros(max_delay),
        })
    }

    /// Returns the names of the batch that is complete at `now`. Panics if there is none.
    fn batch(queue: &mut Queue<Image>, now: Instant) -> Vec<u32> {
        match queue.take(now, false, &mut Vec::new()) {
            Taken::Batch(batch) => batch.iter().map(|image| image.name).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_batch_does_not_wait() {
        let (mut queue, start) = (queue(3, 1000), Instant::now());
        let us = |n| start + Duration::from_micros(n);
        assert_eq!(queue.take(start, false, &mut Vec::new()), Taken::Empty);
        for name in 0..2 {
            queue.push(interactive(name), us(u64::from(name)));
        }
        // The first image determines the delay, whenever the second came.
        assert_eq!(
            queue.take(us(5), false, &mut Vec::new()),
            Taken::WaitUntil(us(1000))
        );
        queue.push(interactive(2), us(6));
        assert_eq!(batch(&mut queue, us(6)), [0, 1, 2]);
        assert_eq!(queue.take(us(7), false, &mut Vec::new()), Taken::Empty);
    }

    #[test]
    fn the_oldest_image_waits_for_the_delay_and_no_longer() {
        let (mut queue, start) = (queue(8, 1000), Instant::now());
        let us = |n| start + Duration::from_micros(n);
        queue.push(interactive(0), us(0));
        queue.push(interactive(1), us(900));
        assert_eq!(
            queue.take(us(999), false, &mut Vec::new()),
            Taken::WaitUntil(us(1000))
        );
        assert_eq!(batch(&mut queue, us(1000)), [0, 1]);
        // Without a delay, images do not wait.
        let mut queue = self::queue(8, 0);
        queue.push(interactive(0), us(5));
        assert_eq!(batch(&mut queue, us(5)), [0]);
    }

    #[test]
    fn what_exceeds_a_batch_stays_in_order() {
        let (mut queue, now) = (queue(4, 0), Instant::now());
        for name in 0..10 {
            queue.push(interactive(name), now);
        }
        assert_eq!(batch(&mut queue, now), [0, 1, 2, 3]);
        assert_eq!(batch(&mut queue, now), [4, 5, 6, 7]);
        assert_eq!(queue.len(), 2);
        assert_eq!(batch(&mut queue, now), [8, 9]);
    }

    #[test]
    fn interactive_images_go_first_and_bulk_fills_the_batch() {
        let (mut queue, now) = (queue(3, 0), Instant::now());
        for name in 0..4 {
            queue.push(bulk(name), now);
        }
        queue.push(interactive(10), now);
        assert_eq!(batch(&mut queue, now), [10, 0, 1]);
        for name in 11..14 {
            queue.push(interactive(name), now);
        }
        assert_eq!(batch(&mut queue, now), [11, 12, 13]);
        assert_eq!(batch(&mut queue, now), [2, 3]);
    }

    #[test]
    fn a_bulk_image_that_waited_completes_a_batch_with_what_came_later() {
        let (mut queue, start) = (queue(8, 100), Instant::now());
        let us = |n| start + Duration::from_micros(n);
        queue.push(bulk(0), us(0));
        queue.push(interactive(1), us(99));
        assert_eq!(batch(&mut queue, us(100)), [1, 0]);
    }

    #[test]
    fn an_abandoned_image_is_in_no_batch() {
        let (mut queue, start) = (queue(2, 0), Instant::now());
        let us = |n| start + Duration::from_micros(n);
        let mut late = interactive(1);
        late.deadline = Some(us(50));
        for image in [interactive(0), late, interactive(2), interactive(3)] {
            queue.push(image, us(0));
        }
        let mut dropped = Vec::new();
        // At its deadline it is too late.
        let taken = queue.take(us(50), false, &mut dropped);
        assert_eq!(taken, Taken::Batch(vec![interactive(0), interactive(2)]));
        assert_eq!(dropped.iter().map(|image| image.name).collect::<Vec<_>>(), [1]);
        assert_eq!(batch(&mut queue, us(50)), [3]);
        // Abandoned images after those of a batch are removed even if no batch is taken.
        let mut others = Vec::new();
        queue.push(interactive(5), us(50));
        let mut behind = bulk(6);
        behind.deadline = Some(us(50));
        queue.push(behind, us(50));
        queue.remove_abandoned(us(50), &mut others);
        assert_eq!(others.iter().map(|image| image.name).collect::<Vec<_>>(), [6]);
        assert_eq!(batch(&mut queue, us(50)), [5]);
        // A queue of abandoned images becomes empty.
        let mut late = bulk(4);
        late.deadline = Some(us(50));
        queue.push(late, us(0));
        assert_eq!(queue.take(us(60), false, &mut dropped), Taken::Empty);
        assert_eq!(dropped.len(), 2);
    }

    #[test]
    fn what_is_put_back_is_taken_first_and_at_once() {
        let (mut queue, start) = (queue(2, 1000), Instant::now());
        let us = |n| start + Duration::from_micros(n);
        queue.push(interactive(1), us(2000));
        queue.push_front(interactive(0), us(2000));
        assert_eq!(batch(&mut queue, us(2000)), [0, 1]);
        queue.push_front(interactive(2), us(2000));
        assert_eq!(batch(&mut queue, us(2000)), [2]);
    }

    #[test]
    fn what_runs_alone_is_in_no_batch_with_others() {
        let (mut queue, now) = (queue(4, 0), Instant::now());
        let alone = |name| Image {
            alone: true,
            ..interactive(name)
        };
        queue.push(interactive(3), now);
        queue.push(bulk(4), now);
        queue.push_front(alone(2), now);
        queue.push_front(alone(1), now);
        queue.push_front(
            Image {
                alone: true,
                ..bulk(5)
            },
            now,
        );
        for expected in [&[1][..], &[2], &[3], &[5], &[4]] {
            assert_eq!(batch(&mut queue, now), expected);
        }
    }

    #[test]
    fn a_part_of_a_batch_is_taken_without_waiting() {
        let (mut queue, start) = (queue(8, 1000), Instant::now());
        for name in 0..3 {
            queue.push(bulk(name), start);
        }
        queue.push(interactive(3), start);
        let take = |queue: &mut Queue<Image>, most| -> Vec<u32> {
            let taken = queue.take_waiting(most, start, &mut Vec::new());
            taken.iter().map(|image| image.name).collect()
        };
        assert_eq!(take(&mut queue, 2), [3, 0]);
        assert_eq!(take(&mut queue, 1), [1]);
        assert_eq!(take(&mut queue, 4), [2]);
        assert!(take(&mut queue, 4).is_empty());
    }

    #[test]
    fn flushing_takes_what_there_is() {
        let (mut queue, now) = (queue(8, 1_000_000), Instant::now());
        queue.push(interactive(0), now);
        let taken = queue.take(now, true, &mut Vec::new());
        assert_eq!(taken, Taken::Batch(vec![interactive(0)]));
        queue.push(bulk(1), now);
        queue.push(interactive(2), now);
        assert_eq!(queue.drain().len(), 2);
        assert_eq!(queue.len(), 0);
    }
}
