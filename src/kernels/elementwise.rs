//! `elementwise`: a formula of broadcast operands, in a program that is generated for it. The extents are arguments, so that the program
//! serves every batch size.

mod source;

use std::borrow::Cow;

use hipvit_graph::op::Elementwise;

use self::source::{constants, source};
use super::bindings::{ElementwiseFormulaArgs, FORMULA_AXES, FORMULA_OPERANDS};
use super::generated_call::GeneratedCall;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};
use crate::tensor::DType;

const _: () = assert!(Elementwise::MAX_OPERANDS == FORMULA_OPERANDS as usize);

/// Axes of the rows of a result.
const ROW_AXES: usize = FORMULA_AXES as usize - 1;

/// Names of the fields of the operands.
const OPERANDS: [&str; FORMULA_OPERANDS as usize] = [
    "operands[0]",
    "operands[1]",
    "operands[2]",
    "operands[3]",
    "operands[4]",
    "operands[5]",
    "operands[6]",
    "operands[7]",
];

impl Lower for Elementwise {
    fn unit(&self) -> Option<Unit> {
        Some(unit(self))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let arguments = ElementwiseFormulaArgs::new(self, step)?;
        one(GeneratedCall::new(&unit(self), arguments))
    }
}

fn unit(op: &Elementwise) -> Unit {
    Unit::generated("elementwise", source(op))
}

impl ElementwiseFormulaArgs {
    /// # Errors
    ///
    /// The op has more operands or axes than the kernel takes, or an extent exceeds 32 bits.
    fn new(op: &Elementwise, step: &Lowering<'_>) -> Result<Self, KernelError> {
        let integers = op.integer_operands();
        if integers.len() > OPERANDS.len() {
            let reason = format!("has more than {FORMULA_OPERANDS} operands. Split the expression");
            return Err(KernelError::unsupported(reason));
        }
        let shapes = (0..integers.len()).map(|index| step.shape_of(index));
        let broadcast = op.broadcast(&shapes.collect::<Result<Vec<_>, _>>()?)?;
        let Some((&columns, rows)) = broadcast.extents.split_last() else {
            return Err(KernelError::internal("has no axis"));
        };
        if rows.len() > ROW_AXES {
            let reason = format!("broadcasts along more than {FORMULA_AXES} axes. Reshape the operands");
            return Err(KernelError::unsupported(reason));
        }
        let first = ROW_AXES - rows.len();
        let mut arguments = Self {
            operands: Default::default(),
            out: step.out,
            extents: [1; ROW_AXES],
            strides: Default::default(),
            column_strides: Default::default(),
            element_bytes: Default::default(),
            constants: Default::default(),
            rows: extent(rows.iter().product())?,
            columns: extent(columns)?,
            result_bytes: if op.is_integer() { 4 } else { step.element() as u32 },
        };
        for (to, (_, constant)) in arguments.constants.iter_mut().zip(constants(op.formula())) {
            *to = constant;
        }
        for (to, &from) in arguments.extents[first..].iter_mut().zip(rows) {
            *to = extent(from)?;
        }
        for (index, &is_integer) in integers.iter().enumerate() {
            if (step.dtype_of(index)? == DType::I32) != is_integer {
                let expected = if is_integer { "i32" } else { "floats" };
                let reason = format!("its operand {index} is not of {expected}");
                return Err(KernelError::unsupported(reason));
            }
            (arguments.operands[index], arguments.element_bytes[index]) = if is_integer {
                (step.integers(index)?, 4)
            } else {
                (step.address(index)?, step.element() as u32)
            };
            let strides = &broadcast.strides[index];
            for (to, &from) in arguments.strides[index][first..]
                .iter_mut()
                .zip(&strides[..rows.len()])
            {
                *to = extent(from)?;
            }
            arguments.column_strides[index] = extent(strides[rows.len()])?;
        }
        Ok(arguments)
    }

    /// Returns the number of elements from the first to the last one of an operand.
    fn elements(&self, operand: usize) -> usize {
        let steps = |extent: u32, stride: u32| (extent as usize - 1).saturating_mul(stride as usize);
        let axes = self.extents.iter().zip(&self.strides[operand]);
        let rows = axes.map(|(&extent, &stride)| steps(extent.max(1), stride));
        rows.fold(
            steps(self.columns.max(1), self.column_strides[operand]),
            usize::saturating_add,
        )
        .saturating_add(1)
    }
}

// SAFETY: see hip/elementwise/formula.hpp. Threads beyond the last row return, and rows have at most `columns` elements.
unsafe impl KernelArguments for ElementwiseFormulaArgs {
    const FILE: &'static str = "elementwise";

    fn unit(&self) -> Result<Unit, KernelError> {
        Err(KernelError::internal("is a generated program's kernel"))
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("elementwise".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        target.elementwise(self.rows.into(), self.columns)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        for (index, name) in OPERANDS.into_iter().enumerate() {
            let address: DeviceAddress = self.operands[index];
            let size = self.element_bytes[index] as usize;
            if size > 0 {
                visit(Access::read(
                    name,
                    address,
                    self.elements(index).saturating_mul(size),
                ));
            }
        }
        let all = bytes(self.result_bytes as usize, &[self.rows, self.columns]);
        visit(Access::write("out", self.out, all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_end_at_the_last_element_of_each_operand() {
        let mut arguments = ElementwiseFormulaArgs {
            operands: Default::default(),
            out: DeviceAddress::NULL,
            extents: [1, 1, 1, 2, 3],
            strides: Default::default(),
            column_strides: [1, 0, 1, 0, 0, 0, 0, 0],
            element_bytes: [2, 2, 4, 0, 0, 0, 0, 0],
            constants: Default::default(),
            rows: 6,
            columns: 5,
            result_bytes: 4,
        };
        // [2, 3, 5], [2, 1, 1] and [3, 5] in i32.
        arguments.strides[0] = [0, 0, 0, 15, 5];
        arguments.strides[1] = [0, 0, 0, 1, 0];
        arguments.strides[2] = [0, 0, 0, 0, 5];
        let mut found = Vec::new();
        arguments.accesses(2, &mut |access| found.push((access.field, access.bytes)));
        assert_eq!(
            found,
            [
                ("operands[0]", 60),
                ("operands[1]", 4),
                ("operands[2]", 60),
                ("out", 120)
            ]
        );
    }
}
