//! Transposition of each image's tokens and channels, with what may follow it in one pass over memory.

use super::*;

pub(super) fn shape(spec: &Transpose, inputs: &[&[usize]]) -> Result<Shape, String> {
    let mut rest = inputs.iter();
    let &[batch, rows, columns] = optional(&mut rest, true, "x")?.unwrap_or_default() else {
        return Err(format!("takes [B,M,N], got {inputs:?}"));
    };
    if let Some(gamma) = optional(&mut rest, spec.scale, "gamma")? {
        expect("gamma", gamma, &[rows])?;
    }
    if spec.crop >= columns && spec.crop > 0 {
        return Err(format!("leaves out {} of {columns} columns", spec.crop));
    }
    let result = [batch, columns - spec.crop, rows + spec.pad];
    if let Some(y) = optional(&mut rest, spec.combine.is_some(), "y")? {
        expect("y", y, &result)?;
    }
    finished(&rest)?;
    Ok(result.to_vec())
}

pub(super) fn flops(spec: &Transpose, output: &[usize]) -> u64 {
    (u64::from(spec.scale) + u64::from(spec.combine.is_some())) * count(output)
}
