//! Order in which images are decoded. A client with many or slow images must not delay others.
//!
//! Interactive images go first. Within a priority, clients take turns with one image each. `threads` images
//! are decoded at once. Up to [`EXTRA_THREADS`] more are decoded for clients that have none among them. So a
//! client that holds all threads delays others by at most its share of the cores.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::queue::Waiting;
use crate::client::Client;

/// Threads in addition to those that any client may hold. A client takes at most one of them.
pub(super) const EXTRA_THREADS: usize = 4;

/// Client and engine of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source {
    /// Client; `None` if it is unknown.
    pub(super) client: Option<Client>,
    /// Identifies the engine.
    pub(super) engine: usize,
}

/// An image whose source is known.
pub(super) trait Sourced: Waiting {
    fn source(&self) -> Source;
}

/// Images that wait for decoding, and the sources of images that are being decoded.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    threads: usize,
    classes: [Turns<T>; 2],
    decoding: Vec<Source>,
}

/// Images of one priority.
#[derive(Debug)]
struct Turns<T> {
    /// Sources in the order of their turns, without duplicates.
    order: VecDeque<Source>,
    waiting: HashMap<Source, VecDeque<T>>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            waiting: HashMap::new(),
        }
    }
}

impl<T: Sourced> FairQueue<T> {
    /// Creates a queue that decodes `threads` images at once, and [`EXTRA_THREADS`] more.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            classes: Default::default(),
            decoding: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, item: T) {
        let (class, source) = (item.priority() as usize, item.source());
        let Turns { order, waiting } = &mut self.classes[class];
        waiting
            .entry(source)
            .or_insert_with(|| {
                order.push_back(source);
                VecDeque::new()
            })
            .push_back(item);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.order.is_empty())
    }

    /// Returns the next image that may be decoded now. The caller must call [`done`](Self::done) with its
    /// source. Abandoned images are moved to `dropped`.
    pub(super) fn take(&mut self, now: Instant, dropped: &mut Vec<T>) -> Option<T> {
        for class in 0..self.classes.len() {
            let mut at = 0;
            while let Some(&source) = self.classes[class].order.get(at) {
                if !self.may_decode(source) {
                    at += 1;
                    continue;
                }
                if let Some(item) = self.classes[class].pop(at, source, now, dropped) {
                    self.decoding.push(source);
                    return Some(item);
                }
            }
        }
        None
    }

    fn may_decode(&self, source: Source) -> bool {
        let decoding = self.decoding.len();
        let has_none = || self.decoding.iter().all(|other| other.client != source.client);
        decoding < self.threads || decoding < self.threads + EXTRA_THREADS && has_none()
    }

    /// Notes that an image of this source was decoded or has failed.
    pub(super) fn done(&mut self, source: Source) {
        if let Some(at) = self.decoding.iter().position(|other| *other == source) {
            self.decoding.swap_remove(at);
        }
    }
}

impl<T: Sourced> Turns<T> {
    /// Takes an image of the source whose turn is at `at`, and appends its next turn.
    fn pop(&mut self, at: usize, source: Source, now: Instant, dropped: &mut Vec<T>) -> Option<T> {
        self.order.remove(at);
        let items = self.waiting.get_mut(&source)?;
        let mut taken = None;
        while let Some(item) = items.pop_front() {
            if item.is_abandoned(now) {
                dropped.push(item);
            } else {
                taken = Some(item);
                break;
            }
        }
        if items.is_empty() {
            self.waiting.remove(&source);
        } else {
            self.order.push_back(source);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::priority::Priority;

    #[derive(Debug)]
    struct Image {
        name: u32,
        source: Source,
        priority: Priority,
        abandoned: bool,
    }

    impl Waiting for Image {
        fn priority(&self) -> Priority {
            self.priority
        }

        fn is_abandoned(&self, _: Instant) -> bool {
            self.abandoned
        }
    }

    impl Sourced for Image {
        fn source(&self) -> Source {
            self.source
        }
    }

    fn source(client: u8, engine: usize) -> Source {
        Source {
            client: Some(Client::from(IpAddr::from([10, 0, 0, client]))),
            engine,
        }
    }

    /// Pushes images with these names.
    fn push(queue: &mut FairQueue<Image>, source: Source, names: impl IntoIterator<Item = u32>) {
        for name in names {
            queue.push(Image {
                name,
                source,
                priority: Priority::Interactive,
                abandoned: false,
            });
        }
    }

    fn take(queue: &mut FairQueue<Image>) -> Option<u32> {
        let mut dropped = Vec::new();
        Some(queue.take(Instant::now(), &mut dropped)?.name)
    }

    #[test]
    fn clients_take_turns() {
        let mut queue = FairQueue::new(64);
        push(&mut queue, source(1, 0), 0..4);
        push(&mut queue, source(2, 0), 10..12);
        push(&mut queue, source(3, 0), 20..21);
        let order: Vec<u32> = std::iter::from_fn(|| take(&mut queue)).collect();
        assert_eq!(order, [0, 10, 20, 1, 11, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_client_that_holds_all_threads_does_not_hold_up_another() {
        for threads in [1, 2, 5] {
            let mut queue = FairQueue::new(threads);
            push(&mut queue, source(1, 0), 0..100);
            for _ in 0..threads {
                assert!(take(&mut queue).is_some());
            }
            assert_eq!(take(&mut queue), None, "its share is full");
            push(&mut queue, source(2, 0), [200, 201]);
            // The limit includes other models: a client has one of the extra threads.
            push(&mut queue, source(1, 1), [202]);
            assert_eq!(take(&mut queue), Some(200));
            assert_eq!(take(&mut queue), None);
            for client in 3..6 {
                push(&mut queue, source(client, 0), [100 * u32::from(client)]);
                assert_eq!(take(&mut queue), Some(100 * u32::from(client)));
            }
            push(&mut queue, source(6, 0), [600]);
            assert_eq!(take(&mut queue), None, "there are no more threads");
            queue.done(source(2, 0));
            assert!(matches!(take(&mut queue), Some(201 | 600)));
        }
    }

    #[test]
    fn interactive_images_go_first_and_abandoned_ones_are_dropped() {
        let mut queue = FairQueue::new(64);
        let image = |name, priority, abandoned| Image {
            name,
            source: source(1, 0),
            priority,
            abandoned,
        };
        queue.push(image(0, Priority::Bulk, false));
        queue.push(image(1, Priority::Interactive, true));
        queue.push(image(2, Priority::Interactive, false));
        queue.push(image(3, Priority::Interactive, true));
        let mut dropped = Vec::new();
        let mut order = Vec::new();
        while let Some(image) = queue.take(Instant::now(), &mut dropped) {
            order.push(image.name);
        }
        assert_eq!(order, [2, 0]);
        assert_eq!(dropped.iter().map(|image| image.name).collect::<Vec<_>>(), [1, 3]);
        assert!(queue.is_empty());
    }
}
