//! Profile of the texts of images: of the start of texts, and of their tokens.

use std::time::Duration;

use hipvit::error::{Error, Result};
use hipvit::image::RgbImage;
use hipvit::timeline::{Activity, Recording, Timeline};
use hipvit_generate::{Event, GenerateOptions, Generator};

use super::{Breakdown, Profile, Tokens, calls, order_streams};
use crate::bench::DeviceInfo;

/// Loads a model with `load`, and makes a text of at most `tokens` tokens of each of a batch of images, twice. The second time is measured, up to the first
/// text that ends. Images are repeated to fill the batch. Nothing else should run in the process meanwhile.
///
/// # Errors
///
/// - Errors of `load` and of the steps.
/// - [`Error::Argument`] if there are no images.
pub fn profile_tokens(
    load: impl FnOnce() -> Result<Generator>,
    images: &[RgbImage],
    tokens: Option<usize>,
) -> Result<Profile> {
    if images.is_empty() {
        return Err(Error::argument("images", "there is nothing to run"));
    }
    let recording = Recording::start()?;
    let mut generator = load()?;
    let batch = generator.session().batch();
    let images: Vec<RgbImage> = images.iter().cycle().take(batch).cloned().collect();
    let options = vec![
        GenerateOptions {
            max_tokens: tokens,
            ..GenerateOptions::default()
        };
        batch
    ];
    generator.measure_steps(true);
    generator.start(&images, &options)?;
    steps_until_an_end(&mut generator)?;
    generator.cancel_all();
    let begin = recording.elapsed();
    generator.start(&images, &options)?;
    let encoded = recording.elapsed();
    let steps = steps_until_an_end(&mut generator)?;
    let end = recording.elapsed();
    let Timeline {
        mut slices,
        threads,
        streams,
    } = recording.finish();

    order_streams(&mut slices);
    let in_steps = slices.partition_point(|slice| slice.start < encoded);
    let mut timeline = Timeline {
        slices: slices.split_off(in_steps),
        threads,
        streams,
    };
    generator.cancel_all();
    generator.start(&images, &options)?;
    for _ in 0..steps / 2 {
        generator.step()?;
    }
    // The first call also prepares what only individual kernels need.
    generator.time_calls()?;
    let (plan, timed) = generator.time_calls()?;
    let stepwise = calls::lay(&mut timeline, &plan, &timed);
    let replayed = timeline
        .slices
        .iter()
        .filter(|slice| slice.activity == Activity::Replay);
    let replayed = replayed.count();
    let per_token = Breakdown::new(&timeline.slices, [Duration::ZERO, encoded, end], steps).per_batch;
    let breakdown = Breakdown::new(&slices, [Duration::ZERO, begin, encoded], 1);
    slices.append(&mut timeline.slices);
    timeline.slices = slices;
    let session = generator.session();
    Ok(Profile {
        model: session.name().to_owned(),
        device: session
            .executor()
            .gpu()
            .map_or_else(DeviceInfo::cpu, DeviceInfo::gpu),
        dtype: session.dtype().to_string(),
        batch,
        batches: 1,
        replayed,
        fallback: session.hip_graphs().and_then(|replays| replays.fallback),
        stepwise,
        breakdown,
        tokens: Some(Tokens {
            count: steps,
            per_token,
        }),
        timeline,
    })
}

/// Makes steps until a text ends. Returns their number.
fn steps_until_an_end(generator: &mut Generator) -> Result<usize> {
    let mut steps = 0;
    loop {
        let events = generator.step()?;
        steps += 1;
        for progress in events {
            match progress.event {
                Event::Token(_) => {}
                Event::Finished(_) => return Ok(steps),
                Event::Failed(error) => return Err(error),
            }
        }
    }
}
