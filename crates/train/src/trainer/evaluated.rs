//! The model that is evaluated.

use hipvit::error::Result;
use hipvit::model::{Format, LoadOptions, Model};

use super::{LayerEvent, Trainer, Weights};
use crate::float8::Float8Layers;
use crate::quantization::in_int8;

impl Trainer {
    /// Returns the weights that models are evaluated and written with: the averages, if [`TrainOptions::ema_decay`](crate::TrainOptions::ema_decay) is set.
    pub fn evaluated_weights(&self) -> Weights {
        match self.options.ema_decay {
            Some(_) => Weights::Average,
            None => Weights::Last,
        }
    }

    /// Returns the model with its present weights, for a session that evaluates it. After [int8](crate::Quantization::Int8) training, it is
    /// the model in int8 that `hipvit quantize` makes of the written one.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](hipvit::Error::Argument) if there are no averages. The errors of [`hipvit::model::load`] and of the device.
    pub fn model(&self, weights: Weights) -> Result<Model> {
        let options = LoadOptions {
            image_size: self.options.image_size,
            tokens: self.options.loss.has_labels(),
            ..LoadOptions::default()
        };
        let mut values = self.values(weights)?;
        if self.int8.is_empty() {
            return self.checkpoint.model_with(&values, &options);
        }
        for name in &self.int8 {
            if !values.contains_key(name) {
                // The tensor is not trained.
                values.insert(name.clone(), self.checkpoint.tensor(name)?.to_f32().into_owned());
            }
        }
        let columns = |name: &str| {
            let tensor = self.checkpoint.tensors().find(|(known, _)| *known == name);
            tensor
                .and_then(|(_, shape)| shape.last().copied())
                .unwrap_or_default()
        };
        let replaced = in_int8(values, &self.int8, columns);
        self.checkpoint.changed(Format::Int8, &replaced, &[], &options)
    }

    /// Returns the layers that have returned from FP8 to the dtype of the activations since the last call.
    pub fn take_layer_events(&mut self) -> Vec<LayerEvent> {
        self.float8.as_mut().map_or(Vec::new(), Float8Layers::take)
    }
}
