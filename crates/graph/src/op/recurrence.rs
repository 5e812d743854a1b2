//! Recurrent layers: LSTM and GRU.

use std::fmt;
use std::ops::Range;

use super::operands::{Rest, count, expect};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(gates [S,B,G·H], weight [H,G·H], bias [H]?, hidden [B,H]?, cell [B,H]?) → (y [S,B,H], hidden [B,H], cell [B,H]?)`: a recurrent layer of H
/// units over S steps. `gates` are the products of the inputs with their weight, and all biases that are added to them. `y` has the hidden state
/// after each step; the other results are the last states.
///
/// The bias belongs to GRU's products of the hidden state for its candidate, if the reset gate multiplies these. The cell belongs to LSTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// The layer.
    pub cell: RecurrentCell,
    /// True if the steps are taken from the last one on.
    pub reverse: bool,
    /// True if the operands have the states before the first step. They are zeros otherwise.
    pub initial: bool,
}

/// A recurrent layer, with the order of its gates in the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentCell {
    /// `c' = f·c + i·g` and `h' = o·tanh c'`, with σ for the input gate i, the output gate o and the forget gate f, and tanh for g.
    Lstm,
    /// `h' = (1 − z)·n + z·h`, with σ for the update gate z and the reset gate r.
    Gru {
        /// True for `n = tanh(x + r·(W·h + b))`. Otherwise `n = tanh(x + W·(r·h))`.
        reset_after: bool,
    },
}

impl RecurrentCell {
    /// Returns the number of gates.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru { .. } => 3,
        }
    }

    /// Returns true if the operands have a bias.
    pub fn has_bias(self) -> bool {
        self == Self::Gru { reset_after: true }
    }

    /// Computes a step of a row. `gates` are the row's gates with the products of its hidden state, except for those of GRU's candidate that the
    /// reset gate multiplies, which are `candidate` with their bias.
    fn step<T: Real>(self, gates: &[T], candidate: &[T], hidden: &mut [T], cell: &mut [T]) {
        let units = hidden.len();
        let gate = |index: usize, unit: usize| gates[index * units + unit];
        for unit in 0..units {
            match self {
                Self::Lstm => {
                    let [input, output, forget] = [0, 1, 2].map(|index| sigmoid(gate(index, unit)));
                    cell[unit] = forget * cell[unit] + input * gate(3, unit).tanh();
                    hidden[unit] = output * cell[unit].tanh();
                }
                Self::Gru { reset_after } => {
                    let [update, reset] = [0, 1].map(|index| sigmoid(gate(index, unit)));
                    let product = if reset_after {
                        reset * candidate[unit]
                    } else {
                        T::ZERO
                    };
                    let new = (gate(2, unit) + product).tanh();
                    hidden[unit] = (T::ONE - update) * new + update * hidden[unit];
                }
            }
        }
    }
}

fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}

/// The operands of a [`Recurrence`] but for its gates: row-major elements.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentWeights<'a, T> {
    /// `[H,G·H]`.
    pub weight: &'a [T],
    /// `[H]` of GRU, or empty.
    pub bias: &'a [T],
}

impl<T: Real> RecurrentWeights<'_, T> {
    /// Advances a row by one step. `sums` is scratch memory of G·H elements, `candidate` of H for GRU.
    pub fn advance(
        &self,
        op: RecurrentCell,
        gates: &[T],
        [sums, candidate]: [&mut [T]; 2],
        hidden: &mut [T],
        cell: &mut [T],
    ) {
        let (units, width) = (hidden.len(), sums.len());
        // Columns of the gates whose products are those of the state itself.
        let of_state = match op {
            RecurrentCell::Gru { reset_after: false } => 2 * units,
            _ => width,
        };
        sums.copy_from_slice(gates);
        if op.has_bias() {
            sums[2 * units..].fill(T::ZERO);
        }
        self.add_products(0..of_state, hidden, sums);
        if op.has_bias() {
            let products = &mut sums[2 * units..];
            for (index, product) in products.iter_mut().enumerate() {
                candidate[index] = *product + self.bias[index];
                *product = gates[2 * units + index];
            }
        } else if of_state < width {
            for (unit, candidate) in candidate.iter_mut().enumerate() {
                *candidate = sigmoid(sums[units + unit]) * hidden[unit];
            }
            self.add_products(of_state..width, candidate, sums);
        }
        op.step(sums, candidate, hidden, cell);
    }

    /// Adds the products of a state with some columns of the weight.
    fn add_products(&self, columns: Range<usize>, state: &[T], sums: &mut [T]) {
        let width = sums.len();
        let sums = &mut sums[columns.clone()];
        for (&h, row) in state.iter().zip(self.weight.chunks_exact(width)) {
            for (sum, &weight) in sums.iter_mut().zip(&row[columns.clone()]) {
                *sum += h * weight;
            }
        }
    }
}

impl Recurrence {
    /// Returns the index of the operand with the first state. `None` if the states are zeros.
    pub fn first_state(&self) -> Option<usize> {
        self.initial.then_some(2 + usize::from(self.cell.has_bias()))
    }

    /// Returns the number of results.
    pub fn results(&self) -> usize {
        2 + usize::from(self.cell == RecurrentCell::Lstm)
    }
}

impl Definition for Recurrence {
    const NAME: &'static str = "recurrence";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.cell {
            RecurrentCell::Lstm => " lstm",
            RecurrentCell::Gru { reset_after: true } => " gru",
            RecurrentCell::Gru { reset_after: false } => " gru reset first",
        })?;
        f.write_str(if self.reverse { " reverse" } else { "" })?;
        f.write_str(if self.initial { " initial" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let mut rest = Rest::new(operands);
        let gates = rest.required("gates")?;
        let weight = rest.required("weight")?;
        let (&[steps, rows, channels], &[units, _]) = (gates, weight) else {
            return Err(format!(
                "takes gates [S, B, G·H] and a weight [H, G·H], got {gates:?} and {weight:?}"
            )
            .into());
        };
        if steps * rows * units == 0 || units.checked_mul(self.cell.gates()) != Some(channels) {
            return Err(format!("has {channels} gates for {units} units").into());
        }
        expect("weight", weight, &[units, channels])?;
        if let Some(bias) = rest.optional(self.cell.has_bias(), "bias")? {
            expect("bias", bias, &[units])?;
        }
        let state = [rows, units];
        if let Some(hidden) = rest.optional(self.initial, "hidden")? {
            expect("hidden", hidden, &state)?;
        }
        if let Some(cell) = rest.optional(self.initial && self.cell == RecurrentCell::Lstm, "cell")? {
            expect("cell", cell, &state)?;
        }
        rest.finish()?;
        let mut results = vec![vec![steps, rows, units]];
        results.resize(self.results(), state.to_vec());
        Ok(results)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        // A product and a sum for each weight of a gate, and about ten operations for each gate.
        count(operands[0]) * (2 * operands[1][0] as u64 + 10) + count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (gates, weight) = (operands[0], operands[1]);
        let &[steps, rows, channels] = gates.shape() else {
            return;
        };
        let units = weight.shape()[0];
        let weights = RecurrentWeights {
            weight: weight.values(),
            bias: if self.cell.has_bias() {
                operands[2].values()
            } else {
                &[]
            },
        };
        let state = |index: usize| match self.first_state() {
            Some(first) if index < self.results() - 1 => operands[first + index].values().to_vec(),
            _ => vec![T::ZERO; rows * units],
        };
        let (mut hidden, mut cell) = (state(0), state(1));
        let (mut sums, mut candidate) = (vec![T::ZERO; channels], vec![T::ZERO; units]);
        for step in 0..steps {
            let step = if self.reverse { steps - 1 - step } else { step };
            let of_step = &gates.values()[step * rows * channels..][..rows * channels];
            let states = hidden.chunks_exact_mut(units).zip(cell.chunks_exact_mut(units));
            for (gates, (hidden, cell)) in of_step.chunks_exact(channels).zip(states) {
                weights.advance(self.cell, gates, [&mut sums, &mut candidate], hidden, cell);
            }
            results[0].values_mut()[step * rows * units..][..rows * units].copy_from_slice(&hidden);
        }
        for (result, state) in results[1..].iter_mut().zip([hidden, cell]) {
            result.values_mut().copy_from_slice(&state);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            // Tokens are the rows that are independent of each other.
            let mut sizes = vec![[batch + 2, tokens.min(9), channels]];
            if cases.is_micro() {
                // More units than a block has threads.
                sizes.push([2, 3, 300]);
            }
            for [steps, rows, units] in sizes {
                for cell in [
                    RecurrentCell::Lstm,
                    RecurrentCell::Gru { reset_after: true },
                    RecurrentCell::Gru { reset_after: false },
                ] {
                    for (reverse, initial) in [(false, false), (true, true)] {
                        let op = Self {
                            cell,
                            reverse,
                            initial,
                        };
                        let width = cell.gates() * units;
                        let mut operands =
                            vec![activation(&[steps, rows, width]), parameter(&[units, width])];
                        if cell.has_bias() {
                            operands.push(parameter(&[units]));
                        }
                        if initial {
                            operands.resize(operands.len() + op.results() - 1, activation(&[rows, units]));
                        }
                        for result in 0..op.results() {
                            cases.push_result(result, op, operands.clone());
                        }
                    }
                }
            }
        });
    }

    /// Each step sums H products, and passes the error of the steps before it on: by less than it is, since σ and tanh have slopes of at most
    /// ¼ and 1 and states are weighted averages of the last ones. Weights of many units can amplify it, so that errors of all steps add up.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let (steps, units) = (operands[0].shape()[0], operands[1].shape()[0]);
        narrow(dtype) + steps as f64 * tolerance(DType::F32, units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize], values: &[f64]) -> Array {
        Array::new(shape.to_vec(), values.to_vec()).unwrap()
    }

    #[test]
    fn lstm_computes_gates_in_the_order_of_onnx() {
        let op = Recurrence {
            cell: RecurrentCell::Lstm,
            reverse: false,
            initial: true,
        };
        // One unit, two steps.
        let gates = array(&[2, 1, 4], &[0.5, -1.0, 2.0, 0.25, -0.5, 1.0, 0.0, 0.75]);
        let weight = array(&[1, 4], &[0.1, 0.2, 0.3, 0.4]);
        let (h, c) = (array(&[1, 1], &[0.5]), array(&[1, 1], &[-1.0]));
        let results = op.eval(&[&gates, &weight, &h, &c]).unwrap();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let step = |h: f64, c: f64, g: &[f64]| {
            let (i, o, f) = (g[0] + 0.1 * h, g[1] + 0.2 * h, g[2] + 0.3 * h);
            let c = sigmoid(f) * c + sigmoid(i) * (g[3] + 0.4 * h).tanh();
            (sigmoid(o) * c.tanh(), c)
        };
        let (h1, c1) = step(0.5, -1.0, &gates.values()[..4]);
        let (h2, c2) = step(h1, c1, &gates.values()[4..]);
        let close = |x: f64, y: f64| (x - y).abs() < 1e-14;
        assert!(close(results[0].values()[0], h1) && close(results[0].values()[1], h2));
        assert!(close(results[1].values()[0], h2) && close(results[2].values()[0], c2));
        let reversed = Recurrence { reverse: true, ..op };
        let results = reversed.eval(&[&gates, &weight, &h, &c]).unwrap();
        let (last, c1) = step(0.5, -1.0, &gates.values()[4..]);
        let (first, _) = step(last, c1, &gates.values()[..4]);
        assert!(close(results[0].values()[1], last) && close(results[0].values()[0], first));
        assert!(close(results[1].values()[0], first));
    }

    #[test]
    fn gru_resets_the_state_or_its_products() {
        let gru = |reset_after, operands: &[&Array]| {
            let op = Recurrence {
                cell: RecurrentCell::Gru { reset_after },
                reverse: false,
                initial: true,
            };
            let results = op.eval(operands).unwrap();
            assert_eq!(results.len(), 2);
            results[0].values().to_vec()
        };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let close = |x: f64, y: f64| (x - y).abs() < 1e-14;
        let (gates, h) = (array(&[1, 1, 3], &[0.5, -1.0, 2.0]), array(&[1, 1], &[0.5]));
        let (weight, bias) = (array(&[1, 3], &[0.1, 0.2, 0.3]), array(&[1], &[0.7]));
        let (z, r) = (sigmoid(0.55), sigmoid(-0.9));
        let n = (2.0 + r * (0.15 + 0.7)).tanh();
        let y = gru(true, &[&gates, &weight, &bias, &h]);
        assert!(close(y[0], (1.0 - z) * n + z * 0.5));
        // The product is of all units that were reset.
        let gates = array(&[1, 1, 6], &[0.5, -0.5, -1.0, 1.0, 2.0, 0.25]);
        let weight = array(
            &[2, 6],
            &[0.0, 0.0, 0.0, 0.0, 0.3, -0.4, 0.0, 0.0, 0.0, 0.0, 0.2, 0.6],
        );
        let y = gru(false, &[&gates, &weight, &array(&[1, 2], &[0.5, -1.0])]);
        let (r, z) = (
            [sigmoid(-1.0) * 0.5, -sigmoid(1.0)],
            [sigmoid(0.5), sigmoid(-0.5)],
        );
        let n = [
            (2.0 + 0.3 * r[0] + 0.2 * r[1]).tanh(),
            (0.25 - 0.4 * r[0] + 0.6 * r[1]).tanh(),
        ];
        assert!(close(y[0], (1.0 - z[0]) * n[0] + z[0] * 0.5));
        assert!(close(y[1], (1.0 - z[1]) * n[1] - z[1]));
    }

    #[test]
    fn operands_of_other_shapes_are_refused() {
        let op = Recurrence {
            cell: RecurrentCell::Lstm,
            reverse: false,
            initial: false,
        };
        assert!(op.shapes(&[&[7, 2, 12], &[3, 12]]).is_ok());
        assert!(op.shapes(&[&[7, 2, 12], &[4, 12]]).is_err());
        assert!(op.shapes(&[&[7, 2, 12], &[3, 9]]).is_err());
        assert!(op.shapes(&[&[7, 2, 12], &[3, 12], &[2, 3]]).is_err());
    }
}
