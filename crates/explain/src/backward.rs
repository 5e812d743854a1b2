//! Backward passes: gradients, or relevance by layer-wise relevance propagation. Its rules are gradients of a network in which some factors
//! are constants. Rules append nodes to the graph, like the derivatives of ops.

use hipvit::error::{Error, Result};
use hipvit::graph::grad::differentiate;
use hipvit::graph::{Graph, Node, ValueId, evaluate};
use hipvit::ops::{
    self, ActivationBackward, Attention, Combine, GraphBuilder, LayerNorm, LayerNormBackward, MulScalar, Op,
    OpError, RmsNorm, RmsNormBackward, Scale, SwiGluBackward, Transpose,
};
use hipvit::reference::{Array, Real};

use super::program::{Program, Run};

/// Rules of a backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Derivatives.
    Gradient,
    /// AttnLRP (Achtibat et al. 2024, <https://arxiv.org/abs/2402.05602>). Activations propagate by their gate, layer norms with a constant
    /// standard deviation, softmax by its derivative. Each factor of a product gets half of the relevance.
    AttnLrp,
    /// Ali et al. 2022, <https://arxiv.org/abs/2202.07304>: attention probabilities, standard deviations and gates are constants. The rest
    /// is affine in the pixels, so that the contributions of pixels and constants sum to the output.
    Conservative,
}

impl Rules {
    /// Propagates gradients back through `node`, by derivatives unless these rules differ. Constant factors get none.
    fn apply(
        self,
        builder: &mut dyn GraphBuilder,
        node: &Node,
        of_results: &[Option<ValueId>],
    ) -> Result<ops::Gradients, OpError> {
        let mut gradients = match (&node.op, of_results) {
            (Op::Linear(spec), &[Some(gradient)]) => {
                spec.vjp_by(builder, node.values(), gradient, self != Self::Gradient)?
            }
            (op, _) => op.vjp(builder, node.values(), of_results)?,
        };
        if let (true, &[Some(gradient)]) = (self != Self::Gradient, of_results) {
            self.replace(builder, node, gradient, &mut gradients)?;
        }
        let additive = additive(&node.op, node.inputs.len());
        for (index, gradient) in gradients.iter_mut().enumerate() {
            *gradient = gradient.filter(|_| additive.contains(&index));
        }
        Ok(gradients)
    }

    /// Replaces the derivatives by relevance rules.
    fn replace(
        self,
        builder: &mut dyn GraphBuilder,
        node: &Node,
        gradient: ValueId,
        gradients: &mut [Option<ValueId>],
    ) -> Result<(), OpError> {
        let x = node.inputs[0];
        match node.op {
            Op::Activation(activation) => {
                let secant = ActivationBackward {
                    activation,
                    secant: true,
                    sums: false,
                };
                gradients[0] = Some(builder.push(secant, [x, gradient])?);
            }
            Op::LayerNorm(LayerNorm { epsilon }) => {
                let backward = LayerNormBackward {
                    epsilon,
                    fixed_deviation: true,
                    parameters: false,
                    residual: false,
                    sums: false,
                };
                let operands = [x, node.inputs[1], gradient];
                gradients[0] = Some(builder.push(backward, operands)?);
            }
            Op::RmsNorm(RmsNorm { epsilon }) => {
                let backward = RmsNormBackward {
                    epsilon,
                    fixed_root: true,
                    parameters: false,
                };
                let operands = [x, node.inputs[1], gradient];
                gradients[0] = Some(builder.push(backward, operands)?);
            }
            // Each factor of a gate gets half.
            Op::SwiGlu(_) => {
                let d_x = builder.push(SwiGluBackward { secant: true }, [x, gradient])?;
                gradients[0] = Some(builder.push(MulScalar(0.5), [d_x])?);
            }
            Op::Transpose(Transpose {
                combine: Some(Combine::Multiply),
                ..
            }) => {
                for factor in [0, node.inputs.len() - 1] {
                    if let Some(gradient) = &mut gradients[factor] {
                        *gradient = builder.push(MulScalar(0.5), [*gradient])?;
                    }
                }
            }
            Op::Attention(spec) => self.share(builder, node, &spec, gradients)?,
            _ => {}
        }
        Ok(())
    }

    /// Scales the gradients of queries, keys and values. Each factor of a product of two activations gets half of the relevance: P·V, and
    /// Q·Kᵀ before it. If the probabilities are constants, the values get all of it.
    fn share(
        self,
        builder: &mut dyn GraphBuilder,
        node: &Node,
        spec: &Attention,
        gradients: &mut [Option<ValueId>],
    ) -> Result<(), OpError> {
        let [score, value] = match self {
            Self::Gradient => [1.0, 1.0],
            Self::AttnLrp => [0.25, 0.5],
            Self::Conservative => [0.0, 1.0],
        };
        let channels = spec.heads * spec.head_dim;
        for (operand, gradient) in gradients.iter_mut().enumerate().take(spec.operands.count()) {
            let width = builder.shape(node.inputs[operand]).last().copied();
            let mut factors = vec![0.0; width.unwrap_or(0)];
            for (&(place, offset), share) in spec.places().iter().zip([score, score, value]) {
                if place == operand {
                    factors[offset..offset + channels].fill(share);
                }
            }
            if factors.iter().all(|&factor| factor == 0.0) {
                *gradient = None;
            } else if let Some(gradient) = gradient {
                let factors = builder.constant(factors.len(), &factors)?;
                *gradient = builder.push(Scale, [*gradient, factors])?;
            }
        }
        Ok(())
    }
}

/// Returns the operands that gradients are propagated to: all but weights, which are factors.
fn additive(op: &Op, operands: usize) -> Vec<usize> {
    match op {
        // The bias does not depend on the image.
        Op::Attention(spec) => (0..spec.operands.count()).collect(),
        Op::Scale(_) | Op::Rope(_) => vec![0],
        Op::Transpose(spec) => (0..operands).filter(|&i| !(spec.scale && i == 1)).collect(),
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Affine(_) | Op::Linear(_) | Op::PatchConv(_) => {
            (0..operands).filter(|&i| i != 1).collect()
        }
        _ => (0..operands).collect(),
    }
}

/// Backward pass of a program from one of its values.
pub(crate) struct Backward {
    graph: Graph,
    output: ValueId,
    seed: ValueId,
    /// Gradient of each value of the program.
    gradients: Vec<Option<ValueId>>,
    /// Values whose gradients are always computed.
    wrt: Vec<ValueId>,
}

/// Gradients of some values of a run.
pub(crate) struct Gradients<T> {
    ids: Vec<Option<ValueId>>,
    values: Vec<Option<Array<T>>>,
}

impl<T: Real> Gradients<T> {
    /// Returns the gradient of `id`. `None` if the output does not depend on it, or if it was not requested.
    pub(crate) fn of(&self, id: ValueId) -> Option<&[T]> {
        let gradient = (*self.ids.get(id.index())?)?;
        self.values[gradient.index()].as_ref().map(Array::values)
    }
}

impl<T: Real> Program<T> {
    /// Builds the backward pass from `output` to the input and, if `constants`, to additive constants.
    ///
    /// # Errors
    ///
    /// [`Error::Op`] for an op without a derivative.
    pub(crate) fn backward(&self, rules: Rules, output: ValueId, constants: bool) -> Result<Backward> {
        let mut graph = self.graph().clone();
        let mut wrt = vec![graph.input()];
        if constants {
            let nodes = graph.nodes().iter();
            let operands = nodes.flat_map(|node| {
                let additive = additive(&node.op, node.inputs.len());
                additive.into_iter().map(|index| node.inputs[index])
            });
            wrt.extend(operands.filter(|&id| graph.value(id).is_constant()));
        }
        let seed = graph.push_seed(output)?;
        let rule = |builder: &mut dyn GraphBuilder, node: &Node, of_results: &[Option<ValueId>]| {
            rules.apply(builder, node, of_results)
        };
        let gradients = differentiate(&mut graph, [output, seed], &wrt, &rule)?;
        Ok(Backward {
            graph,
            output,
            seed,
            gradients,
            wrt,
        })
    }
}

impl Backward {
    /// Propagates `seed`, the gradient of the output, back through `run`. `keep` selects the gradients to return besides those of the input
    /// and the constants.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] for a seed whose shape differs from the output's.
    pub(crate) fn run<T: Real>(
        &self,
        run: &Run<'_, T>,
        seed: Vec<T>,
        keep: impl Fn(ValueId) -> bool,
    ) -> Result<Gradients<T>> {
        let seed = Array::new(run.shape(self.output), seed);
        let seed = seed.ok_or_else(|| Error::internal("seed", "does not have the output's shape"))?;
        let kept = run.graph().ids().filter(|&id| keep(id));
        let wanted = self.wrt.iter().copied().chain(kept);
        let wanted: Vec<ValueId> = wanted.filter_map(|id| self.gradients[id.index()]).collect();
        let known = |id: ValueId| {
            if id == self.seed {
                return Some(&seed);
            }
            run.array(id)
        };
        let mut values = evaluate(&self.graph, known, &wanted)?;
        values[self.seed.index()] = Some(seed);
        Ok(Gradients {
            ids: self.gradients.clone(),
            values,
        })
    }
}
