//! Small SAM models, with the masks of transformers: `scripts/golden_segment.py`.

use std::fs;
use std::path::PathBuf;

use hipvit::image::RgbImage;
use hipvit::ndarray::{ArrayD, ArrayViewD};
use hipvit::reference::model_tolerance;
use hipvit::segment::{Prompt, Segmenter};
use hipvit::{DType, Device, Session};
use serde::Deserialize;

use super::at;
use super::depth::Golden;

/// A model with its images.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) images: Vec<Image>,
}

#[derive(Deserialize)]
pub(crate) struct Image {
    pub(crate) image: String,
    pub(crate) prompts: Vec<Prompted>,
}

#[derive(Deserialize)]
pub(crate) struct Prompted {
    points: Vec<[f32; 2]>,
    labels: Vec<u8>,
    r#box: Option<[f32; 4]>,
}

impl Prompted {
    pub(crate) fn prompt(&self) -> Prompt {
        let points = self.points.iter().zip(&self.labels);
        let prompt = points.fold(Prompt::new(), |prompt, (&[x, y], &label)| {
            prompt.point(x, y, label == 1)
        });
        match self.r#box {
            Some(corners) => prompt.within(corners),
            None => prompt,
        }
    }
}

impl Image {
    pub(crate) fn decoded(&self) -> RgbImage {
        super::depth::image(&self.image)
    }

    pub(crate) fn prompts(&self) -> Vec<Prompt> {
        self.prompts.iter().map(Prompted::prompt).collect()
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let file = fs::read(at("tests/golden/segment/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&file).unwrap();
    assert!(cases.len() > 1);
    cases
}

impl Case {
    pub(crate) fn path(&self) -> PathBuf {
        at("tests/golden/segment").join(&self.name)
    }

    pub(crate) fn golden(&self) -> Golden {
        Golden::read(&self.path().join("golden.safetensors"))
    }

    /// Checks embeddings, masks and scores of all images and prompts against those of transformers in double precision.
    pub(crate) fn check(&self, device: Device, dtype: DType) {
        let builder = Session::builder().device(device).dtype(dtype).batch(3);
        let segmenter = Segmenter::load(self.path(), &builder).unwrap();
        assert_eq!(segmenter.session().device(), device);
        let golden = self.golden();
        let nodes = segmenter.session().graph().nodes().len();
        // The decoder has about as many steps as the encoder of a small model, and the heads of the masks.
        let bound = model_tolerance(dtype, 2 * nodes);
        for image in &self.images {
            let name = &image.image;
            let embedding = segmenter.encode(&image.decoded()).unwrap();
            // transformers has the channels first.
            let expected = golden.tensor(&format!("{name}.image_embeddings"));
            let patches = embedding.values().dim().0;
            let channels = expected.shape()[0];
            let expected = expected.to_shape((channels, patches)).unwrap();
            let expected = expected.t().into_dyn();
            self.within(
                &format!("{name} embedding"),
                embedding.values().into_dyn(),
                expected,
                (dtype, bound),
            );
            let found = segmenter.segment(&embedding, &image.prompts()).unwrap();
            assert_eq!(found.len(), image.prompts.len());
            for (index, found) in found.iter().enumerate() {
                let expected = |part: &str| golden.tensor(&format!("{name}.{index}.{part}"));
                let logits = found.logits().view().into_dyn();
                let what = format!("{name} {index}");
                self.within(
                    &format!("{what} masks"),
                    logits,
                    expected("pred_masks").view(),
                    (dtype, bound),
                );
                let scores = ArrayD::from_shape_vec(vec![found.scores().len()], found.scores().to_vec());
                let scores = scores.unwrap();
                let expected = expected("iou_scores");
                self.within(
                    &format!("{what} scores"),
                    scores.view(),
                    expected.view(),
                    (dtype, bound),
                );
            }
            if golden.has(&format!("{name}.logits")) {
                let expected = golden.tensor(&format!("{name}.logits"));
                let logits = found.last().unwrap().logits_of(0).unwrap().into_dyn();
                self.within(
                    &format!("{name} logits"),
                    logits.view(),
                    expected.view(),
                    (dtype, bound),
                );
                let masks = found.last().unwrap().masks();
                let wrong = masks[0].pixels.iter().zip(&expected);
                // Only where the logit is nearly 0.
                let largest = largest(expected.view());
                let wrong = wrong.filter(|&(&pixel, &logit)| pixel != (logit > 0.0));
                for (_, logit) in wrong {
                    assert!(logit.abs() <= bound * largest, "{} {name}: {logit}", self.name);
                }
            }
        }
    }

    /// Checks the largest difference, as a part of the largest expected value.
    fn within(
        &self,
        what: &str,
        found: ArrayViewD<'_, f32>,
        expected: ArrayViewD<'_, f64>,
        (dtype, bound): (DType, f64),
    ) {
        assert_eq!(found.shape(), expected.shape(), "{} {what}", self.name);
        let differences = found
            .iter()
            .zip(expected.iter())
            .map(|(&found, expected)| (f64::from(found) - expected).abs());
        // NaN must not count as a small error.
        let error = differences.fold(0.0, |most, error| if error <= most { most } else { error });
        let error = error / largest(expected);
        println!("{} {what} {dtype}: {error:.1e}, allowed {bound:.1e}", self.name);
        assert!(
            error <= bound,
            "{} {what} in {dtype}: {error:.2e}, more than {bound:.2e}",
            self.name
        );
    }
}

fn largest(values: ArrayViewD<'_, f64>) -> f64 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}
