//! Submissions of work on operands: checks, and ownership of memory in the meantime.

use std::sync::Arc;

use hipvit_sys::Hip;

use crate::error::Result;
use crate::memory::operand::Operand;
use crate::memory::pending::Pending;
use crate::stream::{Resource, Stream};

impl Stream {
    /// Submits work that only accesses `operands`. Checks that the stream may use them, and records the use.
    pub(crate) fn submit(
        &self,
        operands: &[Operand<'_>],
        work: impl FnOnce(&Hip) -> Result<()>,
    ) -> Result<()> {
        let hip = self.device().enter()?;
        for operand in operands {
            operand.admit(self)?;
        }
        let result = work(hip);
        // Also after an error, which may come from an earlier submission.
        self.note(
            operands
                .iter()
                .map(|operand| -> Arc<dyn Resource> { operand.block().clone() }),
        );
        result
    }

    /// Submits work on operands and on host memory that `payload` owns. The payload is inaccessible until the work is done.
    pub(crate) fn submit_with<P>(
        &self,
        operands: &[Operand<'_>],
        payload: P,
        work: impl FnOnce(&Hip, &P) -> Result<()>,
    ) -> Result<Pending<P>> {
        self.refuse_capture("an asynchronous copy")?;
        let submitted = self.submit(operands, |hip| work(hip, &payload));
        match submitted.and_then(|()| self.mark()) {
            Ok(event) => Ok(Pending::new(payload, event, self.clone())),
            Err(error) => {
                // The copy may be running nevertheless.
                Pending::settle(self, payload);
                Err(error)
            }
        }
    }
}
