//! Conversions of matrices: `C = alpha·op(A) + beta·op(B)`, between types and orders, computed in f32.

use gcnrun::{FaultKind, Memory};
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasLtMatrixTransformDescAttributes_t as Transform, hipblasLtOrder_t, hipblasStatus_t,
};

use super::attributes::Attributes;
use super::enumerations::{element, is_transposed};
use super::matmul::Layout;
use crate::compute::{Element, Factor, Scalar};

const INVALID: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE;

/// One of the added matrices.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) factor: Scalar,
    pub(super) address: u64,
    pub(super) layout: Layout,
    pub(super) transposed: bool,
}

/// A validated transform.
pub(super) struct Conversion {
    pub(super) terms: Vec<Term>,
    pub(super) address: u64,
    pub(super) layout: Layout,
}

/// Returns the type of alpha and beta, true if they are on the device, and the transposed matrices.
pub(super) fn settings(of: &Attributes) -> Result<(Element, bool, [bool; 2]), hipblasStatus_t> {
    let value = |attribute: Transform| of.value(attribute.0) as u32;
    let scalar = element(hipDataType(value(
        Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE,
    )))?;
    let on_device = match value(Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE) {
        0 => false,
        1 => true,
        _ => return Err(INVALID),
    };
    let transposed = [
        is_transposed(value(Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSA))?,
        is_transposed(value(Transform::HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSB))?,
    ];
    Ok((scalar, on_device, transposed))
}

impl Conversion {
    pub(super) fn check(&self) -> Result<(), hipblasStatus_t> {
        let shape = (self.layout.rows, self.layout.columns);
        for Term {
            factor,
            address,
            layout,
            transposed,
        } in &self.terms
        {
            let shape_of = if *transposed {
                (layout.columns, layout.rows)
            } else {
                (layout.rows, layout.columns)
            };
            if shape_of != shape || layout.batch != self.layout.batch || *address == 0 && !factor.is_zero() {
                return Err(INVALID);
            }
        }
        if self.address == 0 { Err(INVALID) } else { Ok(()) }
    }

    pub(super) fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        (0..self.layout.batch).try_for_each(|index| self.run_one(memory, index))
    }

    fn run_one(&self, memory: &Memory, index: usize) -> Result<(), FaultKind> {
        let mut sum = vec![0.0_f32; self.layout.rows * self.layout.columns];
        for Term {
            factor,
            address,
            layout,
            transposed,
        } in &self.terms
        {
            let factor = factor.value(memory)? as f32;
            if factor == 0.0 {
                continue;
            }
            let address = layout.batch(*address).address(memory, index, layout.element)?;
            let in_rows = layout.order == hipblasLtOrder_t::HIPBLASLT_ORDER_ROW;
            let shape = [self.layout.rows, self.layout.columns];
            let matrix = Factor::new(
                address,
                layout.element,
                shape,
                layout.leading,
                *transposed != in_rows,
            );
            for (sum, value) in sum.iter_mut().zip(matrix.values::<f32>(memory)?) {
                *sum += factor * value;
            }
        }
        let layout = &self.layout;
        let address = layout
            .batch(self.address)
            .address(memory, index, layout.element)?;
        let in_rows = layout.order == hipblasLtOrder_t::HIPBLASLT_ORDER_ROW;
        let shape = [layout.rows, layout.columns];
        Factor::new(address, layout.element, shape, layout.leading, in_rows).store(memory, &sum)
    }
}
