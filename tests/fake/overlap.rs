//! Inputs on their way to the device: pieces of pageable memory, the caller's pinned memory, batches in
//! flight.

use hipvit::image::RgbImage;
use hipvit::model::InputKind;
use hipvit::pipeline::{Pipeline, Source};
use hipvit::{Error, GraphMode, ImageErrorKind, Outputs, RunInput, RunOptions, Session};

use crate::support::fake::session::{builder, model, session};
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, same};

/// The bytes of an image of the model's size.
fn image_bytes(session: &Session) -> usize {
    let (height, width) = session.preprocess().output_size();
    height * width * 3
}

fn pixels(session: &Session, images: usize) -> Vec<u8> {
    let random = std::iter::successors(Some(1u32), |x| Some(x * 48_271 % 65_521));
    random
        .take(images * image_bytes(session))
        .map(|x| x as u8)
        .collect()
}

fn run(session: &Session, pixels: &[u8]) -> Outputs {
    session
        .run_with(RunInput::Pixels(pixels), RunOptions::new())
        .unwrap()
}

/// Returns the row of each image in order.
fn rows(outputs: &Outputs) -> Vec<Vec<f32>> {
    let logits = outputs.logits().unwrap();
    logits.rows().into_iter().map(|row| row.to_vec()).collect()
}

#[test]
fn an_input_of_any_number_of_pieces_gives_the_same_bits() {
    const PIECE: usize = 1 << 20;
    let fake = Fake::new("pieces");
    {
        let small = session(&fake, 50);
        let whole_piece = PIECE.div_ceil(image_bytes(&small));
        let most = 3 * whole_piece - 5;
        let pixels = pixels(&small, most);
        let expected = rows(&run(&small, &pixels));
        let session = session(&fake, most);
        for images in [1, whole_piece - 1, whole_piece, whole_piece + 1, most] {
            let uploads = fake.get(Slot::Uploads);
            let bytes = images * image_bytes(&session);
            assert_eq!(
                rows(&run(&session, &pixels[..bytes])),
                expected[..images],
                "{images}"
            );
            let uploads = fake.get(Slot::Uploads) - uploads;
            assert_eq!(uploads, bytes.div_ceil(PIECE) as u64, "{images}");
        }
        let (mallocs, pinned) = (fake.get(Slot::Mallocs), fake.get(Slot::Pinned));
        for _ in 0..3 {
            assert_eq!(rows(&run(&session, &pixels)), expected);
        }
        assert_eq!(fake.get(Slot::Mallocs), mallocs);
        // How many pieces are in use at once depends on the threads; never more than the input has.
        assert!(fake.get(Slot::Pinned) <= pinned + 3, "{}", fake.get(Slot::Pinned));
    }
    fake.assert_clean();
}

/// A failed copy of a piece fails its run.
#[test]
fn a_piece_that_fails_is_an_error_and_the_session_goes_on() {
    let fake = Fake::new("pieces-faults");
    {
        let session = session(&fake, 500);
        let pixels = pixels(&session, 500);
        let expected = run(&session, &pixels);
        for nth in 1..=4 {
            fake.set(Slot::FailCopy, nth);
            let result = session.run_with(RunInput::Pixels(&pixels), RunOptions::new());
            let text = result.unwrap_err().to_string();
            assert!(text.contains("hipErrorLaunchFailure"), "{text}");
            fake.set(Slot::FailCopy, 0);
            same(&run(&session, &pixels), &expected);
        }
    }
    fake.assert_clean();
}

#[test]
fn a_batch_is_submitted_before_the_results_of_the_last_are_waited_for() {
    let fake = Fake::new("two-batches");
    {
        // A capture waits for its run.
        let builder = builder(&fake).batch(2).hip_graphs(GraphMode::Off);
        let (session, images) = (builder.load(model()).unwrap(), images(7));
        let mut expected = Vec::new();
        for batch in images.chunks(2) {
            expected.extend(rows(&session.run(batch).unwrap()));
        }
        let pixels = session.preprocess().apply_batch(&images).unwrap();
        for run in 0..2 {
            let overlaps = fake.get(Slot::Overlaps);
            // The first batch computes only when the second batch's input was submitted.
            fake.set(Slot::HoldLaunches, fake.get(Slot::Uploads) + 2);
            let outputs = match run {
                0 => session.run(&images).unwrap(),
                _ => self::run(&session, &pixels),
            };
            assert_eq!(rows(&outputs), expected);
            assert!(fake.get(Slot::Overlaps) > overlaps, "nothing overlapped");
        }
        let mallocs = fake.get(Slot::Mallocs);
        for _ in 0..3 {
            assert_eq!(rows(&session.run(&images).unwrap()), expected);
        }
        assert_eq!(fake.get(Slot::Mallocs), mallocs, "no allocation on the hot path");
    }
    fake.assert_clean();
}

/// Memory suffices for only one batch.
#[test]
fn batches_follow_each_other_where_memory_is_short() {
    let fake = Fake::new("one-batch");
    {
        let (session, images) = (session(&fake, 2), images(7));
        let first = rows(&session.run(&images[..2]).unwrap());
        fake.set(Slot::MemoryLimit, fake.get(Slot::DeviceBytes) + 1000);
        let outputs = session.run(&images).unwrap();
        assert_eq!(outputs.len(), 7);
        assert_eq!(rows(&outputs)[..2], first);
    }
    fake.assert_clean();
}

#[test]
fn pinned_input_is_run_without_a_copy_and_used_again() {
    let fake = Fake::new("pinned-input");
    {
        let session = session(&fake, 4);
        let pixels = pixels(&session, 6);
        let each = image_bytes(&session);
        let mut input = session.pinned_input(3).unwrap();
        assert_eq!((input.images(), input.len()), (3, 3 * each));
        assert!(input.iter().all(|&byte| byte == 0));
        for _ in 0..3 {
            for pixels in pixels.chunks(3 * each) {
                input.copy_from_slice(pixels);
                let outputs = session.run_pinned(&mut input, RunOptions::new()).unwrap();
                same(&outputs, &run(&session, pixels));
                assert_eq!(&input[..], pixels, "it keeps its contents");
            }
        }
        for images in [0, 5] {
            let error = session.pinned_input(images).unwrap_err().to_string();
            assert!(error.contains("from 1 to 4 images"), "{error}");
        }
        let values = builder(&fake)
            .input(InputKind::PixelValues)
            .load(model())
            .unwrap();
        values.pinned_input(1).unwrap_err();
        values.run_pinned(&mut input, RunOptions::new()).unwrap_err();
        let larger = builder(&fake).image_size([64, 64]).load(model()).unwrap();
        larger.run_pinned(&mut input, RunOptions::new()).unwrap_err();
        session.run_pinned(&mut input, RunOptions::new()).unwrap();

        fake.set(Slot::FailCopy, 1);
        session.run_pinned(&mut input, RunOptions::new()).unwrap_err();
        let error = session.run_pinned(&mut input, RunOptions::new()).unwrap_err();
        assert!(error.to_string().contains("make another"), "{error}");
        assert!(input.is_empty());
    }
    fake.assert_clean();
}

#[test]
fn pixels_of_the_models_size_go_through_a_pipeline_as_they_are() {
    let fake = Fake::new("pipeline-pixels");
    {
        let session = session(&fake, 3);
        let pixels = pixels(&session, 8);
        let each = image_bytes(&session);
        let expected = rows(&run(&session, &pixels));
        let mut sources: Vec<Source> = pixels
            .chunks(each)
            .map(|image| Source::Pixels("pixels".into(), image.to_vec().into()))
            .collect();
        sources.insert(1, Source::Pixels("short".into(), pixels[1..each].to_vec().into()));
        let image = RgbImage::new(1, 1, vec![0; 3]).unwrap();
        sources.push(Source::Decoded("image".into(), image));
        let mut results = Pipeline::new(&session).run(sources).unwrap();
        let mut got = Vec::new();
        for (index, item) in results.by_ref().enumerate() {
            match item {
                Ok(item) => got.push(item.logits().unwrap().to_vec()),
                Err(error) => {
                    assert_eq!(index, 1);
                    let size = ImageErrorKind::Size;
                    assert!(
                        matches!(error.error(), Error::Image { kind, .. } if *kind == size),
                        "{error}"
                    );
                }
            }
        }
        assert_eq!((got.len(), &got[..8]), (9, &expected[..]));
    }
    fake.assert_clean();
}
