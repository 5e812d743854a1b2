//! Runs the graphs of a decoder on the device of its encoder.

use std::ops::Range;
use std::sync::Arc;

use hipvit::Session;
use hipvit::error::{Error, Result};
use hipvit::exec::{
    Download, Executor, ExecutorOptions, FinishOptions, GraphMode, InputData, Inputs, Placement, Submission,
    TimedCall,
};
use hipvit::graph::plan::Plan;
use hipvit::graph::{OutputKind, Passes, optimize};
use hipvit::model::Checkpoint;
use hipvit::session::GpuTensor;
use hipvit::tensor::Input;
use hipvit::timeline::{self, Activity};
use ndarray::{Array2, CowArray, Ix3, s};

use crate::graph::{self, CacheSize, FEATURES, cross_state};
use crate::llama;
use crate::spec::DecoderSpec;
use crate::step_inputs::{Row, StepInputs};

/// A decoder with its weights and its cache on a device.
#[derive(Debug)]
pub(crate) struct Decoder {
    spec: DecoderSpec,
    cache: CacheSize,
    step: Arc<dyn Executor>,
    /// Computes what a step reads of images.
    images: Arc<dyn Executor>,
    /// The device's time of each phase of a step is measured.
    pub(crate) timed: bool,
}

/// The encoder's tokens `[images, tokens, channels]`, in row-major order.
#[derive(Debug)]
pub(crate) enum Encoded<'a> {
    Host(CowArray<'a, f32, Ix3>),
    Gpu(&'a GpuTensor),
}

/// What follows each row of a step.
#[derive(Debug)]
pub(crate) struct StepOutputs {
    /// The logits of the chosen tokens.
    values: Vec<f32>,
    /// The chosen tokens, which f32 holds exactly.
    tokens: Vec<f32>,
    /// All logits, `[rows, vocabulary]`, if they were asked for.
    logits: Option<Array2<f32>>,
}

impl StepOutputs {
    /// Returns the token that was chosen after row `row`.
    pub(crate) fn token(&self, row: usize) -> u32 {
        self.tokens[row] as u32
    }

    /// Returns all logits, which were asked for.
    pub(crate) fn into_logits(self) -> Result<Array2<f32>> {
        let missing = || Error::internal("decoder", "returns no logits");
        self.logits.ok_or_else(missing)
    }

    /// Returns true if a logit after row `row` is NaN, which is chosen then.
    pub(crate) fn has_nan(&self, row: usize) -> bool {
        self.values[row].is_nan()
    }
}

impl Decoder {
    /// Puts the decoder on the device of `session`, which runs the encoder.
    pub(crate) fn new(
        spec: DecoderSpec,
        weights: &Checkpoint,
        session: &Session,
        cache: CacheSize,
    ) -> Result<Self> {
        let dtype = session.dtype();
        let gpu = session.executor().gpu();
        let passes = Passes {
            optimizations: session.graph().optimizations(),
            ..Passes::default()
        };
        let executor = |graph, graphs| -> Result<Arc<dyn Executor>> {
            let (graph, _) = optimize(graph, &passes)?;
            let options = ExecutorOptions {
                threads: Some(session.threads()),
                graphs,
                select: session.select_options(),
                ..ExecutorOptions::new(dtype)
            };
            gpu.map_or(Placement::Host, Placement::gpu)
                .executor(&graph, &options)
        };
        Ok(Self {
            step: executor(
                graph::step(&spec, weights, cache)?,
                session.executor().info().graphs.get(),
            )?,
            // Few launches of large results, whose comparison with a replay would take longer than many runs.
            images: executor(
                match &spec.llama {
                    Some(llama) => llama::features(&spec, llama, weights)?,
                    None => graph::cross(&spec, weights, cache.tokens)?,
                },
                GraphMode::Off,
            )?,
            spec,
            cache,
            timed: false,
        })
    }

    /// Writes what steps read of images to the cache. `images` are the images' numbers, or those of tiles.
    pub(crate) fn write_images(&self, encoded: Encoded<'_>, images: &[usize]) -> Result<()> {
        let plan = self.images.plan(images.len())?;
        let name = plan.graph().first_input_name();
        let input = match &encoded {
            Encoded::Gpu(tokens) => InputData::Peer(tokens.operand()?),
            Encoded::Host(tokens) => {
                let values = tokens.as_slice();
                let values =
                    values.ok_or_else(|| Error::internal("tokens", "of the encoder are not contiguous"))?;
                Input::Values(values).into()
            }
        };
        let inputs = Inputs::new([(name, input)]);
        let width = self.spec.width;
        let (names, each, start) = match &self.spec.llama {
            // The first row belongs to no image.
            Some(llama) => (vec![FEATURES.to_owned()], llama.tile_tokens() * width, width),
            None => {
                let names: Vec<String> = (0..self.spec.layers).map(cross_state).collect();
                (names, self.cache.tokens * 2 * width, 0)
            }
        };
        // Images with consecutive numbers are copied at once.
        let mut ranges: Vec<(Range<usize>, usize)> = Vec::new();
        for (index, &image) in images.iter().enumerate() {
            match ranges.last_mut() {
                Some((range, first)) if *first + range.len() == start + image * each => range.end += each,
                _ => ranges.push((index * each..(index + 1) * each, start + image * each)),
            }
        }
        if self.images.hip().is_some() {
            return self
                .images
                .run_to_states(&plan, inputs, (&*self.step, &names), &ranges);
        }
        let outputs = self.images.run_inputs(&plan, inputs)?;
        for (name, output) in names.iter().zip(outputs.iter()) {
            let values = output.values.as_slice();
            let values =
                values.ok_or_else(|| Error::internal("cache", "rows of images are not contiguous"))?;
            for (range, first) in &ranges {
                self.step.write_state(name, *first, &values[range.clone()])?;
            }
        }
        Ok(())
    }

    /// Computes what follows each row. With `logits`, all logits are returned too.
    pub(crate) fn step(&self, rows: &[Row<'_>], logits: bool) -> Result<StepOutputs> {
        let staging = timeline::span(Activity::Stage);
        let inputs = StepInputs::new(rows, &self.spec, self.cache);
        drop(staging);
        let plan = self.step.plan(inputs.batch())?;
        let submission = Submission {
            timed: self.timed,
            download: if logits { Download::All } else { Download::NoLogits },
            ..Submission::default()
        };
        let run = self.step.clone().reserve(&plan, None)?;
        let run = run.submit(inputs.named(), submission)?;
        let outputs = run.finish(FinishOptions::default())?.outputs;
        let (mut all, mut named) = (None, Vec::new());
        for output in outputs {
            let values = output.values.slice_move(s![..rows.len(), ..]);
            match output.kind {
                // Without the padding.
                OutputKind::Logits => all = Some(values.slice_move(s![.., ..self.spec.vocabulary])),
                _ => named.push(values),
            }
        }
        let [values, tokens] = <[Array2<f32>; 2]>::try_from(named)
            .map_err(|_| Error::internal("decoder", "chooses no tokens"))?
            .map(|column| column.into_iter().collect());
        Ok(StepOutputs {
            values,
            tokens,
            logits: all.filter(|_| logits),
        })
    }

    /// Returns the plan of a step of these rows, and the time of each of its kernels and library calls.
    pub(crate) fn time_calls(&self, rows: &[Row<'_>]) -> Result<(Arc<Plan>, Vec<TimedCall>)> {
        let inputs = StepInputs::new(rows, &self.spec, self.cache);
        let plan = self.step.plan(inputs.batch())?;
        let calls = self.step.time_calls(&plan, Some(inputs.named()))?;
        Ok((plan, calls))
    }

    pub(crate) fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    pub(crate) fn cache(&self) -> CacheSize {
        self.cache
    }

    /// Returns the bytes of the cache on its device.
    pub(crate) fn cache_bytes(&self) -> Result<usize> {
        let plan = self.step.plan(1)?;
        let graph = plan.graph();
        let bytes = |id| {
            let elements: usize = graph.value(id).shape.iter().product();
            elements * plan.state_dtype(id).size()
        };
        Ok(graph.states().map(bytes).sum())
    }
}
