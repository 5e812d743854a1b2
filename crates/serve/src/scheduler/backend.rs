//! Backends that run batches: a session, or a substitute in tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ndarray::Array2;
use parking_lot::RwLock;

use super::request::{BatchResults, Content, Explain, Explained, Prepared, TextResults, ToExplain};
use super::turns::Turns;
use crate::statistics::RunTimes;
use hipvit::error::{Error, Result};
use hipvit::exec::{InputData, Submission};
use hipvit::hip;
use hipvit::image::{
    Cancellation, DecodeBuffers, DeviceImage, Limits, Permit, RgbImage, decode_for_device, decode_unless,
};
use hipvit::model::Tokenizer;
use hipvit::outputs::Outputs;
use hipvit::session::{Degrees, Device, ResizeOn, RunInput, RunOptions, Session, TextEncoder};
use hipvit::timing::{Phase, Timing};
use hipvit_explain::Explainer;
use hipvit_generate::{Progress, TextId};

/// One of this many batches is timed on a GPU, because events in its streams take time.
const TIMED: u32 = 32;

/// Times of the preparation of one image.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrepareTimes {
    pub(crate) decode: Option<Duration>,
    pub(crate) resize: Option<Duration>,
    pub(crate) tokenize: Option<Duration>,
}

/// Options of the preparation of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preparation<'a> {
    pub(crate) limits: &'a Limits,
    /// Cancels once the client has left or its deadline has passed.
    pub(crate) cancellation: Cancellation<'a>,
}

/// A backend that makes texts of images, a token of each text in a step.
pub(crate) trait TextMaker: Send + Sync {
    /// Returns how many texts can be started now.
    fn vacant(&self) -> usize;

    /// Returns true if the cache has pages for a text now. Texts of one beam wait for pages in progress.
    fn has_pages(&self, text: &Prepared) -> Result<bool>;

    /// Encodes the images of a batch and starts their texts.
    fn start(&self, batch: &[Prepared]) -> Result<Vec<TextId>>;

    /// Computes a token of each text.
    fn step(&self) -> Result<Vec<Progress>>;

    /// Ends a text, and frees its part of the cache.
    fn cancel(&self, text: TextId);

    /// Ends all texts.
    fn cancel_all(&self);

    /// Returns the numbers of used and of all pages of the cache.
    fn pages(&self) -> [usize; 2];
}

/// One loaded copy of a model. Several threads may run batches on it at once.
pub(crate) trait Backend: Send + Sync {
    /// Decodes and resizes one image. `name` is its name in errors.
    fn prepare(
        &self,
        name: &str,
        content: Content,
        how: Preparation<'_>,
        times: &mut PrepareTimes,
    ) -> Result<Prepared>;

    /// Runs a batch; `number` counts the batches of the calling thread.
    fn run(&self, batch: &[Prepared], number: u32) -> Result<(BatchResults, Option<RunTimes>)>;

    /// Returns the reason if a row of the results is withheld from its client. Other rows are not affected.
    fn refused(&self, _results: &BatchResults, _row: usize) -> Option<String> {
        None
    }

    /// Fails if the device does not work any more.
    fn check(&self) -> Result<()>;

    /// Returns the name of its devices: `cpu`, `hip:0`, `hip:0,1`.
    fn device(&self) -> String;

    /// Returns the number of threads that should run batches. It exceeds one if copies and computation
    /// overlap, or for stages of a pipeline.
    fn concurrency(&self) -> usize;

    /// Returns the number of batches that it computes at once.
    fn computes(&self) -> usize {
        1
    }

    /// Returns the part that makes texts of images, if the model does. Its [`run`](Self::run) is not called.
    fn text_maker(&self) -> Option<&dyn TextMaker> {
        None
    }

    /// Returns its GPUs.
    fn gpus(&self) -> Vec<hip::Device> {
        Vec::new()
    }
}

/// Decodes an image. Returns it with the permit for the memory of its pixels.
fn decode_timed(
    name: &str,
    bytes: &[u8],
    how: Preparation<'_>,
    times: &mut PrepareTimes,
) -> Result<(RgbImage, Option<Permit>)> {
    let start = Instant::now();
    let decoded = decode_unless(name, bytes, how.limits.into(), Vec::new(), how.cancellation)?;
    times.decode = Some(start.elapsed());
    Ok(decoded)
}

/// Returns the image of a content, decoded, with the permit for the memory of its pixels.
pub(super) fn image_of(
    content: Content,
    name: &str,
    how: Preparation<'_>,
    times: &mut PrepareTimes,
) -> Result<(RgbImage, Option<Permit>)> {
    match content {
        Content::Encoded(bytes) => decode_timed(name, &bytes, how, times),
        Content::Decoded(image) => Ok((image, None)),
        _ => Err(Error::internal("content", "is not an image")),
    }
}

/// Returns the GPUs of all executors of a session.
pub(super) fn gpus_of(session: &Session) -> Vec<hip::Device> {
    let executors = session.executors().iter();
    executors
        .flat_map(|executor| executor.info().devices.clone())
        .collect()
}

/// Decodes an image for a GPU that computes the pixels of JPEGs. Returns it with the permit for its memory.
fn decode_for_gpu(
    name: &str,
    bytes: &[u8],
    how: Preparation<'_>,
    times: &mut PrepareTimes,
) -> Result<(DeviceImage, Option<Permit>)> {
    let start = Instant::now();
    let mut buffers = DecodeBuffers::default();
    let image = decode_for_device(name, bytes, how.limits, &mut buffers, how.cancellation)?;
    times.decode = Some(start.elapsed());
    Ok((image, buffers.permit))
}

/// A session that takes pixels, or one that takes normalised values.
pub(crate) struct SessionBackend {
    session: Session,
    values: bool,
    /// Turns of the sessions that are divided among the same GPUs.
    turns: Arc<Turns>,
    /// Number of this session in `turns`.
    number: u64,
    /// Read-locked while a batch runs, write-locked by a batch that must run alone.
    runs: RwLock<()>,
}

impl SessionBackend {
    /// Creates a backend. All sessions on the same devices share `turns`.
    pub(crate) fn new(session: Session, values: bool, turns: Arc<Turns>) -> Self {
        Self {
            session,
            values,
            number: turns.join(),
            turns,
            runs: RwLock::default(),
        }
    }

    /// Runs the smallest and the largest batch, so that no request waits for one-time work.
    pub(crate) fn warm_up(&self) -> Result<()> {
        self.run_black(1)?;
        self.run_black(self.session.batch())
    }

    /// Runs a batch of black images.
    fn run_black(&self, images: usize) -> Result<()> {
        let [height, width] = self.session.info().image_size;
        let each = 3 * height * width;
        let image = if self.values {
            Prepared::Values(vec![0.0; each])
        } else {
            Prepared::Pixels(vec![0; each])
        };
        self.run_in_memory(&vec![image; images], None).map(drop)
    }

    /// Returns true if its GPUs wait for each other within a run.
    fn sums(&self) -> bool {
        self.session.degrees().tensor > 1
    }

    fn is_gpu(&self) -> bool {
        matches!(self.session.device(), Device::Hip(_))
    }

    /// Runs pixels from memory that a GPU copies from.
    fn run_pixels(&self, pixels: &[&[u8]], timing: Option<&mut Timing>) -> Result<Outputs> {
        let session = &self.session;
        let mut staging = session.stage(pixels.len(), session.batch())?;
        let memory: &mut [u8] = &mut staging;
        for (slot, image) in memory.chunks_exact_mut(session.image_bytes()).zip(pixels) {
            slot.copy_from_slice(image);
        }
        let how = Submission {
            timed: timing.is_some(),
            // Block instead of spinning, to leave the core to decoder threads.
            sleeps: true,
            ..Submission::default()
        };
        let run = session.submit(InputData::Staged(staging), pixels.len(), how, Err)?;
        session.finish(run, timing)
    }

    /// Returns an image that the GPU resizes. Batches take whatever is ready, so an image that keeps its permit never
    /// waits for one that waits for a permit.
    fn prepared(&self, image: DeviceImage, permit: Option<Permit>) -> Result<Prepared> {
        self.session.preprocess().placement(image.size())?;
        Ok(Prepared::Image(image, permit.map(Arc::new)))
    }

    fn run_batch(&self, batch: &[Prepared], timing: Option<&mut Timing>) -> Result<Outputs> {
        let mixed = || Error::internal("batch", "mixes pixels, images and values");
        match batch.first() {
            Some(Prepared::Pixels(_)) => {
                let pixels = batch.iter().map(|image| match image {
                    Prepared::Pixels(pixels) => Some(pixels.as_slice()),
                    _ => None,
                });
                self.run_pixels(&pixels.collect::<Option<Vec<_>>>().ok_or_else(mixed)?, timing)
            }
            Some(Prepared::Image(..)) => {
                let images = batch.iter().map(|image| match image {
                    Prepared::Image(image, _) => Some(image),
                    _ => None,
                });
                let images = images.collect::<Option<Vec<_>>>().ok_or_else(mixed)?;
                self.session
                    .run_unchecked(RunInput::DeviceImages(images), options(timing))
            }
            Some(Prepared::ToExplain(..)) => Err(Error::internal("batch", "is to be explained")),
            Some(Prepared::Tiles(..)) => Err(Error::internal("batch", "has tiles for images")),
            Some(Prepared::ToText(..)) => Err(Error::internal("batch", "is to become texts")),
            Some(Prepared::Text(_)) => Err(Error::internal("batch", "has texts for images")),
            Some(Prepared::Tensors(_)) => Err(Error::internal("batch", "has tensors for images")),
            Some(Prepared::ToFind(_)) => Err(Error::internal("batch", "asks for something to find")),
            Some(Prepared::Values(_)) | None => {
                let values = batch.iter().map(|image| match image {
                    Prepared::Values(values) => Some(values.as_slice()),
                    _ => None,
                });
                let values = values.collect::<Option<Vec<&[f32]>>>().ok_or_else(mixed)?;
                self.session
                    .run_unchecked(RunInput::Values(&values.concat()), options(timing))
            }
        }
    }

    /// Calls [`run_batch`](Self::run_batch). If the device lacks memory for concurrent batches, runs this one
    /// alone.
    pub(super) fn run_in_memory(
        &self,
        batch: &[Prepared],
        mut timing: Option<&mut Timing>,
    ) -> Result<Outputs> {
        let _turn = self.sums().then(|| self.turns.take(self.number));
        {
            let _with_others = self.runs.read();
            match self.run_batch(batch, timing.as_deref_mut()) {
                Err(Error::Hip(hip::Error::OutOfMemory { .. })) => {}
                outputs => return outputs,
            }
        }
        let _alone = self.runs.write();
        self.run_batch(batch, timing)
    }
}

fn options(timing: Option<&mut Timing>) -> RunOptions<'_> {
    match timing {
        Some(timing) => RunOptions::new().timing(timing),
        None => RunOptions::new(),
    }
}

impl Backend for SessionBackend {
    fn prepare(
        &self,
        name: &str,
        content: Content,
        how: Preparation<'_>,
        times: &mut PrepareTimes,
    ) -> Result<Prepared> {
        let on_device = self.session.resize() == ResizeOn::Device;
        let (image, permit) = match content {
            Content::Encoded(bytes) if on_device => {
                let (image, permit) = decode_for_gpu(name, &bytes, how, times)?;
                return self.prepared(image, permit);
            }
            Content::Encoded(bytes) => decode_timed(name, &bytes, how, times)?,
            // The request counts for its memory.
            Content::Decoded(image) if on_device => return self.prepared(image.into(), None),
            Content::Decoded(image) => (image, None),
            Content::Values(values) => return Ok(Prepared::Values(values)),
            Content::ToExplain(..) => return Err(Error::internal("content", "is to be explained")),
            Content::ToText(..) => return Err(Error::internal("content", "is to become a text")),
            Content::Text(_) => return Err(Error::internal("content", "is a text, not an image")),
            Content::Tensors(_) => return Err(Error::internal("content", "is tensors, not an image")),
            Content::ToFind(..) => return Err(Error::internal("content", "asks for something to find")),
        };
        let start = Instant::now();
        let pixels = self.session.preprocess().apply(&image)?.data;
        times.resize = Some(start.elapsed());
        drop(permit);
        Ok(Prepared::Pixels(pixels))
    }

    fn run(&self, batch: &[Prepared], number: u32) -> Result<(BatchResults, Option<RunTimes>)> {
        if self.is_gpu() && !number.is_multiple_of(TIMED) {
            let outputs = self.run_in_memory(batch, None)?;
            return Ok((BatchResults::Outputs(Box::new(outputs)), None));
        }
        let mut timing = Timing::default();
        let outputs = self.run_in_memory(batch, Some(&mut timing))?;
        let mut times = RunTimes {
            copy: Duration::ZERO,
            copy_out: Duration::ZERO,
            compute: Duration::ZERO,
        };
        for (phase, time) in timing.phases() {
            match phase {
                Phase::Stage | Phase::CopyIn => times.copy += time,
                Phase::CopyOut => {
                    times.copy += time;
                    times.copy_out += time;
                }
                _ => times.compute += time,
            }
        }
        Ok((BatchResults::Outputs(Box::new(outputs)), Some(times)))
    }

    fn refused(&self, results: &BatchResults, row: usize) -> Option<String> {
        match results {
            BatchResults::Outputs(outputs) if self.session.is_strict() => {
                outputs.image(row).non_finite().map(|wrong| wrong.to_string())
            }
            _ => None,
        }
    }

    fn check(&self) -> Result<()> {
        self.run_black(1)
    }

    fn device(&self) -> String {
        self.session.devices().to_string()
    }

    fn concurrency(&self) -> usize {
        if self.is_gpu() {
            self.session.batches_in_flight()
        } else {
            1
        }
    }

    fn computes(&self) -> usize {
        let Degrees { data, pipeline, .. } = self.session.degrees();
        data * pipeline
    }

    fn gpus(&self) -> Vec<hip::Device> {
        gpus_of(&self.session)
    }
}

/// A model that explains on the host.
pub(crate) struct ExplainerBackend(pub(crate) Explainer);

impl Backend for ExplainerBackend {
    fn prepare(
        &self,
        name: &str,
        content: Content,
        how: Preparation<'_>,
        times: &mut PrepareTimes,
    ) -> Result<Prepared> {
        let Content::ToExplain(content, explain) = content else {
            return Err(Error::internal("content", "is not to be explained"));
        };
        let (image, _permit) = match *content {
            Content::Encoded(bytes) => decode_timed(name, &bytes, how, times)?,
            Content::Decoded(image) => (image, None),
            Content::Values(values) => {
                return Ok(Prepared::ToExplain(ToExplain {
                    values,
                    resized: None,
                    how: explain,
                }));
            }
            Content::ToExplain(..) => return Err(Error::internal("content", "is to be explained twice")),
            Content::ToText(..) => return Err(Error::internal("content", "is to become a text")),
            Content::Text(_) => return Err(Error::internal("content", "is a text, not an image")),
            Content::Tensors(_) => return Err(Error::internal("content", "is tensors, not an image")),
            Content::ToFind(..) => return Err(Error::internal("content", "asks for something to find")),
        };
        let start = Instant::now();
        let (resized, values) = self.0.pixel_values(&image)?;
        times.resize = Some(start.elapsed());
        Ok(Prepared::ToExplain(ToExplain {
            values,
            resized: Some(resized),
            how: explain,
        }))
    }

    fn run(&self, batch: &[Prepared], _: u32) -> Result<(BatchResults, Option<RunTimes>)> {
        let explain = |prepared: &Prepared| match prepared {
            Prepared::ToExplain(ToExplain { values, resized, how }) => {
                let map = match how {
                    Explain::Pixels(options) => {
                        let (_, attribution) = self.0.attribute(values, options)?;
                        attribution.by_pixel().mapv(|part| part as f32)
                    }
                    Explain::Rollout => {
                        let [height, width] = self.0.info().patch;
                        let patches = self.0.attention_rollout(values)?;
                        // Pixels beyond the last whole patch have no part.
                        Array2::from_shape_fn(self.0.info().image_size, |(y, x)| {
                            patches.get([y / height, x / width]).copied().unwrap_or(0.0)
                        })
                    }
                };
                Ok(Explained {
                    map,
                    resized: resized.clone(),
                })
            }
            _ => Err(Error::internal("batch", "is not to be explained")),
        };
        let explanations = batch.iter().map(explain).collect::<Result<_>>()?;
        Ok((BatchResults::Explanations(explanations), None))
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn device(&self) -> String {
        "cpu".into()
    }

    fn concurrency(&self) -> usize {
        1
    }
}

/// Text tower of a session.
pub(crate) struct TextBackend {
    tokenizer: Tokenizer,
    encoder: TextEncoder,
    device: String,
}

impl TextBackend {
    /// Loads the text tower of a session, and runs it once.
    pub(crate) fn new(session: &Session) -> Result<Self> {
        let tokenizer = session.text_tower()?.tokenizer()?;
        let encoder = TextEncoder::new(session)?;
        let device = match encoder.gpu() {
            Some(gpu) => Device::Hip(gpu.ordinal()),
            None => Device::Cpu,
        };
        let backend = Self {
            tokenizer,
            encoder,
            device: device.to_string(),
        };
        backend.check()?;
        Ok(backend)
    }
}

impl Backend for TextBackend {
    fn prepare(
        &self,
        _: &str,
        content: Content,
        _: Preparation<'_>,
        times: &mut PrepareTimes,
    ) -> Result<Prepared> {
        let Content::Text(text) = content else {
            return Err(Error::internal("content", "is not a text"));
        };
        let start = Instant::now();
        let tokens = self.tokenizer.encode(&text)?;
        times.tokenize = Some(start.elapsed());
        Ok(Prepared::Text(tokens))
    }

    fn run(&self, batch: &[Prepared], _: u32) -> Result<(BatchResults, Option<RunTimes>)> {
        let tokens = batch.iter().map(|prepared| match prepared {
            Prepared::Text(tokens) => Ok(tokens),
            _ => Err(Error::internal("batch", "has images for texts")),
        });
        let tokens = tokens.collect::<Result<Vec<_>>>()?;
        let ids: Vec<&[u32]> = tokens.iter().map(|tokens| tokens.ids.as_slice()).collect();
        let results = TextResults {
            embeddings: self.encoder.embed(&ids)?,
            tokens: tokens
                .iter()
                .map(|tokens| (tokens.ids.len(), tokens.truncated))
                .collect(),
        };
        Ok((BatchResults::Texts(results), None))
    }

    fn check(&self) -> Result<()> {
        let tokens = self.tokenizer.encode("a photo")?;
        self.encoder.embed(&[&tokens.ids]).map(drop)
    }

    fn device(&self) -> String {
        self.device.clone()
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn gpus(&self) -> Vec<hip::Device> {
        self.encoder.gpu().cloned().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image that waits for its batch keeps the decoding memory of its pixels, and no more.
    #[test]
    fn a_decoded_image_keeps_its_permit() {
        let file = include_bytes!("../../../../assets/samples/1.png");
        let limits = Limits::default();
        let how = Preparation {
            limits: &limits,
            cancellation: Cancellation::never(),
        };
        let (image, permit) = decode_for_gpu("x", file, how, &mut PrepareTimes::default()).unwrap();
        // The memory of its pixels and of resizing.
        let [width, height] = image.size();
        assert_eq!(
            permit.as_ref().map(Permit::bytes),
            Some((3 * width * height + 64 * (width + height)) as u64)
        );
        let prepared = Prepared::Image(image, permit.map(Arc::new));
        let Prepared::Image(_, Some(permit)) = &prepared else {
            panic!()
        };
        let kept = Arc::downgrade(permit);
        assert!(kept.upgrade().is_some());
        drop(prepared);
        assert!(kept.upgrade().is_none());
    }
}
