//! Packed images of any aspect ratio: outputs equal those of timm and transformers, whatever the length of the sequences and
//! the order of the images.

use std::fs;

use hipvit::model::InputKind;
use hipvit::pipeline::{Pipeline, Source};
use hipvit::{ResizeOn, Session, SessionBuilder};

use crate::support::at;
use crate::support::naflex::{self, error};
use crate::support::packed::goldens;

/// Largest difference from the outputs in double precision, relative to the largest: 80 roundings to f32 of two layers.
const BOUND: f64 = 1e-5;

/// Returns lengths of sequences that hold one, two or all images of a batch.
fn lengths(largest: usize) -> [usize; 3] {
    [largest, 2 * largest + 3, 6 * largest]
}

#[test]
fn outputs_equal_timms_in_any_order() {
    let goldens = goldens();
    let mut images = goldens.images();
    for golden in &goldens.cases {
        let expected = golden.tensor("output");
        for patches in lengths(golden.max_num_patches) {
            let name = format!("{}, {patches} patches", golden.name);
            // The six images are two batches.
            let session = golden.load(&Session::builder().packed(patches).batch(4));
            let outputs = golden.select(&session.run(&images).unwrap());
            let worst = error(outputs.view(), expected.view());
            assert!(worst <= BOUND, "{name}: {worst:e}");
            images.reverse();
            let reversed = golden.select(&session.run(&images).unwrap());
            images.reverse();
            let worst = error(reversed.slice(ndarray::s![..;-1, ..]), expected.view());
            assert!(worst <= BOUND, "{name}, reversed: {worst:e}");
        }
    }
}

#[test]
fn outputs_equal_those_of_transformers() {
    for case in naflex::CASES {
        let golden = naflex::golden(case);
        let images = golden.images();
        for patches in lengths(golden.max_num_patches) {
            let builder = Session::builder().packed(patches).batch(6);
            let session = naflex::load(&builder, case);
            let outputs = golden.select(&session.run(&images).unwrap());
            let expected = naflex::expected(case, &golden.output);
            let worst = error(outputs.view(), expected.view());
            assert!(worst <= BOUND, "{case}, {patches} patches: {worst:e}");
        }
    }
}

#[test]
fn patches_are_those_of_timms_transform() {
    let goldens = goldens();
    let golden = &goldens.cases[0];
    let session = golden.load(&Session::builder().packed(64));
    let (rule, most) = (session.preprocess(), golden.max_num_patches);
    let expected = golden.tensor("patches");
    let mut rows = expected.rows().into_iter();
    for (image, &grid) in goldens.images().iter().zip(&golden.grids) {
        assert_eq!(rule.patch_grid(image.height, image.width), Some(grid));
        let (values, read) = rule.normalize_patches(&rule.apply(image).unwrap().data).unwrap();
        assert_eq!(read, grid);
        let patch = values.len() / most;
        for values in values.chunks_exact(patch) {
            let row = rows.next().unwrap();
            assert!(values.iter().zip(row).all(|(&got, &want)| f64::from(got) == want));
        }
    }
}

#[test]
fn files_and_texts_of_packed_images() {
    let case = "hf_siglip2";
    let golden = naflex::golden(case);
    let session = naflex::load(&Session::builder().packed(30).batch(4), case);
    let expected = naflex::expected(case, &golden.output);
    let mut sources: Vec<_> = golden
        .images
        .iter()
        .map(|name| Source::File(naflex::folder().join(name)))
        .collect();
    // Images after one that fails keep their results.
    sources.insert(1, Source::File(naflex::folder().join("missing.png")));
    let mut items: Vec<_> = Pipeline::new(&session).run(sources).unwrap().collect();
    assert!(items.remove(1).is_err());
    for (item, expected) in items.into_iter().zip(expected.rows()) {
        let embedding = item.unwrap().embedding().insert_axis(ndarray::Axis(0)).to_owned();
        let worst = error(embedding.view(), expected.insert_axis(ndarray::Axis(0)));
        assert!(worst <= BOUND, "{worst:e}");
    }
    let zero_shot = session.zero_shot(&golden.texts).unwrap();
    let outputs = zero_shot.classify(golden.images()).unwrap();
    let logits = naflex::expected(case, "logits_per_image");
    let worst = error(outputs.logits().unwrap().view(), logits.view());
    assert!(worst <= BOUND, "{worst:e}");
}

#[test]
fn what_cannot_be_packed_is_refused_by_name() {
    let goldens = goldens();
    let naflex = at("tests/golden").join(&goldens.cases[0].name);
    let message = |builder: SessionBuilder| builder.load(&naflex).unwrap_err().to_string();
    let packed = || Session::builder().packed(64);
    for (builder, reason) in [
        (
            Session::builder().packed(19),
            "sequences of 19 patches are too short for an image, which may have 20 patches",
        ),
        (
            packed().tokens(true),
            "tokens and hidden layers of packed images are not returned",
        ),
        (packed().reproducible(true), "results are not reproducible"),
        (
            packed().attention_statistics(true),
            "statistics of attention are not returned",
        ),
        (packed().input(InputKind::PixelValues), "not as pixel values"),
        (packed().resize(ResizeOn::Device), "resize"),
    ] {
        let message = message(builder);
        assert!(message.contains(reason), "{message}");
    }
    let plain = packed().tinyvit32().unwrap_err().to_string();
    assert!(
        plain.starts_with("packed: tinyvit32: its library runs it on images of one size."),
        "{plain}"
    );
    let config = fs::read_to_string(naflex.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["model_args"]["pos_embed_use_grid_sample"] = true.into();
    let weights = fs::read(naflex.join("model.safetensors")).unwrap();
    let sampled = |builder: SessionBuilder| builder.from_bytes(config.to_string(), weights.clone(), None);
    assert!(sampled(Session::builder()).is_ok());
    let error = sampled(packed()).unwrap_err().to_string();
    assert!(error.contains("`pos_embed_use_grid_sample` is true"), "{error}");
}
