//! Record of a request for metrics and statistics.

use std::sync::Arc;
use std::time::Instant;

use crate::failure::{Failure, Kind};
use crate::metrics::Metrics;
use crate::priority::Priority;
use crate::repository::Model;
use crate::statistics::Parts;
use crate::traces::Trace;

/// Counts a request on its end: with its result, or when its future or its answer is dropped because the client left.
pub(crate) struct Record {
    pub(super) metrics: Arc<Metrics>,
    /// Only existing names become labels, because a client can send any name.
    pub(super) model: Option<Arc<Model>>,
    pub(super) protocol: &'static str,
    pub(super) priority: Priority,
    pub(super) begin: Instant,
    pub(crate) parts: Parts,
    pub(super) failed: Option<Kind>,
    pub(super) ended: bool,
    pub(super) trace: Trace,
}

impl Record {
    /// Notes how the request ended.
    pub(crate) fn end(&mut self, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            self.failed = Some(failure.kind());
            self.trace.fail(failure);
        }
        self.ended = true;
    }
}

impl Drop for Record {
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
