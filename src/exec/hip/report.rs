//! Which kernels a plan's steps become on this device, for `hipvit inspect`.

use std::borrow::Cow;

use super::libraries::Libraries;
use super::lower::{Addresses, Call, LinearCall, Unfused};
use super::{HipExecutor, KernelCall};
use crate::error::{Error, Result};
use crate::exec::select::{LinearKernel, Origin};
use crate::graph::inspection::SelectedKernels;
use crate::graph::plan::{Plan, Step};

impl HipExecutor {
    /// What computes each step of `plan`: steps that are the same but for their place in the model are counted.
    ///
    /// # Errors
    ///
    /// A step that the device does not compute.
    pub fn kernels(&self, plan: &Plan) -> Result<Vec<SelectedKernels>> {
        let mut libraries = Libraries::new(&self.device.stream()?);
        let mut all: Vec<SelectedKernels> = Vec::new();
        for (step, calls) in self.lowered(plan)? {
            let node = plan.node(step);
            let mut origin = None;
            let mut names: Vec<String> = Vec::new();
            for call in &calls {
                let new = match call {
                    Call::Kernel(kernel) => vec![name(kernel)],
                    Call::Gemm { .. } => vec!["rocBLAS".to_owned()],
                    Call::CopyRows(_) => vec!["copy".to_owned()],
                    Call::Linear(linear) => {
                        let (kernel, from) = self.linear_kernel(linear, &mut libraries);
                        origin = Some(from.to_string());
                        linear_names(linear, kernel)
                    }
                };
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
            let calls = self.calls(plan, step, addresses);
            let calls = calls.map_err(|reason| Error::graph(&plan.node(step).name, reason))?;
            Ok((step, calls))
        };
        plan.steps().iter().map(of_step).collect()
    }

    /// What is selected, or what takes its place if it cannot be prepared.
    fn linear_kernel(&self, linear: &LinearCall, libraries: &mut Libraries) -> (LinearKernel, Origin) {
        let shape = linear.shape();
        let (kernel, origin) = self.selection.linear(&shape);
        match libraries.check(kernel, &shape, self.selection.options().reproducible) {
            Ok(()) => (kernel, origin),
            Err(reason) => {
                self.selection.reject(&shape, &reason);
                (LinearKernel::Rocblas, Origin::Rule)
            }
        }
    }
}

fn linear_names(linear: &LinearCall, kernel: LinearKernel) -> Vec<String> {
    let fused = matches!(kernel, LinearKernel::Hipblaslt { epilogue: true, .. });
    let follows = match (fused, linear.unfused()) {
        (
            false,
            Ok(Unfused {
                kernel: Some(arguments),
                ..
            }),
        ) => Some(name(&arguments.into())),
        _ => None,
    };
    [kernel.to_string()].into_iter().chain(follows).collect()
}

/// The name of the kernel's entry.
fn name(kernel: &KernelCall) -> String {
    kernel.entry().map(Cow::into_owned).unwrap_or_default()
}
