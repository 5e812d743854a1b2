//! Arguments of the kernels of the derivative of attention with a pattern.

use std::borrow::Cow;

use super::call::{is_generated, visit_captured};
use crate::hip::{Access, DeviceAddress, Launch};
use crate::kernels::arguments::{KernelArguments, bytes, optional};
use crate::kernels::bindings::{
    AttentionPatternBackward, AttentionPatternGradientArgs, AttentionPatternKvArgs, AttentionPatternLoadArgs,
    AttentionPatternQArgs, AttentionPatternSeenArgs, GRADIENT_ADD, GRADIENT_CLEAR, GRADIENT_LARGEST,
    PATTERN_THREADS, PATTERN_TILE,
};
use crate::kernels::launch::Target;
use crate::kernels::{KernelError, Unit};

const FILE: &str = "attention_pattern_backward";

impl AttentionPatternBackward {
    /// Returns the words of `seen` for a head: of its tiles of queries, then of its tiles of keys.
    pub(in crate::kernels) fn words([queries, keys]: [usize; 2]) -> usize {
        let [queries, keys] = [queries, keys].map(|tokens| tokens.div_ceil(PATTERN_TILE as usize));
        queries * keys.div_ceil(u32::BITS as usize) + keys * queries.div_ceil(u32::BITS as usize)
    }

    fn words_of_head(&self) -> u64 {
        Self::words([self.pattern.queries as usize, self.pattern.keys as usize]) as u64
    }

    /// Visits the captured tensors and `seen`. `access` says whether `seen` is read or written.
    fn accesses(
        &self,
        access: fn(&'static str, DeviceAddress, usize) -> Access,
        visit: &mut dyn FnMut(Access),
    ) {
        visit_captured(&self.pattern, visit);
        let words = usize::try_from(self.words_of_head()).unwrap_or(usize::MAX);
        let word = words.saturating_mul(WORD_BYTES);
        let seen = bytes(word, &[self.seen_images, self.seen_heads]);
        visit(optional(access("seen", self.seen, seen)));
    }
}

/// Bytes of a word of [`AttentionPatternBackward::seen`].
pub(in crate::kernels) const WORD_BYTES: usize = 2 * size_of::<u32>();

// SAFETY: see hip/attention/pattern_backward.hpp. A block writes a word; blocks beyond the last word return. Indices of captured tensors
// are clamped to their extents, which are the arguments'.
unsafe impl KernelArguments for AttentionPatternSeenArgs {
    const FILE: &'static str = FILE;

    fn unit(&self) -> Result<Unit, KernelError> {
        is_generated()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok("attention_pattern_seen".into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let heads = u64::from(self.pattern.seen_images) * u64::from(self.pattern.seen_heads);
        target.blocks(
            heads.saturating_mul(self.pattern.words_of_head()),
            PATTERN_THREADS,
        )
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        self.pattern.accesses(Access::write, visit);
    }
}

/// Arguments of a kernel of attention's backward pass, with the pattern.
macro_rules! with_pattern {
    ($($Arguments:ty, |$arguments:ident| $entry:expr;)*) => {
        $(
            // SAFETY: the memory of the kernel without a pattern, captured tensors as above, and `seen`, which is read at tiles that exist.
            unsafe impl KernelArguments for $Arguments {
                const FILE: &'static str = FILE;

                const TILE: Option<&'static str> = Some("block");

                fn unit(&self) -> Result<Unit, KernelError> {
                    is_generated()
                }

                fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
                    let $arguments = self;
                    Ok($entry)
                }

                fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
                    self.attention.plan(target)
                }

                fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
                    self.attention.accesses(element, visit);
                    self.pattern.accesses(Access::read, visit);
                }
            }
        )*
    };
}
with_pattern! {
    AttentionPatternKvArgs, |_arguments| "attention_pattern_kv".into();
    AttentionPatternQArgs, |_arguments| "attention_pattern_q".into();
    AttentionPatternLoadArgs, |arguments| format!("attention_pattern_load_{}", arguments.load).into();
}

// SAFETY: see hip/attention/pattern_backward.hpp. Threads beyond the last element or score access nothing. Offsets in the sums are those
// of the captured tensor, which has as many elements.
unsafe impl KernelArguments for AttentionPatternGradientArgs {
    const FILE: &'static str = FILE;

    fn unit(&self) -> Result<Unit, KernelError> {
        is_generated()
    }

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        Ok(match self.stage {
            GRADIENT_CLEAR => "attention_pattern_clear".into(),
            GRADIENT_LARGEST => "attention_pattern_largest".into(),
            GRADIENT_ADD => format!("attention_pattern_add_{}", self.load).into(),
            _ => "attention_pattern_store".into(),
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let of_scores = matches!(self.stage, GRADIENT_LARGEST | GRADIENT_ADD);
        let elements = self.elements.max(1);
        let threads = if of_scores {
            self.scores(self.images)?
        } else {
            elements
        };
        target.threads(threads.into(), PATTERN_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let of_scores = matches!(self.stage, GRADIENT_LARGEST | GRADIENT_ADD);
        if of_scores {
            let scores = [self.pattern.heads, self.pattern.queries, self.pattern.keys];
            let [heads, queries, keys] = scores;
            let partial = bytes(size_of::<f32>(), &[self.chunks, heads, queries, keys]);
            visit(Access::write("partial", self.partial, partial));
            visit_captured(&self.pattern, visit);
        } else {
            visit(optional(Access::write(
                "out",
                self.out,
                bytes(element, &[self.elements]),
            )));
        }
        visit(Access::write(
            "sums",
            self.sums,
            bytes(size_of::<u64>(), &[self.elements]),
        ));
        visit(Access::write("largest", self.largest, size_of::<u32>()));
    }
}

impl AttentionPatternGradientArgs {
    /// Returns the scores of this many images, which kernels count in 31 bits.
    ///
    /// # Errors
    ///
    /// There are more.
    pub(in crate::kernels) fn scores(&self, images: u32) -> Result<u32, KernelError> {
        let extents = [
            images,
            self.pattern.heads,
            self.pattern.queries,
            self.pattern.keys,
        ];
        let scores = extents
            .iter()
            .try_fold(1u32, |product, &extent| product.checked_mul(extent));
        let scores = scores.filter(|&scores| scores <= i32::MAX.cast_unsigned());
        scores.ok_or_else(|| {
            KernelError::unsupported("has more than 2³¹ − 1 scores that an element may sum up")
        })
    }
}
