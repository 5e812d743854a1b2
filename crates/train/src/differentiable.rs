//! A model as a differentiable function of its weights, for training loops and optimisers outside of this crate.
//!
//! A [`Differentiable`] has no state: each call provides the weights. The backward pass computes the forward pass again, so nothing is kept
//! between the two.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::{
    Download, Executor, ExecutorOptions, FinishOptions, InputData, Inputs, RunOutputs, Submission,
};
use hipvit::graph::grad::differentiate;
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, OutputKind, ValueId, optimize};
use hipvit::hip::{Device as Gpu, Operand};
use hipvit::image::Preprocess;
use hipvit::model::{Checkpoint, Copied, InputKind, TensorValues};
use hipvit::ndarray::Array2;
use hipvit::{DType, Device, GpuTensor};

use crate::scatter::{Frozen, Scatter};
use crate::trained::TensorRule;
use crate::trainer::{Prepared, TrainOptions, computed_dtype, passes, placement};

/// Name of the input with the gradient of the logits.
const GRADIENT: &str = "logits_gradient";

/// Options of a [`Differentiable`].
#[derive(Clone, Debug)]
pub struct DifferentiableOptions {
    /// Device that computes.
    pub device: Device,
    /// Dtype of activations and gradients on a GPU. The CPU computes in f32.
    pub dtype: DType,
    /// Number of threads on the CPU. By default one per physical core.
    pub threads: Option<usize>,
    /// Form of the images.
    pub input: InputKind,
    /// Height and width of the images, if they differ from the model's.
    pub image_size: Option<[usize; 2]>,
}

impl Default for DifferentiableOptions {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            dtype: DType::F32,
            threads: None,
            input: InputKind::PixelValues,
            image_size: None,
        }
    }
}

/// A weight as the graph computes with it. Its elements are those of tensors of the checkpoint, and zeros.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Name of the weight.
    pub name: String,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Elements that come from tensors. All others are zero.
    pub parts: Vec<Copied>,
}

impl Weight {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the weight has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Arguments of a call. Images have the form of [`DifferentiableOptions::input`].
#[derive(Debug)]
pub struct Arguments<'a> {
    /// Number of images.
    pub batch: usize,
    /// The images.
    pub images: InputData<'a>,
    /// Elements of each of the [`Differentiable::weights`], in their order.
    pub weights: Vec<InputData<'a>>,
}

/// A model as a function of images and weights, with its derivative.
#[derive(Debug)]
pub struct Differentiable {
    checkpoint: Checkpoint,
    preprocess: Preprocess,
    classes: usize,
    dtype: DType,
    forward: Arc<dyn Executor>,
    backward: Arc<dyn Executor>,
    weights: Vec<Weight>,
    frozen: Vec<Frozen>,
}

impl Differentiable {
    /// Prepares the passes of a checkpoint's model.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for a dtype without gradients, or a model without a classifier
    /// - [`Error::Graph`] or [`Error::Op`] if an op of the model has no derivative
    /// - the errors of [`hipvit::model::load`], and of making an executor
    pub fn new(checkpoint: Checkpoint, options: &DifferentiableOptions) -> Result<Self> {
        let options = TrainOptions {
            device: options.device,
            dtype: options.dtype,
            threads: options.threads,
            input: options.input,
            image_size: options.image_size,
            ..TrainOptions::default()
        };
        let Prepared {
            graph,
            copies,
            preprocess,
            classes,
            ..
        } = Prepared::new(&checkpoint, &options, &BTreeSet::new())?;
        let mut scatter = Scatter::new(&checkpoint, &graph, &copies, &|_| TensorRule::default())?;
        let functions = Functions::new(graph, &scatter)?;
        let names: Vec<String> = scatter.retain(functions.names);
        let weights = names.into_iter().zip(functions.shapes).zip(scatter.copies());
        let weights = weights.map(|((name, shape), copies)| Weight {
            name,
            shape,
            parts: copies.parts.clone(),
        });
        let dtype = computed_dtype(&placement(&options)?, &options);
        let executor_options = ExecutorOptions {
            threads: options.threads,
            ..ExecutorOptions::new(dtype)
        };
        let executor = |graph: Graph| -> Result<Arc<dyn Executor>> {
            let (graph, _) = optimize(graph, &passes())?;
            placement(&options)?.executor(&graph, &executor_options)
        };
        Ok(Self {
            weights: weights.collect(),
            forward: executor(functions.forward)?,
            backward: executor(functions.backward)?,
            preprocess,
            classes,
            dtype,
            frozen: scatter.frozen,
            checkpoint,
        })
    }

    /// Returns the checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the preprocessing of images.
    pub fn preprocess(&self) -> &Preprocess {
        &self.preprocess
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the dtype of activations. On a GPU, it is also the dtype of weights, logits and gradients.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the GPU. `None` on the CPU.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.forward.info().devices.first()
    }

    /// Returns the weights that the logits depend on.
    pub fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// Returns the tensors without a gradient. The model computes with their elements in the checkpoint.
    pub fn frozen(&self) -> &[Frozen] {
        &self.frozen
    }

    /// Returns the dtype in which a pass reads each weight from GPU memory, and then the gradient of the logits if `is_backward`.
    ///
    /// # Errors
    ///
    /// The errors of planning a run.
    pub fn dtypes(&self, is_backward: bool) -> Result<Vec<DType>> {
        let executor = if is_backward {
            &self.backward
        } else {
            &self.forward
        };
        let plan = executor.plan(1)?;
        let names = self.weights.iter().map(|weight| weight.name.as_str());
        let names = names.chain(is_backward.then_some(GRADIENT));
        let dtype = |name| {
            let mut inputs = plan.inputs().iter();
            let found = inputs.find(|input| plan.graph().input_name(input.input) == name);
            let missing = || Error::internal("differentiable", format!("a pass has no input `{name}`"));
            Ok(found.ok_or_else(missing)?.dtype)
        };
        names.map(dtype).collect()
    }

    /// Returns the elements of each weight. Tensors that `values` lacks have their elements in the checkpoint.
    ///
    /// # Errors
    ///
    /// The errors of reading the checkpoint, and [`Error::Argument`] for a tensor of another size.
    pub fn gather(&self, values: &TensorValues) -> Result<Vec<Vec<f32>>> {
        let tensors: Vec<(&str, &[usize])> = self.checkpoint.tensors().collect();
        let mut gathered = Vec::with_capacity(self.weights.len());
        for weight in &self.weights {
            let mut elements = vec![0.0; weight.len()];
            for part in &weight.parts {
                let name = tensors[part.tensor].0;
                let stored;
                let source = match values.get(name) {
                    Some(values) => values,
                    None => {
                        stored = self.checkpoint.tensor(name)?.to_f32().into_owned();
                        &stored
                    }
                };
                let source = source.get(part.from..part.from + part.len);
                let source = source
                    .ok_or_else(|| Error::argument("values", format!("`{name}` has too few elements")))?;
                elements[part.to..part.to + part.len].copy_from_slice(source);
            }
            gathered.push(elements);
        }
        Ok(gathered)
    }

    /// Returns the gradient of each tensor, from the gradients of the weights.
    pub fn scatter(&self, gradients: &[Vec<f32>]) -> TensorValues {
        let tensors: Vec<(&str, &[usize])> = self.checkpoint.tensors().collect();
        let mut scattered = TensorValues::new();
        for (weight, gradient) in self.weights.iter().zip(gradients) {
            for part in &weight.parts {
                let (name, shape) = tensors[part.tensor];
                let tensor = scattered
                    .entry(name.to_owned())
                    .or_insert_with(|| vec![0.0; shape.iter().product()]);
                tensor[part.from..part.from + part.len]
                    .copy_from_slice(&gradient[part.to..part.to + part.len]);
            }
        }
        scattered
    }

    /// Computes the logits, `[images, classes]`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if images or weights do not fit the model. The errors of the device.
    pub fn forward(&self, arguments: Arguments<'_>) -> Result<Array2<f32>> {
        let plan = self.forward.plan(arguments.batch)?;
        let named = self.named(&plan, arguments, None)?;
        let outputs = self.forward.run_inputs(&plan, Inputs::new(named))?;
        take(outputs, OutputKind::Logits)
    }

    /// Computes the gradient of each weight, row-major. `gradient` is that of the logits.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if images, weights or the gradient do not fit the model. The errors of the device.
    pub fn backward(&self, arguments: Arguments<'_>, gradient: InputData<'_>) -> Result<Vec<Vec<f32>>> {
        let plan = self.backward.plan(arguments.batch)?;
        let named = self.named(&plan, arguments, Some(gradient))?;
        let outputs = self.backward.run_inputs(&plan, Inputs::new(named))?;
        let mut gradients = vec![Vec::new(); self.weights.len()];
        for output in outputs {
            if let OutputKind::Gradient(index) = output.kind
                && let Some(gradient) = gradients.get_mut(index)
            {
                *gradient = output.values.into_raw_vec_and_offset().0;
            }
        }
        Ok(gradients)
    }

    /// Computes the logits, and leaves them on the GPU in [`dtype`](Self::dtype).
    ///
    /// # Errors
    ///
    /// The errors of [`forward`](Self::forward), and [`Error::Argument`] on the CPU.
    pub fn forward_on_gpu(&self, arguments: Arguments<'_>) -> Result<GpuTensor> {
        let plan = self.forward.plan(arguments.batch)?;
        let named = self.named(&plan, arguments, None)?;
        let mut outputs = self.run_on_gpu(&self.forward, &plan, Inputs::new(named))?;
        let missing = || Error::internal("differentiable", "a run has no logits");
        outputs.pop().map(|(_, logits)| logits).ok_or_else(missing)
    }

    /// Computes the gradient of each weight, and leaves it on the GPU in [`dtype`](Self::dtype).
    ///
    /// # Errors
    ///
    /// The errors of [`backward`](Self::backward), and [`Error::Argument`] on the CPU.
    pub fn backward_on_gpu(
        &self,
        arguments: Arguments<'_>,
        gradient: InputData<'_>,
    ) -> Result<Vec<GpuTensor>> {
        let plan = self.backward.plan(arguments.batch)?;
        let named = self.named(&plan, arguments, Some(gradient))?;
        let mut outputs = self.run_on_gpu(&self.backward, &plan, Inputs::new(named))?;
        outputs.sort_by_key(|&(kind, _)| match kind {
            OutputKind::Gradient(index) => index,
            _ => usize::MAX,
        });
        Ok(outputs.into_iter().map(|(_, gradient)| gradient).collect())
    }

    /// Returns the inputs of a run by name.
    fn named<'a>(
        &'a self,
        plan: &'a Plan,
        arguments: Arguments<'a>,
        gradient: Option<InputData<'a>>,
    ) -> Result<Vec<(&'a str, InputData<'a>)>> {
        let (given, expected) = (arguments.weights.len(), self.weights.len());
        if given != expected {
            let reason = format!("{given} were given, but the model has {expected}");
            return Err(Error::argument("weights", reason));
        }
        let names = self.weights.iter().map(|weight| weight.name.as_str());
        let mut named = vec![(plan.graph().first_input_name(), arguments.images)];
        named.extend(names.zip(arguments.weights));
        named.extend(gradient.map(|gradient| (GRADIENT, gradient)));
        Ok(named)
    }

    /// Runs a plan, and copies its outputs to memory of their own on the GPU.
    fn run_on_gpu(
        &self,
        executor: &Arc<dyn Executor>,
        plan: &Arc<Plan>,
        inputs: Inputs<'_>,
    ) -> Result<Vec<(OutputKind, GpuTensor)>> {
        let Some(gpu) = self.gpu() else {
            return Err(Error::argument(
                "device",
                "is the CPU, where results are in host memory",
            ));
        };
        let stream = gpu.stream()?;
        let outputs = plan.outputs().iter();
        let mut memory = outputs
            .map(|&(_, _, id)| Ok(stream.allocate(plan.buffer(id).bytes)?))
            .collect::<Result<Vec<_>>>()?;
        let submission = Submission {
            download: Download::Checked,
            ..Submission::default()
        };
        let run = executor.clone().reserve(plan, None)?.submit(inputs, submission)?;
        let mut keep =
            |index: usize, operand: Operand<'_>| Ok(memory[index].copy_part_from_peer(0, operand)?);
        run.finish(FinishOptions {
            timing: None,
            keep: Some(&mut keep),
        })?;
        stream.synchronize()?;
        let outputs = plan.outputs().iter().zip(memory);
        let tensor = |(&(kind, _, id), memory)| {
            let buffer = plan.buffer(id);
            (
                kind,
                GpuTensor::new(Arc::new(memory), buffer.dtype, buffer.shape.clone()),
            )
        };
        Ok(outputs.map(tensor).collect())
    }
}

/// Returns an output of a run.
fn take(outputs: RunOutputs, kind: OutputKind) -> Result<Array2<f32>> {
    let found = outputs.into_iter().find(|output| output.kind == kind);
    let missing = || Error::internal("differentiable", format!("a run has no output {kind:?}"));
    Ok(found.ok_or_else(missing)?.values)
}

/// The graphs of the two passes. Trained constants are inputs.
struct Functions {
    forward: Graph,
    backward: Graph,
    /// Name of each trained constant. `None` if the logits do not depend on it.
    names: Vec<Option<String>>,
    /// Shape of each constant that has a name.
    shapes: Vec<Vec<usize>>,
}

impl Functions {
    /// Builds the passes of a prepared graph.
    fn new(mut graph: Graph, scatter: &Scatter) -> Result<Self> {
        let logits = graph
            .outputs()
            .iter()
            .find(|(kind, _)| *kind == OutputKind::Logits);
        let Some(&(_, logits)) = logits else {
            let reason = format!("{} has no classifier, so there are no logits", graph.name());
            return Err(Error::argument("model", reason));
        };
        graph.retain_outputs(|kind| kind == OutputKind::Logits);
        let ids: Vec<ValueId> = scatter.trained.iter().map(|trained| trained.id).collect();
        let mut backward = graph.clone();
        let shape = graph.value(logits).shape.clone();
        let seed = backward.add_input(GRADIENT, shape, DType::F32)?;
        let gradients = differentiate(
            &mut backward,
            [logits, seed],
            &ids,
            &|builder, node, gradients| node.op.vjp(builder, node.values(), gradients),
        )?;
        backward.retain_outputs(|_| false);
        let (mut names, mut shapes) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            let Some(gradient) = gradients[id.index()] else {
                names.push(None);
                continue;
            };
            backward.set_output(OutputKind::Gradient(shapes.len()), gradient);
            backward.make_input(id)?;
            graph.make_input(id)?;
            let value = graph.value(id);
            names.push(Some(value.name.clone()));
            shapes.push(value.shape.clone());
        }
        if shapes.is_empty() {
            let reason = format!("the logits of {} depend on no tensor", graph.name());
            return Err(Error::argument("model", reason));
        }
        Ok(Self {
            forward: graph,
            backward,
            names,
            shapes,
        })
    }
}
