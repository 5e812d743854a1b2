//! Text from images: a vision encoder, and a decoder with a paged cache of keys and values.
//!
//! A [`Generator`] loads a model and reads images. The encoder runs as any model of hipvit does. Its tokens become keys and values of
//! cross-attention once per image. Then each step of the decoder computes one token for every image in progress: images that are finished
//! leave, and new ones enter between two steps.
//!
//! [`Generator::generate`] makes the texts of given images. A server calls [`start`](Generator::start), [`step`](Generator::step) and
//! [`cancel`](Generator::cancel) itself, so that requests enter and leave at any time.
//!
//! Parts: `spec` reads the configuration, `names` has the names of tensors, `graph` builds the graphs, `decoder` runs them, `pages` allocates the cache, `sampling` chooses tokens, `texts`
//! schedules texts, `generator` loads models, and `stream` finds the text of tokens as they come.

mod decoder;
mod generator;
mod graph;
mod names;
mod pages;
mod sampling;
mod spec;
mod stream;
mod texts;

pub use generator::{Generator, makes_texts};
pub use sampling::{GenerateOptions, Sampling};
pub use stream::TextStream;
pub use texts::{Event, Finish, Generated, Progress, TextId};
