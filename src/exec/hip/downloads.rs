//! The copies of a run's results to the host.

use std::ops::Range;

use super::context::ExecutionContext;
use super::executor::HipExecutor;
use super::results::downloaded;
use super::unified::ResultBytes;
use crate::error::Result;
use crate::exec::executor::Download;
use crate::graph::plan::Plan;
use crate::hip::{self, Event, Pending, PinnedBuffer};

/// Maximum bytes from the first to the last of several results that one copy takes. More bytes would take longer than another copy.
const ONE_COPY: usize = 128 << 10;

/// The results of a run that the host reads: copies, or memory that kernels write for the host.
pub(super) struct Downloads {
    copies: Vec<Pending<PinnedBuffer<u8>>>,
    /// Bytes of each result in the only copy. Empty if each result has a copy of its own.
    parts: Vec<Range<usize>>,
    /// Results that are not copied: the index of each, and its range in host memory.
    in_place: Vec<(usize, Range<usize>)>,
}

impl Downloads {
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty() && self.in_place.is_empty()
    }

    /// Returns true if results are copied.
    pub(super) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Returns the event at the end of the last copy.
    pub(super) fn end(&self) -> Option<&Event> {
        self.copies.last().map(Pending::event)
    }
}

impl HipExecutor {
    /// Submits the copies of results.
    pub(super) fn download(
        &self,
        context: &ExecutionContext,
        plan: &Plan,
        download: Download,
    ) -> Result<Downloads> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut in_place = Vec::new();
        for (index, (_, _, id)) in downloaded(plan, download).enumerate() {
            let results = context.memory.host_results.as_ref();
            match results.and_then(|results| results.range(plan, id)) {
                Some(range) => in_place.push((index, range)),
                None => {
                    let buffer = plan.buffer(id);
                    ranges.push(buffer.offset..buffer.offset + buffer.bytes);
                }
            }
        }
        let copy = |range: &Range<usize>| {
            let target = self.memory.results.take(range.len())?;
            Ok(context.memory.arena.download(range.start, target)?)
        };
        let first = ranges.iter().map(|range| range.start).min().unwrap_or(0);
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        if ranges.len() > 1 && end - first <= ONE_COPY {
            let within = |range: Range<usize>| range.start - first..range.end - first;
            return Ok(Downloads {
                copies: vec![copy(&(first..end))?],
                parts: ranges.into_iter().map(within).collect(),
                in_place,
            });
        }
        Ok(Downloads {
            copies: ranges.iter().map(copy).collect::<Result<_>>()?,
            parts: Vec::new(),
            in_place,
        })
    }

    /// Waits for the copies, and returns each result.
    pub(super) fn wait_for_results(&self, downloads: Downloads) -> Result<Vec<ResultBytes>> {
        let waited = downloads.copies.into_iter().map(Pending::wait);
        let mut copies: Vec<_> = waited.collect::<hip::Result<_>>()?;
        let mut results =
            Vec::with_capacity(copies.len().max(downloads.parts.len()) + downloads.in_place.len());
        if downloads.parts.is_empty() {
            results.extend(copies.drain(..).map(ResultBytes::Copied));
        }
        for all in copies {
            for part in &downloads.parts {
                let mut result = self.memory.results.take(part.len())?;
                result.copy_from_slice(&all[part.clone()]);
                results.push(ResultBytes::Copied(result));
            }
            self.memory.results.keep(all);
        }
        for (index, range) in downloads.in_place {
            // In the order of the results, so that all before this one are there.
            results.insert(index, ResultBytes::InPlace(range));
        }
        Ok(results)
    }

    /// Returns the memory of copies to its pool.
    pub(super) fn keep_results(&self, results: impl IntoIterator<Item = ResultBytes>) {
        for result in results {
            if let ResultBytes::Copied(bytes) = result {
                self.memory.results.keep(bytes);
            }
        }
    }
}
