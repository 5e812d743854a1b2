//! Text from images: a vision encoder, and a decoder with a paged cache of keys and values.
//!
//! A [`Generator`] loads a model and reads images. The encoder runs as any model of hipvit does. Its tokens become keys and values of
//! cross-attention once per image. Then each step of the decoder computes one token for every image in progress: images that are finished
//! leave, and new ones enter between two steps.
//!
//! [`Generator::generate`] makes the texts of given images. A server calls [`start`](Generator::start), [`step`](Generator::step) and
//! [`cancel`](Generator::cancel) itself, so that requests enter and leave at any time.
//!
//! | part | what it does |
//! | --- | --- |
//! | `generator`, `texts` | loads models; schedules texts |
//! | `spec`, `names` | the configuration; the names of tensors |
//! | `graph`, `llama`, `decoder`, `step_inputs` | builds the graphs; runs them; their inputs |
//! | `beam`, `searched`, `beam_texts` | beam search; its texts in progress; the schedule of images |
//! | `pages`, `sampling` | allocates the cache; the rules of the next token |
//! | `draft`, `draft_model` | guesses tokens: from the text; by a smaller model |
//! | `prompt`, `template`, `prompts` | the tokens that a text begins with; the chat around a prompt; those of clients |
//! | `text`, `stream` | texts in progress; the text of tokens as they come |
//! | `training` | what training needs of a decoder |

mod beam;
mod beam_texts;
mod decoder;
mod draft;
mod draft_model;
mod generator;
mod graph;
mod llama;
mod names;
mod pages;
mod prompt;
mod prompts;
mod sampling;
mod searched;
mod spec;
mod step_inputs;
mod stream;
mod template;
mod text;
mod texts;
mod training;

pub use draft::Speculation;
pub use generator::{Generator, makes_texts};
pub use prompts::Prompts;
pub use sampling::{GenerateOptions, Sampling};
pub use stream::TextStream;
pub use template::{Message, MessagePart};
pub use text::{Event, Finish, Generated, Progress, TextId};
pub use training::{LEFT_OUT, TextDecoder, TextRow, text_inputs};
