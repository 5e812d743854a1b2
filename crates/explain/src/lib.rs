//! Explanations of a model's results: attention maps, rollout, and the contributions of pixels to a logit.
//!
//! [`explain`] explains one image, an [`Explainer`] many. The host computes everything from the model without fusion, as its library does.
//! The fused attention kernel of a GPU stores no probabilities to show.
//!
//! The forward pass uses the reference implementation of the ops (`program`). The backward pass is a graph, from the ops' derivatives or
//! from relevance rules in their place (`backward`).
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
pub use overlay::{colours, enlarge, heat, signed, tiles};
pub use trace::{
    ChannelPart, Contribution, Embedding, Ffn, Head, InputPixel, Layer, PatchPlace, Read, Resized,
    SourcePixel, Token, Trace, Unit, Weighted,
};
