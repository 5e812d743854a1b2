//! Text from images: a vision encoder, and a decoder with a paged cache of keys and values.
//!
//! A [`Generator`] loads a model and reads images. The encoder runs as any model of hipvit does. Its tokens become keys and values of
//! cross-attention once per image. Then each step of the decoder computes one token for every image in progress: images that are finished
//! leave, and new ones enter between two steps.
//!
//! Parts: `spec` reads the configuration, `names` has the names of tensors, `graph` builds the graphs, `decoder` runs them, `pages` allocates the cache, `sampling` chooses tokens, `generator`
//! schedules images.

mod decoder;
mod generator;
mod graph;
mod names;
mod pages;
mod sampling;
mod spec;

pub use generator::{Finish, Generated, Generator};
pub use sampling::{GenerateOptions, Sampling};
