//! `rope`: rotates pairs of channels of queries and keys, in place.

use super::bindings::RopeArgs;
use super::{Access, KernelArguments, Launch, Target, bytes, extent};
use crate::ops::{Rope, RopePairs};

impl RopeArgs {
    /// For `x` `[images, tokens, channels]` and `table` `[1, places, table_channels]`, which is of the last `places` tokens.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits, or the table has more tokens than there are.
    pub fn new(
        [x, table]: [u64; 2],
        [images, tokens, channels]: [usize; 3],
        [places, table_channels]: [usize; 2],
        spec: &Rope,
    ) -> Result<Self, String> {
        let first = tokens.checked_sub(places).filter(|_| places > 0);
        let first = first.ok_or_else(|| format!("has a table of {places} tokens for {tokens}"))?;
        Ok(Self {
            x,
            table,
            images: extent(images)?,
            tokens: extent(tokens)?,
            first: extent(first)?,
            channels: extent(channels)?,
            heads: extent(spec.rotated * spec.heads)?,
            head_dim: extent(spec.head_dim)?,
            table_heads: extent(table_channels / spec.head_dim.max(1))?,
            halves: (spec.pairs == RopePairs::Halves).into(),
        })
    }
}

// SAFETY: hip/rope.hip; threads beyond the last image return.
unsafe impl KernelArguments for RopeArgs {
    const FILE: &'static str = "rope";

    fn plan(&mut self, target: &Target) -> Result<Launch, String> {
        let width = u64::from(self.heads) * u64::from(self.head_dim);
        if self.table_heads == 0 || width == 0 || width > self.channels.into() {
            return Err(format!(
                "rotates {} heads of {} channels in tokens of {}",
                self.heads, self.head_dim, self.channels
            ));
        }
        let rows = [self.tokens - self.first, self.heads];
        let rows = rows
            .iter()
            .fold(u64::from(self.images), |n, &m| n.saturating_mul(m.into()));
        target.elementwise(rows, self.head_dim / 2)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let table = [self.tokens - self.first, self.table_heads, self.head_dim];
        visit(Access::read("table", self.table, bytes(element, &table)));
        let x = [self.images, self.tokens, self.channels];
        visit(Access::write("x", self.x, bytes(element, &x)));
    }
}
