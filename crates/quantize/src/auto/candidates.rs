//! Options of the search: all layers in each precision, and the time of each unit in that precision on the
//! target device.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Decision, Quantized, References, decide, units};
use crate::activations;
use crate::fidelity::{self, OnGpu, Reference};
use crate::layers::{Group, Layers};
use crate::options::Options;
use crate::precision::Precision;
use crate::rounding;
use crate::times::{self, GpuTarget};
use crate::unit::Unit;
use hipvit::error::Result;
use hipvit::exec::CpuExecutor;
use hipvit::graph::{Passes, optimize};
use hipvit::model::{Checkpoint, Format, LoadOptions, Model, Replacement};

/// Search for the precision of each layer of a model.
pub(crate) struct Search<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) model: &'a Model,
    pub(crate) layers: &'a Layers,
    pub(crate) groups: &'a [Group],
    /// Pixels of the calibration images; `held_out` has those of the other images.
    pub(crate) calibration: &'a [Vec<u8>],
    pub(crate) held_out: &'a [Vec<u8>],
    pub(crate) options: &'a Options,
}

impl Search<'_> {
    /// Selects precisions within `budget`. Returns the decision and the replaced tensors. `int8` has the
    /// replacements for all layers in int8.
    pub(crate) fn run(
        &self,
        budget: f64,
        int8: BTreeMap<String, Replacement>,
    ) -> Result<(Decision, BTreeMap<String, Replacement>)> {
        let full = fidelity::on_cpu(self.model.clone())?;
        let held_out = if self.held_out.is_empty() {
            None
        } else {
            Some(Reference::new(&full, self.held_out)?)
        };
        let references = References {
            calibration: Reference::new(&full, self.calibration)?,
            held_out,
        };
        let units = units(&self.model.graph, self.layers, self.groups);
        let (times, candidates, measured_on) = match &self.options.target {
            None => self.on_cpu(&units, int8)?,
            Some(target) => self.on_gpu(&units, int8, target)?,
        };
        let by = (budget, measured_on);
        let (mut decision, chosen) = decide(self.checkpoint, &units, &times, &candidates, &references, by)?;
        if let Some(target) = &self.options.target {
            let quantized = self
                .checkpoint
                .changed(Format::Int8, &chosen, &[], &LoadOptions::default())?;
            let images = references.held_out.as_ref().unwrap_or(&references.calibration);
            decision.on_gpu = Some(OnGpu::measure(self.model.clone(), quantized, target, images)?);
        }
        Ok((decision, chosen))
    }

    /// Returns the time of each unit in full precision, int8 and bf16, and the device of the measurement.
    fn on_cpu(
        &self,
        units: &[Unit],
        int8: BTreeMap<String, Replacement>,
    ) -> Result<(Vec<Duration>, Vec<Quantized>, String)> {
        let (graph, _) = optimize(self.model.graph.clone(), &Passes::default())?;
        let times = times::on_cpu(&CpuExecutor::new(&graph, None)?, units)?;
        let [full, int8_times, bf16_times] = times;
        // bf16 starts from the original weights, because channels are balanced only for int8.
        let (weights, scales) = (&self.layers.quantized, self.options.scales);
        let bf16 = rounding::round_all(self.checkpoint, weights, Precision::Bf16, scales)?;
        let candidates = vec![
            Quantized {
                precision: Precision::Int8,
                replaced: int8,
                times: int8_times,
            },
            Quantized {
                precision: Precision::Bf16,
                replaced: bf16,
                times: bf16_times,
            },
        ];
        Ok((full, candidates, "the CPU, one image".to_owned()))
    }

    /// Returns the time of each unit in full precision, int8 and FP8, and the device of the measurement.
    fn on_gpu(
        &self,
        units: &[Unit],
        int8: BTreeMap<String, Replacement>,
        target: &GpuTarget,
    ) -> Result<(Vec<Duration>, Vec<Quantized>, String)> {
        let (checkpoint, model, images) = (self.checkpoint, self.model, self.calibration);
        let time = |replaced: &BTreeMap<String, Replacement>| {
            let changed = checkpoint.changed(
                Format::Full,
                replaced,
                &self.layers.others,
                &LoadOptions::default(),
            )?;
            times::on_gpu(&changed, target, units)
        };
        let range = self.options.activation_range;
        let float8 = activations::round(checkpoint, model, self.layers, images, range)?;
        let (int8_times, float8_times) = (time(&int8)?, time(&float8)?);
        let candidates = vec![
            Quantized {
                precision: Precision::Int8,
                replaced: int8,
                times: int8_times,
            },
            Quantized {
                precision: Precision::Fp8,
                replaced: float8,
                times: float8_times,
            },
        ];
        let full = times::on_gpu(model, target, units)?;
        let GpuTarget { device, dtype, batch } = target;
        let measured_on = format!("{}, {dtype}, batch {batch}", device.name());
        Ok((full, candidates, measured_on))
    }
}
