//! Linear layers: a GEMM with an epilogue of bias, activation and residual.

use hipvit_graph::op::{Linear, OpError, Rounding};

use super::prepacked::{run, run_bf16};
use super::tail::Tail;
use super::{CpuOp, Form, Operands, int8};
use hipvit_graph::float8;
use hipvit_graph::tensor::DType;

impl CpuOp for Linear {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let dtype = operands.dtype();
        let (x, out) = (operands.values(0)?, &mut *results[0]);
        let tail = Tail {
            bias: operands.optional(self.bias, 2)?,
            activation: self.activation,
            residual: if self.residual {
                Some(operands.source(operands.count() - 1)?)
            } else {
                None
            },
        };
        match self.rounding {
            Some(Rounding::Float8(scale)) => {
                let x = float8::rounded(x, operands.channels(0)?, scale);
                run(&x, &*operands.weight(1, dtype)?, tail, out)?;
            }
            Some(Rounding::Int8(levels)) => int8::run(x, operands.int8_weight(1)?, levels, tail, out)?,
            Some(Rounding::Bf16) => run_bf16(x, &*operands.weight(1, DType::BF16)?, tail, out)?,
            None => run(x, &*operands.weight(1, dtype)?, tail, out)?,
        }
        Ok(())
    }

    fn constant_form(&self, index: usize, dtype: DType) -> Form {
        match self.rounding {
            _ if index != 1 => Form::Values,
            Some(Rounding::Int8(_)) => Form::Int8,
            Some(Rounding::Bf16) => Form::Weight(DType::BF16),
            Some(Rounding::Float8(_)) | None => Form::Weight(dtype),
        }
    }
}
