//! Measurements on an installed device: the current configuration, and each suggestion that can be tried.

use std::time::{Duration, Instant};

use super::advice::Advice;
use super::options::Options;
use super::suggest::{Trial, photograph};
use crate::bench::{Bench, Row, Settings, Spec};
use hipvit::error::{Error, Result};
use hipvit::exec::GraphMode;
use hipvit::hip::Runtime;
use hipvit::run_config::{ExecutionConfig, ImageSize};
use hipvit::session::{Device, ResizeOn, Session};

/// Measurement time of a row, including its steps.
const ROW_TIME: Duration = Duration::from_millis(500);

/// Measures on the device what [`advise`](super::advise) predicted, and adds the results to the advice.
/// Suggestions that cannot be tried are not measured.
///
/// # Errors
///
/// - [`Error::Argument`](hipvit::Error::Argument) if the advice is for a device by its datasheet.
/// - The error of the row if the model does not run in its configuration.
pub fn measure(advice: &mut Advice) -> Result<()> {
    let options = advice.options.clone();
    if let Some(gpu) = &options.gpu {
        let reason = format!("a prediction for {gpu} by its datasheet cannot be measured on another device");
        return Err(Error::argument("gpu", reason));
    }
    let trials: Vec<(usize, Spec)> = advice
        .suggestions
        .iter()
        .enumerate()
        .filter_map(|(index, suggestion)| Some((index, spec_of(&options, suggestion.trial.as_ref()?)?)))
        .collect();
    let mut specs = vec![spec(&options)];
    specs.extend(trials.iter().map(|(_, spec)| spec.clone()));
    let settings = Settings {
        time: ROW_TIME,
        power: Duration::ZERO,
        steps: true,
        peaks: false,
        ..Settings::default()
    };
    let rows = Bench::new(settings).run(&specs, &mut |_| ());
    let rate = |row: &Row| Some(row.end_to_end.as_ref()?.images_per_s);
    let Some((first, tried)) = rows.split_first() else {
        return Ok(());
    };
    let Some(now) = rate(first) else {
        let reason = first.error.clone().unwrap_or_default();
        return Err(Error::argument("measure", reason));
    };
    advice.measured_images_per_second = Some(now);
    for step in &mut advice.prediction.steps {
        let timed = first.steps.iter().flatten().find(|timed| timed.name == step.name);
        step.measured_seconds = timed.map(|timed| timed.ms / 1e3);
    }
    for (&(index, _), row) in trials.iter().zip(tried) {
        let suggestion = &mut advice.suggestions[index];
        suggestion.measured_images_per_second = rate(row);
        suggestion.measured_gain = rate(row).map(|rate| rate / now);
    }
    for suggestion in &mut advice.suggestions {
        if let Some(Trial::ResizeOnDevice) = suggestion.trial {
            let [host, device] = [ResizeOn::Host, ResizeOn::Device].map(|on| resizing(&options, on));
            let (host, device) = (host?, device?);
            suggestion.measured_images_per_second = Some(device);
            suggestion.measured_gain = Some(device / host);
        }
    }
    Ok(())
}

fn spec(options: &Options) -> Spec {
    let configuration = options.configuration;
    Spec {
        model: options.model.clone(),
        batch: options.batch.max(1),
        dtype: configuration.dtype,
        device: options.device,
        execution: ExecutionConfig {
            threads: options.threads,
            image_size: options.image_size.map(ImageSize),
            hip_graphs: if configuration.hip_graphs {
                GraphMode::Auto
            } else {
                GraphMode::Off
            },
            ..ExecutionConfig::default()
        },
        optimizations: configuration.optimizations,
        ..Spec::default()
    }
}

/// Returns the row that tries a suggestion. `None` if a row cannot try it.
fn spec_of(options: &Options, trial: &Trial) -> Option<Spec> {
    match trial {
        Trial::Configuration(configuration, batch) => Some(spec(&Options {
            configuration: *configuration,
            batch: *batch,
            ..options.clone()
        })),
        Trial::Gpus(count) => {
            let there = Runtime::open().and_then(|runtime| runtime.device_count()).ok()?;
            (there >= *count).then(|| Spec {
                device: Device::Hip(0),
                gpus: (0..*count).collect(),
                ..spec(options)
            })
        }
        Trial::ResizeOnDevice => None,
    }
}

/// Measures photographs per second, resized on `on` and classified.
fn resizing(options: &Options, on: ResizeOn) -> Result<f64> {
    let batch = options.batch.max(1);
    let mut builder = Session::builder()
        .device(options.device)
        .dtype(options.configuration.dtype)
        .batch(batch)
        .resize(on);
    if let Some(size) = options.image_size {
        builder = builder.image_size(size);
    }
    let session = match &options.model {
        Some(path) => builder.load(path)?,
        None => builder.tinyvit32()?,
    };
    let images = vec![photograph()?; batch];
    // The second run captures a graph.
    session.run(&images)?;
    session.run(&images)?;
    let start = Instant::now();
    let mut runs = 0;
    while runs < 2 || start.elapsed() < ROW_TIME {
        session.run(&images)?;
        runs += 1;
    }
    Ok(f64::from(runs) * batch as f64 / start.elapsed().as_secs_f64())
}
