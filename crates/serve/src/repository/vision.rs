//! Models that find objects, masks or depths.

use std::path::Path;
use std::sync::Arc;

use super::{Model, Repository};
use crate::metrics::Runs;
use crate::protocol::vision::VisionProtocol;
use crate::scheduler::{Backend, ImageSegmenter, VisionBackend, VisionModel};
use hipvit::error::{Error, Result};
use hipvit::image::RgbImage;
use hipvit::model::VisionTask;
use hipvit::session::SessionBuilder;
use hipvit::{DepthEstimator, Detector, Segmenter};

impl Repository {
    /// Loads a model that finds objects, masks or depths. Returns `None` for an ONNX file that is no detector, whose tensors are served instead.
    pub(super) fn load_vision(
        &self,
        name: &str,
        version: u64,
        path: &Path,
        task: VisionTask,
    ) -> Result<Option<Model>> {
        let options = &self.options;
        let (mut described, mut backends) = (None, Vec::<Arc<dyn Backend>>::new());
        for builder in &options.instances {
            let builder = builder.clone().batch(options.max_batch);
            let model = match load(path, &builder, task) {
                Ok(model) => model,
                Err(error @ Error::Argument { .. }) if path.is_file() => {
                    tracing::warn!(model = name, %error, "the tensors of the file are served");
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            self.log_session(name, model.session());
            if described.is_none() {
                described = Some((protocol(&model), model.session().clone()));
            }
            backends.push(Arc::new(VisionBackend::new(model)?));
        }
        let none = || Error::argument("instances", "there must be at least one");
        let (protocol, session) = described.ok_or_else(none)?;
        let model = self.image_model(
            (name, version),
            &session,
            (backends, Runs::Images),
            "the model takes no texts",
        )?;
        Ok(Some(Model {
            vision: Some(protocol),
            ..model
        }))
    }
}

fn load(path: &Path, builder: &SessionBuilder, task: VisionTask) -> Result<VisionModel> {
    match task {
        VisionTask::Detection => {
            let detector = Detector::load(path, builder)?;
            Ok(VisionModel::Detector(Box::new(detector)))
        }
        VisionTask::Segmentation => {
            let segmenter = Segmenter::load(path, builder)?;
            Ok(VisionModel::Segmenter(Box::new(ImageSegmenter::new(segmenter))))
        }
        VisionTask::Depth => {
            let estimator = DepthEstimator::load(path, builder)?;
            let (height, width) = estimator.preprocess().output_size();
            let image = RgbImage::new(width, height, vec![0; 3 * height * width])?;
            let session = estimator.session(&image)?;
            Ok(VisionModel::Depth {
                estimator: Box::new(estimator),
                session: Box::new(session),
            })
        }
        other => {
            let reason = format!("{other:?} is a task that the server does not have");
            Err(Error::argument("model", reason))
        }
    }
}

fn protocol(model: &VisionModel) -> VisionProtocol {
    match model {
        VisionModel::Detector(_) => VisionProtocol::Detector,
        VisionModel::Segmenter(model) => VisionProtocol::Segmenter {
            masks: model.masks_per_prompt(),
            logits: model.logits_per_mask(),
        },
        VisionModel::Depth { .. } => VisionProtocol::Depth,
    }
}
