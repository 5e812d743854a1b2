//! Arguments of the kernels of attention with a pattern.

use std::borrow::Cow;

use hipvit_graph::op::PatternAttention;
use hipvit_graph::pattern::{Dependencies, Program};

use super::source::addend;
use crate::hip::{Access, DeviceAddress, Launch};
use crate::kernels::arguments::{KernelArguments, bytes as bytes_of, optional};
use crate::kernels::bindings::{
    AttentionArgs, AttentionPattern, AttentionPatternArgs, AttentionPatternTilesArgs, PATTERN_TENSORS,
};
use crate::kernels::launch::Target;
use crate::kernels::{KernelError, Unit};

/// Smallest tile of any configuration: queries and keys. It bounds the number of tiles.
const SMALLEST_TILE: usize = 16;

/// Largest tile of any configuration: queries and keys. It bounds the scores of all tiles.
const LARGEST_TILE: [usize; 2] = [256, 64];

/// Alignment of each part of the scratch memory, enough for vector loads.
const ALIGNMENT: usize = 256;

/// Names of the fields of the captured tensors.
pub(super) const CAPTURED: [&str; PATTERN_TENSORS as usize] = [
    "tensors[0]",
    "tensors[1]",
    "tensors[2]",
    "tensors[3]",
    "tensors[4]",
    "tensors[5]",
    "tensors[6]",
    "tensors[7]",
];

/// Returns the number of images and of heads for which these steps have results of their own; 1 if they are the same for all.
pub(in crate::kernels) fn differing(
    program: &Program,
    steps: &[usize],
    [images, heads]: [usize; 2],
) -> [usize; 2] {
    let depend = |on| {
        let mut steps = steps.iter();
        steps.any(|&step| program.steps()[step].dependencies.intersects(on))
    };
    [
        if depend(Dependencies::BATCH) { images } else { 1 },
        if depend(Dependencies::HEAD) { heads } else { 1 },
    ]
}

/// What `attention_pattern_tiles` prepares.
pub(super) struct Tiles {
    /// Number of images whose tiles differ.
    pub(super) images: usize,
    /// Number of heads whose tiles differ.
    pub(super) heads: usize,
    has_mask: bool,
    has_addends: bool,
}

impl Tiles {
    pub(super) fn new(spec: &PatternAttention, images: usize) -> Self {
        let (mask, addend) = (spec.program.mask(), addend(&spec.program));
        let steps: Vec<usize> = mask.into_iter().chain(addend).collect();
        let [images, heads] = differing(&spec.program, &steps, [images, spec.heads]);
        Self {
            images,
            heads,
            has_mask: mask.is_some(),
            has_addends: addend.is_some(),
        }
    }

    /// Returns the most bytes of the tiles' kinds, of their visible keys, and of their addends. The code states the size of the tiles only
    /// when it is loaded.
    pub(super) fn bytes(&self, [queries, keys]: [usize; 2], element: usize) -> [usize; 3] {
        let all = self.images * self.heads;
        let tiles = all * queries.div_ceil(SMALLEST_TILE) * keys.div_ceil(SMALLEST_TILE);
        let scores = all * (queries + LARGEST_TILE[0]) * (keys + LARGEST_TILE[1]);
        let aligned = |bytes: usize, exists| {
            if exists {
                bytes.next_multiple_of(ALIGNMENT)
            } else {
                0
            }
        };
        [
            aligned(tiles, self.has_mask),
            // At least 8 scores share the u32 of a thread.
            aligned(scores / 2, self.has_mask && !self.has_addends),
            aligned(scores * element, self.has_addends),
        ]
    }
}

pub(in crate::kernels) fn is_generated<T>() -> Result<T, KernelError> {
    Err(KernelError::internal("is a generated program's kernel"))
}

// SAFETY: see hip/attention/pattern.hpp. Blocks beyond the last query return. Indices of captured tensors are clamped to their extents,
// which are the arguments'. The tiles, with what belongs to them, are read at indices below
// their number, which `Tiles::bytes` bounds.
unsafe impl KernelArguments for AttentionPatternArgs {
    const FILE: &'static str = "attention_pattern";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        is_generated()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("attention_pattern".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        self.attention.plan(target)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        self.attention.accesses(element, visit);
        visit_captured(&self.pattern, visit);
        visit_tiles(self, element, Access::read, visit);
        let AttentionArgs {
            images,
            heads,
            queries,
            ..
        } = self.attention;
        let sums = bytes_of(size_of::<f32>(), &[images, heads, queries]);
        visit(optional(Access::write("log_sum_exp", self.log_sum_exp, sums)));
    }
}

// SAFETY: see hip/attention/pattern.hpp. Blocks beyond the last tile return, and a block writes what belongs to its tile. Captured
// tensors are read as `attention_pattern` reads them.
unsafe impl KernelArguments for AttentionPatternTilesArgs {
    const FILE: &'static str = "attention_pattern";

    const TILE: Option<&'static str> = Some("block");

    fn unit(&self) -> Result<Unit, KernelError> {
        is_generated()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("attention_pattern_tiles".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let [waves, queries, keys] = [target.tile >> 24, target.tile >> 12 & 0xfff, target.tile & 0xfff];
        let fits = |extent: u32, largest: usize| (SMALLEST_TILE..=largest).contains(&(extent as usize));
        if !fits(queries, LARGEST_TILE[0]) || !fits(keys, LARGEST_TILE[1]) || !(1..=16).contains(&waves) {
            let reason =
                format!("its code states tiles of {queries} queries and {keys} keys, and {waves} waves");
            return Err(KernelError::Internal(reason));
        }
        let AttentionArgs {
            queries: all_queries,
            keys: all_keys,
            ..
        } = self.attention.attention;
        let tiles = u64::from(all_queries.div_ceil(queries)) * u64::from(all_keys.div_ceil(keys));
        let heads = u64::from(self.attention.tile_images) * u64::from(self.attention.tile_heads);
        target.blocks(heads.saturating_mul(tiles), waves * target.wave_size)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        visit_captured(&self.attention.pattern, visit);
        visit_tiles(&self.attention, element, Access::write, visit);
    }
}

/// Visits what `attention_pattern_tiles` prepares. `access` says whether it is read or written.
fn visit_tiles(
    arguments: &AttentionPatternArgs,
    element: usize,
    access: fn(&'static str, DeviceAddress, usize) -> Access,
    visit: &mut dyn FnMut(Access),
) {
    let tiles = Tiles {
        images: arguments.tile_images as usize,
        heads: arguments.tile_heads as usize,
        has_mask: !arguments.tiles.is_null(),
        has_addends: !arguments.addends.is_null(),
    };
    let AttentionArgs { queries, keys, .. } = arguments.attention;
    let bytes = tiles.bytes([queries as usize, keys as usize], element);
    let addresses = [
        ("tiles", arguments.tiles),
        ("visible_keys", arguments.visible_keys),
        ("addends", arguments.addends),
    ];
    for ((name, address), bytes) in addresses.into_iter().zip(bytes) {
        visit(optional(access(name, address, bytes)));
    }
}

/// Visits the captured tensors.
pub(in crate::kernels) fn visit_captured(pattern: &AttentionPattern, visit: &mut dyn FnMut(Access)) {
    for (index, name) in CAPTURED.into_iter().enumerate() {
        let extents = pattern.extents[index].into_iter().filter(|&extent| extent > 0);
        let bytes = bytes_of(
            pattern.element_bytes[index] as usize,
            &extents.collect::<Vec<_>>(),
        );
        visit(optional(Access::read(name, pattern.tensors[index], bytes)));
    }
}
