//! Results of a model for its images: logits, probabilities, the most likely classes, embeddings, tokens, hidden layers and attention
//! statistics.

use ndarray::{Array2, Array3, Array4, ArrayView1, ArrayView2, ArrayView3, ArrayViewMut1, Axis, Slice, s};
use serde::Serialize;

use crate::labels::Labels;
use crate::non_finite::NonFinite;

/// Results for a number of images, in the order of the images.
///
/// [`image`](Self::image) returns the results of one image. The other methods return those of all images as one array.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Names of the classes.
    pub labels: Labels,
    /// Function that converts logits to probabilities.
    pub scores: Scores,
    /// Number of tokens before those of the patches.
    pub prefix_tokens: usize,
    /// Rows and columns of patches. `None` if images have different grids.
    pub grid: Option<[usize; 2]>,
    /// Embeddings, a row per image.
    pub embeddings: Array2<f32>,
    /// Logits, a row per image, if the model has classes.
    pub logits: Option<Array2<f32>>,
    /// All tokens, including those before the patches.
    pub tokens: Option<Array3<f32>>,
    /// Index of a block, and the tokens after it.
    pub hidden_layers: Vec<(usize, Array3<f32>)>,
    /// Statistics in the order of the layers.
    pub attention_statistics: Vec<AttentionLayer>,
}

/// Statistics of one attention layer for all images.
#[derive(Clone, Debug)]
pub struct AttentionLayer {
    pub(crate) name: String,
    pub(crate) keys: usize,
    /// `[images, heads, queries, 3]`: log-sum-exp, largest probability, entropy.
    pub(crate) values: Array4<f32>,
}

/// Softmax statistics of one attention layer for one image.
///
/// They are statistics of each row of probabilities `p = softmax(s)` with `s = scale · Q·Kᵀ + bias`. Each array is `[heads, queries]`. They
/// are computed in f32, from the probabilities before these are rounded to the dtype of the activations.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttentionStatistics {
    /// Name of the layer, such as `blocks.3.attn`.
    pub name: String,
    /// Number of keys that a query attends to. Uniform attention has an entropy of `ln(keys)`.
    pub keys: usize,
    /// `ln Σ e^s`.
    pub log_sum_exp: Array2<f32>,
    /// `max p`.
    pub max_probability: Array2<f32>,
    /// `−Σ p·ln p`, in nats.
    pub entropy: Array2<f32>,
}

impl Outputs {
    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.embeddings.nrows()
    }

    /// Returns true if there are no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the results of image `index`.
    ///
    /// # Panics
    ///
    /// Panics if `index` is not below [`len`](Self::len).
    pub fn image(&self, index: usize) -> ImageOutputs<'_> {
        assert!(
            index < self.len(),
            "image {index} of outputs for {} images",
            self.len()
        );
        ImageOutputs { outputs: self, index }
    }

    /// Iterates over the results of each image.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ImageOutputs<'_>> {
        (0..self.len()).map(|index| ImageOutputs { outputs: self, index })
    }

    /// Returns the logits `[images, classes]`, before softmax or sigmoid. `None` if the model has no classification head.
    pub fn logits(&self) -> Option<&Array2<f32>> {
        self.logits.as_ref()
    }

    /// Returns the embeddings `[images, D]`: the input of the classification head, or the model's result if it has no head.
    pub fn embeddings(&self) -> &Array2<f32> {
        &self.embeddings
    }

    /// Returns the patch tokens `[images, patches, D]` after the final norm (if the model has one for all tokens), without the prefix
    /// tokens. `None` unless requested with [`SessionBuilder::tokens`](crate::SessionBuilder::tokens).
    ///
    /// Patches are in row-major order. If images may have any aspect ratio, tokens beyond an image's
    /// [grid](crate::image::Preprocess::patch_grid) are meaningless.
    pub fn tokens(&self) -> Option<ArrayView3<'_, f32>> {
        let tokens = self.tokens.as_ref()?;
        Some(tokens.slice_axis(Axis(1), Slice::from(self.prefix_tokens..)))
    }

    /// Returns the prefix tokens `[images, prefix tokens, D]` after the final norm: class, distillation and register tokens, in this order.
    /// There may be none. `None` unless [`tokens`](Self::tokens) were requested.
    pub fn prefix_tokens(&self) -> Option<ArrayView3<'_, f32>> {
        let tokens = self.tokens.as_ref()?;
        Some(tokens.slice_axis(Axis(1), Slice::from(..self.prefix_tokens)))
    }

    /// Returns the residual stream after block `block`, counted from 0, without a norm: `[images, prefix tokens + patches, D]`. `None`
    /// unless requested with [`SessionBuilder::hidden_layers`](crate::SessionBuilder::hidden_layers).
    ///
    /// It equals transformers' `hidden_states[block + 1]`. It also equals timm's `forward_intermediates` with `indices=[block]`,
    /// `norm=False` and `output_fmt="NLC"`, which returns the prefix tokens separately.
    pub fn hidden_layer(&self, block: usize) -> Option<ArrayView3<'_, f32>> {
        let (_, tokens) = self.hidden_layers.iter().find(|(index, _)| *index == block)?;
        Some(tokens.view())
    }

    /// Returns the [tokens](Self::tokens) as a feature map `[images, rows, columns, D]`, one token per patch, as detection and segmentation
    /// models take it. The result is a copy. `None` without tokens, or if images may have any aspect ratio.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::Session;
    /// use hipvit::image::{Limits, open};
    ///
    /// let session = Session::builder().tokens(true).tinyvit32()?;
    /// let outputs = session.run([open("assets/samples/7.png", Limits::default())?])?;
    /// assert_eq!(outputs.feature_map().map(|map| map.dim()), Some((1, 8, 8, 64)));
    /// # Ok(()) }
    /// ```
    pub fn feature_map(&self) -> Option<Array4<f32>> {
        self.map(self.tokens()?)
    }

    /// Returns the patch tokens of [`hidden_layer`](Self::hidden_layer) as a feature map `[images, rows, columns, D]`.
    ///
    /// It equals timm's `forward_intermediates` with `norm=False` and `output_fmt="NCHW"`, except that the channels are last.
    pub fn hidden_feature_map(&self, block: usize) -> Option<Array4<f32>> {
        let tokens = self.hidden_layer(block)?;
        self.map(tokens.slice_axis(Axis(1), Slice::from(self.prefix_tokens..)))
    }

    fn map(&self, patches: ArrayView3<'_, f32>) -> Option<Array4<f32>> {
        let ([rows, columns], (images, _, channels)) = (self.grid?, patches.dim());
        let shape = (images, rows, columns, channels);
        patches.to_owned().into_shape_with_order(shape).ok()
    }

    /// Iterates over the blocks with [hidden layers](Self::hidden_layer).
    pub fn hidden_layer_indices(&self) -> impl ExactSizeIterator<Item = usize> {
        self.hidden_layers.iter().map(|(index, _)| *index)
    }

    /// Returns for each image the softmax statistics of each attention layer, in the order of the layers. Empty unless requested with
    /// [`SessionBuilder::attention_statistics`](crate::SessionBuilder::attention_statistics).
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::Session;
    /// use hipvit::image::{Limits, open};
    ///
    /// let session = Session::builder().attention_statistics(true).tinyvit32()?;
    /// let outputs = session.run([open("assets/samples/7.png", Limits::default())?])?;
    /// for layer in &outputs.attention_statistics()[0] {
    ///     let most = (layer.keys as f32).ln();
    ///     println!("{}: {:.2} of {most:.2} nats", layer.name, layer.entropy.mean().unwrap_or(0.0));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn attention_statistics(&self) -> Vec<Vec<AttentionStatistics>> {
        self.iter().map(|image| image.attention_statistics()).collect()
    }

    /// Appends the images of `other`, which must come from the same session.
    pub fn append(&mut self, other: &Self) -> Result<(), ndarray::ShapeError> {
        let images = Axis(0);
        self.embeddings.append(images, other.embeddings.view())?;
        if let (Some(all), Some(more)) = (&mut self.logits, &other.logits) {
            all.append(images, more.view())?;
        }
        if let (Some(all), Some(more)) = (&mut self.tokens, &other.tokens) {
            all.append(images, more.view())?;
        }
        for ((_, all), (_, more)) in self.hidden_layers.iter_mut().zip(&other.hidden_layers) {
            all.append(images, more.view())?;
        }
        let layers = self.attention_statistics.iter_mut();
        for (all, more) in layers.zip(&other.attention_statistics) {
            all.values.append(images, more.values.view())?;
        }
        Ok(())
    }
}

/// Results for one image, from [`Outputs::image`].
#[derive(Clone, Copy, Debug)]
pub struct ImageOutputs<'a> {
    outputs: &'a Outputs,
    index: usize,
}

impl<'a> ImageOutputs<'a> {
    /// Returns a score per class, before softmax or sigmoid. `None` if the model has no classification head.
    pub fn logits(&self) -> Option<ArrayView1<'a, f32>> {
        Some(self.outputs.logits()?.row(self.index))
    }

    /// Returns a probability per class. `None` if the model has no classification head.
    pub fn probabilities(&self) -> Option<Vec<f32>> {
        Some(self.outputs.scores.probabilities(self.logits()?))
    }

    /// Returns the `k` most likely classes with their labels, best first. Empty if the model has no classification head.
    pub fn top(&self, k: usize) -> Vec<Prediction> {
        let Outputs { scores, labels, .. } = self.outputs;
        self.logits()
            .map(|logits| scores.top(logits, k, labels))
            .unwrap_or_default()
    }

    /// Returns the feature vector; see [`Outputs::embeddings`].
    pub fn embedding(&self) -> ArrayView1<'a, f32> {
        self.outputs.embeddings.row(self.index)
    }

    /// Returns the first result with NaN or infinite values. `None` if all values are finite.
    pub fn non_finite(&self) -> Option<NonFinite> {
        let of = |name: &str, values: &mut dyn Iterator<Item = &f32>| {
            let (mut count, mut len) = (0, 0);
            for value in values {
                count += usize::from(!value.is_finite());
                len += 1;
            }
            NonFinite::new(name, count, len)
        };
        let logits = self.logits();
        logits
            .and_then(|logits| of("logits", &mut logits.iter()))
            .or_else(|| of("embedding", &mut self.embedding().iter()))
            .or_else(|| of("prefix_tokens", &mut self.prefix_tokens()?.iter()))
            .or_else(|| of("tokens", &mut self.tokens()?.iter()))
            .or_else(|| {
                let mut layers = self.outputs.hidden_layer_indices();
                layers.find_map(|block| of(&format!("layers.{block}"), &mut self.hidden_layer(block)?.iter()))
            })
    }

    /// Returns `[patches, D]`; see [`Outputs::tokens`].
    pub fn tokens(&self) -> Option<ArrayView2<'a, f32>> {
        Some(self.outputs.tokens()?.index_axis_move(Axis(0), self.index))
    }

    /// Returns `[prefix tokens, D]`; see [`Outputs::prefix_tokens`].
    pub fn prefix_tokens(&self) -> Option<ArrayView2<'a, f32>> {
        Some(self.outputs.prefix_tokens()?.index_axis_move(Axis(0), self.index))
    }

    /// Returns `[prefix tokens + patches, D]`; see [`Outputs::hidden_layer`].
    pub fn hidden_layer(&self, block: usize) -> Option<ArrayView2<'a, f32>> {
        Some(
            self.outputs
                .hidden_layer(block)?
                .index_axis_move(Axis(0), self.index),
        )
    }

    /// Returns `[rows, columns, D]`; see [`Outputs::feature_map`].
    pub fn feature_map(&self) -> Option<Array3<f32>> {
        self.map(self.tokens()?)
    }

    /// Returns `[rows, columns, D]`; see [`Outputs::hidden_feature_map`].
    pub fn hidden_feature_map(&self, block: usize) -> Option<Array3<f32>> {
        let tokens = self.hidden_layer(block)?;
        self.map(tokens.slice_axis(Axis(0), Slice::from(self.outputs.prefix_tokens..)))
    }

    fn map(&self, patches: ArrayView2<'_, f32>) -> Option<Array3<f32>> {
        let map = self.outputs.map(patches.insert_axis(Axis(0)))?;
        Some(map.index_axis_move(Axis(0), 0))
    }

    /// Returns the statistics of each attention layer; see [`Outputs::attention_statistics`].
    pub fn attention_statistics(&self) -> Vec<AttentionStatistics> {
        let of_layer = |layer: &AttentionLayer| {
            let [log_sum_exp, max_probability, entropy] =
                [0, 1, 2].map(|i| layer.values.slice(s![self.index, .., .., i]).to_owned());
            AttentionStatistics {
                name: layer.name.clone(),
                keys: layer.keys,
                log_sum_exp,
                max_probability,
                entropy,
            }
        };
        self.outputs.attention_statistics.iter().map(of_layer).collect()
    }
}

/// Function that converts logits to probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Scores {
    /// Softmax: an image belongs to one class, and the probabilities sum to 1.
    Softmax,
    /// Sigmoid: an image may belong to several classes, and the probabilities are independent. Always used for a single logit.
    Sigmoid,
}

impl Scores {
    /// Returns the probabilities for one image's logits. They are computed in f64, with the maximum subtracted.
    pub fn probabilities(self, logits: ArrayView1<'_, f32>) -> Vec<f32> {
        match self {
            Self::Sigmoid => logits
                .iter()
                .map(|&x| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32)
                .collect(),
            Self::Softmax => {
                let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let exp: Vec<f64> = logits.iter().map(|&x| f64::from(x - max).exp()).collect();
                let sum: f64 = exp.iter().sum();
                exp.into_iter().map(|e| (e / sum) as f32).collect()
            }
        }
    }

    /// Returns the `k` most likely classes of one image, best first. Among equals, the lower index comes first.
    pub fn top(self, logits: ArrayView1<'_, f32>, k: usize, labels: &Labels) -> Vec<Prediction> {
        let probabilities = self.probabilities(logits);
        let best_first = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
        let mut order: Vec<usize> = (0..logits.len()).collect();
        // Select before sorting: sorting all classes would dominate the time after a run.
        if k < order.len() {
            order.select_nth_unstable_by(k, best_first);
            order.truncate(k);
        }
        order.sort_unstable_by(best_first);
        order
            .into_iter()
            .map(|index| Prediction {
                index,
                label: labels.get(index).to_string(),
                logit: logits[index],
                probability: probabilities[index],
            })
            .collect()
    }
}

/// A class and its probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// Index of the class.
    pub index: usize,
    /// Name of the class.
    pub label: String,
    /// Score before softmax or sigmoid.
    pub logit: f32,
    /// Probability: the score after softmax or sigmoid.
    pub probability: f32,
}

/// Scales a vector to a Euclidean norm of 1, like torch.nn.functional.normalize. A zero vector stays zero.
pub fn normalize<'a>(values: impl Into<ArrayViewMut1<'a, f32>>) {
    let mut values: ArrayViewMut1<'a, f32> = values.into();
    let norm = clamped_norm(values.iter().map(|&value| f64::from(value)));
    values.mapv_inplace(|value| (f64::from(value) / norm) as f32);
}

/// Returns the Euclidean norm, but at least 1e-12, to divide by.
pub(crate) fn clamped_norm(values: impl Iterator<Item = f64>) -> f64 {
    const MIN_NORM: f64 = 1e-12;
    let norm = values.map(|value| value * value).sum::<f64>().sqrt();
    // NaN stays NaN, as in PyTorch.
    if norm < MIN_NORM { MIN_NORM } else { norm }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn vectors_are_scaled_to_length_1_and_zeros_stay() {
        for (mut values, expected) in [([3.0_f32, 4.0], [0.6_f32, 0.8]), ([0.0, 0.0], [0.0, 0.0])] {
            normalize(&mut values[..]);
            assert_eq!(values, expected);
        }
        let mut values = [f32::NAN, 1.0];
        normalize(&mut values[..]);
        assert!(values.iter().all(|value| value.is_nan()));
    }

    #[test]
    fn softmax_survives_large_logits_and_sums_to_one() {
        let p = Scores::Softmax.probabilities(array![1000.0, 999.0, -1000.0].view());
        let e = std::f64::consts::E;
        assert!((f64::from(p[0]) - e / (e + 1.0)).abs() < 1e-7);
        assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn one_logit_gives_a_sigmoid() {
        for (x, expected) in [(0.0, 0.5), (2.0, 0.880_797), (-100.0, 0.0), (100.0, 1.0)] {
            let p = Scores::Sigmoid.probabilities(array![x].view());
            assert!((p[0] - expected).abs() < 1e-6, "{x}: {}", p[0]);
        }
    }

    fn outputs() -> Outputs {
        Outputs {
            labels: Labels::from_iter(["cat", "dog"]),
            scores: Scores::Softmax,
            prefix_tokens: 1,
            grid: None,
            embeddings: array![[1.0], [2.0]],
            logits: Some(array![[0.0, 3.0], [5.0, 1.0]]),
            tokens: Some(array![[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]),
            hidden_layers: vec![(3, array![[[7.0], [8.0], [9.0]], [[1.0], [2.0], [3.0]]])],
            attention_statistics: Vec::new(),
        }
    }

    #[test]
    fn an_image_has_its_row_of_everything() {
        let mut outputs = outputs();
        let image = outputs.image(1);
        assert_eq!(image.top(1)[0].label, "cat");
        assert_eq!(image.top(9).len(), 2);
        assert_eq!(image.embedding(), array![2.0]);
        assert_eq!(image.tokens().unwrap(), array![[5.0], [6.0]]);
        assert_eq!(image.prefix_tokens().unwrap(), array![[4.0]]);
        assert_eq!(image.hidden_layer(3).unwrap(), array![[1.0], [2.0], [3.0]]);
        assert!(image.hidden_layer(0).is_none());
        assert_eq!(
            outputs
                .iter()
                .map(|image| image.top(1)[0].index)
                .collect::<Vec<_>>(),
            [1, 0]
        );
        outputs.append(&outputs.clone()).unwrap();
        assert_eq!(outputs.len(), 4);
        assert_eq!(outputs.image(3).tokens().unwrap(), array![[5.0], [6.0]]);
        assert_eq!(
            outputs.image(2).hidden_layer(3).unwrap(),
            array![[7.0], [8.0], [9.0]]
        );
    }

    #[test]
    fn the_best_are_in_order_and_ties_go_to_the_lower_index() {
        let logits: ndarray::Array1<f32> = (0..101).map(|i| ((i * 37) % 20) as f32).collect();
        let labels = Labels::from_iter((0..101).map(|i| i.to_string()));
        let mut order: Vec<usize> = (0..101).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        for k in [0, 1, 5, 6, 7, 100, 101, 102] {
            let top = Scores::Softmax.top(logits.view(), k, &labels);
            let found: Vec<usize> = top.iter().map(|prediction| prediction.index).collect();
            assert_eq!(found, order[..k.min(101)], "{k}");
        }
    }

    #[test]
    fn results_that_are_no_numbers_are_found_by_image_and_name() {
        let mut outputs = outputs();
        assert!(outputs.iter().all(|image| image.non_finite().is_none()));
        outputs.hidden_layers[0].1[[1, 2, 0]] = f32::INFINITY;
        assert_eq!(outputs.image(0).non_finite(), None);
        let found = outputs.image(1).non_finite().unwrap();
        assert_eq!(found.to_string(), "`layers.3`: 1 of 3 values are NaN or infinite");
        outputs.logits.as_mut().unwrap()[[1, 0]] = f32::NAN;
        let found = outputs.image(1).non_finite().unwrap();
        assert_eq!(found.to_string(), "`logits`: 1 of 2 values are NaN or infinite");
        let json = serde_json::to_string(&outputs.image(1).top(2)).unwrap();
        assert!(json.contains("\"logit\":null"), "{json}");
    }

    #[test]
    #[should_panic(expected = "image 2 of outputs for 2 images")]
    fn an_image_that_is_not_there_panics_as_an_index_does() {
        outputs().image(2);
    }
}
