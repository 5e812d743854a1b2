//! The copies of a run's results to the host.

use std::ops::Range;

use super::context::ExecutionContext;
use super::executor::HipExecutor;
use super::results::downloaded;
use crate::error::Result;
use crate::exec::executor::Download;
use crate::graph::plan::Plan;
use crate::hip::{self, Event, Pending, PinnedBuffer};

/// Maximum bytes from the first to the last of several results that one copy takes. More bytes would take longer than another copy.
const ONE_COPY: usize = 128 << 10;

/// The copies of a run's results to the host.
pub(super) struct Downloads {
    copies: Vec<Pending<PinnedBuffer<u8>>>,
    /// Bytes of each result in the only copy. Empty if each result has a copy of its own.
    parts: Vec<Range<usize>>,
}

impl Downloads {
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty()
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
        let ranges: Vec<Range<usize>> = downloaded(plan, download)
            .map(|(_, _, id)| plan.buffer(id))
            .map(|buffer| buffer.offset..buffer.offset + buffer.bytes)
            .collect();
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
            });
        }
        Ok(Downloads {
            copies: ranges.iter().map(copy).collect::<Result<_>>()?,
            parts: Vec::new(),
        })
    }

    /// Waits for the copies, and returns the bytes of each result.
    pub(super) fn wait_for_results(&self, downloads: Downloads) -> Result<Vec<PinnedBuffer<u8>>> {
        let waited = downloads.copies.into_iter().map(Pending::wait);
        let mut copies: Vec<_> = waited.collect::<hip::Result<_>>()?;
        if downloads.parts.is_empty() {
            return Ok(copies);
        }
        let mut results = Vec::with_capacity(downloads.parts.len());
        for all in copies.drain(..) {
            for part in &downloads.parts {
                let mut result = self.memory.results.take(part.len())?;
                result.copy_from_slice(&all[part.clone()]);
                results.push(result);
            }
            self.memory.results.keep(all);
        }
        Ok(results)
    }
}
