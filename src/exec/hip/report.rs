//! Which kernels a plan's steps become on this device, for `hipvit inspect`.

use std::borrow::Cow;

use super::libraries::Libraries;
use super::lower::{Addresses, Call, LinearCall, Unfused, lower};
use super::{HipExecutor, KernelCall};
use crate::error::{Error, Result};
use crate::exec::select::{Candidate, Origin};
use crate::graph::inspection::SelectedKernels;
use crate::graph::plan::{Plan, Step};

impl HipExecutor {
    /// What computes each step of `plan`: steps that are the same but for their place in the model are counted.
    ///
    /// # Errors
    ///
    /// A step that the device does not compute.
    pub fn kernels(&self, plan: &Plan) -> Result<Vec<SelectedKernels>> {
        let mut libraries = Libraries::new(&self.device.stream()?, None);
        let mut all: Vec<SelectedKernels> = Vec::new();
        for (step, calls) in self.lowered(plan)? {
            let node = plan.node(step);
            let mut origin = None;
            let mut names: Vec<String> = Vec::new();
            for call in calls {
                let (new, from) = self.names(call, &mut libraries);
                origin = from.map(|from| from.to_string());
                // One GEMM per head is one line.
                names.extend(new.into_iter().filter(|name| !name.is_empty()));
                names.dedup();
            }
            let of_step = SelectedKernels {
                op: node.op.to_string(),
                shape: plan.buffer(step.output).shape.clone(),
                steps: 1,
                kernels: names,
                origin,
            };
            match all.iter_mut().find(|known| known.same(&of_step)) {
                Some(known) => known.steps += 1,
                None => all.push(of_step),
            }
        }
        Ok(all)
    }

    /// The calls of each step, at addresses that are not to be used.
    pub(super) fn lowered<'a>(&self, plan: &'a Plan) -> Result<Vec<(&'a Step, Vec<Call>)>> {
        // 0 would be the address of an operand that is not there.
        let addresses = Addresses {
            input: 256,
            constants: self.constants.addresses(),
            arena: 256,
            scratch: 256,
        };
        let of_step = |step: &'a Step| {
            let calls = lower(plan, step, addresses);
            let calls = calls.map_err(|reason| Error::graph(&plan.node(step).name, reason))?;
            Ok((step, calls))
        };
        plan.steps().iter().map(of_step).collect()
    }

    /// What computes `call`, and where the choice comes from if there is one.
    fn names(&self, call: Call, libraries: &mut Libraries) -> (Vec<String>, Option<Origin>) {
        let (candidate, origin) = libraries.resolve(&call, &self.selection);
        let selected = call.problem().map(|_| origin);
        let names = match (&call, candidate) {
            (Call::Kernel(kernel), _) => vec![name(
                &self
                    .kernels
                    .select(*kernel, self.selection.options().reproducible),
            )],
            (Call::Gemm { .. }, _) => vec!["rocBLAS".to_owned()],
            (Call::CopyRows(_), _) => vec!["copy".to_owned()],
            (Call::AllReduce { .. }, _) => vec!["RCCL all-reduce".to_owned()],
            (Call::Linear(linear), _) => linear_names(linear, candidate),
            (Call::Patches(call), Candidate::Miopen) => {
                vec![format!("{} as an image", name(&call.extract.as_image().into()))]
            }
            (Call::Projection(call), Candidate::Miopen) => {
                let bias = follows(&call.linear);
                ["MIOpen convolution".to_owned()]
                    .into_iter()
                    .chain(bias)
                    .collect()
            }
            (Call::Attention(_), Candidate::Miopen) => vec!["MIOpen attention".to_owned()],
            // By the linear layer's choice; it may be of something else than the patch embedding's.
            (Call::Projection(call), _) => return self.names(Call::Linear(call.linear), libraries),
            (Call::Patches(_) | Call::Attention(_), _) => {
                let own = call.own().unwrap_or_default().into_iter();
                own.flat_map(|call| self.names(call, libraries).0).collect()
            }
        };
        (names, selected)
    }
}

fn linear_names(linear: &LinearCall, candidate: Candidate) -> Vec<String> {
    let fused = matches!(candidate, Candidate::Hipblaslt { epilogue: true, .. });
    let follows = if fused { None } else { follows(linear) };
    [candidate.to_string()].into_iter().chain(follows).collect()
}

/// The kernel that follows a GEMM without an epilogue.
fn follows(linear: &LinearCall) -> Option<String> {
    let Unfused { kernel, .. } = linear.unfused().ok()?;
    Some(name(&kernel?.into()))
}

/// The name of the kernel's entry.
fn name(kernel: &KernelCall) -> String {
    kernel.entry().map(Cow::into_owned).unwrap_or_default()
}
