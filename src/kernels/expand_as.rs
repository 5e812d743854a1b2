//! Repetition of a tensor: the prefix tokens of images that have no other tokens.

use hipvit_graph::op::ExpandAs;

use super::bindings::TokensArgs;
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{DeviceAddress, KernelError, Unit};

impl Lower for ExpandAs {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("tokens"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let shape = step.shape_of(0)?;
        let channels = shape.last().copied().unwrap_or(1);
        let prefixes = if shape.is_empty() { 1 } else { rows(shape)? };
        let images = step.shape.iter().product::<usize>() / (prefixes * channels).max(1);
        let addresses = [
            DeviceAddress::NULL,
            step.address(0)?,
            DeviceAddress::NULL,
            step.out,
        ];
        one(TokensArgs::new(addresses, [images, 0, channels], prefixes)?)
    }
}
