//! Suggestions, sorted by the gain that the model predicts.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::predict::{Configuration, Prediction};
use super::requirement::devices;
use super::subject::Subject;
use crate::peaks::Kind;
use hipvit::error::Result;
use hipvit::exec::{ExecutorOptions, HipExecutor};
use hipvit::graph::Optimizations;
use hipvit::graph::inspection::SelectedKernels;
use hipvit::image::{Preprocess, RgbImage};
use hipvit::ops::Op;
use hipvit::tensor::DType;

/// Resource that bounds the images per second of a [`Suggestion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Basis {
    /// The device, with pixels in host memory.
    Device,
    /// The host, which decodes and resizes JPEG files for the device.
    Files,
}

/// A change and its effect on the images per second.
#[derive(Clone, Debug, Serialize)]
pub struct Suggestion {
    /// Change to make.
    pub change: String,
    /// Option or command that makes the change.
    pub how: String,
    /// Reason for the gain.
    pub why: String,
    /// Bound of the images per second and of the gain. Rates with different bases are not comparable.
    pub basis: Basis,
    /// Upper bound of the images per second after the change.
    pub images_per_second: f64,
    /// Predicted factor on the images per second.
    pub gain: f64,
    /// Measured images per second end to end.
    pub measured_images_per_second: Option<f64>,
    /// Measured factor on the images per second.
    pub measured_gain: Option<f64>,
    #[serde(skip)]
    pub(super) trial: Option<Trial>,
}

/// Change that a measurement of a suggestion makes.
#[derive(Clone, Debug)]
pub(super) enum Trial {
    Configuration(Configuration, usize),
    Gpus(usize),
    ResizeOnDevice,
}

/// Smallest gain that is suggested.
const LEAST_GAIN: f64 = 1.02;

/// The smallest batch that reaches this fraction of the best batch's rate is suggested.
const NEARLY_BEST: f64 = 0.95;
const LARGEST_BATCH: usize = 1024;

/// Assumed slowdown of a library's untuned choice of a GEMM kernel, for ViT shapes. On gfx942, rocBLAS's
/// default was measured 1.36 times slower than the fastest, hipBLASLt's first heuristic 1.01 times.
const UNTUNED: [(&str, f64); 2] = [("rocBLAS", 1.36), ("hipBLASLt", 1.01)];

/// Height and width of a typical ImageNet photograph.
pub(super) const PHOTOGRAPH: [usize; 2] = [375, 500];

/// Seconds to decode a [`PHOTOGRAPH`]'s JPEG file on one core: Pillow decodes 520 per second and core on an
/// EPYC.
const DECODE_SECONDS: f64 = 1.9e-3;

/// Part of the time to decode that is left to the host if a GPU computes the pixels: files of quality 85 (`benches/jpeg.py`).
const ENTROPY_PART: f64 = 0.62;

/// Returns the suggestions, sorted by gain with additional GPUs last, and the changes that would not help.
pub(super) fn suggest(subject: &Subject<'_>) -> Result<(Vec<Suggestion>, Vec<String>)> {
    let mut found = Vec::new();
    let mut no_gain = Vec::new();
    let mut consider = |suggestion: Suggestion| {
        if suggestion.gain >= LEAST_GAIN {
            found.push(suggestion);
        } else {
            no_gain.push(format!("{}: {}", suggestion.change, suggestion.why));
        }
    };
    subject.dtype()?.map(&mut consider);
    subject.batch()?.map(&mut consider);
    subject.left_out()?.into_iter().for_each(&mut consider);
    subject.tuning()?.map(&mut consider);
    subject.resize()?.map(&mut consider);
    subject.gpus().map(&mut consider);
    sort(&mut found);
    Ok((found, no_gain))
}

/// Sorts by gain, the largest first. Additional GPUs come last: they help every model and cost most.
pub(super) fn sort(suggestions: &mut [Suggestion]) {
    let buys = |suggestion: &Suggestion| matches!(suggestion.trial, Some(Trial::Gpus(_)));
    suggestions.sort_by(|a, b| buys(a).cmp(&buys(b)).then(b.gain.total_cmp(&a.gain)));
}

impl Subject<'_> {
    fn suggestion(
        &self,
        change: impl Into<String>,
        how: impl Into<String>,
        why: impl Into<String>,
        images_per_second: f64,
    ) -> Suggestion {
        Suggestion {
            change: change.into(),
            how: how.into(),
            why: why.into(),
            basis: Basis::Device,
            images_per_second,
            gain: images_per_second / self.prediction.images_per_second,
            measured_images_per_second: None,
            measured_gain: None,
            trial: None,
        }
    }

    /// Changes the configuration, and returns it with its prediction.
    fn tried(
        &self,
        configuration: Configuration,
        batch: usize,
        describe: impl FnOnce(&Prediction) -> [String; 3],
    ) -> Result<Suggestion> {
        let prediction = self.planner.predict(self.hardware, configuration, batch)?;
        let [change, how, why] = describe(&prediction);
        Ok(Suggestion {
            trial: Some(Trial::Configuration(configuration, batch)),
            ..self.suggestion(change, how, why, prediction.images_per_second)
        })
    }

    /// Suggests the 16-bit dtype with the higher peak; for equal peaks bf16, which has the range of f32.
    fn dtype(&self) -> Result<Option<Suggestion>> {
        let narrow = [DType::BF16, DType::F16].into_iter();
        let known = narrow.filter_map(|dtype| Some((dtype, self.hardware.flops_per_second(dtype).ok()?)));
        let best = known.reduce(|best, next| if next.1 > best.1 { next } else { best });
        let Some((dtype, _)) = best else { return Ok(None) };
        if self.configuration.dtype != DType::F32 || self.hardware.kind == Kind::Cpu {
            return Ok(None);
        }
        let configuration = Configuration {
            dtype,
            ..self.configuration
        };
        let suggestion = self.tried(configuration, self.batch, |_| {
            [
                format!("compute in {dtype}"),
                format!("--dtype {dtype}"),
                "half the bytes, and matrix units at a multiple of f32's rate".into(),
            ]
        })?;
        Ok(Some(suggestion))
    }

    /// Suggests a larger batch, which reads the weights less often and launches less per image, or a smaller
    /// one if the batch does not fit.
    fn batch(&self) -> Result<Option<Suggestion>> {
        let fits = |prediction: &Prediction| {
            let memory = self.hardware.memory_bytes;
            memory.is_none_or(|bytes| prediction.memory.peak_bytes <= bytes)
        };
        let too_large = !fits(self.prediction);
        let mut tried = Vec::new();
        let sizes = std::iter::successors(Some(1), |size| Some(2 * size));
        for size in sizes.take_while(|&size| size <= LARGEST_BATCH.max(self.batch)) {
            let prediction = self.planner.predict(self.hardware, self.configuration, size)?;
            if !fits(&prediction) {
                break;
            }
            tried.push((size, prediction.images_per_second));
        }
        let best = tried.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
        let enough = tried.iter().find(|&&(_, rate)| rate >= NEARLY_BEST * best);
        let Some(&(size, _)) = enough.filter(|&&(size, _)| too_large || size > self.batch) else {
            return Ok(None);
        };
        let suggestion = self.tried(self.configuration, size, |prediction| {
            let why = if too_large { "the memory does not hold this batch".to_owned() } else { format!(
                "weights are read and kernels launched once for more images; a batch takes {:.2} ms instead of {:.2}",
                1e3 * prediction.seconds,
                1e3 * self.prediction.seconds
            ) };
            [format!("batch {size}"), format!("--batch {size}"), why]
        })?;
        let mut suggestion = suggestion;
        if too_large {
            // The configuration does not run as it is, so any rate is a gain.
            suggestion.gain = f64::INFINITY;
        }
        Ok(Some(suggestion))
    }

    /// Suggests the optimisations that the configuration leaves out.
    fn left_out(&self) -> Result<Vec<Suggestion>> {
        let on_gpu = self.hardware.kind == Kind::Gpu;
        let with = |change: fn(&mut Optimizations)| {
            let mut configuration = self.configuration;
            change(&mut configuration.optimizations);
            configuration
        };
        let choices = [
            (
                "fusion",
                "fewer steps and bytes: fused activations and residuals, packed Q, K and V, one token at the end",
                with(|o| o.fusion = true),
                true,
            ),
            (
                "fused attention",
                "the scores of attention stay on the chip",
                with(|o| o.fused_attention = true),
                on_gpu,
            ),
            (
                "epilogues",
                "bias, activation and residual are applied by the GEMM itself",
                with(|o| o.epilogues = true),
                on_gpu,
            ),
            (
                "HIP graphs",
                "a replayed graph launches its kernels for less",
                Configuration {
                    hip_graphs: true,
                    ..self.configuration
                },
                on_gpu,
            ),
        ];
        let left_out = choices
            .into_iter()
            .filter(|(_, _, configuration, applies)| *applies && *configuration != self.configuration);
        left_out
            .map(|(name, why, configuration, _)| {
                self.tried(configuration, self.batch, |_| {
                    let how = format!("leave `{name}` out of --without");
                    [name.to_owned(), how, why.to_owned()]
                })
            })
            .collect()
    }

    /// Suggests tuning if libraries choose GEMM kernels by a heuristic on an installed GPU.
    fn tuning(&self) -> Result<Option<Suggestion>> {
        let Some(gpu) = self.gpu else { return Ok(None) };
        let plan = self.planner.plan(self.configuration, self.batch)?;
        if plan.graph().has_float8() {
            // The planner's graph is the CPU's.
            return Ok(None);
        }
        let executor = HipExecutor::new(plan.graph(), gpu, &ExecutorOptions::new(self.configuration.dtype))?;
        let kernels = executor.kernels(&plan)?;
        let by_rule = |kernels: &&SelectedKernels| kernels.origin.as_deref() == Some("rule");
        let untuned: Vec<&SelectedKernels> = kernels.iter().filter(by_rule).collect();
        if untuned.is_empty() {
            return Ok(None);
        }
        let mut saved = 0.0;
        for (step, of_plan) in self.prediction.steps.iter().zip(plan.steps()) {
            let same = |kernels: &&&SelectedKernels| kernels.op == step.op && kernels.shape == step.shape;
            if let (Op::Linear(_), Some(kernels)) = (&plan.node(of_plan).op, untuned.iter().find(same)) {
                let names = &kernels.kernels;
                let factor = UNTUNED
                    .iter()
                    .find(|(library, _)| names.iter().any(|name| name.starts_with(library)));
                saved += factor.map_or(0.0, |(_, factor)| (1.0 - 1.0 / factor) * step.seconds);
            }
        }
        let rate = self.batch as f64 / (self.prediction.seconds - saved);
        let steps: usize = untuned.iter().map(|kernels| kernels.steps).sum();
        let why = format!("{steps} steps run what a rule chose, not what was measured to be fastest here");
        let how = format!(
            "hipvit tune --dtype {} --batch {}",
            self.configuration.dtype, self.batch
        );
        Ok(Some(self.suggestion("tune the selection", how, why, rate)))
    }

    /// Suggests resizing on the GPU if the host decodes and resizes more slowly than the GPU computes.
    fn resize(&self) -> Result<Option<Suggestion>> {
        let on_host = self.preprocess.resize().is_none() || self.preprocess.patch().is_some();
        if self.hardware.kind == Kind::Cpu || on_host {
            return Ok(None);
        }
        let cores = num_cpus::get() as f64;
        let resize = host_resize_seconds(self.preprocess)?;
        let model = self.prediction.images_per_second;
        let [height, width] = PHOTOGRAPH;
        // On the device, the samples (4:2:0) and the image are written and read, and its rows at the new width too.
        let (_, output_width) = self.preprocess.output_size();
        let bytes = 3 * height * (3 * width + 2 * output_width);
        let on_device = 1.0 / (1.0 / model + bytes as f64 / self.hardware.bytes_per_second);
        let now = model.min(cores / (DECODE_SECONDS + resize));
        let after = on_device.min(cores / (ENTROPY_PART * DECODE_SECONDS));
        let why = format!(
            "this host's {cores} cores take {:.1} ms each to decode a JPEG file of {width}×{height} and {:.1} ms to resize it",
            1e3 * DECODE_SECONDS,
            1e3 * resize
        );
        let mut suggestion = self.suggestion("resize on the GPU", "--resize device", why, after);
        suggestion.basis = Basis::Files;
        suggestion.gain = after / now;
        suggestion.trial = Some(Trial::ResizeOnDevice);
        Ok(Some(suggestion))
    }

    /// Suggests another GPU, or as many as the required rate needs.
    fn gpus(&self) -> Option<Suggestion> {
        if self.hardware.kind == Kind::Cpu {
            return None;
        }
        let one = self.prediction.images_per_second;
        let needed = self
            .rate
            .map_or(2, |rate| devices(rate, self.efficiency * one).max(2));
        let why = match self.rate {
            Some(rate) => format!("{rate} images/s at {:.0} % of the bound", 100.0 * self.efficiency),
            None => "each runs batches of its own".into(),
        };
        let how = "--device hip:all";
        let suggestion = self.suggestion(format!("{needed} GPUs"), how, why, needed as f64 * one);
        Some(Suggestion {
            trial: Some(Trial::Gpus(needed as usize)),
            ..suggestion
        })
    }
}

/// Measures the seconds that one core takes to resize and crop a photograph by `rule`; the shortest of
/// several tries.
fn host_resize_seconds(rule: &Preprocess) -> Result<f64> {
    let image = photograph()?;
    let begin = Instant::now();
    let mut shortest = f64::INFINITY;
    let mut runs = 0;
    while runs < 3 || begin.elapsed() < Duration::from_millis(30) {
        let start = Instant::now();
        rule.apply(&image)?;
        shortest = shortest.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(shortest)
}

/// Creates an image to resize. Its content does not affect the time.
pub(super) fn photograph() -> Result<RgbImage> {
    let [height, width] = PHOTOGRAPH;
    Ok(RgbImage::new(width, height, vec![128; 3 * width * height])?)
}
