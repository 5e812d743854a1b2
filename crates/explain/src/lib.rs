//! Why a model says what it says: attention maps, rollout, and which pixels a class's logit comes from.
//!
//! [`explain`] explains one image, an [`Explainer`] many. Everything is computed on the host, from the model as its
//! library computes it, without fusion; on a GPU the fused attention kernel writes no probabilities that could be shown. The
//! forward pass is the reference implementation of the ops (`program`). The backward pass is a graph that the ops' derivatives append, or
//! rules of relevance in their place (`backward`).
//!
//! ```
//! # fn main() -> hipvit::Result<()> {
//! use hipvit::image::Limits;
//! use hipvit::{Session, digits};
//! use hipvit_explain::explain;
//!
//! let session = Session::tinyvit32()?;
//! let seven = digits::samples().nth(7).expect("ten samples").decode(Limits::default())?;
//! let explanation = explain(&session, &seven, Some(7))?;
//! let attribution = &explanation.attribution;
//! println!("{}: logit {:.3}", explanation.target, attribution.output);
//! println!("its patches' relevance:\n{:.2}", attribution.by_patch(explanation.patch));
//! println!("attention of block 0: {:?}", explanation.attention[0].weights.dim()); // [heads, queries, keys]
//! # Ok(()) }
//! ```

mod attribution;
mod backward;
mod explainer;
mod maps;
mod overlay;
mod program;
mod quadrature;
#[cfg(test)]
mod tests;
mod trace;

pub use attribution::{Attribution, Baseline, Constant, Method};
pub use explainer::{ExplainOptions, Explainer, Explanation, Target, explain};
pub use maps::AttentionMap;
pub use overlay::{colours, enlarge, heat, png, signed, tiles};
pub use trace::{
    ChannelPart, Contribution, Embedding, Ffn, Head, InputPixel, Layer, PatchPlace, Read, Resized,
    SourcePixel, Token, Trace, Unit, Weighted,
};
