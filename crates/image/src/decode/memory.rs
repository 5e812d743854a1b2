//! Budget of memory for decoding, shared by all threads of the process.
//!
//! Before a decoder allocates anything that grows with the image, it requests a permit for the maximum that it will
//! need. An image that needs more than the whole limit is an error; otherwise it waits for others. Permits are granted
//! in the order of the requests, so that a large image is not overtaken forever.
//!
//! A thread that holds a permit must not wait for another one, nor for work that may. Decoders therefore use no thread
//! pool.
//!
//! Large images leave a part of the budget free, unless only one of them is decoded. Small images take memory from that
//! part while large ones wait. One client's large images thus do not block all other images.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::cancellation::Cancellation;
use super::failure::Failure;
use super::limits::Limits;

/// Requests below this many bytes skip the trial allocation.
const SMALL: u64 = 1 << 16;

/// Divisor of the limit that gives the memory reserved for small images.
const RESERVE_PART: u64 = 8;

/// Divisor of the limit that gives the maximum size of a small image.
const SMALL_PART: u64 = 32;

/// Bytes that other allocations may need while an image is decoded, before the process reaches its own limit.
const RESERVE: u64 = 8 << 20;

/// Interval between checks whether the decoding of a waiting image was cancelled.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of bytes that resizing needs for each pixel of a side: weights, and what the passes derive from them.
const RESIZING: u64 = 64;

static BUDGET: Budget = Budget::new();

/// Memory of all images that are being decoded, in bytes.
#[derive(Debug)]
struct Budget {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    used: u64,
    /// Part of `used` that small images took out of turn.
    overtaking: u64,
    /// Number of the next request, and of the request that is next to be granted.
    next: u64,
    served: u64,
    /// Requests that were abandoned before they were granted.
    given_up: BTreeSet<u64>,
}

/// Permit for the memory of one image. Dropping it returns the memory to the budget.
#[derive(Debug)]
pub struct Permit {
    budget: &'static Budget,
    bytes: u64,
    /// True if the image got the permit out of turn.
    overtook: bool,
}

/// Returns the number of bytes that all images hold together.
pub fn used() -> u64 {
    BUDGET.state.lock().used
}

/// Reason why a permit is refused.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// The request exceeds the limit, whatever other threads do.
    Limit,
    /// The system cannot provide the memory.
    System,
    /// Decoding was cancelled while waiting.
    Cancelled,
}

impl Budget {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                used: 0,
                overtaking: 0,
                next: 0,
                served: 0,
                given_up: BTreeSet::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits until `bytes` fit into `limit` together with other permits, and `allocatable` returns true for the sum.
    fn acquire(
        &'static self,
        bytes: u64,
        limit: u64,
        allocatable: impl Fn(u64) -> bool,
        cancellation: Cancellation<'_>,
    ) -> Result<Permit, Refused> {
        if bytes > limit {
            return Err(Refused::Limit);
        }
        let reserve = limit / RESERVE_PART;
        let is_small = bytes <= limit / SMALL_PART;
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let result = loop {
            let sum = state.used.saturating_add(bytes);
            let in_order = state.used - state.overtaking;
            let fits = in_order.saturating_add(bytes) <= limit - reserve || in_order == 0 && sum <= limit;
            if state.served == number {
                // The holders of other permits may not have allocated their memory yet.
                if fits && allocatable(sum) {
                    state.used = sum;
                    break Ok(Permit::new(self, bytes, false));
                }
                if state.used == 0 {
                    break Err(Refused::System);
                }
            }
            let overtaking = state.overtaking + bytes;
            let early = if cancellation.is_cancelled() {
                Err(Refused::Cancelled)
            } else if is_small && overtaking <= reserve && sum <= limit && allocatable(sum) {
                (state.used, state.overtaking) = (sum, overtaking);
                Ok(Permit::new(self, bytes, true))
            } else {
                self.changed.wait_for(&mut state, CANCEL_POLL_INTERVAL);
                continue;
            };
            if state.served != number {
                state.given_up.insert(number);
                return early;
            }
            break early;
        };
        state.served += 1;
        let mut served = state.served;
        while state.given_up.remove(&served) {
            served += 1;
        }
        state.served = served;
        self.changed.notify_all();
        result
    }
}

impl Permit {
    fn new(budget: &'static Budget, bytes: u64, overtook: bool) -> Self {
        Self {
            budget,
            bytes,
            overtook,
        }
    }

    /// Returns the number of bytes that the permit holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns bytes above `bytes` to the budget.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        let mut state = self.budget.state.lock();
        state.used -= surplus;
        if self.overtook {
            state.overtaking -= surplus;
        }
        drop(state);
        self.budget.changed.notify_all();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// Returns true if `bytes` can be allocated. A failed allocation inside a decoder would abort the process.
///
/// On Linux, the trial only reserves addresses, which is what `ulimit -v` limits.
fn allocatable(bytes: u64) -> bool {
    if bytes < SMALL {
        return true;
    }
    // Map the memory. A freed heap block would change how the allocator handles the next ones.
    let trial = usize::try_from(bytes.saturating_add(bytes / 8 + RESERVE));
    let addressable = trial.ok().filter(|&bytes| bytes < isize::MAX as usize);
    addressable.is_some_and(|bytes| memmap2::MmapOptions::new().len(bytes).map_anon().is_ok())
}

/// Use of the limits by one image, from its header to its pixels.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub(super) limits: &'a Limits,
    /// Length of the file, which is in memory.
    file: u64,
    /// Bytes of the pixels, once their number is known.
    pixels: u64,
    /// Bytes that resizing needs for the weights of both axes.
    resizing: u64,
    /// True if the pixels are copied after decoding.
    copied: bool,
    permit: Option<Permit>,
    cancellation: Cancellation<'a>,
}

impl<'a> Claim<'a> {
    pub(super) fn new(limits: &'a Limits, file: &[u8], cancellation: Cancellation<'a>) -> Self {
        Self {
            limits,
            file: file.len() as u64,
            pixels: 0,
            resizing: 0,
            copied: false,
            permit: None,
            cancellation,
        }
    }

    /// Returns the cancellation of the image's decoding.
    pub(super) fn cancellation(&self) -> Cancellation<'a> {
        self.cancellation
    }

    /// Declares that the decoded pixels will be in memory twice. Call it before [`Claim::check`].
    pub(super) fn copy_pixels(&mut self) {
        self.copied = true;
    }

    /// Returns the image's size as `usize`, if it does not exceed the limit.
    pub(super) fn check(
        &mut self,
        width: impl Into<u64>,
        height: impl Into<u64>,
    ) -> Result<(usize, usize), Failure> {
        let (width, height) = self.limits.check(width, height)?;
        self.pixels = self.pixels.max(3 * width as u64 * height as u64);
        self.resizing = self.resizing.max(RESIZING * (width as u64 + height as u64));
        Ok((width, height))
    }

    /// Waits for a permit of `bytes` bytes and the file, which replaces the image's present permit.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Failure> {
        // Never block while holding a reservation (deadlock).
        self.permit = None;
        let after = if self.copied {
            self.pixels.saturating_mul(2)
        } else {
            0
        };
        let after = after.max(self.pixels.saturating_add(self.resizing));
        let bytes = bytes.max(after).saturating_add(self.file);
        let limit = self.limits.max_memory;
        match BUDGET.acquire(bytes, limit, allocatable, self.cancellation) {
            Ok(permit) => {
                self.permit = Some(permit);
                Ok(())
            }
            Err(Refused::Limit) => Err(Failure::too_large(format!(
                "takes {} to decode, more than the limit of {}; {}",
                size(bytes),
                size(limit),
                "Limits::max_memory or --max-decode-memory raises it"
            ))),
            Err(Refused::Cancelled) => Err("decoding was cancelled".into()),
            Err(Refused::System) => Err(Failure::too_large(format!(
                "takes {} to decode, and the system has no memory for that",
                size(bytes)
            ))),
        }
    }

    /// Returns the permit, reduced to what the decoded image still needs: memory for its pixels, and for resizing them.
    pub(super) fn into_permit(self, pixels: u64) -> Option<Permit> {
        let mut permit = self.permit?;
        permit.shrink_to(pixels.saturating_add(self.resizing));
        Some(permit)
    }
}

/// Formats bytes in the largest unit that gives at least 1.
fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let scaled = bytes as f64 / (1_u64 << (10 * power)) as f64;
    match power {
        0 => format!("{bytes} bytes"),
        _ => format!("{scaled:.1} {}", units[power]),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    fn budget() -> &'static Budget {
        Box::leak(Box::new(Budget::new()))
    }

    fn never() -> Cancellation<'static> {
        Cancellation::never()
    }

    const ANY: fn(u64) -> bool = |_| true;

    #[test]
    fn permits_never_exceed_the_limit_and_all_are_served() {
        let budget = budget();
        let (held, served) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (held, served) = (&held, &served);
                scope.spawn(move || {
                    for turn in 0..200 {
                        let bytes = 1 + (thread * 37 + turn * 11) % 100;
                        let permit = budget.acquire(bytes, 100, ANY, never()).unwrap();
                        let sum = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(sum <= 100, "{sum}");
                        served.fetch_add(1, Ordering::SeqCst);
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(served.into_inner(), 8 * 200);
        assert_eq!(budget.state.lock().used, 0);
    }

    #[test]
    fn what_never_fits_is_refused_at_once() {
        let budget = budget();
        let held = budget.acquire(60, 100, ANY, never()).unwrap();
        assert_eq!(
            budget.acquire(101, 100, ANY, never()).unwrap_err(),
            Refused::Limit
        );
        drop(held);
        // The system's own limit refuses a request only if no other permit is held.
        assert_eq!(
            budget.acquire(60, 100, |sum| sum < 50, never()).unwrap_err(),
            Refused::System
        );
        drop(budget.acquire(100, 100, ANY, never()).unwrap());
    }

    #[test]
    fn a_large_image_waits_for_others_and_is_not_overtaken() {
        let budget = budget();
        let mut held = budget.acquire(60, 100, ANY, never()).unwrap();
        let order = Mutex::new(Vec::new());
        let queued = |number| {
            while budget.state.lock().next < number {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let permit = budget.acquire(78, 100, ANY, never()).unwrap();
                order.lock().push("large");
                drop(permit);
            });
            queued(2);
            scope.spawn(|| {
                let permit = budget.acquire(10, 100, ANY, never()).unwrap();
                order.lock().push("small");
                drop(permit);
            });
            queued(3);
            assert!(order.lock().is_empty());
            held.shrink_to(20);
            held.shrink_to(10);
        });
        assert_eq!(order.into_inner(), ["large", "small"]);
        drop(held);
        assert_eq!(budget.state.lock().used, 0);
    }

    #[test]
    fn an_image_that_is_no_longer_wanted_waits_for_no_memory() {
        let budget = budget();
        let held = budget.acquire(60, 100, ANY, never()).unwrap();
        let left = || true;
        let gone = budget.acquire(60, 100, ANY, Cancellation::new(&left));
        assert_eq!(gone.unwrap_err(), Refused::Cancelled);
        // Abandon a request behind another one, too. Requests after it are granted.
        thread::scope(|scope| {
            scope.spawn(|| drop(budget.acquire(60, 100, ANY, never()).unwrap()));
            while budget.state.lock().next < 3 {
                thread::yield_now();
            }
            let gone = budget.acquire(1, 100, ANY, Cancellation::new(&left));
            assert_eq!(gone.unwrap_err(), Refused::Cancelled);
            drop(held);
        });
        drop(budget.acquire(100, 100, ANY, never()).unwrap());
    }

    #[test]
    fn sizes_are_printed_in_their_unit() {
        assert_eq!(size(159), "159 bytes");
        assert_eq!(size(1 << 30), "1.0 GiB");
        assert_eq!(size(1_431_553_032), "1.3 GiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn a_small_image_overtakes_large_ones_that_wait() {
        let budget = budget();
        let large = budget.acquire(88, 100, ANY, never()).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.acquire(50, 100, ANY, never()).unwrap().bytes());
            while budget.state.lock().next < 2 {
                thread::yield_now();
            }
            let small: Vec<Permit> = (0..4)
                .map(|_| budget.acquire(3, 100, ANY, never()).unwrap())
                .collect();
            let held = |state: &State| (state.used, state.overtaking);
            assert_eq!(held(&budget.state.lock()), (100, 12));
            // Small images get no more than the reserved part. The next one waits for its turn.
            let next = scope.spawn(|| budget.acquire(3, 100, ANY, never()).unwrap().bytes());
            while budget.state.lock().next < 7 {
                thread::yield_now();
            }
            drop(large);
            assert_eq!((waiting.join().unwrap(), next.join().unwrap()), (50, 3));
            drop(small);
        });
        let state = budget.state.lock();
        assert_eq!((state.used, state.overtaking), (0, 0));
    }

    #[test]
    fn resizing_a_long_side_counts() {
        let limits = Limits {
            max_memory: 64 << 20,
            ..Limits::default()
        };
        let of = |width: u32, height: u32| {
            let mut claim = Claim::new(&limits, &[], never());
            claim.check(width, height)?;
            claim.reserve(0)?;
            Ok::<_, Failure>(claim.into_permit(0).map(|permit| permit.bytes()))
        };
        assert!(of(1 << 24, 1).is_err());
        let small = of(1000, 500).unwrap().unwrap();
        assert_eq!(small, 1500 * RESIZING);
    }
}
