//! All-reduce. The CPU rejects it, since tensor parallelism is for GPUs.

use hipvit_graph::op::{AllReduce, OpError};

use super::{CpuOp, Operands};

impl CpuOp for AllReduce {
    fn run(&self, _operands: &Operands<'_>, _results: &mut [&mut [f32]]) -> Result<(), OpError> {
        Err("sums over the ranks of a tensor-parallel model, which run on GPUs".into())
    }
}
