//! Tiles of attention with a pattern: the default of its code, and others that can be measured.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::hip::Device;
use crate::kernels::attention::padded;
use crate::kernels::{Kernels, Unit};

/// Tile of scores that a block of attention with a pattern computes at once. It changes the speed, and the order of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionTile {
    /// Waves of the block.
    pub waves: u32,
    /// Queries of the block: 16 or 32 for each wave.
    pub queries: u32,
    /// Keys of the tile.
    pub keys: u32,
}

/// Macro that replaces the default tile. Its value is [`AttentionTile::bits`].
const MACRO: &str = "HIPVIT_TILE";

/// Module global that states the tile of the code, without dtype and suffix.
const GLOBAL: &str = "attention_pattern_tiles";

const TILES: [AttentionTile; 5] = [
    AttentionTile::new(4, 64, 32),
    AttentionTile::new(4, 64, 64),
    AttentionTile::new(4, 128, 32),
    AttentionTile::new(8, 128, 32),
    AttentionTile::new(8, 128, 64),
];

impl AttentionTile {
    const fn new(waves: u32, queries: u32, keys: u32) -> Self {
        Self { waves, queries, keys }
    }

    /// Returns the tile in the form of the kernel's macro and module global.
    fn bits(self) -> u32 {
        self.waves << 24 | self.queries << 12 | self.keys
    }

    /// Returns the tile of [`bits`](Self::bits).
    fn of_bits(bits: u32) -> Self {
        Self::new(bits >> 24, bits >> 12 & 0xfff, bits & 0xfff)
    }

    /// Returns the tiles that the code supports on `arch`, for elements of `element` bytes and heads of `head_dim` channels.
    ///
    /// Two groups of queries per wave take registers that only small heads leave, and do not fit the lanes of waves of 64. K and V of large
    /// tiles, and f32 queries of large blocks, do not fit the LDS (48 KiB on NVIDIA GPUs) with large heads.
    pub(crate) fn supported(arch: &str, element: usize, head_dim: usize) -> impl Iterator<Item = Self> {
        let has_waves_of_64 = arch.starts_with("gfx9");
        let padded = padded(head_dim);
        TILES.into_iter().filter(move |tile| {
            let is_at_most = |most: u32| padded.is_some_and(|channels| channels <= most);
            let has_one_group = tile.queries == 16 * tile.waves;
            let needs_lds = tile.keys > 32 || (element > 2 && tile.queries > 64);
            padded.is_some()
                && (has_one_group || (!has_waves_of_64 && is_at_most(64)))
                && (!needs_lds || is_at_most(80))
        })
    }

    /// Returns the tile of loaded code.
    ///
    /// # Errors
    ///
    /// The errors of [`Kernels::global`].
    pub(crate) fn of_code(unit: &Unit, kernels: &Kernels) -> Result<Self> {
        kernels.global(unit, GLOBAL, "block").map(Self::of_bits)
    }

    /// Returns the supported tiles other than the default one of `unit`, which is loaded.
    ///
    /// # Errors
    ///
    /// The errors of [`Kernels::global`].
    pub(crate) fn alternatives(unit: &Unit, kernels: &Kernels, head_dim: usize) -> Result<Vec<Self>> {
        let default = Self::of_code(unit, kernels)?;
        let (arch, element) = (arch(kernels.device()), kernels.dtype().size());
        let supported = Self::supported(arch, element, head_dim);
        Ok(supported.filter(|&tile| tile != default).collect())
    }

    /// Returns the tile of a [`unit`](Self::unit). `None` for the program itself.
    pub(crate) fn of_unit(unit: &Unit) -> Option<Self> {
        let (name, bits) = unit.define?;
        (name == MACRO).then(|| Self::of_bits(bits))
    }

    /// Returns the unit of a program with this tile.
    pub(crate) fn unit(self, program: &Unit) -> Unit {
        program.clone().with(MACRO, self.bits())
    }
}

fn arch(device: &Device) -> &str {
    device.properties().arch()
}

/// Formats as `64×32 with 4 waves`: queries and keys.
impl fmt::Display for AttentionTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waves, queries, keys } = self;
        write!(f, "{queries}×{keys} with {waves} waves")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supported(arch: &str, element: usize, head_dim: usize) -> Vec<[u32; 3]> {
        AttentionTile::supported(arch, element, head_dim)
            .map(|tile| [tile.waves, tile.queries, tile.keys])
            .collect()
    }

    #[test]
    fn tiles_fit_registers_and_lds() {
        let all = TILES.map(|tile| [tile.waves, tile.queries, tile.keys]);
        for arch in ["gfx1100", "sm_90"] {
            assert_eq!(supported(arch, 2, 50), all, "{arch}");
            assert_eq!(supported(arch, 2, 128), [all[0], all[3]], "{arch}");
            assert_eq!(supported(arch, 4, 96), [all[0]], "{arch}");
        }
        assert_eq!(supported("gfx942", 2, 64), [all[0], all[1], all[3], all[4]]);
        assert_eq!(supported("gfx942", 4, 80), [all[0], all[1], all[3], all[4]]);
        assert!(supported("gfx942", 2, 129).is_empty());
    }

    #[test]
    fn a_tile_is_a_number_of_the_code() {
        for tile in TILES {
            assert_eq!(AttentionTile::of_bits(tile.bits()), tile);
        }
        assert_eq!(AttentionTile::of_bits(8 << 24 | 128 << 12 | 64), TILES[4]);
        assert_eq!(TILES[4].to_string(), "128×64 with 8 waves");
    }
}
