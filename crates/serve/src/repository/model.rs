//! A loaded model: its inputs, its outputs, and the engines that run it.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::protocol::TensorMetadata;
use crate::protocol::generation::TextProtocol;
use crate::protocol::named::NamedProtocol;
use crate::protocol::outputs::Outputs;
use crate::protocol::tensors::Inputs;
use crate::protocol::vision::VisionProtocol;
use crate::scheduler::Engine;
use crate::statistics::Statistics;
use hipvit::zero_shot::Similarity;

/// A loaded version of a model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) version: u64,
    /// Library that wrote the model.
    pub(crate) platform: String,
    pub(crate) inputs: Inputs,
    pub(crate) outputs: Outputs,
    /// Inputs and outputs of a model that takes tensors by name, in place of those above.
    pub(crate) named: Option<NamedProtocol>,
    /// Inputs and outputs of a model that finds objects, masks or depths, in place of those above.
    pub(crate) vision: Option<VisionProtocol>,
    /// Outputs of a model that makes texts of images, in place of those above.
    pub(crate) generation: Option<TextProtocol>,
    /// Time of loading.
    pub(crate) loaded: SystemTime,
    pub(crate) statistics: Arc<Statistics>,
    pub(super) images: Engine,
    pub(super) values: Option<Engine>,
    pub(super) explanations: Option<Engine>,
    pub(super) texts: Option<Texts>,
}

/// A model's text tower.
#[derive(Debug)]
pub(crate) struct Texts {
    pub(crate) engine: Engine,
    pub(crate) similarity: Similarity,
    /// Maximum number of tokens of a text.
    pub(crate) context: usize,
}

impl Model {
    /// Returns the inputs that the model takes.
    pub(crate) fn input_metadata(&self) -> Vec<TensorMetadata> {
        match (&self.named, &self.vision) {
            (Some(named), _) => named.input_metadata(),
            (None, Some(vision)) => vision.input_metadata(&self.inputs),
            (None, None) => self.inputs.metadata(),
        }
    }

    /// Returns the outputs that the model gives.
    pub(crate) fn output_metadata(&self) -> Vec<TensorMetadata> {
        match (&self.named, &self.vision, &self.generation) {
            (Some(named), ..) => named.output_metadata(),
            (None, Some(vision), _) => vision.output_metadata(),
            (None, None, Some(_)) => TextProtocol::output_metadata(),
            (None, None, None) => self.outputs.metadata(),
        }
    }

    /// Returns the engine for images, or the one for normalised values.
    pub(crate) fn engine(&self, values: bool) -> &Engine {
        match &self.values {
            Some(engine) if values => engine,
            _ => &self.images,
        }
    }

    /// Returns the engine for explanations, if the server offers it.
    pub(crate) fn explanations(&self) -> Option<&Engine> {
        self.explanations.as_ref()
    }

    /// Returns the text tower, if the model has one.
    pub(crate) fn texts(&self) -> Option<&Texts> {
        self.texts.as_ref()
    }

    /// Returns the engines that run the model.
    pub(crate) fn engines(&self) -> impl Iterator<Item = &Engine> {
        let texts = self.texts.as_ref().map(|texts| &texts.engine);
        std::iter::once(&self.images).chain(&self.values).chain(texts)
    }

    /// Returns the device of each instance.
    pub(crate) fn devices(&self) -> impl Iterator<Item = String> {
        self.images.instances().map(|(device, _)| device.to_owned())
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.engines().all(Engine::is_ready)
    }

    /// Returns the reason if the model runs nothing. `None` if it runs.
    pub(super) fn fault(&self) -> Option<String> {
        self.engines().find_map(Engine::fault)
    }

    /// Stops admitting requests.
    pub(super) fn close(&self) {
        let engines = self.engines().chain(&self.explanations);
        engines.for_each(Engine::close);
    }

    /// Waits until admitted requests have run, after [`close`](Self::close). Returns false if something still
    /// runs at `deadline`.
    pub(super) fn join(&self, deadline: Instant) -> bool {
        let mut engines = self.engines().chain(&self.explanations);
        engines.all(|engine| engine.join(deadline))
    }
}
