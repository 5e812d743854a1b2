//! Recurrent layers: the products of the inputs as one linear layer, and the recurrence for each direction.

use hipvit_graph::op::{Recurrence, RecurrentCell};

use super::Group;
use super::elementwise::sum;
use super::layout::{expand_dims, permute, reshape_to};
use super::matmul::linear;
use super::norm::filled;
use super::parts::{join, take_range};
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::error::{Refusal, refuse};
use crate::value::{Value, show};

pub(super) const OPS: Group = &[
    ("GRU", |c| {
        let reset_after = c.flag("linear_before_reset", false);
        recurrent(c, RecurrentCell::Gru { reset_after })
    }),
    ("LSTM", |c| recurrent(c, RecurrentCell::Lstm)),
];

/// Returns, for each direction, true if it begins with the last step.
fn directions(context: &Context<'_>) -> Result<Vec<bool>, Refusal> {
    Ok(match context.string_or("direction", "forward").as_str() {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        direction => refuse!("has the direction `{direction}`, which is not supported"),
    })
}

/// Refuses attributes and operands that change what the layer computes.
fn check(context: &Context<'_>, cell: RecurrentCell, steps: usize) -> Result<(), Refusal> {
    let defaults: &[&str] = match cell {
        RecurrentCell::Lstm => &["sigmoid", "tanh", "tanh"],
        RecurrentCell::Gru { .. } => &["sigmoid", "tanh"],
    };
    let given = context.strings("activations");
    let mut pairs = given.iter().zip(defaults.iter().cycle());
    if let Some((other, _)) = pairs.find(|(given, default)| !given.eq_ignore_ascii_case(default)) {
        refuse!("has the activation `{other}`, which is not supported");
    }
    context.ignore(&["activation_alpha", "activation_beta"]);
    if context.float("clip").is_some() {
        refuse!("clips its gates, which is not supported");
    }
    if context.flag("input_forget", false) {
        refuse!("couples its input and forget gates, which is not supported");
    }
    if context.optional(7).is_some_and(|peepholes| !is_zero(&peepholes)) {
        refuse!("has peepholes, which are not supported");
    }
    if let Some(lengths) = context.optional(4) {
        let lengths = lengths.known_integers("lengths of its sequences")?;
        if lengths.iter().any(|&length| length != steps as i64) {
            refuse!("has sequences of several lengths {lengths:?}, which is not supported");
        }
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    let numbers = value.numbers();
    numbers.is_some_and(|numbers| numbers.iter().all(|&number| number == 0.0))
}

/// Returns the part of a direction, without the axis of directions.
fn of_direction(builder: &mut Builder, x: &Value, direction: usize) -> Result<Value, Refusal> {
    let part = take_range(builder, x, 0, direction, 1)?;
    reshape_to(builder, &part, &x.dims[1..])
}

/// The weights of a direction.
struct Weights {
    /// `[G·H, I]`, for the inputs.
    input: Value,
    /// `[G·H, H]`, for the states.
    hidden: Value,
    /// `[2·G·H]`: the biases of both.
    bias: Option<Value>,
}

impl Weights {
    fn new(context: &mut Context<'_>, direction: usize) -> Result<Self, Refusal> {
        let [input, hidden] = [context.input(1)?, context.input(2)?];
        let bias = context.optional(3);
        let builder = &mut *context.builder;
        Ok(Self {
            input: of_direction(builder, &input, direction)?,
            hidden: of_direction(builder, &hidden, direction)?,
            bias: match bias {
                Some(bias) => Some(of_direction(builder, &bias, direction)?),
                None => None,
            },
        })
    }

    /// Returns the biases of the gates, and that of GRU's candidate.
    fn biases(
        &self,
        builder: &mut Builder,
        cell: RecurrentCell,
        units: usize,
    ) -> Result<[Option<Value>; 2], Refusal> {
        let width = cell.gates() * units;
        let Some(bias) = &self.bias else {
            let zeros = filled(&self.hidden, units, 0.0)?;
            return Ok([None, cell.has_bias().then_some(zeros)]);
        };
        if bias.dims != [Dim::Fixed(2 * width)] {
            refuse!("has biases {} for {units} units", show(&bias.dims));
        }
        let of_input = take_range(builder, bias, 0, 0, width)?;
        let of_hidden = take_range(builder, bias, 0, width, width)?;
        if !cell.has_bias() {
            return Ok([Some(sum(builder, &of_input, &of_hidden)?), None]);
        }
        // The reset gate multiplies the bias of the candidate too.
        let added = take_range(builder, &of_hidden, 0, 0, 2 * units)?;
        let candidate = take_range(builder, &of_hidden, 0, 2 * units, units)?;
        let zeros = filled(&candidate, units, 0.0)?;
        let added = join(builder, &[added, zeros], 0)?;
        Ok([Some(sum(builder, &of_input, &added)?), Some(candidate)])
    }
}

fn recurrent(context: &mut Context<'_>, cell: RecurrentCell) -> Result<Vec<Value>, Refusal> {
    let batch_first = context.flag("layout", false);
    let directions = directions(context)?;
    let mut x = context.input(0)?;
    let hidden_size = context.int("hidden_size");
    let mut states = vec![context.optional(5), context.optional(6)];
    states.truncate(if cell == RecurrentCell::Lstm { 2 } else { 1 });
    if x.rank() != 3 {
        refuse!("takes sequences [S, B, C], got {}", show(&x.dims));
    }
    if batch_first {
        let builder = &mut *context.builder;
        x = permute(builder, &x, &[1, 0, 2])?;
        for state in states.iter_mut().flatten() {
            *state = permute(builder, state, &[1, 0, 2])?;
        }
    }
    let Some(steps) = x.dims[0].fixed() else {
        refuse!("takes a step for each image: {}", show(&x.dims));
    };
    check(context, cell, steps)?;
    let (of_input, of_hidden) = (context.input(1)?, context.input(2)?.fixed_shape()?);
    let &[count, width, units] = &of_hidden[..] else {
        refuse!("has weights of shape {of_hidden:?}");
    };
    let fits = count == directions.len() && units > 0 && width == cell.gates() * units;
    let fits = fits && hidden_size.is_none_or(|size| size == units as i64);
    if !fits || of_input.dims != [Dim::Fixed(count), Dim::Fixed(width), x.dims[2]] {
        refuse!(
            "has weights {} and {of_hidden:?} for {} directions of {}",
            show(&of_input.dims),
            directions.len(),
            show(&x.dims)
        );
    }
    let mut results: Vec<Vec<Value>> = vec![Vec::new(); 3];
    for (direction, reverse) in directions.into_iter().enumerate() {
        let weights = Weights::new(context, direction)?;
        let builder = &mut *context.builder;
        let mut first = Vec::new();
        for state in states.iter().flatten() {
            first.push(of_direction(builder, state, direction)?);
        }
        if !first.is_empty() && first.len() < states.len() {
            let given = &first[0];
            let zeros = expand_dims(builder, &Value::scalar(x.element, 0.0), &given.dims)?;
            first.insert(usize::from(states[0].is_some()), zeros);
        }
        let op = Recurrence {
            cell,
            reverse,
            initial: !first.is_empty(),
        };
        let [bias, candidate] = weights.biases(builder, cell, units)?;
        let gates = linear(builder, &x, &weights.input, bias.as_ref())?;
        let weight = permute(builder, &weights.hidden, &[1, 0])?;
        let mut operands = vec![&gates, &weight];
        operands.extend(&candidate);
        operands.extend(&first);
        for (all, result) in results.iter_mut().zip(builder.apply_all(op, &operands)?) {
            let mut dims = result.dims.clone();
            // An axis of directions.
            dims.insert(result.rank() - 2, Dim::Fixed(1));
            all.push(reshape_to(builder, &result, &dims)?);
        }
    }
    let builder = &mut *context.builder;
    let mut values = Vec::with_capacity(3);
    for (index, parts) in results.iter().enumerate().filter(|(_, parts)| !parts.is_empty()) {
        let axis = usize::from(index == 0);
        let mut value = join(builder, parts, axis)?;
        if batch_first {
            let order: &[usize] = if index == 0 { &[2, 0, 1, 3] } else { &[1, 0, 2] };
            value = permute(builder, &value, order)?;
        }
        values.push(value);
    }
    Ok(values)
}
