//! Parts of images, and the texts of transformers for them: `scripts/golden_crops.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hipvit::image::{Limits, RgbImage, decode};
use hipvit::{Device, Session};
use hipvit_generate::{GenerateOptions, Generator};
use serde::Deserialize;

use super::at;
use super::generation::LENGTH;

/// The crops of a directory of models.
#[derive(Deserialize)]
pub(crate) struct Crops {
    crops: Vec<Crop>,
    /// The texts of each model.
    models: BTreeMap<String, Vec<Texts>>,
}

#[derive(Deserialize)]
struct Crop {
    image: String,
    /// Left, top, right and bottom.
    r#box: [usize; 4],
}

#[derive(Deserialize)]
struct Texts {
    /// The greedy text.
    tokens: Vec<u32>,
    /// The first token whose logit is nearly that of another one.
    close: Option<usize>,
    /// The text by three beams.
    beams: Vec<u32>,
}

impl Crop {
    fn image(&self) -> RgbImage {
        let file = fs::read(at("tests/golden/images").join(&self.image)).unwrap();
        let image = decode(&self.image, &file, Limits::default()).unwrap();
        let [left, top, right, bottom] = self.r#box;
        let rows = image.data.chunks_exact(3 * image.width);
        let parts = rows.take(bottom).skip(top).map(|row| &row[3 * left..3 * right]);
        RgbImage {
            width: right - left,
            height: bottom - top,
            data: parts.flatten().copied().collect(),
        }
    }
}

/// Checks the texts of all crops by the models below `directory`, whose prompts `prompt` returns. Returns the number of models, and of greedy texts that were
/// compared only up to a token that nearly is another one.
pub(crate) fn check(directory: &str, prompt: impl Fn(&str) -> Option<String>) -> (usize, usize) {
    let directory = at("tests/golden").join(directory);
    let file = fs::read(directory.join("crops.json")).unwrap();
    let crops: Crops = serde_json::from_slice(&file).unwrap();
    assert_eq!(crops.crops.len(), 30);
    let images: Vec<RgbImage> = crops.crops.iter().map(Crop::image).collect();
    let mut close = 0;
    for (name, expected) in &crops.models {
        let greedy = texts(&directory.join(name), &images, prompt(name), 1);
        let beams = texts(&directory.join(name), &images, prompt(name), 3);
        assert_eq!((greedy.len(), beams.len()), (expected.len(), expected.len()));
        for (crop, expected) in expected.iter().enumerate() {
            let same = expected.close.unwrap_or(expected.tokens.len());
            close += usize::from(expected.close.is_some());
            let compared = |tokens: &[u32]| tokens[..same.min(tokens.len())].to_vec();
            assert_eq!(
                compared(&greedy[crop]),
                compared(&expected.tokens),
                "{name}, crop {crop}"
            );
            assert!(expected.close.is_some() || greedy[crop].len() == expected.tokens.len());
            assert_eq!(beams[crop], expected.beams, "{name}, crop {crop}, three beams");
        }
    }
    (crops.models.len(), close)
}

fn texts(model: &Path, images: &[RgbImage], prompt: Option<String>, beams: usize) -> Vec<Vec<u32>> {
    let options = GenerateOptions {
        max_tokens: Some(LENGTH),
        prompt,
        beams: Some(beams),
        ..GenerateOptions::default()
    };
    let builder = Session::builder().device(Device::Cpu).batch(8);
    let mut generator = Generator::load(model, &builder, &options).unwrap();
    let texts = generator.generate(images, &options, &mut |_, _| {});
    texts.unwrap().into_iter().map(|text| text.tokens).collect()
}
