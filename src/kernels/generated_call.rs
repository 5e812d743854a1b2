//! Launches of the kernels of generated programs as calls.

use super::bindings::{
    AttentionPatternArgs, AttentionPatternGradientArgs, AttentionPatternKvArgs, AttentionPatternLoadArgs,
    AttentionPatternQArgs, AttentionPatternSeenArgs, AttentionPatternTilesArgs, ElementwiseFormulaArgs,
    PagedAttentionArgs, PagedAttentionPatternArgs,
};
use super::{Kernels, Unit};
use crate::error::Result;
use crate::hip::{self, Launch, Stream};

/// A launch of a kernel of a generated program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GeneratedCall {
    unit: Unit,
    kernel: GeneratedKernel,
}

impl GeneratedCall {
    /// Returns the program.
    pub(crate) fn unit(&self) -> &Unit {
        &self.unit
    }

    pub(super) fn new(unit: &Unit, kernel: impl Into<GeneratedKernel>) -> Self {
        Self {
            unit: unit.clone(),
            kernel: kernel.into(),
        }
    }

    /// Returns the launch with the arguments of attention over pages replaced, if it has some.
    pub(super) fn with_paged(&self, replace: impl FnOnce(PagedAttentionArgs) -> PagedAttentionArgs) -> Self {
        let mut call = self.clone();
        if let GeneratedKernel::Paged(arguments) = &mut call.kernel {
            arguments.attention = replace(arguments.attention);
        }
        call
    }
}

macro_rules! kernels {
    ($($variant:ident($arguments:ty) $name:literal,)*) => {
        /// A kernel with its arguments.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(super) enum GeneratedKernel {
            $($variant($arguments),)*
        }

        $(impl From<$arguments> for GeneratedKernel {
            fn from(arguments: $arguments) -> Self {
                Self::$variant(arguments)
            }
        })*

        impl GeneratedCall {
            /// The kernel's name, without its dtype.
            pub(crate) fn kernel(&self) -> &'static str {
                match self.kernel {
                    $(GeneratedKernel::$variant(_) => $name,)*
                }
            }

            /// Submits the launch, which only accesses the memory of `operands`.
            ///
            /// # Errors
            ///
            /// The driver fails, or an operand is too small or belongs to a different stream.
            pub(crate) fn launch(
                &self,
                kernels: &Kernels,
                stream: &Stream,
                operands: &[hip::Operand<'_>],
            ) -> Result<()> {
                match self.kernel {
                    $(GeneratedKernel::$variant(arguments) => kernels.launch_of(stream, &self.unit, arguments, operands),)*
                }
            }

            /// Returns the grid and block of the launch.
            ///
            /// # Errors
            ///
            /// The errors of [`Kernels::geometry_of`].
            pub(crate) fn geometry(&self, kernels: &Kernels) -> Result<Launch> {
                match self.kernel {
                    $(GeneratedKernel::$variant(arguments) => kernels.geometry_of(&self.unit, arguments),)*
                }
            }
        }
    };
}
kernels! {
    Attention(AttentionPatternArgs) "attention_pattern",
    Tiles(AttentionPatternTilesArgs) "attention_pattern_tiles",
    Seen(AttentionPatternSeenArgs) "attention_pattern_seen",
    Kv(AttentionPatternKvArgs) "attention_pattern_kv",
    Q(AttentionPatternQArgs) "attention_pattern_q",
    Load(AttentionPatternLoadArgs) "attention_pattern_load",
    Gradient(AttentionPatternGradientArgs) "attention_pattern_gradient",
    Elementwise(ElementwiseFormulaArgs) "elementwise",
    Paged(PagedAttentionPatternArgs) "paged_attention_pattern",
}
