//! SigLIP 2 with NaFlex: patches, grids and outputs equal those of transformers for images of several aspect
//! ratios in one batch. Padding and other images do not change results, and invalid input is refused.

use hipvit::model::InputKind;
use hipvit::pipeline::{Pipeline, Source};
use hipvit::{RunInput, RunOptions, Session, SessionBuilder};

use crate::support::naflex::{CASES, error, expected, folder, golden, load};

#[test]
fn patches_and_grids_are_the_processors() {
    for case in CASES {
        let golden = golden(case);
        let session = load(&Session::builder(), case);
        let rule = session.preprocess();
        let expected = expected(case, "pixel_values");
        let (patch, most) = (8, golden.max_num_patches);
        assert_eq!(rule.output_size(), (most * patch + 1, patch));
        for (index, (image, &[rows, columns])) in golden.images().iter().zip(&golden.grids).enumerate() {
            assert_eq!(rule.patch_grid(image.height, image.width), Some([rows, columns]));
            let packed = rule.apply(image).unwrap();
            let mut values = vec![0.0; packed.data.len()];
            rule.normalize(&packed.data, &mut values).unwrap();
            let area = packed.height * packed.width;
            for (number, row) in expected
                .rows()
                .into_iter()
                .skip(index * most)
                .take(most)
                .enumerate()
            {
                let own = number < rows * columns;
                for (at, &value) in row.iter().enumerate() {
                    let (pixel, channel) = (number * patch * patch + at / 3, at % 3);
                    if own {
                        assert!(
                            f64::from(values[channel * area + pixel]) == value,
                            "{case} {index} {at}"
                        );
                    } else {
                        assert_eq!((value, packed.data[pixel * 3 + channel]), (0.0, 0));
                    }
                }
            }
            let grid = [rows, columns]
                .map(|n| u16::try_from(n).unwrap().to_le_bytes())
                .concat();
            assert_eq!(packed.data[most * patch * patch * 3..][..4], grid);
        }
    }
}

#[test]
fn outputs_equal_the_librarys() {
    for case in CASES {
        let golden = golden(case);
        let session = load(&Session::builder().tokens(true).batch(4), case);
        let images = golden.images();
        let outputs = session.run(&images).unwrap();
        let main = error(
            golden.select(&outputs).view(),
            expected(case, &golden.output).view(),
        );
        assert!(main <= 1e-5, "{case}: {main:e}");
        println!("{case}: error {main:.1e}");
        assert_eq!(session.info().tokens, golden.max_num_patches);
        if case == "hf_siglip2_vision" {
            let expected = expected(case, "last_hidden_state");
            let tokens = outputs.tokens().unwrap();
            for (index, [rows, columns]) in golden.grids.iter().enumerate() {
                let own = rows * columns;
                let first = index * golden.max_num_patches;
                let got = tokens.index_axis(ndarray::Axis(0), index);
                let error = error(
                    got.slice(ndarray::s![..own, ..]),
                    expected.slice(ndarray::s![first..first + own, ..]),
                );
                assert!(error <= 1e-5, "tokens of image {index}: {error:e}");
            }
        }
        // Alone, and from files, an image gets what it gets among others.
        for (index, image) in images.iter().enumerate() {
            let alone = session.run([image]).unwrap();
            let batch = golden.select(&outputs).mapv(f64::from);
            let error = error(
                golden.select(&alone).view(),
                batch.slice(ndarray::s![index..=index, ..]),
            );
            assert!(error <= 1e-6, "{case}: alone, image {index} is {error:e} off");
        }
        let sources = golden.images.iter().map(|name| Source::File(folder().join(name)));
        let results = Pipeline::new(&session).run(sources.collect::<Vec<_>>()).unwrap();
        for (index, item) in results.enumerate() {
            let item = item.unwrap();
            let expected = outputs.embeddings().row(index);
            let differs = item
                .embedding()
                .iter()
                .zip(expected)
                .any(|(a, b)| (a - b).abs() > 1e-5);
            assert!(!differs, "{case}: image {index} of a pipeline");
        }
    }
}

#[test]
fn texts_classify_images_of_any_aspect_ratio() {
    let case = "hf_siglip2";
    let golden = golden(case);
    let session = load(&Session::builder(), case);
    let zero_shot = session.zero_shot(&golden.texts).unwrap();
    let outputs = zero_shot.classify(golden.images()).unwrap();
    let error = error(
        outputs.logits().unwrap().view(),
        expected(case, "logits_per_image").view(),
    );
    assert!(error <= 1e-5, "{error:e}");
}

#[test]
fn what_pads_an_image_does_not_matter_and_wrong_grids_are_cut() {
    for case in CASES {
        let golden = golden(case);
        let session = load(&Session::builder(), case);
        let images = golden.images();
        let size = session.preprocess().output_size().0 * 8 * 3;
        let pixels = session.preprocess().apply_batch(&images).unwrap();
        let run = |pixels: &[u8]| {
            let outputs = session.run_with(RunInput::Pixels(pixels), RunOptions::new());
            golden.select(&outputs.unwrap())
        };
        let before = run(&pixels);
        let mut noisy = pixels.clone();
        for (image, [rows, columns]) in noisy.chunks_exact_mut(size).zip(&golden.grids) {
            let (own, last) = (rows * columns * 8 * 8 * 3, golden.max_num_patches * 8 * 8 * 3);
            image[own..last]
                .iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = (i * 37) as u8);
            // The grid's row has more pixels than the grid takes.
            image[last + 4..].fill(0xa5);
        }
        assert_ne!(pixels, noisy);
        assert_eq!(before, run(&noisy), "{case}");
        // As many rows as there can be, and then no second column.
        let grid = golden.max_num_patches * 8 * 8 * 3;
        let mut whole = pixels[..size].to_vec();
        whole[grid..grid + 4].copy_from_slice(&[0xff, 0xff, 2, 0]);
        let cut = run(&whole);
        let rows = u16::try_from(golden.max_num_patches).unwrap().to_le_bytes();
        whole[grid..grid + 4].copy_from_slice(&[rows[0], rows[1], 1, 0]);
        assert_eq!(cut, run(&whole), "{case}");
        assert_ne!(cut, before.slice(ndarray::s![..1, ..]));
    }
}

#[test]
fn what_such_a_model_does_not_take_is_refused() {
    let path = folder().join("hf_siglip2_vision");
    let message = |builder: SessionBuilder| builder.load(&path).unwrap_err().to_string();
    let size = message(Session::builder().image_size([64, 64]));
    assert!(
        size.contains("any aspect ratio") && size.contains("max_num_patches"),
        "{size}"
    );
    let values = message(Session::builder().input(InputKind::PixelValues));
    assert!(values.contains("any aspect ratio"), "{values}");
    let explained = hipvit_explain::Explainer::load(&path).unwrap_err().to_string();
    assert!(explained.contains("any aspect ratio"), "{explained}");
}
