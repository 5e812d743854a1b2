//! Patterns of attention: its score and its mask as expressions.
//!
//! Attention computes `softmax(f(s) where m, −∞ elsewhere) · V` with the scores `s = scale · q·k`. The score `f` and the mask `m` of a
//! [`Pattern`] are expressions of the score, the image, the head, the query and the key. Expressions also read captured tensors and
//! scalars, which each run provides. The [reference](Evaluator) evaluates them, and the engine compiles them for GPUs.
//!
//! ```
//! use hipvit_graph::pattern::{Pattern, masks, scores};
//!
//! // A causal window of 64 keys with ALiBi.
//! let pattern = Pattern::new()
//!     .with_score(scores::alibi(scores::score()))
//!     .with_mask(masks::causal() & masks::window(64, 0));
//! let program = pattern.compile()?;
//! assert!(program.tensors().is_empty());
//! # Ok::<(), hipvit_graph::pattern::PatternError>(())
//! ```

mod derivative;
mod error;
mod evaluate;
mod expression;
mod functions;
mod json;
pub mod masks;
mod operator;
mod program;
pub mod scores;
#[cfg(test)]
mod tests;
mod typed;
mod types;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use derivative::Derivative;
pub use error::PatternError;
pub use evaluate::{Captured, Evaluator, Extents, Row};
pub use expression::{Expression, Index, Number};
pub use operator::Operator;
pub(crate) use program::check_tokens;
pub use program::{Dependencies, Instruction, Program, Scalar, Step, Tensor};
pub use typed::{Bool, Float, Int, bools, floats, ints};
pub use types::{MAX_TOKENS, Type};

/// Score and mask of attention. The default leaves scores unchanged and hides no key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Name in reports. It does not change the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Score before the softmax, a number. `None`: the score itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Expression>,
    /// True for the keys that a query attends to. `None`: all keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<Expression>,
}

impl Pattern {
    /// Returns the pattern of plain attention.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the score.
    #[must_use]
    pub fn with_score(mut self, score: Float) -> Self {
        self.score = Some(score.into());
        self
    }

    /// Sets the mask.
    #[must_use]
    pub fn with_mask(mut self, mask: Bool) -> Self {
        self.mask = Some(mask.into());
        self
    }

    /// Checks the types of both expressions, and lists their steps without repetitions.
    ///
    /// # Errors
    ///
    /// [`PatternError`], naming the expression and the place in it.
    pub fn compile(&self) -> Result<Program, PatternError> {
        Program::new(self.name.clone(), self.score.as_ref(), self.mask.as_ref())
    }
}
