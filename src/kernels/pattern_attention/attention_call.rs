//! Attention with a pattern as one call, whose tile is selected.

use std::collections::HashMap;

use super::call::{CAPTURED, visit_captured};
use super::tile::AttentionTile;
use crate::error::Result;
use crate::hip::{Access, DeviceAddress};
use crate::kernels::arguments::KernelArguments;
use crate::kernels::bindings::{AttentionPatternArgs, AttentionPatternTilesArgs, PATTERN_TENSORS};
use crate::kernels::generated_call::GeneratedCall;
use crate::kernels::unit::{Source, fnv1a};
use crate::kernels::{KernelError, Kernels, Unit};
use crate::tensor::DType;

/// Attention with a pattern: the evaluation of its mask and addends, if it has some, then the attention itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PatternAttentionCall {
    pub(super) program: Unit,
    pub(crate) arguments: AttentionPatternArgs,
    pub(crate) dtype: DType,
    /// True if `attention_pattern_tiles` runs before the attention.
    pub(super) evaluates: bool,
    /// Captured tensors of i32.
    pub(super) integers: [bool; PATTERN_TENSORS as usize],
}

impl PatternAttentionCall {
    /// Returns the launches with a tile. `None` selects the default tile of the code.
    pub(crate) fn launches(&self, tile: Option<AttentionTile>) -> Vec<GeneratedCall> {
        let unit = match tile {
            Some(tile) => tile.unit(&self.program),
            None => self.program.clone(),
        };
        let attention = self.arguments;
        let evaluate = self.evaluates.then_some(AttentionPatternTilesArgs { attention });
        let evaluate = evaluate.map(|arguments| GeneratedCall::new(&unit, arguments));
        evaluate
            .into_iter()
            .chain([GeneratedCall::new(&unit, attention)])
            .collect()
    }

    /// Compiles and loads the program with a tile, unless it is loaded.
    ///
    /// # Errors
    ///
    /// The reason why the program cannot be compiled or loaded.
    pub(crate) fn load(&self, tile: AttentionTile, kernels: &Kernels) -> Result<(), KernelError> {
        kernels.add(&tile.unit(&self.program))
    }

    /// Returns the tiles other than the default one.
    ///
    /// # Errors
    ///
    /// The errors of [`AttentionTile::alternatives`].
    pub(crate) fn alternatives(&self, kernels: &Kernels) -> Result<Vec<AttentionTile>> {
        let head_dim = self.arguments.attention.head_dim;
        AttentionTile::alternatives(&self.program, kernels, head_dim as usize)
    }

    /// Returns the hash of the program and the values of its scalars. It is the same in each process.
    pub(crate) fn pattern(&self) -> u64 {
        let program = self.program.source.as_ref().map_or(0, Source::hash_of_text);
        let scalars = self.arguments.pattern.scalars.iter();
        scalars.fold(program, |hash, bits| fnv1a(hash, &bits.to_le_bytes()))
    }

    /// Returns the call with other addresses. `place` returns the new address of each range of memory.
    pub(crate) fn relocated(&self, mut place: impl FnMut(Access) -> DeviceAddress) -> Self {
        let mut placed = HashMap::new();
        self.arguments.accesses(self.dtype.size(), &mut |access| {
            if access.bytes > 0 {
                placed.insert(access.field, place(access));
            }
        });
        let mut call = self.clone();
        let AttentionPatternArgs {
            attention,
            pattern,
            tiles,
            visible_keys,
            addends,
            log_sum_exp,
            ..
        } = &mut call.arguments;
        let fields = [
            ("q", &mut attention.q),
            ("k", &mut attention.k),
            ("v", &mut attention.v),
            ("out", &mut attention.out),
            ("tiles", tiles),
            ("visible_keys", visible_keys),
            ("addends", addends),
            ("log_sum_exp", log_sum_exp),
        ];
        let captured = CAPTURED.into_iter().zip(&mut pattern.tensors);
        for (field, address) in fields.into_iter().chain(captured) {
            if let Some(to) = placed.get(field) {
                *address = *to;
            }
        }
        call
    }

    /// Returns the memory of the captured tensors of i32.
    pub(crate) fn integers(&self) -> Vec<Access> {
        let mut captured = Vec::new();
        visit_captured(&self.arguments.pattern, &mut |access| captured.push(access));
        let all = captured.into_iter().zip(self.integers);
        all.filter_map(|(access, is_integer)| is_integer.then_some(access))
            .collect()
    }
}
