//! Runs the graphs of a decoder on the device of its encoder.

use std::ops::Range;
use std::sync::Arc;

use hipvit::Session;
use hipvit::error::{Error, Result};
use hipvit::exec::{
    Download, Executor, ExecutorOptions, FinishOptions, GraphMode, InputData, Inputs, Placement, RunOutputs,
    Submission, TimedCall,
};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, OutputKind, Passes, optimize};
use hipvit::hip::{Device, Operand};
use hipvit::model::Checkpoint;
use hipvit::session::GpuTensor;
use hipvit::tensor::Input;
use hipvit::timeline::{self, Activity};
use ndarray::{Array2, CowArray, Ix3, s};

use crate::graph::{self, CacheSize, FEATURES, cross_state, inputs};
use crate::llama;
use crate::spec::DecoderSpec;
use crate::step_inputs::{Row, StepInputs, history};

/// A decoder with its weights and its cache on a device.
#[derive(Debug)]
pub(crate) struct Decoder {
    spec: DecoderSpec,
    cache: CacheSize,
    step: Arc<dyn Executor>,
    /// Computes what a step reads of images.
    images: Arc<dyn Executor>,
    target: Target,
    /// Chooses the most likely tokens for beams, and their number. `None` before the first search.
    beams: Option<(usize, Arc<dyn Executor>)>,
    /// The device's time of each phase of a step is measured.
    pub(crate) timed: bool,
}

/// What the executors of a decoder's graphs have in common.
#[derive(Clone, Debug)]
struct Target {
    gpu: Option<Device>,
    passes: Passes,
    options: ExecutorOptions,
}

impl Target {
    fn executor(&self, graph: Graph, graphs: GraphMode) -> Result<Arc<dyn Executor>> {
        let (graph, _) = optimize(graph, &self.passes)?;
        let options = ExecutorOptions {
            graphs,
            ..self.options.clone()
        };
        let placement = self.gpu.as_ref().map_or(Placement::Host, Placement::gpu);
        placement.executor(&graph, &options)
    }
}

/// The most likely tokens after each row of a step.
#[derive(Debug)]
pub(crate) struct Best {
    /// Logarithms of their probabilities, in descending order, `[rows, tokens]`.
    scores: Array2<f32>,
    tokens: Array2<f32>,
}

impl Best {
    /// Returns the tokens after a row, and the logarithms of their probabilities.
    pub(crate) fn of_row(&self, row: usize) -> Vec<(u32, f64)> {
        let pairs = self.tokens.row(row).into_iter().zip(self.scores.row(row));
        pairs
            .map(|(&token, &score)| (token as u32, score.into()))
            .collect()
    }
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

    fn new(outputs: RunOutputs, rows: usize, vocabulary: usize) -> Result<Self> {
        let (mut logits, mut named) = (None, Vec::new());
        for output in outputs {
            let values = output.values.slice_move(s![..rows, ..]);
            match output.kind {
                // Without the padding.
                OutputKind::Logits => logits = Some(values.slice_move(s![.., ..vocabulary])),
                _ => named.push(values),
            }
        }
        let [values, tokens] = pair(named)?.map(|column| column.into_iter().collect());
        Ok(Self {
            values,
            tokens,
            logits,
        })
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

/// Returns the two results of a graph that chooses tokens.
fn pair(results: Vec<Array2<f32>>) -> Result<[Array2<f32>; 2]> {
    <[Array2<f32>; 2]>::try_from(results).map_err(|_| Error::internal("decoder", "chooses no tokens"))
}

impl Decoder {
    /// Puts the decoder on the device of `session`, which runs the encoder.
    pub(crate) fn new(
        spec: DecoderSpec,
        weights: &Checkpoint,
        session: &Session,
        cache: CacheSize,
    ) -> Result<Self> {
        let target = Target {
            gpu: session.executor().gpu().cloned(),
            passes: Passes {
                optimizations: session.graph().optimizations(),
                ..Passes::default()
            },
            options: ExecutorOptions {
                threads: Some(session.threads()),
                select: session.select_options(),
                ..ExecutorOptions::new(session.dtype())
            },
        };
        Ok(Self {
            step: target.executor(
                graph::step(&spec, weights, cache)?,
                session.executor().info().graphs.get(),
            )?,
            // Few launches of large results, whose comparison with a replay would take longer than many runs.
            images: target.executor(
                match &spec.llama {
                    Some(llama) => llama::features(&spec, llama, weights)?,
                    None => graph::cross(&spec, weights, cache.tokens)?,
                },
                GraphMode::Off,
            )?,
            spec,
            cache,
            target,
            beams: None,
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
        let download = if logits { Download::All } else { Download::NoLogits };
        let outputs = self.run(&inputs, download, FinishOptions::default())?;
        let outputs = StepOutputs::new(outputs, rows.len(), self.spec.vocabulary)?;
        Ok(StepOutputs {
            logits: outputs.logits.filter(|_| logits),
            ..outputs
        })
    }

    fn run(&self, inputs: &StepInputs, download: Download, options: FinishOptions<'_>) -> Result<RunOutputs> {
        let plan = self.step.plan(inputs.batch())?;
        let submission = Submission {
            timed: self.timed,
            download,
            ..Submission::default()
        };
        let run = self.step.clone().reserve(&plan, None)?;
        let run = run.submit(inputs.named(), submission)?;
        Ok(run.finish(options)?.outputs)
    }

    /// Computes what follows each row, and the `kept` most likely tokens. On a GPU the logits stay there.
    pub(crate) fn step_beams(&mut self, rows: &[Row<'_>], kept: usize) -> Result<(StepOutputs, Best)> {
        let chooser = self.beams(kept)?;
        let staging = timeline::span(Activity::Stage);
        let inputs = StepInputs::new(rows, &self.spec, self.cache);
        let history = history(rows, &self.spec);
        drop(staging);
        let plan = chooser.plan(inputs.batch())?;
        let choose = |logits: InputData<'_>| -> Result<Best> {
            let history = InputData::Host(Input::Integers(&history));
            let named = [(inputs::LOGITS, logits), (inputs::HISTORY, history)];
            let outputs = chooser.run_inputs(&plan, Inputs::new(named))?;
            let [scores, tokens] = pair(outputs.into_iter().map(|output| output.values).collect())?;
            Ok(Best { scores, tokens })
        };
        let missing = || Error::internal("decoder", "returns no logits");
        let vocabulary = self.spec.vocabulary;
        if self.step.hip().is_none() {
            let outputs = self.run(&inputs, Download::All, FinishOptions::default())?;
            let logits = outputs.iter().find(|output| output.kind == OutputKind::Logits);
            let logits = logits
                .and_then(|output| output.values.as_slice())
                .ok_or_else(missing)?;
            let best = choose(InputData::Host(Input::Values(logits)))?;
            return Ok((StepOutputs::new(outputs, rows.len(), vocabulary)?, best));
        }
        let of_step = self.step.plan(inputs.batch())?;
        let mut best = None;
        let mut keep = |index: usize, result: Operand<'_>| {
            if of_step.outputs()[index].0 == OutputKind::Logits {
                best = Some(choose(InputData::Peer(result))?);
            }
            Ok(())
        };
        let options = FinishOptions {
            keep: Some(&mut keep),
            ..FinishOptions::default()
        };
        let outputs = self.run(&inputs, Download::KeptLogits, options)?;
        let outputs = StepOutputs::new(outputs, rows.len(), vocabulary)?;
        Ok((outputs, best.ok_or_else(missing)?))
    }

    /// Returns the executor that chooses the `kept` most likely tokens, or more.
    fn beams(&mut self, kept: usize) -> Result<Arc<dyn Executor>> {
        let vocabulary = self.spec.vocabulary;
        match &self.beams {
            Some((most, executor)) if kept.min(vocabulary) <= *most => Ok(executor.clone()),
            _ => {
                let most = kept.next_power_of_two().min(vocabulary);
                let graph = graph::beams(&self.spec, most)?;
                let executor = self.target.executor(graph, self.step.info().graphs.get())?;
                self.beams = Some((most, executor.clone()));
                Ok(executor)
            }
        }
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
