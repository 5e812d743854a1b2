//! The backend of models that find objects, masks or depths.

use std::collections::VecDeque;
use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::hip;
use hipvit::image::RgbImage;
use hipvit::segment::{ImageEmbedding, Prompt};
use hipvit::session::{Device, Session};
use hipvit::{DepthEstimator, Detector, Segmenter};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::backend::{Backend, Preparation, PrepareTimes, gpus_of, image_of};
use super::request::{BatchResults, Content, Prepared, ToFind};
use super::vision::{ObjectPrompt, VisionQuery, VisionRequest, VisionResult};
use crate::statistics::RunTimes;

/// Number of encoded images that are kept for further prompts, such as the clicks of a person.
const MAX_EMBEDDINGS: usize = 4;

/// A model that finds objects, masks or depths.
pub(crate) enum VisionModel {
    Detector(Box<Detector>),
    Segmenter(Box<ImageSegmenter>),
    Depth {
        estimator: Box<DepthEstimator>,
        /// The session for images of the model's own size.
        session: Box<Session>,
    },
}

/// A segmenter with the embeddings of the latest images.
pub(crate) struct ImageSegmenter {
    segmenter: Segmenter,
    /// Embeddings by the digest of their images, the most recent last.
    latest: Mutex<VecDeque<([u8; 32], Arc<ImageEmbedding>)>>,
}

impl ImageSegmenter {
    pub(crate) fn new(segmenter: Segmenter) -> Self {
        Self {
            segmenter,
            latest: Mutex::default(),
        }
    }

    pub(crate) fn masks_per_prompt(&self) -> usize {
        self.segmenter.masks_per_prompt()
    }

    /// Returns the number of logits of a mask.
    pub(crate) fn logits_per_mask(&self) -> usize {
        self.segmenter.mask_side().pow(2)
    }

    /// Returns the embedding of an image. Encodes it, unless it is one of the latest.
    fn embedding(&self, image: &RgbImage, digest: Option<[u8; 32]>) -> Result<Arc<ImageEmbedding>> {
        let mut latest = self.latest.lock();
        let known = latest.iter().position(|(known, _)| Some(*known) == digest);
        if let Some((key, embedding)) = known.and_then(|index| latest.remove(index)) {
            latest.push_back((key, embedding.clone()));
            return Ok(embedding);
        }
        drop(latest);
        let embedding = Arc::new(self.segmenter.encode(image)?);
        if let Some(digest) = digest {
            let mut latest = self.latest.lock();
            latest.push_back((digest, embedding.clone()));
            let excess = latest.len().saturating_sub(MAX_EMBEDDINGS);
            latest.drain(..excess);
        }
        Ok(embedding)
    }

    fn find(&self, item: &ToFind) -> Result<VisionResult> {
        let VisionQuery::Masks(prompts) = &item.request.query else {
            return Err(Error::internal("query", "has no prompts"));
        };
        let embedding = self.embedding(&item.image, item.digest)?;
        let prompts: Vec<Prompt> = prompts.iter().map(ObjectPrompt::prompt).collect();
        Ok(VisionResult::Masks {
            prompts: self.segmenter.segment(&embedding, &prompts)?,
            size: embedding.size(),
        })
    }
}

/// Returns the SHA-256 of an image.
fn digest(image: &RgbImage) -> [u8; 32] {
    let mut digest = Sha256::new();
    for side in [image.width, image.height] {
        digest.update((side as u64).to_le_bytes());
    }
    digest.update(&image.data);
    digest.finalize().into()
}

impl VisionModel {
    /// Returns the session that runs on each image.
    pub(crate) fn session(&self) -> &Session {
        match self {
            Self::Detector(detector) => detector.session(),
            Self::Segmenter(model) => model.segmenter.session(),
            Self::Depth { session, .. } => session,
        }
    }

    /// Checks that an image can be prepared, and that it has the places that the request names.
    fn check(&self, image: &RgbImage, request: &VisionRequest) -> Result<()> {
        let (size, index) = ([image.height, image.width], request.index);
        match (self, &request.query) {
            (Self::Detector(detector), _) => {
                detector.preprocess().placement([image.width, image.height])?;
            }
            (Self::Segmenter(model), VisionQuery::Masks(prompts)) => {
                model.segmenter.check(image)?;
                for (number, prompt) in prompts.iter().enumerate() {
                    prompt.check(size, || format!("image {index}, object {number}"))?;
                }
            }
            (Self::Segmenter(_), _) => return Err(Error::internal("query", "has no prompts")),
            (Self::Depth { estimator, .. }, _) => {
                let rule = estimator.preprocess().for_image(image.height, image.width)?;
                rule.placement([image.width, image.height])?;
            }
        }
        Ok(())
    }

    /// Returns what the model finds in each image.
    fn find(&self, batch: &[&ToFind]) -> Result<Vec<VisionResult>> {
        let images: Vec<&RgbImage> = batch.iter().map(|item| &item.image).collect();
        match self {
            Self::Detector(detector) => {
                let thresholds = || batch.iter().map(|item| item.request.threshold());
                let mut found = detector.detect(&images, thresholds().fold(1.0, f32::min))?;
                for (objects, threshold) in found.iter_mut().zip(thresholds()) {
                    objects.retain(|object| object.score > threshold);
                }
                Ok(found.into_iter().map(VisionResult::Objects).collect())
            }
            Self::Segmenter(model) => batch.iter().map(|item| model.find(item)).collect(),
            Self::Depth { estimator, .. } => {
                let depths = estimator.predict(&images)?.into_iter().zip(images);
                let result = |(predicted, image): (_, &RgbImage)| VisionResult::Depth {
                    predicted,
                    size: [image.height, image.width],
                };
                Ok(depths.map(result).collect())
            }
        }
    }

    /// Returns a black image, with something to find in it.
    fn sample(&self) -> Result<ToFind> {
        let [height, width] = match self {
            Self::Detector(detector) => detector.preprocess().output_size().into(),
            Self::Segmenter(_) | Self::Depth { .. } => self.session().info().image_size,
        };
        let query = match self {
            Self::Detector(_) => VisionQuery::Objects(0.5),
            Self::Segmenter(_) => VisionQuery::Masks(
                [ObjectPrompt {
                    points: vec![(0.0, 0.0, true)],
                    corners: None,
                }]
                .into(),
            ),
            Self::Depth { .. } => VisionQuery::Depth,
        };
        Ok(ToFind {
            image: RgbImage::new(width, height, vec![0; 3 * height * width])?,
            request: VisionRequest { query, index: 0 },
            digest: None,
            permit: None,
        })
    }
}

/// A model whose batches have images of any size.
pub(crate) struct VisionBackend(VisionModel);

impl VisionBackend {
    /// Creates a backend, and runs its smallest and its largest batch, so that no request waits for one-time work.
    pub(crate) fn new(model: VisionModel) -> Result<Self> {
        let sample = model.sample()?;
        model.find(&[&sample])?;
        model.find(&vec![&sample; model.session().batch()])?;
        Ok(Self(model))
    }
}

impl Backend for VisionBackend {
    fn prepare(
        &self,
        name: &str,
        content: Content,
        how: Preparation<'_>,
        times: &mut PrepareTimes,
    ) -> Result<Prepared> {
        let Content::ToFind(content, request) = content else {
            return Err(Error::internal("content", "asks for nothing to find"));
        };
        let (image, permit) = image_of(*content, name, how, times)?;
        self.0.check(&image, &request)?;
        let digest = matches!(self.0, VisionModel::Segmenter(_)).then(|| digest(&image));
        Ok(Prepared::ToFind(Arc::new(ToFind {
            image,
            request,
            digest,
            permit,
        })))
    }

    fn run(&self, batch: &[Prepared], _: u32) -> Result<(BatchResults, Option<RunTimes>)> {
        let items = batch.iter().map(|prepared| match prepared {
            Prepared::ToFind(item) => Ok(&**item),
            _ => Err(Error::internal("batch", "has images without a request")),
        });
        let found = self.0.find(&items.collect::<Result<Vec<_>>>()?)?;
        Ok((BatchResults::Found(found), None))
    }

    fn check(&self) -> Result<()> {
        self.0.find(&[&self.0.sample()?]).map(drop)
    }

    fn device(&self) -> String {
        self.0.session().devices().to_string()
    }

    fn concurrency(&self) -> usize {
        let session = self.0.session();
        match session.device() {
            Device::Hip(_) => session.batches_in_flight(),
            _ => 1,
        }
    }

    fn gpus(&self) -> Vec<hip::Device> {
        gpus_of(self.0.session())
    }
}
