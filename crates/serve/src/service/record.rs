//! Record of a request for metrics and statistics.

use std::sync::Arc;
use std::time::Instant;

use crate::failure::Kind;
use crate::metrics::Metrics;
use crate::priority::Priority;
use crate::repository::Model;
use crate::statistics::Parts;
use crate::traces::Trace;

/// Counts a request on its end: with its result, or when its future is dropped because the client left.
pub(super) struct Record<'a> {
    pub(super) metrics: &'a Metrics,
    /// Only existing names become labels, because a client can send any name.
    pub(super) model: Option<Arc<Model>>,
    pub(super) protocol: &'static str,
    pub(super) priority: Priority,
    pub(super) begin: Instant,
    pub(super) parts: Parts,
    pub(super) failed: Option<Kind>,
    pub(super) ended: bool,
    pub(super) trace: Trace,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let model = self.model.as_deref();
        let labels = (model.map_or("", |model| &model.name), self.protocol);
        let time = self.begin.elapsed();
        if let Some(model) = model {
            if self.ended && self.failed.is_none() {
                model.statistics.success(time, self.parts);
            } else {
                model.statistics.fail(time);
            }
        }
        if self.ended {
            self.metrics.request(labels, self.priority, self.failed, time);
        } else {
            self.trace.describe("error.type", "cancelled");
            self.metrics.cancelled(labels);
        }
    }
}
