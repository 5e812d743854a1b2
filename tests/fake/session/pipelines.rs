//! Pipelines on a session: batches in flight, broken images, and little memory.

use hipvit::image::RgbImage;
use hipvit::pipeline::{Pipeline, Source};
use hipvit::timing::Timing;
use hipvit::{Error, ImageErrorKind, Session};

use crate::support::fake::session::session;
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, sources};

/// Returns the session's results of all images, in the batches of a pipeline.
fn alone(session: &Session, images: &[RgbImage]) -> Vec<Vec<f32>> {
    let batches = images.chunks(session.batch());
    let rows = batches.map(|batch| session.run(batch).unwrap());
    rows.flat_map(|outputs| {
        let logits = outputs.logits().unwrap().clone();
        logits
            .rows()
            .into_iter()
            .map(|row| row.to_vec())
            .collect::<Vec<_>>()
    })
    .collect()
}

fn piped(pipeline: &Pipeline, images: &[RgbImage]) -> (Vec<Vec<f32>>, Timing) {
    let mut rows = Vec::new();
    let mut results = pipeline.run(sources(images)).unwrap();
    for item in &mut results {
        let item = item.unwrap();
        assert_eq!(item.index(), rows.len(), "results come in order");
        assert_eq!(item.name(), item.index().to_string());
        rows.push(item.logits().unwrap().to_vec());
    }
    (rows, results.timing().clone())
}

#[test]
fn a_pipeline_overlaps_batches_within_its_bound_and_gives_the_same_bits() {
    let fake = Fake::new("pipeline");
    {
        let (session, images) = (session(&fake, 2), images(23));
        let expected = alone(&session, &images);
        for in_flight in [1, 2, 3] {
            let overlaps = fake.get(Slot::Overlaps);
            // The device computes only after the inputs of all batches in flight were submitted. A pipeline
            // that waited for an earlier result would have fewer in flight.
            fake.set(Slot::HoldLaunches, fake.get(Slot::Uploads) + in_flight as u64);
            let pipeline = Pipeline::new(&session).in_flight(in_flight).timed(true);
            let (rows, timing) = piped(&pipeline, &images);
            assert_eq!(rows, expected);
            assert_eq!(timing.most_in_flight(), in_flight);
            assert_eq!(fake.get(Slot::Overlaps) > overlaps, in_flight > 1);
            assert!(timing.wall() > std::time::Duration::ZERO);
        }
        let mallocs = fake.get(Slot::Mallocs);
        for _ in 0..3 {
            assert_eq!(piped(&Pipeline::new(&session), &images).0, expected);
        }
        assert_eq!(fake.get(Slot::Mallocs), mallocs, "no allocation on the hot path");
        // Pinned are the inputs in flight and three more, and each context's two outputs.
        assert!(fake.get(Slot::Pinned) <= 6 + 6, "{}", fake.get(Slot::Pinned));
        assert!(
            Pipeline::new(&session)
                .in_flight(0)
                .run(sources(&images))
                .is_err()
        );
    }
    fake.assert_clean();
}

#[test]
fn a_bad_image_costs_its_result_alone_and_a_caller_may_stop() {
    let fake = Fake::new("pipeline-errors");
    {
        let (session, images) = (session(&fake, 2), images(9));
        let mut sources = sources(&images);
        for index in [2, 3, 5] {
            sources[index] = Source::Bytes("broken".into(), b"no image"[..].into());
        }
        let mut failed = Vec::new();
        let mut rows = Vec::new();
        for item in Pipeline::new(&session).run(sources.clone()).unwrap() {
            match item {
                Ok(item) => rows.push(item.logits().unwrap().to_vec()),
                Err(error) => {
                    failed.push(error.index().unwrap());
                    assert!(error.to_string().starts_with("broken: not a PNG"), "{error}");
                    assert!(matches!(
                        error.error(),
                        Error::Image {
                            kind: ImageErrorKind::Unsupported,
                            ..
                        }
                    ));
                }
            }
        }
        assert_eq!(failed, [2, 3, 5]);
        let good: Vec<RgbImage> = [0, 1, 4, 6, 7, 8].map(|i: usize| images[i].clone()).to_vec();
        // In other batches the sums are the same here.
        assert_eq!(rows, alone(&session, &good));

        let results = Pipeline::new(&session).run(sources).unwrap();
        assert_eq!(results.take(4).count(), 4);
        session.run(&images).unwrap();
    }
    fake.assert_clean();
}

/// With memory for one context, a pipeline has one batch in flight.
#[test]
fn a_pipeline_makes_do_with_the_memory_there_is() {
    let fake = Fake::new("pipeline-memory");
    {
        let (session, images) = (session(&fake, 2), images(11));
        let expected = alone(&session, &images);
        fake.set(Slot::MemoryLimit, fake.get(Slot::DeviceBytes) + 1000);
        let (rows, timing) = piped(&Pipeline::new(&session), &images);
        assert_eq!(rows, expected);
        assert_eq!(timing.most_in_flight(), 1);
    }
    fake.assert_clean();
}
