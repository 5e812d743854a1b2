//! What is validated: each op and kernel, in each form, at each size. Pure. One file per op, named after it.

mod activation;
mod add;
mod attention;
mod attention_rope;
mod attention_statistics;
mod layer_norm;
mod patch_extract;
pub(super) mod pillow;
mod resize;
mod softmax;
mod swiglu;

use std::fmt;
use std::sync::Arc;

use super::config::Config;
use super::expected::Part;
use hipvit::error::Result;
use hipvit::graph::cases::{ACTIVATIONS, AWKWARD, Cases, Scale, activation, parameter};
pub(super) use hipvit::graph::cases::{Operand, Role};
use hipvit::kernels::KernelCall;
use hipvit::ops::Op;
use hipvit::tensor::{DType, Tensor};

#[cfg(test)]
pub(super) use attention::Mask;
pub(super) use attention::attention_parts;
pub(super) use patch_extract::patch_part;
pub(super) use resize::Resize;

/// What adds an op's cases to a list.
const CASES: [fn(&mut List); 9] = [
    add::cases,
    activation::cases,
    swiglu::cases,
    layer_norm::cases,
    attention::cases,
    attention_rope::cases,
    attention_statistics::cases,
    softmax::cases,
    resize::cases,
];

/// One computation and its operands.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) config: Config,
    pub(super) work: Work,
    pub(super) operands: Vec<Operand>,
    /// Whether activations lie in the arena, where the result may overwrite them, rather than beside it.
    pub(super) in_arena: bool,
    /// The result that is checked.
    pub(super) result: usize,
}

/// What is computed.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Op(Op),
    /// A kernel in a form that no [`Op`] asks for.
    Kernel(Arc<dyn KernelForm>),
    /// Of one image, in u8.
    Resize(Resize),
}

/// See [`Work::Kernel`]. Its `Display` is what the report calls it.
pub(super) trait KernelForm: fmt::Debug + fmt::Display + Send + Sync {
    /// The name that `--op` takes.
    fn op_name(&self) -> &'static str;

    /// The result's extents, given the operands'.
    fn result(&self, operands: &[&[usize]]) -> Vec<usize> {
        operands[0].to_vec()
    }

    /// The result's element type, with operands of type `dtype`.
    fn result_dtype(&self, dtype: DType) -> DType {
        dtype
    }

    /// The operand that the result overwrites.
    fn in_place(&self) -> Option<usize> {
        None
    }

    /// Floating-point operations.
    fn flops(&self, operands: &[&[usize]], result: &[usize]) -> u64;

    /// The reference's values of these rows of the result.
    fn expect(&self, operands: &[Tensor], rows: &[usize], dtype: DType) -> Result<Vec<Part>, String>;

    /// The kernel's arguments, by the constructors that lowering uses.
    fn call(&self, operands: &[&[usize]], memory: &Addresses) -> Result<KernelCall, String>;
}

/// Where a kernel's operands and result lie on the device.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) operands: Vec<u64>,
    pub(super) result: u64,
    /// Bytes of an element.
    pub(super) element: usize,
}

impl Addresses {
    /// Of the operand `index`; 0 if there is none.
    fn operand(&self, index: Option<usize>) -> u64 {
        index
            .and_then(|index| self.operands.get(index).copied())
            .unwrap_or(0)
    }
}

impl Case {
    /// The name that `--op` takes.
    pub(super) fn op_name(&self) -> &'static str {
        match &self.work {
            Work::Op(Op::Attention(_)) if self.result == 1 => STATISTICS,
            Work::Op(op) => op.name(),
            Work::Kernel(form) => form.op_name(),
            Work::Resize(_) => "resize",
        }
    }

    /// The elements' type, where it is not any that the device computes in.
    pub(super) fn dtype(&self) -> Option<DType> {
        matches!(self.work, Work::Resize(_)).then_some(DType::U8)
    }

    pub(super) fn shapes(&self) -> Vec<&[usize]> {
        self.operands.iter().map(|o| o.shape.as_slice()).collect()
    }

    /// The result's extents.
    pub(super) fn result(&self) -> Result<Vec<usize>> {
        match &self.work {
            Work::Op(op) => {
                let results = op.shapes(&self.shapes());
                let mut results = results.map_err(|source| hipvit_graph::Error::op(op.name(), op, source))?;
                Ok(results.swap_remove(self.result))
            }
            Work::Kernel(form) => Ok(form.result(&self.shapes())),
            Work::Resize(resize) => Ok(resize.result()),
        }
    }

    /// The result's element type, with operands of type `dtype`.
    pub(super) fn result_dtype(&self, dtype: DType) -> DType {
        match &self.work {
            Work::Op(op) => op.result_dtype(self.result, dtype),
            Work::Kernel(form) => form.result_dtype(dtype),
            Work::Resize(_) => dtype,
        }
    }

    /// The operand that the result overwrites whatever a plan says.
    pub(super) fn in_place(&self) -> Option<usize> {
        match &self.work {
            Work::Kernel(form) => form.in_place(),
            Work::Op(_) | Work::Resize(_) => None,
        }
    }

    /// Floating-point operations; those of masked scores are not done and not counted.
    pub(super) fn flops(&self, result: &[usize]) -> u64 {
        match &self.work {
            Work::Op(op) => {
                let results = op.shapes(&self.shapes()).unwrap_or_default();
                op.flops(&self.shapes(), &results)
            }
            Work::Kernel(form) => form.flops(&self.shapes(), result),
            // Its sums are of integers.
            Work::Resize(_) => 0,
        }
    }

    /// Images of the batch.
    pub(super) fn batch(&self) -> usize {
        self.image().map_or(1, |image| image.shape[0])
    }

    /// The weight that is 2:4 sparse, if there is one.
    pub(super) fn sparse_weight(&self) -> Option<&Operand> {
        let is_sparse = |o: &&Operand| matches!(o.role, Role::SparseWeight | Role::CompressedWeight);
        self.operands.iter().find(is_sparse)
    }

    /// The operand that is the graph's input, if one is.
    pub(super) fn image(&self) -> Option<&Operand> {
        self.operands.iter().find(|o| matches!(o.role, Role::Image(_)))
    }
}

/// The op with what was fused into it, and the layout of its operands.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Op(op) => {
                let sparse = match self.sparse_weight().map(|weight| weight.role) {
                    Some(Role::CompressedWeight) => " 2:4 compressed",
                    Some(_) => " 2:4",
                    None => "",
                };
                write!(f, "{op}{sparse}")
            }
            Work::Kernel(form) => write!(f, "{form}"),
            Work::Resize(resize) => write!(f, "{resize}"),
        }
    }
}

/// All cases of these sizes.
pub(super) fn cases(config: Config) -> Vec<Case> {
    let mut list = List {
        config,
        cases: Vec::new(),
    };
    let of_ops = Cases::of_all_ops(list.scale(), list.is_micro());
    list.cases.extend(of_ops.into_iter().map(|case| Case {
        config,
        work: Work::Op(case.op),
        operands: case.operands,
        in_arena: case.in_arena,
        result: case.result,
    }));
    for add in CASES {
        add(&mut list);
    }
    list.cases
}

struct List {
    config: Config,
    cases: Vec<Case>,
}

impl List {
    fn scale(&self) -> Scale {
        match (self.config.sizes(), self.config) {
            (Some(sizes), config) => Scale::Model {
                sizes,
                every_form: matches!(config, Config::Micro | Config::Small),
            },
            (None, Config::Heads) => Scale::Heads,
            (None, _) => Scale::Awkward,
        }
    }

    /// Whether this is the smallest set, which has each form of each kernel.
    fn is_micro(&self) -> bool {
        self.config == Config::Micro
    }

    fn push_kernel(&mut self, form: impl KernelForm + 'static, operands: Vec<Operand>) {
        self.push_work(Work::Kernel(Arc::new(form)), operands, false);
    }

    fn push_work(&mut self, work: Work, operands: Vec<Operand>, in_arena: bool) {
        self.cases.push(Case {
            config: self.config,
            work,
            operands,
            in_arena,
            result: 0,
        });
    }
}

/// The name that `--op` takes for the statistics of attention's softmax.
const STATISTICS: &str = "attention_statistics";

/// Floating-point operations of an op with one result.
fn flops(op: &Op, operands: &[&[usize]], result: &[usize]) -> u64 {
    op.flops(operands, &[result.to_vec()])
}
