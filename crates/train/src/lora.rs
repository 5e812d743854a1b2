//! LoRA: updates of low rank beside frozen linear layers. <https://arxiv.org/abs/2106.09685>

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, Node, Provenance, Rewriter, Role, ValueId, rewrite};
use hipvit::model::{Checkpoint, Copies, TensorValues, replace_file};
use hipvit::ops::{Add, Linear, MulScalar, Op};
use hipvit::tensor::Tensor;
use hipvit_files::json;
use rayon::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize};
use serde_json::json as value;

use crate::initial::random::Numbers;
use crate::trained::{TensorRule, Trained};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// Options of LoRA, with peft's names.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraOptions {
    /// Rank of the updates.
    pub rank: usize,
    /// The updates are multiplied by `alpha / rank`.
    pub alpha: f32,
    /// Last part of the names of the layers with updates, such as `query`. If there is none, all linear layers of the blocks have updates.
    pub targets: Vec<String>,
    /// Weight decay and learning rate of the updates.
    pub rule: TensorRule,
}

/// Linear layer of the model with an update. Its weight is a tensor of the checkpoint.
#[derive(Clone, Debug, PartialEq)]
struct Module {
    /// Name of the tensor without `.weight`.
    name: String,
    inputs: usize,
    outputs: usize,
    /// First row in the constant that the graph computes with, which may have rows of other tensors too.
    row: usize,
}

/// Factors of the updates of all modules that the graph computes as one layer.
#[derive(Debug)]
struct Layer {
    modules: Vec<Module>,
    /// `[modules · rank, inputs]`.
    a: ValueId,
    /// `[outputs, modules · rank]`; zero where rows and columns are of different modules.
    b: ValueId,
    outputs: usize,
    /// Names of the values with the elements of `a` and `b` after a step.
    names: [String; 2],
}

/// The updates of a graph.
#[derive(Debug)]
pub(crate) struct Lora {
    options: LoraOptions,
    layers: Vec<Layer>,
}

/// Factors of one module: `a` is `[rank, inputs]`, `b` is `[outputs, rank]`.
struct Factors {
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Lora {
    /// Returns `graph` with updates beside the linear layers of its blocks. At first they are zero. `copies` has the origin of the graph's
    /// constants.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if no layer can have an update, or a target is the name of none.
    pub(crate) fn insert(
        graph: &Graph,
        checkpoint: &Checkpoint,
        copies: &HashMap<ValueId, Copies>,
        options: LoraOptions,
        seed: u64,
    ) -> Result<(Graph, Self)> {
        let tensors: Vec<(&str, &[usize])> = checkpoint.tensors().collect();
        let mut found: Vec<(String, Vec<Module>)> = Vec::new();
        let rewritten = rewrite(graph, |rewriter, node| {
            let modules = modules(graph, node, copies, &tensors, &options.targets);
            if modules.is_empty() {
                return Ok(None);
            }
            let sum = emit(rewriter, graph, node, &modules, &options, seed)?;
            found.push((node.name.clone(), modules));
            Ok(Some(sum))
        })?;
        let graph = rewritten.graph;
        check(&found, &options.targets)?;
        let ids: HashMap<&str, ValueId> = graph
            .ids()
            .map(|id| (graph.value(id).name.as_str(), id))
            .collect();
        let factor = |name: String| {
            let id = ids.get(name.as_str()).copied();
            id.ok_or_else(|| Error::graph(&name, "is not read"))
        };
        let layers = found.into_iter().map(|(node, modules)| {
            let [a, b] = ['A', 'B'].map(|which| factor(name_of(&node, which)));
            let (a, b) = (a?, b?);
            Ok(Layer {
                modules,
                a,
                b,
                outputs: graph.value(b).shape[0],
                names: [String::new(), String::new()],
            })
        });
        let layers = layers.collect::<Result<_>>()?;
        Ok((graph, Self { options, layers }))
    }

    /// Returns the constants that a step updates, two for each layer.
    pub(crate) fn trained(&self) -> Vec<Trained> {
        let rule = self.options.rule;
        let layers = self.layers.iter();
        let pair = |layer: &Layer| {
            let (id, mask) = (layer.a, None);
            let is_f32 = false;
            let a = Trained {
                id,
                rule,
                mask,
                is_f32,
            };
            let (id, mask) = (layer.b, self.mask(layer));
            let b = Trained {
                id,
                rule,
                mask,
                is_f32,
            };
            [a, b]
        };
        layers.flat_map(pair).collect()
    }

    /// Keeps the names of the values with the trained elements.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the loss does not depend on a layer.
    pub(crate) fn set_names(&mut self, names: Vec<Option<String>>) -> Result<()> {
        let mut names = names.into_iter();
        for layer in &mut self.layers {
            for name in &mut layer.names {
                let module = &layer.modules[0].name;
                let reason = || format!("the loss does not depend on `{module}`");
                *name = names
                    .next()
                    .flatten()
                    .ok_or_else(|| Error::argument("lora", reason()))?;
            }
        }
        Ok(())
    }

    /// Returns the number of trained elements.
    pub(crate) fn elements(&self) -> u64 {
        let modules = self.layers.iter().flat_map(|layer| &layer.modules);
        modules
            .map(|module| (self.options.rank * (module.inputs + module.outputs)) as u64)
            .sum()
    }

    /// Adds the updates to the weights of the checkpoint. `state` returns the elements of a value.
    ///
    /// # Errors
    ///
    /// The errors of `state` and of reading the checkpoint.
    pub(crate) fn merge(
        &self,
        checkpoint: &Checkpoint,
        values: &mut TensorValues,
        state: &dyn Fn(&str) -> Result<Vec<f32>>,
    ) -> Result<()> {
        self.for_each(state, |module, factors| {
            let name = format!("{}.weight", module.name);
            let mut weight = checkpoint.tensor(&name)?.to_f32().into_owned();
            self.add(module, &factors, &mut weight);
            values.insert(name, weight);
            Ok(())
        })
    }

    /// Writes the adapter as peft does. `saved` has the tensors that were trained as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for the file that cannot be written, and the errors of `state`.
    pub(crate) fn write(
        &self,
        directory: &Path,
        base: &str,
        saved: (&Checkpoint, &TensorValues),
        state: &dyn Fn(&str) -> Result<Vec<f32>>,
    ) -> Result<()> {
        let rank = self.options.rank;
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        let mut push = |name: String, shape: Vec<usize>, values: &[f32]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensors.push((format!("base_model.model.{name}"), shape, bytes));
        };
        let mut targets = Vec::new();
        self.for_each(state, |module, Factors { a, b }| {
            push(
                format!("{}.lora_A.weight", module.name),
                vec![rank, module.inputs],
                &a,
            );
            push(
                format!("{}.lora_B.weight", module.name),
                vec![module.outputs, rank],
                &b,
            );
            targets.push(module.name.clone());
            Ok(())
        })?;
        let (checkpoint, values) = saved;
        let mut whole = BTreeSet::new();
        for (name, shape) in checkpoint.tensors() {
            if let Some(values) = values.get(name) {
                push(name.to_owned(), shape.to_vec(), values);
                whole.insert(name.rsplit_once('.').map_or(name, |(module, _)| module));
            }
        }
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            view.map(|view| (name, view))
        });
        let file = directory.join(WEIGHTS);
        let views = views.collect::<std::result::Result<Vec<_>, _>>();
        // peft writes this entry.
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let content = views.and_then(|views| serialize(views, Some(metadata)));
        let content = content.map_err(|error| Error::weights(&file, error))?;
        replace_file(&file, |out| out.write_all(&content))?;
        let config = value!({
            "base_model_name_or_path": base,
            "bias": "none",
            "inference_mode": true,
            "lora_alpha": self.options.alpha,
            "lora_dropout": 0.0,
            "modules_to_save": whole,
            "peft_type": "LORA",
            "r": rank,
            "target_modules": targets,
            "task_type": null,
        });
        let text = json::indented(&config) + "\n";
        replace_file(&directory.join(CONFIG), |out| out.write_all(text.as_bytes()))
    }

    /// Calls `visit` with the factors of each module.
    fn for_each(
        &self,
        state: &dyn Fn(&str) -> Result<Vec<f32>>,
        mut visit: impl FnMut(&Module, Factors) -> Result<()>,
    ) -> Result<()> {
        let rank = self.options.rank;
        for layer in &self.layers {
            let [a, b] = [state(&layer.names[0])?, state(&layer.names[1])?];
            let all = layer.modules.len() * rank;
            for (index, module) in layer.modules.iter().enumerate() {
                let from = index * rank;
                let rows = b.chunks(all).skip(module.row).take(module.outputs);
                let factors = Factors {
                    a: a[from * module.inputs..(from + rank) * module.inputs].to_vec(),
                    b: rows.flat_map(|row| &row[from..from + rank]).copied().collect(),
                };
                visit(module, factors)?;
            }
        }
        Ok(())
    }

    /// Adds the update to a weight, as hipvit and peft merge adapters.
    fn add(&self, module: &Module, factors: &Factors, weight: &mut [f32]) {
        let (rank, columns) = (self.options.rank, module.inputs);
        let scaling = f64::from(self.options.alpha) / rank as f64;
        let rows = weight.par_chunks_mut(columns).zip(factors.b.par_chunks(rank));
        rows.for_each(|(row, left)| {
            for (column, value) in row.iter_mut().enumerate() {
                let products = left.iter().enumerate().map(|(index, &left)| {
                    scaling * f64::from(left) * f64::from(factors.a[index * columns + column])
                });
                *value = products.fold(f64::from(*value), |sum, product| sum + product) as f32;
            }
        });
    }

    /// Returns 1 for the elements of `b` that belong to a module, and 0 for others. `None` if all do.
    fn mask(&self, layer: &Layer) -> Option<Vec<f32>> {
        let (rank, all) = (self.options.rank, layer.modules.len() * self.options.rank);
        let elements: usize = layer.modules.iter().map(|module| module.outputs * rank).sum();
        if elements == layer.outputs * all {
            return None;
        }
        let mut mask = vec![0.0; layer.outputs * all];
        for (index, module) in layer.modules.iter().enumerate() {
            for row in module.row..module.row + module.outputs {
                mask[row * all + index * rank..][..rank].fill(1.0);
            }
        }
        Some(mask)
    }
}

/// Name of the constant with a factor of a node's update.
fn name_of(node: &str, factor: char) -> String {
    format!("{node}.lora_{factor}.weight")
}

/// Returns the modules of a linear layer that get an update.
fn modules(
    graph: &Graph,
    node: &Node,
    copies: &HashMap<ValueId, Copies>,
    tensors: &[(&str, &[usize])],
    targets: &[String],
) -> Vec<Module> {
    let is_plain = node.op == Op::Linear(Linear::default())
        || node.op
            == Op::Linear(Linear {
                bias: true,
                ..Linear::default()
            });
    if !is_plain || node.block().is_none() {
        return Vec::new();
    }
    let id = node.inputs[1];
    let (Some(copied), [_, columns]) = (copies.get(&id), graph.value(id).shape.as_slice()) else {
        return Vec::new();
    };
    let module = |part: &hipvit::model::Copied| {
        let (name, shape) = tensors[part.tensor];
        let name = name.strip_suffix(".weight")?;
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_whole = part.from == 0 && part.len == shape.iter().product::<usize>();
        let is_rows = part.to.is_multiple_of(*columns) && part.len.is_multiple_of(*columns);
        let is_target = targets.is_empty() || targets.iter().any(|target| target == last);
        (is_whole && is_rows && is_target).then(|| Module {
            name: name.to_owned(),
            inputs: *columns,
            outputs: part.len / columns,
            row: part.to / columns,
        })
    };
    copied
        .parts
        .iter()
        .filter(|_| copied.is_exact)
        .filter_map(module)
        .collect()
}

/// Appends a linear layer with its update.
fn emit(
    rewriter: &mut Rewriter<'_>,
    graph: &Graph,
    node: &Node,
    modules: &[Module],
    options: &LoraOptions,
    seed: u64,
) -> std::result::Result<ValueId, hipvit::graph::Error> {
    let LoraOptions { rank, alpha, .. } = *options;
    let all = rank * modules.len();
    let (inputs, outputs) = (modules[0].inputs, graph.value(node.inputs[1]).shape[0]);
    let mut a = Vec::with_capacity(all * inputs);
    for module in modules {
        let source = Numbers::new(seed, &format!("{}.lora_A", module.name));
        // As peft draws them: `kaiming_uniform_` with a = √5.
        let bound = 1.0 / (inputs as f64).sqrt();
        let number = |index| ((2.0 * source.uniform(index) - 1.0) * bound) as f32;
        a.extend((0..(rank * inputs) as u64).map(number));
    }
    let mut constant = |factor, shape: [usize; 2], values| {
        let name = name_of(&node.name, factor);
        let tensor = Tensor::from_f32(shape, values);
        let tensor = tensor.ok_or_else(|| hipvit::graph::Error::graph(&name, "has no elements"))?;
        Ok::<_, hipvit::graph::Error>(rewriter.constant(Provenance::computed(name, []), tensor))
    };
    let a = constant('A', [all, inputs], a)?;
    let b = constant('B', [outputs, all], vec![0.0; outputs * all])?;
    let operands = rewriter.map_all(&node.inputs);
    let x = operands[0];
    let name = |end: &str| format!("{}.lora_{end}", node.name);
    let base = rewriter.emit(node.role, &node.name, node.op.clone(), operands)?;
    let low = rewriter.emit(Role::Other, &name("A"), Linear::default(), [x, a])?;
    let scaled = rewriter.emit(Role::Other, &name("scale"), MulScalar(alpha / rank as f32), [low])?;
    let update = rewriter.emit(Role::Other, &name("B"), Linear::default(), [scaled, b])?;
    rewriter.emit(Role::Other, &name("sum"), Add, [base, update])
}

/// Checks that each target is the name of a layer, and that no weight is used twice.
fn check(found: &[(String, Vec<Module>)], targets: &[String]) -> Result<()> {
    let modules = || found.iter().flat_map(|(_, modules)| modules);
    let mut names = BTreeSet::new();
    if let Some(twice) = modules().find(|module| !names.insert(module.name.as_str())) {
        let reason = format!("`{}.weight` is used by several layers", twice.name);
        return Err(Error::argument("lora", reason));
    }
    let has = |target: &&String| {
        names
            .iter()
            .any(|name| name.rsplit('.').next() == Some(target.as_str()))
    };
    if let Some(missing) = targets.iter().find(|target| !has(target)) {
        let reason = format!("`{missing}` is the name of no linear layer in a block of the model");
        return Err(Error::argument("lora targets", reason));
    }
    if names.is_empty() {
        return Err(Error::argument(
            "lora",
            "the model has no linear layer that could be updated",
        ));
    }
    Ok(())
}
