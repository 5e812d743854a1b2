//! `tokens`: prepends prefix tokens to an image's patch tokens, and adds position embeddings to the patch tokens.

use hipvit_graph::op::Tokens;

use super::Unit;
use super::bindings::TokensArgs;
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, optional};

impl TokensArgs {
    /// Creates the arguments for `x` `[images, tokens, channels]` and `out` `[images, prefixes + tokens, channels]`. `prefix`
    /// `[prefixes, channels]` and `position` `[tokens, channels]` may be null.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, prefix, position, out]: [DeviceAddress; 4],
        [images, tokens, channels]: [usize; 3],
        prefixes: usize,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            prefix,
            position,
            out,
            images: extent(images)?,
            tokens: extent(tokens)?,
            prefixes: extent(prefixes)?,
            channels: extent(channels)?,
        })
    }
}

// SAFETY: see hip/tokens.hip. Threads beyond the last row return.
unsafe impl KernelArguments for TokensArgs {
    const FILE: &'static str = "tokens";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let tokens = u64::from(self.prefixes) + u64::from(self.tokens);
        target.elementwise(u64::from(self.images).saturating_mul(tokens), self.channels)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = |extents: &[u32]| bytes(element, extents);
        let (images, tokens, channels) = (self.images, self.tokens, self.channels);
        let all = self.prefixes.saturating_add(tokens);
        visit(Access::read("x", self.x, bytes(&[images, tokens, channels])));
        visit(Access::read(
            "prefix",
            self.prefix,
            bytes(&[self.prefixes, channels]),
        ));
        visit(optional(Access::read(
            "position",
            self.position,
            bytes(&[tokens, channels]),
        )));
        visit(Access::write("out", self.out, bytes(&[images, all, channels])));
    }
}

impl Lower for Tokens {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("tokens"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let &[images, tokens, channels] = step.shape_of(0)? else {
            return Err("takes tokens".into());
        };
        let (prefix, prefixes) = if self.prefix {
            (step.address(1)?, rows(step.shape_of(1)?)?)
        } else {
            (DeviceAddress::NULL, 0)
        };
        let position = if self.position {
            step.address(step.step.inputs.len().saturating_sub(1))?
        } else {
            DeviceAddress::NULL
        };
        let addresses = [step.address(0)?, prefix, position, step.out];
        one(TokensArgs::new(addresses, [images, tokens, channels], prefixes)?)
    }
}
