//! The kernels and library calls of a plan's steps on this device, for `hipvit inspect`.

use super::candidate::Called;
use super::executor::HipExecutor;
use super::libraries::Libraries;
use super::lower::{Addresses, Call, Elsewhere, lower};
use super::states::States;
use crate::error::{Error, Result};
use crate::graph::inspection::{KernelLaunch, SelectedKernels};
use crate::graph::plan::{Plan, Step};
use crate::hip::{DeviceAddress, Launch};
use crate::ops::Op;

impl HipExecutor {
    /// Returns the kernels and library calls of each step of `plan`. Identical steps of different layers are counted together.
    ///
    /// # Errors
    ///
    /// Fails if the device cannot compute a step.
    pub fn kernels(&self, plan: &Plan) -> Result<Vec<SelectedKernels>> {
        let mut libraries = Libraries::new(&self.device.stream()?, None);
        let mut all: Vec<SelectedKernels> = Vec::new();
        for (step, calls) in self.lowered(plan, &mut libraries)? {
            let node = plan.node(step);
            let mut origin = None;
            let mut called: Vec<Called> = Vec::new();
            if calls.is_empty() {
                called.push(Called::library(match node.op {
                    Op::Activation(_) | Op::ActivationBackward(_) => "in the GEMM before it",
                    Op::AdamW(_) => "in the launch before it",
                    _ => "in attention",
                }));
            }
            for call in calls {
                let (new, from) = libraries.describe(&call, &self.selection, &self.kernels);
                origin = from.map(|from| from.to_string());
                // The GEMMs of all heads are one line.
                called.extend(new.into_iter().filter(|called| !called.name.is_empty()));
                called.dedup();
            }
            let launches = called.iter().filter_map(|called| {
                let Launch { grid, block, .. } = called.geometry?;
                let kernel = called.name.clone();
                Some(KernelLaunch { kernel, grid, block })
            });
            let of_step = SelectedKernels {
                op: node.op.to_string(),
                shape: plan.buffer(step.output()).shape.clone(),
                steps: 1,
                launches: launches.collect(),
                kernels: called.into_iter().map(|called| called.name).collect(),
                origin,
            };
            match all.iter_mut().find(|known| known.same(&of_step)) {
                Some(known) => known.steps += 1,
                None => all.push(of_step),
            }
        }
        Ok(all)
    }

    /// Returns the calls of each step, with placeholder addresses. Steps that are [merged](Self::merge) with the step before them have none.
    pub(super) fn lowered<'a>(
        &self,
        plan: &'a Plan,
        libraries: &mut Libraries,
    ) -> Result<Vec<(&'a Step, Vec<Call>)>> {
        // A null address would mean an absent operand.
        let placeholder = DeviceAddress::from_raw(256);
        let addresses = Addresses {
            inputs: placeholder,
            states: self.states.as_ref().map(States::addresses),
            constants: self.constants.addresses(),
            steps: self.constants.steps(),
            float8: self.device.properties().float8(),
            sparse: self.constants.sparse(),
            arena: placeholder,
            elsewhere: Elsewhere::NONE,
            in_place: &self.in_place,
            results: None,
            scratch: placeholder,
            counters: placeholder,
        };
        let mut all: Vec<(&Step, Vec<Call>)> = Vec::new();
        // Index of the step that the next one may be merged with.
        let mut open = 0;
        for step in plan.steps() {
            let calls =
                lower(plan, step, addresses).map_err(|reason| Error::op(plan.node(step), None, reason))?;
            let merged = match all.get_mut(open) {
                Some((_, before)) => {
                    self.may_merge(before, plan, step) && self.merge(before, plan, step, &calls, libraries)
                }
                None => false,
            };
            if !merged {
                open = all.len();
            }
            all.push((step, if merged { Vec::new() } else { calls }));
        }
        Ok(all)
    }
}
