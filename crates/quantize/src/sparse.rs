//! 2:4 sparsity: two of every four weights of an output channel, along the input channels, become zero.
//!
//! Without images, the two smaller weights are pruned. With images, SparseGPT is used
//! (<https://arxiv.org/abs/2301.00774>):
//!
//! - The output error of a layer for a change Δ of its weights is tr(Δ·H·Δᵀ), where H = Σ x·xᵀ over the
//!   layer's inputs.
//! - With the inverse H⁻¹ = Uᵀ·U, U upper triangular, the error of pruning weight j is (w_j / U_jj)² if the
//!   weights after it compensate.
//! - Columns are processed from first to last. The two of each four weights with the least error are pruned.
//! - The columns after a pruned weight are corrected: w ← w − (w_j / U_jj)·U_j.
//!
//! H is computed from the model before any layer is pruned, so one pass over the images suffices. All H are
//! in memory at once: 0.6 GiB for ViT-B.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ndarray::{Array2, linalg::general_mat_mul};
use rayon::prelude::*;

use super::layers::Layers;
use super::observation::observe;
use hipvit::error::{Error, Result};
use hipvit::graph::ValueId;
use hipvit::model::{Checkpoint, Model};
use hipvit::ops::Op;

/// Damping of the diagonal of H relative to its mean, as in SparseGPT.
const DAMPING: f64 = 0.01;

/// Weights to prune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparsity {
    /// Prunes two of every four weights along the input channels by magnitude. With images, prunes by the output
    /// error of the layer, and compensates it in the other weights.
    TwoOfFour,
}

/// Prunes the weights of `layers`. Returns the names of the layers that could not be pruned.
pub(super) fn prune(
    checkpoint: &mut Checkpoint,
    model: &Model,
    layers: &Layers,
    Sparsity::TwoOfFour: Sparsity,
    images: &[Vec<u8>],
) -> Result<Vec<String>> {
    let inputs = inputs(model, layers);
    let hessians = hessians(model, &inputs, images)?;
    let mut inverses: HashMap<ValueId, Arc<Factor>> = HashMap::new();
    let (mut pruned, mut unpruned) = (BTreeMap::new(), Vec::new());
    for (name, input) in &inputs {
        let weight = checkpoint.tensor(name)?;
        let &[_, columns] = weight.shape() else {
            unpruned.push(name.clone());
            continue;
        };
        if columns == 0 || columns % 4 != 0 {
            unpruned.push(name.clone());
            continue;
        }
        let bad = weight.count_non_finite();
        if bad > 0 {
            let reason = format!("cannot be pruned: {bad} of its values are NaN or infinite");
            return Err(Error::tensor(checkpoint.place(), name, reason));
        }
        let mut values = weight.to_f32().into_owned();
        match hessians.get(input).filter(|h| h.nrows() == columns) {
            None => by_magnitude(&mut values),
            Some(hessian) => {
                let factor = inverses
                    .entry(*input)
                    .or_insert_with(|| Arc::new(Factor::new(hessian)));
                corrected(&mut values, factor);
            }
        }
        pruned.insert(name.clone(), values);
    }
    for name in &mut unpruned {
        *name = name.strip_suffix(".weight").unwrap_or(name).to_owned();
    }
    let others = [&layers.others[..], &unpruned].concat();
    checkpoint.prune(pruned, others)?;
    Ok(unpruned)
}

/// Returns the input of each weight's layer.
fn inputs(model: &Model, layers: &Layers) -> BTreeMap<String, ValueId> {
    let graph = &model.graph;
    let linear = graph
        .nodes()
        .iter()
        .filter(|node| matches!(node.op, Op::Linear(_)));
    let mut inputs = BTreeMap::new();
    for node in linear {
        for name in graph.value(node.inputs[1]).tensors() {
            if layers.quantized.contains(name) {
                inputs.entry(name.to_owned()).or_insert(node.inputs[0]);
            }
        }
    }
    inputs
}

/// Returns Σ x·xᵀ of each input over all images. Empty without images.
fn hessians(
    model: &Model,
    inputs: &BTreeMap<String, ValueId>,
    images: &[Vec<u8>],
) -> Result<HashMap<ValueId, Array2<f32>>> {
    let mut hessians: HashMap<ValueId, Array2<f32>> = HashMap::new();
    let mut values: Vec<ValueId> = Vec::new();
    for value in inputs.values() {
        if !values.contains(value) {
            values.push(*value);
        }
    }
    observe(model, &values, images, |value, x| {
        let channels = x.ncols();
        let sum = hessians
            .entry(values[value])
            .or_insert_with(|| Array2::zeros([channels, channels]));
        general_mat_mul(1.0, &x.t(), x, 1.0, sum);
    })?;
    Ok(hessians)
}

/// Sets the two smaller of each four values to zero; among equal values, the last.
fn by_magnitude(values: &mut [f32]) {
    for four in values.chunks_exact_mut(4) {
        for i in smaller_two([0, 1, 2, 3].map(|i| f64::from(four[i].abs()))) {
            four[i] = 0.0;
        }
    }
}

/// Returns the indices of the two smaller values; among equal values, the last.
fn smaller_two(values: [f64; 4]) -> [usize; 2] {
    let mut order = [3, 2, 1, 0];
    order.sort_by(|&a: &usize, &b| values[a].total_cmp(&values[b]));
    [order[0], order[1]]
}

/// Prunes by the output error, and corrects the remaining weights.
fn corrected(values: &mut [f32], factor: &Factor) {
    let columns = factor.size;
    values.par_chunks_mut(columns).for_each(|row| {
        let mut w: Vec<f64> = row.iter().map(|&value| f64::from(value)).collect();
        for start in (0..columns).step_by(4) {
            let error = |i: usize| (w[start + i] / factor.row(start + i)[0]).powi(2);
            let pruned = smaller_two([0, 1, 2, 3].map(error));
            for i in 0..4 {
                if !pruned.contains(&i) {
                    continue;
                }
                let u = factor.row(start + i);
                let error = w[start + i] / u[0];
                for (w, u) in w[start + i..].iter_mut().zip(u) {
                    *w -= error * u;
                }
                w[start + i] = 0.0;
            }
        }
        row.iter_mut().zip(w).for_each(|(value, w)| *value = w as f32);
    });
}

/// Factor U of H⁻¹ = Uᵀ·U for a damped H. Each row begins at its diagonal.
struct Factor {
    size: usize,
    rows: Vec<Vec<f64>>,
}

impl Factor {
    fn row(&self, index: usize) -> &[f64] {
        &self.rows[index]
    }

    /// Computes H = R·Rᵀ with R upper triangular, from the last row to the first, and U = R⁻¹.
    fn new(hessian: &Array2<f32>) -> Self {
        let n = hessian.nrows();
        let mean = (0..n).map(|i| f64::from(hessian[[i, i]])).sum::<f64>() / n as f64;
        // Inputs that are always 0 need no correction.
        let damping = (DAMPING * mean).max(f64::MIN_POSITIVE.sqrt());
        // Row i of R begins at its diagonal: r[i][j - i].
        let mut r: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let mut row: Vec<f64> = (i..n).map(|j| f64::from(hessian[[i, j]])).collect();
                row[0] += damping;
                row
            })
            .collect();
        // Right-looking, last column first: each finished column is subtracted from all columns before it.
        for j in (0..n).rev() {
            let diagonal = r[j][0].max(damping * 1e-6).sqrt();
            r[j][0] = diagonal;
            let column: Vec<f64> = (0..j).map(|i| r[i][j - i] / diagonal).collect();
            r[..j].par_iter_mut().enumerate().for_each(|(i, row)| {
                row[j - i] = column[i];
                for (k, value) in row.iter_mut().enumerate().take(j - i) {
                    *value -= column[i] * column[i + k];
                }
            });
        }
        // Solve R·U = 1 for each column of U, from its diagonal upwards.
        let columns: Vec<Vec<f64>> = (0..n)
            .into_par_iter()
            .map(|j| {
                let mut u = vec![0.0; j + 1];
                u[j] = 1.0 / r[j][0];
                for i in (0..j).rev() {
                    let sum: f64 = r[i][1..=j - i].iter().zip(&u[i + 1..]).map(|(r, u)| r * u).sum();
                    u[i] = -sum / r[i][0];
                }
                u
            })
            .collect();
        let rows = (0..n).map(|i| (i..n).map(|j| columns[j][i]).collect()).collect();
        Self { size: n, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipvit::evaluate::LabelledSet;
    use hipvit::image::Limits;
    use hipvit::model::{LoadOptions, tinyvit32};

    #[test]
    fn the_smaller_two_are_pruned() {
        let mut values = [1.0, -3.0, 2.0, -0.5, 1.0, 1.0, -1.0, 1.0, 0.0, 0.0, 0.0, 5.0];
        by_magnitude(&mut values);
        assert_eq!(
            values,
            [0.0, -3.0, 2.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0]
        );
    }

    #[test]
    fn the_factor_is_of_the_inverse() {
        let n = 12;
        let x = Array2::from_shape_fn([30, n], |(i, j)| ((i * 7 + j * j * 3 + i * j) % 17) as f32 - 8.0);
        let hessian = x.t().dot(&x);
        let factor = Factor::new(&hessian);
        let damping = DAMPING * (0..n).map(|i| f64::from(hessian[[i, i]])).sum::<f64>() / n as f64;
        let u = Array2::from_shape_fn([n, n], |(i, j)| if j < i { 0.0 } else { factor.rows[i][j - i] });
        let mut damped = hessian.mapv(f64::from);
        damped.diag_mut().iter_mut().for_each(|value| *value += damping);
        let one = u.t().dot(&u).dot(&damped);
        for ((i, j), value) in one.indexed_iter() {
            assert!(
                (value - f64::from(u8::from(i == j))).abs() < 1e-9,
                "{i}, {j}: {value}"
            );
        }
    }

    /// Returns tr(Δ·H·Δᵀ): the squared error of the outputs.
    fn error(weight: &[f32], pruned: &[f32], hessian: &Array2<f32>) -> f64 {
        let rows = weight.chunks(hessian.nrows()).zip(pruned.chunks(hessian.nrows()));
        let of_row = |(a, b): (&[f32], &[f32])| {
            let change = ndarray::Array1::from_iter(a.iter().zip(b).map(|(a, b)| a - b));
            f64::from(change.dot(&hessian.dot(&change)))
        };
        rows.map(of_row).sum()
    }

    /// Checks the error of the outputs on images that the correction has not used.
    #[test]
    fn the_correction_lowers_the_error_of_held_out_outputs() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../assets/digits/heldout.safetensors"
        );
        let bytes = std::fs::read(file).unwrap();
        let model = tinyvit32(&LoadOptions::default()).unwrap();
        let images: Vec<Vec<u8>> = LabelledSet::from_safetensors(file.as_ref(), &bytes)
            .unwrap()
            .into_iter()
            .take(192)
            .map(|(source, _)| {
                let image = source.decode(Limits::default()).unwrap();
                model.preprocess.apply(&image).unwrap().data
            })
            .collect();
        let (seen, held_out) = images.split_at(128);
        let layers = Layers::of(&model.graph);
        let inputs = inputs(&model, &layers);
        let of_seen = hessians(&model, &inputs, seen).unwrap();
        let of_held_out = hessians(&model, &inputs, held_out).unwrap();
        let checkpoint = Checkpoint::open(None).unwrap();
        assert_eq!(inputs.len(), 4 * model.info.depth);
        for (name, input) in &inputs {
            let weight = checkpoint.tensor(name).unwrap().to_f32().into_owned();
            let mut by_size = weight.clone();
            by_magnitude(&mut by_size);
            let mut by_error = weight.clone();
            corrected(&mut by_error, &Factor::new(&of_seen[input]));
            for four in by_error.chunks(4) {
                assert!(
                    four.iter().filter(|&&value| value == 0.0).count() >= 2,
                    "{name}: {four:?}"
                );
            }
            let held_out = &of_held_out[input];
            let all = error(&weight, &vec![0.0; weight.len()], held_out);
            let [by_size, by_error] =
                [by_size, by_error].map(|pruned| (error(&weight, &pruned, held_out) / all).sqrt());
            println!(
                "{name}: {:.1} % by magnitude, {:.1} % corrected",
                100.0 * by_size,
                100.0 * by_error
            );
            assert!(by_error < 0.8 * by_size, "{name}: {by_error} {by_size}");
        }
    }
}
