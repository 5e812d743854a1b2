//! Whether packed 2:4 sparse weights that are fastest layer by layer make the whole model faster.
//!
//! Layers are measured in bursts of milliseconds, whole models run at the GPU's power limit. So what was chosen for the layers counts
//! only if the whole model is faster with it.

use serde::{Deserialize, Serialize};

use super::{Choice, Problem, Store};

/// How often the whole model is measured with packed weights and with dense ones, each twice.
const TURNS: usize = 7;

/// A whole model's times with the weights packed that were chosen, and with all of them dense, in turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholeModel {
    /// The batch size.
    pub images: usize,
    /// The median with packed weights, in microseconds.
    pub packed_us: f64,
    /// The median with dense ones.
    pub dense_us: f64,
    /// By how much packed ones are faster: the median of the differences within a turn.
    pub gain_us: f64,
    /// What the gain must exceed.
    pub noise_us: f64,
}

impl WholeModel {
    /// Measures at a batch size: `time` gives the microseconds of a run with packed weights, for `true`, or with dense ones.
    ///
    /// # Errors
    ///
    /// The error of `time`.
    pub fn measure<E>(images: usize, mut time: impl FnMut(bool) -> Result<f64, E>) -> Result<Self, E> {
        let mut turns = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            // In this order a steady drift, as of a GPU that gets warmer, cancels out.
            let [first, second, third, fourth] = [time(true)?, time(false)?, time(false)?, time(true)?];
            turns.push([f64::midpoint(first, fourth), f64::midpoint(second, third)]);
        }
        Ok(Self::of(images, &turns))
    }

    /// Summarises the turns, each a time with packed weights and one with dense weights.
    ///
    /// The noise is twice the median absolute deviation of the differences: of seven turns with normal errors, almost three standard
    /// errors of their median.
    fn of(images: usize, turns: &[[f64; 2]]) -> Self {
        let gains: Vec<f64> = turns.iter().map(|[packed, dense]| dense - packed).collect();
        let gain = median(gains.iter().copied());
        let rounded = |us: f64| (us * 100.0).round() / 100.0;
        Self {
            images,
            packed_us: rounded(median(turns.iter().map(|turn| turn[0]))),
            dense_us: rounded(median(turns.iter().map(|turn| turn[1]))),
            gain_us: rounded(gain),
            noise_us: rounded(2.0 * median(gains.iter().map(|of| (of - gain).abs()))),
        }
    }

    /// Whether the model is faster with packed weights by more than the noise.
    pub fn is_faster(&self) -> bool {
        self.gain_us > self.noise_us
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A linear layer with a 2:4 sparse weight that is fastest packed, measured alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedLayer {
    /// The batch size that it was measured for.
    pub images: usize,
    /// The layer.
    pub problem: Problem,
    /// What is the fastest for its packed weight, and in how many microseconds.
    pub packed: (Choice, f64),
    /// What is for its dense one.
    pub dense: (Choice, f64),
}

impl Store {
    /// Records for `layers` the fastest candidate for dense weights, or for packed ones.
    pub fn set_packed(&mut self, layers: &[PackedLayer], packed: bool) {
        for layer in layers {
            let (candidate, microseconds) = if packed { layer.packed } else { layer.dense };
            self.insert(layer.problem, candidate, microseconds);
        }
    }

    /// Returns the layers whose weights stay packed by these measurements.
    ///
    /// A weight stays packed if one kernel for packed weights is the fastest with each number of rows.
    pub fn packed(&self, layers: &[PackedLayer]) -> Vec<PackedLayer> {
        let stays = |layer: &&PackedLayer| {
            matches!(layer.problem, Problem::Linear(shape)
                if self.sparse([shape.n, shape.k], shape.dtype).is_some())
        };
        layers.iter().filter(stays).copied().collect()
    }

    /// Records, once the whole model has been measured, the fastest candidates for packed weights if it is faster with them at each
    /// batch size, else those for dense ones; and beside them the model's times. Returns whether packed.
    ///
    /// If the model is slower, all are dense, though some packed weights might make it faster without the others.
    pub fn settle(&mut self, layers: &[PackedLayer], whole: &[WholeModel]) -> bool {
        let faster = !whole.is_empty() && whole.iter().all(WholeModel::is_faster);
        self.set_packed(layers, faster);
        for layer in layers {
            if let Some(of_batch) = whole.iter().find(|of| of.images == layer.images) {
                self.remark(&layer.problem, *of_batch);
            }
        }
        faster
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use super::super::tests::{key, shape};
    use super::super::{LinearShape, SparseKernel};
    use super::*;
    use crate::hip::DType;

    /// Measured by a clock on which runs take these times, all of which grow by a hundredth from one to the next.
    fn measured(packed: f64, dense: f64, noise: [f64; 3]) -> WholeModel {
        let mut runs = 0;
        let time = |is_packed: bool| {
            let us = if is_packed { packed } else { dense };
            runs += 1;
            let drift = 1.0 + 0.01 * f64::from(runs);
            Ok::<_, Infallible>(us * drift + noise[runs as usize % 3])
        };
        WholeModel::measure(1, time).unwrap()
    }

    #[test]
    fn faster_is_faster_by_more_than_the_noise() {
        let quiet = measured(1000.0, 1100.0, [0.0; 3]);
        assert!(quiet.is_faster() && quiet.packed_us < quiet.dense_us, "{quiet:?}");
        assert!(!measured(1100.0, 1000.0, [0.0; 3]).is_faster());
        // Drift favours neither.
        assert!(!measured(1000.0, 1000.0, [0.0; 3]).is_faster());
        let noisy = measured(1000.0, 1010.0, [0.0, 60.0, -60.0]);
        assert!(!noisy.is_faster() && noisy.noise_us > 10.0, "{noisy:?}");
        assert!(measured(1000.0, 1300.0, [0.0, 60.0, -60.0]).is_faster());
        for nothing in [f64::NAN, 0.0] {
            assert!(!measured(nothing, nothing, [0.0; 3]).is_faster());
        }
    }

    #[test]
    fn one_outlier_changes_nothing() {
        let mut turns = vec![[1000.0, 1050.0]; 9];
        turns[3] = [1000.0, 9000.0];
        turns[4] = [9000.0, 1050.0];
        let whole = WholeModel::of(1, &turns);
        assert_eq!(
            (whole.packed_us, whole.dense_us, whole.gain_us, whole.noise_us),
            (1000.0, 1050.0, 50.0, 0.0)
        );
        assert!(whole.is_faster());
    }

    const OWN: Choice = Choice::Sparse;
    const DENSE: Choice = Choice::Rocblas;

    fn layer(m: usize, n: usize) -> PackedLayer {
        let problem = LinearShape {
            n,
            sparse: true,
            ..shape(m)
        };
        PackedLayer {
            images: m,
            problem: problem.into(),
            packed: (OWN, 2.0),
            dense: (DENSE, 3.0),
        }
    }

    #[test]
    fn weights_stay_packed_if_the_whole_model_is_faster_at_each_batch_size() {
        // The weight of 8 channels is fastest packed with 3 rows and with 4; that of 12 with 3 alone.
        let layers = [layer(3, 8), layer(4, 8), layer(3, 12)];
        let mut measured = Store::new(key());
        measured.set_packed(&layers, true);
        measured.insert(layer(4, 12).problem, DENSE, 1.0);
        let stay = measured.packed(&layers);
        assert_eq!(stay, layers[..2]);
        let whole = |images, turn| WholeModel::of(images, &[turn; 9]);
        let [faster, slower] = [[1.0, 2.0], [2.0, 1.0]];
        for (whole, packed) in [
            (&[whole(3, faster), whole(4, faster)][..], true),
            (&[whole(3, faster), whole(4, slower)], false),
            (&[whole(3, slower), whole(4, slower)], false),
            (&[], false),
        ] {
            let mut store = Store::new(key());
            store.set_packed(&layers, false);
            assert_eq!(store.settle(&stay, whole), packed);
            let kept = layers.each_ref().map(|layer| store.get(&layer.problem));
            let expected = Some(if packed { OWN } else { DENSE });
            assert_eq!(kept, [expected, expected, Some(DENSE)]);
            let kernel = |n| store.sparse([n, 5], DType::BF16);
            assert_eq!(kernel(8), packed.then_some(SparseKernel::Builtin));
            assert_eq!(kernel(12), None);
            // In the file beside what was decided by it.
            let json: serde_json::Value = serde_json::from_str(&store.to_json()).unwrap();
            for entry in json["linear"].as_array().unwrap() {
                let of_batch = whole.iter().find(|of| entry["n"] == 8 && entry["m"] == of.images);
                let expected = of_batch.map(|of| serde_json::to_value(of).unwrap());
                assert_eq!(entry.get("whole_model"), expected.as_ref(), "{entry}");
            }
        }
    }
}
