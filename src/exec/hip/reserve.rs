//! The device memory of a run: an idle execution context that is made to fit, or a new one.

use std::ops::Deref;

use parking_lot::MutexGuard;

use super::HipExecutor;
use super::context::ExecutionContext;
use crate::error::{Error, Result};
use crate::graph::plan::Plan;
use crate::hip;
use crate::timeline::{self, Activity};

/// A context with the memory for a run of a plan.
pub(crate) struct Reserved<P> {
    pub(super) plan: P,
    pub(super) context: ExecutionContext,
}

impl<P> Reserved<P> {
    pub(in crate::exec) fn plan(&self) -> &P {
        &self.plan
    }
}

impl HipExecutor {
    /// A context with all the device memory that a run of `plan` needs.
    pub(in crate::exec) fn reserve<P: Deref<Target = Plan>>(&self, plan: P) -> Result<Reserved<P>> {
        if plan.dtype() != self.dtype {
            let reason = format!(
                "the plan requires {}, the executor has {}",
                plan.dtype(),
                self.dtype
            );
            return Err(Error::argument("dtype", reason));
        }
        let mut context = self.context(&plan);
        let again = match &self.rank {
            // All or none, so that all ranks keep the same contexts, with the same captured graphs.
            Some(_) => !self.agree(context.is_ok()),
            None => context.as_ref().is_err_and(is_out_of_memory),
        };
        if again {
            drop(context);
            // Idle contexts may hold the missing memory.
            let idle = std::mem::take(&mut *self.contexts());
            drop(idle);
            context = self.context(&plan);
            if self.rank.is_some() && !self.agree(context.is_ok()) {
                context = Err(context.err().unwrap_or(Error::Argument {
                    what: OTHER_RANK,
                    reason: "another GPU of the model has none for the run".into(),
                }));
            }
        }
        let context = context?;
        Ok(Reserved { plan, context })
    }

    fn context(&self, plan: &Plan) -> Result<ExecutionContext> {
        let allocating = timeline::span(Activity::Allocate);
        let input = plan.input_bytes();
        let idle = self.contexts().pop();
        let mut context = match idle {
            Some(mut context) => {
                context.fit(plan, input)?;
                context
            }
            None => {
                let on = self.rank.as_ref().map(|rank| &rank.on);
                ExecutionContext::new(&self.device, plan, input, on)?
            }
        };
        drop(allocating);
        let _span = timeline::span(Activity::Select);
        context.libraries.open(plan, &self.selection)?;
        Ok(context)
    }

    pub(super) fn contexts(&self) -> MutexGuard<'_, Vec<ExecutionContext>> {
        self.contexts.lock()
    }
}

/// What [`is_out_of_memory`] knows the error by of ranks that have the memory which another rank has not.
const OTHER_RANK: &str = "memory";

/// Whether there was no memory for a run, on this rank or another.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    matches!(
        error,
        Error::Hip(hip::Error::OutOfMemory { .. }) | Error::Argument { what: OTHER_RANK, .. }
    )
}
