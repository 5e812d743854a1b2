//! A request in the scheduler: its images wait, are decoded and run separately, and the last one answers it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use ndarray::{Array2, ArrayView1};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::vision::{VisionRequest, VisionResult};
use crate::client::Client;
use crate::failure::Failure;
use crate::memory::Charge;
use crate::priority::Priority;
use crate::statistics::Parts;
use crate::traces::Trace;
use hipvit::image::{DeviceImage, Permit, RgbImage, Tiles};
use hipvit::model::Tokens;
use hipvit::outputs::{ImageOutputs, Outputs};
use hipvit::tensors::{NamedTensors, TensorArray};
use hipvit_explain::ExplainOptions;
use hipvit_generate::{GenerateOptions, Generated};

/// Options of a text that is made of an image.
#[derive(Clone, Debug)]
pub(crate) struct ToText {
    pub(crate) options: GenerateOptions,
    /// Sender of each token as soon as it is known. It sends at most as many as the options allow.
    pub(crate) tokens: Option<UnboundedSender<u32>>,
}

/// One image or text as received.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// An encoded image file.
    Encoded(Bytes),
    /// Pixels of any size.
    Decoded(RgbImage),
    /// Normalised values `[3, H, W]` of the model's size.
    Values(Vec<f32>),
    /// An image of one of the other kinds, with a result that is to be explained.
    ToExplain(Box<Content>, Explain),
    /// An image of one of the other kinds, of which a text is to be made.
    ToText(Box<Content>, ToText),
    /// A text.
    Text(String),
    /// All inputs of a model by name.
    Tensors(Vec<(String, TensorArray)>),
    /// An image in which something is to be found.
    ToFind(Box<Content>, VisionRequest),
}

/// One image or text as part of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Prepared {
    /// RGB bytes of the model's size.
    Pixels(Vec<u8>),
    /// An image of any size, which the device resizes. It keeps its decoding memory until its batch has run.
    Image(
        DeviceImage,
        #[allow(dead_code, reason = "counts until it is dropped")] Option<Arc<Permit>>,
    ),
    /// Normalised values.
    Values(Vec<f32>),
    /// An image with a result that is to be explained.
    ToExplain(ToExplain),
    /// The tiles of an image, which keep its decoding memory.
    Tiles(
        Arc<Tiles>,
        #[allow(dead_code, reason = "counts until it is dropped")] Option<Arc<Permit>>,
    ),
    /// An image of one of the other kinds, of which a text is to be made.
    ToText(Box<Prepared>, ToText),
    /// The tokens of a text.
    Text(Tokens),
    /// All inputs of a model by name.
    Tensors(Vec<(String, TensorArray)>),
    /// An image of any size in which something is to be found.
    ToFind(Arc<ToFind>),
}

/// An image with what is to be found in it. It keeps its decoding memory until its batch has run.
#[derive(Debug)]
pub(crate) struct ToFind {
    pub(super) image: RgbImage,
    pub(super) request: VisionRequest,
    /// SHA-256 of the image, for a model that keeps embeddings.
    pub(super) digest: Option<[u8; 32]>,
    #[allow(dead_code, reason = "counts until it is dropped")]
    pub(super) permit: Option<Permit>,
}

/// The results of a batch.
#[derive(Debug)]
pub(crate) enum BatchResults {
    Outputs(Box<Outputs>),
    Explanations(Vec<Explained>),
    /// Embeddings of texts.
    Texts(TextResults),
    /// The text of an image.
    Generated(Generated),
    /// Outputs of a model by name, for each request. A failure is that of the request.
    Tensors(Vec<Result<NamedTensors, Failure>>),
    /// What was found in each image.
    Found(Vec<VisionResult>),
}

/// What an explanation shows.
#[derive(Clone, Debug)]
pub(crate) enum Explain {
    /// The contribution of each pixel.
    Pixels(ExplainOptions),
    /// Attention rollout.
    Rollout,
}

/// An image with a result that is to be explained.
#[derive(Clone, Debug)]
pub(crate) struct ToExplain {
    /// Normalised values `[3, H, W]` of the model's size.
    pub(crate) values: Vec<f32>,
    /// The image at the model's size. `None` if the client sent normalised values.
    pub(crate) resized: Option<RgbImage>,
    pub(crate) how: Explain,
}

/// The explanation of one image.
#[derive(Debug)]
pub(crate) struct Explained {
    /// Contribution of each pixel, or attention to it, `[H, W]`.
    pub(crate) map: Array2<f32>,
    /// The image at the model's size, if the client sent one.
    pub(crate) resized: Option<RgbImage>,
}

/// The results of a batch of texts.
#[derive(Debug)]
pub(crate) struct TextResults {
    /// `[texts, D]`
    pub(crate) embeddings: Array2<f32>,
    /// Number of tokens of each text, and true if it was truncated.
    pub(crate) tokens: Vec<(usize, bool)>,
}

/// The result of one text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextResult<'a> {
    pub(crate) embedding: ArrayView1<'a, f32>,
    pub(crate) tokens: usize,
    pub(crate) truncated: bool,
}

impl BatchResults {
    /// Returns the number of images or texts.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Outputs(outputs) => outputs.len(),
            Self::Explanations(explanations) => explanations.len(),
            Self::Texts(texts) => texts.embeddings.nrows(),
            Self::Generated(_) => 1,
            Self::Tensors(results) => results.len(),
            Self::Found(found) => found.len(),
        }
    }
}

/// Results of one image: a row of its batch.
#[derive(Clone, Debug)]
pub(crate) struct ImageResult {
    batch: Arc<BatchResults>,
    row: usize,
    pub(crate) parts: Parts,
}

impl ImageResult {
    pub(crate) fn new(batch: Arc<BatchResults>, row: usize) -> Self {
        Self {
            batch,
            row,
            parts: Parts::default(),
        }
    }

    /// Sets the times of this image.
    pub(super) fn with_parts(mut self, parts: Parts) -> Self {
        self.parts = parts;
        self
    }

    /// Returns the embedding of a text; `None` for an image.
    pub(crate) fn text(&self) -> Option<TextResult<'_>> {
        let BatchResults::Texts(texts) = &*self.batch else {
            return None;
        };
        let &(tokens, truncated) = texts.tokens.get(self.row)?;
        Some(TextResult {
            embedding: texts.embeddings.row(self.row),
            tokens,
            truncated,
        })
    }

    /// Returns the text that was made of an image.
    pub(crate) fn generated(&self) -> Option<&Generated> {
        match &*self.batch {
            BatchResults::Generated(generated) => Some(generated),
            _ => None,
        }
    }

    /// Returns the outputs of a request of named tensors, or its failure. `None` for images and texts.
    pub(crate) fn tensors(&self) -> Option<&Result<NamedTensors, Failure>> {
        match &*self.batch {
            BatchResults::Tensors(results) => results.get(self.row),
            _ => None,
        }
    }

    /// Returns what was found in an image.
    pub(crate) fn found(&self) -> Option<&VisionResult> {
        match &*self.batch {
            BatchResults::Found(found) => found.get(self.row),
            _ => None,
        }
    }

    pub(crate) fn outputs(&self) -> Option<ImageOutputs<'_>> {
        match &*self.batch {
            BatchResults::Outputs(outputs) => Some(outputs.image(self.row)),
            _ => None,
        }
    }

    pub(crate) fn explanation(&self) -> Option<&Explained> {
        match &*self.batch {
            BatchResults::Explanations(explanations) => explanations.get(self.row),
            _ => None,
        }
    }
}

/// Answer of a request: the results of its images in their order.
pub(crate) type Reply = Result<Vec<ImageResult>, Failure>;

/// Terms on which a request runs.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) priority: Priority,
    pub(crate) deadline: Instant,
    /// Client that waits for the answer. `None` if it is unknown.
    pub(crate) client: Option<Client>,
    pub(crate) trace: Trace,
    /// Memory of the request, charged until its last image is done.
    #[allow(dead_code, reason = "counts until it is dropped")]
    pub(crate) memory: Charge,
}

/// State shared by the images of one request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) terms: Terms,
    /// Set when the client has left, or when one of the images has failed.
    abandoned: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    results: Vec<Option<ImageResult>>,
    missing: usize,
    /// Taken by the first thread that answers.
    reply: Option<oneshot::Sender<Reply>>,
}

impl Request {
    pub(super) fn new(images: usize, terms: Terms, reply: oneshot::Sender<Reply>) -> Arc<Self> {
        Arc::new(Self {
            terms,
            abandoned: AtomicBool::new(false),
            state: Mutex::new(State {
                results: vec![None; images],
                missing: images,
                reply: Some(reply),
            }),
        })
    }

    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_abandoned(&self, now: Instant) -> bool {
        self.abandoned.load(Ordering::Relaxed) || self.terms.deadline <= now
    }

    pub(super) fn finish(&self, index: usize, result: Result<ImageResult, Failure>) {
        let mut state = self.state.lock();
        let reply = match result {
            Ok(result) => {
                if state.results[index].replace(result).is_none() {
                    state.missing -= 1;
                }
                if state.missing > 0 {
                    return;
                }
                Ok(state.results.drain(..).flatten().collect())
            }
            Err(failure) => {
                // Skip the other images, because the request has failed.
                self.abandon();
                Err(failure)
            }
        };
        if let Some(sender) = state.reply.take() {
            // The client may have left.
            let _ = sender.send(reply);
        }
    }
}
