//! `attention_pattern`: fused attention whose score and mask are a pattern's, in a program that is generated for it.
//!
//! `attention_pattern_tiles` finds out which tiles of queries and keys the mask hides, so that attention skips them.

pub(crate) mod attention_call;
pub(crate) mod backward;
pub(crate) mod call;
#[cfg(test)]
mod shipped;
pub(crate) mod source;
pub(crate) mod tile;

use std::fmt::Debug;

use hipvit_graph::op::PatternAttention;
use hipvit_graph::pattern::{Number, Program, Type};

use self::attention_call::PatternAttentionCall;
use self::call::Tiles;
use self::source::source;
use self::tile::AttentionTile;
use super::attention::{no_fused_kernel, padded, visibility};
use super::bindings::{
    AttentionArgs, AttentionPattern, AttentionPatternArgs, PATTERN_RANK, PATTERN_SCALARS, PATTERN_TENSORS,
};
use super::call::Call;
use super::lower::{Lower, Lowering, one, shape_of};
use super::{DeviceAddress, KernelError, Unit, extent};
use crate::graph::plan::{Plan, Step};
use crate::tensor::DType;

impl Lower for PatternAttention {
    fn unit(&self) -> Option<Unit> {
        self.generate().ok()
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let images = plan.buffer(step.output()).shape[0];
        let tokens = |index: usize| match step.inputs.get(index).map(|&operand| shape_of(plan, operand)) {
            Some([_, tokens, _]) => *tokens,
            _ => 1,
        };
        let extents = [tokens(0), tokens(self.operands.keys())];
        Tiles::new(self, images)
            .bytes(extents, plan.dtype().size())
            .iter()
            .sum()
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        self.lower_with(step, &self.generate()?)
    }
}

impl PatternAttentionCall {
    /// Returns the [launches](Self::launches) as calls.
    pub(crate) fn calls(&self, tile: Option<AttentionTile>) -> Vec<Call> {
        self.launches(tile).into_iter().map(Into::into).collect()
    }
}

/// Lowering with a program that was generated before.
pub(crate) trait LowerGenerated {
    /// The unit, with what else the lowering needs of the op's expressions.
    type Generated: AsRef<Unit> + Debug + Send + Sync;

    /// Generates the op's program.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if no kernel supports the channels per head.
    fn generate(&self) -> Result<Self::Generated, KernelError>;

    /// Returns the calls that compute a step, as [`Lower::lower`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Lower::lower`].
    fn lower_with(&self, step: &Lowering<'_>, generated: &Self::Generated) -> Result<Vec<Call>, KernelError>;
}

impl LowerGenerated for PatternAttention {
    type Generated = Unit;

    fn generate(&self) -> Result<Unit, KernelError> {
        let head_dim = padded(self.head_dim).ok_or_else(|| no_fused_kernel(self.head_dim as u32))?;
        let source = source(&self.program, head_dim);
        Ok(Unit::generated("attention_pattern", source))
    }

    fn lower_with(&self, step: &Lowering<'_>, unit: &Unit) -> Result<Vec<Call>, KernelError> {
        let plain = self.plain();
        let [q, k, v] = plain.places().map(|(index, channel)| step.heads(index, channel));
        let (q, k, v) = (q?, k?, v?);
        let out = step.result_of(&plain, &q, step.out);
        let images = step.shape[0];
        let everything = visibility(DeviceAddress::NULL, 0, None, None);
        let attention = AttentionArgs::new(&plain, images, [q, k, v, out], everything)?;
        let tiles = Tiles::new(self, images);
        let bytes = tiles.bytes([q.tokens, k.tokens], step.element());
        let scratch = step.addresses.scratch;
        let at = |index: usize| {
            if bytes[index] == 0 {
                DeviceAddress::NULL
            } else {
                scratch.offset(bytes[..index].iter().sum())
            }
        };
        let arguments = AttentionPatternArgs {
            attention,
            pattern: step.pattern(
                (&self.program, &self.scalars),
                self.operands.count(),
                [images, self.heads, q.tokens, k.tokens],
            )?,
            tiles: at(0),
            visible_keys: at(1),
            addends: at(2),
            log_sum_exp: if self.log_sum_exp {
                step.result(1)?
            } else {
                DeviceAddress::NULL
            },
            tile_images: extent(tiles.images)?,
            tile_heads: extent(tiles.heads)?,
        };
        let mut integers = [false; PATTERN_TENSORS as usize];
        for (is_integer, tensor) in integers.iter_mut().zip(self.program.tensors()) {
            *is_integer = tensor.ty == Type::Int;
        }
        one(PatternAttentionCall {
            program: unit.clone(),
            arguments,
            dtype: step.plan.dtype(),
            evaluates: bytes.iter().any(|&bytes| bytes > 0),
            integers,
        })
    }
}

impl Lowering<'_> {
    /// Returns what the functions of a pattern read. Its captured tensors begin at operand `first`.
    ///
    /// # Errors
    ///
    /// There are more captured tensors, extents or scalars than kernels take, or a tensor does not have the type that the pattern declares.
    pub(super) fn pattern(
        &self,
        (program, scalars): (&Program, &[Number]),
        first: usize,
        [images, heads, queries, keys]: [usize; 4],
    ) -> Result<AttentionPattern, KernelError> {
        let mut pattern = AttentionPattern {
            tensors: Default::default(),
            extents: Default::default(),
            element_bytes: Default::default(),
            scalars: scalar_bits(scalars)?,
            heads: extent(heads)?,
            queries: extent(queries)?,
            keys: extent(keys)?,
            images: extent(images)?,
        };
        let tensors = program.tensors();
        if tensors.len() > PATTERN_TENSORS as usize {
            let reason = format!("captures more than {PATTERN_TENSORS} tensors");
            return Err(KernelError::unsupported(reason));
        }
        for (index, tensor) in tensors.iter().enumerate() {
            let shape = self.shape_of(first + index)?;
            if shape.len() > PATTERN_RANK as usize {
                let reason = format!(
                    "the captured tensor `{}` has more than {PATTERN_RANK} extents",
                    tensor.name
                );
                return Err(KernelError::unsupported(reason));
            }
            let is_int = self.dtype_of(first + index)? == DType::I32;
            if is_int != (tensor.ty == Type::Int) {
                let expected = if tensor.ty == Type::Int { "i32" } else { "floats" };
                let reason = format!("the captured tensor `{}` is not of {expected}", tensor.name);
                return Err(KernelError::unsupported(reason));
            }
            (pattern.tensors[index], pattern.element_bytes[index]) = if is_int {
                (self.integers(first + index)?, 4)
            } else {
                (self.address(first + index)?, self.element() as u32)
            };
            for (to, &from) in pattern.extents[index].iter_mut().zip(shape) {
                *to = extent(from)?;
            }
        }
        Ok(pattern)
    }
}

/// Returns the bits of the scalars.
fn scalar_bits(scalars: &[Number]) -> Result<[u32; PATTERN_SCALARS as usize], KernelError> {
    let mut bits = [0; PATTERN_SCALARS as usize];
    if scalars.len() > bits.len() {
        let reason = format!("has more than {PATTERN_SCALARS} scalars");
        return Err(KernelError::unsupported(reason));
    }
    for (bits, scalar) in bits.iter_mut().zip(scalars) {
        *bits = match scalar {
            Number::Int(value) => value.cast_unsigned(),
            Number::Float(value) => value.to_bits(),
        };
    }
    Ok(bits)
}
