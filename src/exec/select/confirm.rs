//! Check whether packed 2:4 sparse weights make the whole model faster, not only its layers.
//!
//! Layers are measured in bursts of milliseconds, but whole models run at the GPU's power limit. The choice for the layers therefore counts
//! only if it makes the whole model faster.

use super::choice::Choice;
use super::problem::Problem;
use super::store::Store;
use super::whole_model::WholeModel;

/// A linear layer whose 2:4 sparse weight is fastest packed, measured alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedLayer {
    /// Batch size of the measurement.
    pub images: usize,
    /// The layer.
    pub problem: Problem,
    /// Fastest candidate for the packed weight, and its time in microseconds.
    pub packed: (Choice, f64),
    /// Fastest candidate for the dense weight, and its time in microseconds.
    pub dense: (Choice, f64),
}

impl Store {
    /// Records the fastest candidates of `layers`, for packed or for dense weights.
    pub fn set_packed(&mut self, layers: &[PackedLayer], packed: bool) {
        for layer in layers {
            let (candidate, microseconds) = if packed { layer.packed } else { layer.dense };
            self.insert(layer.problem, candidate, microseconds);
        }
    }

    /// Returns the layers whose weights stay packed according to these measurements.
    ///
    /// A weight stays packed if one kernel for packed weights is the fastest with each number of rows.
    pub fn packed(&self, layers: &[PackedLayer]) -> Vec<PackedLayer> {
        let stays = |layer: &&PackedLayer| {
            matches!(layer.problem, Problem::Linear(shape)
                if self.sparse([shape.n, shape.k], shape.dtype).is_some())
        };
        layers.iter().filter(stays).copied().collect()
    }

    /// Settles whether the weights of `layers` stay packed, from times of the whole model. They do if the model is faster with them at each
    /// batch size. Records the candidates and the model's times. Returns true if the weights stay packed.
    ///
    /// If the model is slower, all weights are dense, even if a subset of packed weights would be faster.
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

    /// Returns the result of measurements with these times, on a clock that drifts by 1 % per run.
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
        // Drift favours neither side.
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

    const OWN: Choice = Choice::SparseGemm;
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
        // The weight of 8 channels is fastest packed with 3 and 4 rows, the weight of 12 channels with 3 rows only.
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
            // The file has the times that decided beside the choice.
            let json: serde_json::Value = serde_json::from_str(&store.to_json()).unwrap();
            for entry in json["linear"].as_array().unwrap() {
                let of_batch = whole.iter().find(|of| entry["n"] == 8 && entry["m"] == of.images);
                let expected = of_batch.map(|of| serde_json::to_value(of).unwrap());
                assert_eq!(entry.get("whole_model"), expected.as_ref(), "{entry}");
            }
        }
    }
}
