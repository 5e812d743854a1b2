//! Which kernels a plan's steps become on this device, for `hipvit inspect`.

use super::executor::HipExecutor;
use super::libraries::{Libraries, kernel_name};
use super::lower::{Addresses, Call, LinearCall, Unfused, lower};
use crate::error::{Error, Result};
use crate::exec::select::{Candidate, Origin};
use crate::graph::inspection::{KernelLaunch, SelectedKernels};
use crate::graph::plan::{Plan, Step};
use crate::hip::Launch;
use crate::kernels::KernelCall;

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
            let mut called: Vec<Called> = Vec::new();
            if calls.is_empty() {
                called.push(Called::library("in attention"));
            }
            for call in calls {
                let (new, from) = self.called(call, &mut libraries);
                origin = from.map(|from| from.to_string());
                // One GEMM per head is one line.
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
                shape: plan.buffer(step.output).shape.clone(),
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

    /// The calls of each step, at addresses that are not to be used.
    pub(super) fn lowered<'a>(&self, plan: &'a Plan) -> Result<Vec<(&'a Step, Vec<Call>)>> {
        // 0 would be the address of an operand that is not there.
        let addresses = Addresses {
            input: 256,
            constants: self.constants.addresses(),
            steps: self.constants.steps(),
            float8: self.device.properties().float8(),
            sparse: self.constants.sparse(),
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
    fn called(&self, call: Call, libraries: &mut Libraries) -> (Vec<Called>, Option<Origin>) {
        let (candidate, origin) = libraries.resolve(&call, &self.selection);
        let selected = call.problem().map(|_| origin);
        let all = match (&call, candidate) {
            (Call::Kernel(kernel), _) => {
                let reproducible = self.selection.options().reproducible;
                let selected = self.kernels.select(*kernel, reproducible);
                selected.map(|kernel| self.own(kernel)).collect()
            }
            (Call::Gemm { .. }, _) => vec![Called::library("rocBLAS")],
            (Call::CopyRows(_), _) => vec![Called::library("copy")],
            (Call::AllReduce(call), _) => {
                let follows = call.follows().ok().flatten();
                let follows = follows.map(|kernel| self.own(kernel.into()));
                [Called::library("RCCL all-reduce")]
                    .into_iter()
                    .chain(follows)
                    .collect()
            }
            (Call::Linear(linear), Candidate::Sparse) => {
                let kernel = linear.packed().ok();
                kernel.map(|kernel| self.own(kernel.into())).into_iter().collect()
            }
            (Call::Linear(linear), Candidate::Int8) => {
                let kernel = linear.bytes().ok();
                kernel.map(|kernel| self.own(kernel.into())).into_iter().collect()
            }
            (Call::Linear(linear), _) => {
                let fused = matches!(
                    candidate,
                    Candidate::Hipblaslt { epilogue: true, .. }
                        | Candidate::Hipsparselt { epilogue: true, .. }
                );
                let follows = if fused { None } else { self.follows(linear) };
                let gemm = Called::library(candidate.to_string());
                [gemm].into_iter().chain(follows).collect()
            }
            (Call::Patches(call), Candidate::Miopen) => {
                let own = self.own(call.extract.as_image().into());
                let name = format!("{} as an image", own.name);
                vec![Called { name, ..own }]
            }
            (Call::Projection(call), Candidate::Miopen) => {
                let bias = self.follows(&call.linear);
                let convolution = Called::library("MIOpen convolution");
                [convolution].into_iter().chain(bias).collect()
            }
            (Call::Attention(call), Candidate::Miopen) => {
                let rope = call.rope.map(|rope| self.own(rope.into()));
                let attention = Called::library("MIOpen attention");
                rope.into_iter().chain([attention]).collect()
            }
            // By the linear layer's choice; it may be of something else than the patch embedding's.
            (Call::Projection(call), _) => return self.called(Call::Linear(call.linear), libraries),
            (Call::Patches(_) | Call::Attention(_), _) => {
                let own = call.own().unwrap_or_default().into_iter();
                own.flat_map(|call| self.called(call, libraries).0).collect()
            }
        };
        (all, selected)
    }

    /// The kernel that follows a GEMM without an epilogue.
    fn follows(&self, linear: &LinearCall) -> Option<Called> {
        let Unfused { kernel, .. } = linear.unfused().ok()?;
        Some(self.own(kernel?))
    }

    /// A kernel of the crate's own. One that cannot be launched has no geometry; the launch says why.
    fn own(&self, kernel: KernelCall) -> Called {
        Called {
            name: kernel_name(&kernel),
            geometry: kernel.geometry(&self.kernels).ok(),
        }
    }
}

/// A kernel or library call.
#[derive(PartialEq)]
struct Called {
    name: String,
    geometry: Option<Launch>,
}

impl Called {
    fn library(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { name, geometry: None }
    }
}
