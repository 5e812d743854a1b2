//! Time from image files to labels: breakdown as text and JSON, and the timeline as a file.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use hipvit::image::RgbImage;
use hipvit::pipeline::Source;
use hipvit::{GraphMode, digits};
use hipvit_diagnostics::profile::{self, Profile, Run, Tokens, Window};
use hipvit_diagnostics::table::{Column, Table, paragraph};
use hipvit_generate::{GenerateOptions, Generator};

use super::Args;
use crate::escape::lines;
use crate::format::Format;
use crate::model_args::{ModelArgs, warn_fallback};
use crate::outcome::{Outcome, Usage};
use crate::output::Sink;
use crate::{inputs, record};

impl Args {
    pub(super) fn show_timeline(&self) -> Result<Outcome> {
        let file = self.output.file().map(TraceFile::open).transpose()?;
        let (format, mut sink) = self.output.open_printed();
        let (model, images, failed) = self.model_and_images()?;
        let mut builder = model.builder();
        // With timed steps, `auto` would not replay graphs.
        if model.config.execution.hip_graphs == GraphMode::Auto {
            builder = builder.hip_graphs(GraphMode::On);
        }
        let run = Run {
            images,
            decode: self.inputs.decode.options(),
            batches: self.timeline.runs,
            warm_up: self.timeline.warm_up,
            in_flight: self.timeline.in_flight,
            top: 5,
        };
        let profile = match &model.model {
            Some(path) if hipvit_generate::makes_texts(path) => {
                let images: hipvit::Result<Vec<RgbImage>> = run
                    .images
                    .into_iter()
                    .take(model.config.batch)
                    .map(|image| image.decode(run.decode))
                    .collect();
                let tokens = self.timeline.max_tokens;
                let options = GenerateOptions {
                    max_tokens: tokens,
                    ..GenerateOptions::default()
                };
                let load = || Generator::load(path, &builder, &options);
                profile::profile_tokens(load, &images?, tokens)?
            }
            _ => profile::profile(|| model.load_with(builder), &run)?,
        };
        if let Some(file) = file {
            file.write(&profile)?;
        }
        match format {
            Format::Json => record::write(&mut sink, &profile)?,
            _ => sink.write_all(lines(&self.breakdown(&profile)).as_bytes())?,
        }
        sink.finish()?;
        warn_fallback(profile.fallback.as_deref());
        Ok(Outcome::of(failed))
    }

    /// Returns the model, the images, and the number of paths that could not be listed.
    fn model_and_images(&self) -> Result<(ModelArgs, Vec<Source>, usize)> {
        let mut model = self.run.model.clone();
        let mut first = None;
        if let Some(path) = &self.positional {
            let is_image = |path: &Path| path == Path::new("-") || inputs::is_image(path);
            if model.model.is_some() || is_image(path) {
                first = Some(path);
            } else {
                model.model = Some(path.clone());
            }
        }
        if first.is_none() && self.inputs.is_empty() {
            if model.model.is_some() {
                return Err(Usage(
                    "an image is required: the bundled samples only work with the embedded model",
                )
                .into());
            }
            return Ok((model, digits::samples().collect(), 0));
        }
        let (images, failed) = self.inputs.list_after(first)?.into_sources();
        if images.iter().any(|image| matches!(image, Source::Stdin)) {
            return Err(Usage(
                "-: images are read several times, but standard input can be read only once: name files",
            )
            .into());
        }
        Ok((model, images, failed))
    }

    fn breakdown(&self, profile: &Profile) -> String {
        let Profile {
            model,
            device,
            dtype,
            batch,
            batches,
            replayed,
            stepwise,
            breakdown,
            tokens,
            ..
        } = profile;
        let width = self.output.width();
        let mut text = format!("{model}, batch {batch}, {dtype}, {}\n", device.name);
        text += &format!("\nStart-up\n{}\n", table(&breakdown.start_up, width));
        let title = match tokens {
            Some(_) => format!("Start of {batch} texts"),
            None => format!("Each of {batches} batches"),
        };
        text += &format!("\n{title}\n{}\n", table(&breakdown.per_batch, width));
        if let Some(Tokens { count, per_token }) = tokens {
            text += &format!("\nEach of {count} tokens\n{}\n", table(per_token, width));
        }
        if let Some(stepwise) = stepwise {
            let all = tokens.as_ref().map_or_else(
                || format!("{batches} batches"),
                |tokens| format!("{} tokens", tokens.count),
            );
            let calls = format!(
                "{replayed} of {all} were replays of a captured graph. Its {} kernels and library calls take {:.3} ms \
                 when launched one by one.",
                stepwise.calls, stepwise.total_ms
            );
            let scaled = stepwise.replay_scale.map_or_else(String::new, |scale| {
                format!(
                    " Times within a replay are estimates: these times scaled by {scale:.2} to add up to the replay's time."
                )
            });
            text += &format!("\n{}", paragraph(&(calls + &scaled), "", width));
        }
        text
    }
}

/// Returns a table of a window's parts. Parts without time are left out.
fn table(window: &Window, width: Option<usize>) -> String {
    let mut table = Table::new([
        Column::left(""),
        Column::right("elapsed ms"),
        Column::right("share"),
        Column::right("busy ms").rank(1),
    ]);
    let share = |ms: f64| format!("{:.1} %", 100.0 * ms / window.total_ms.max(f64::MIN_POSITIVE));
    for part in window.parts.iter().filter(|part| part.busy_ms > 0.0) {
        table.row([
            part.name.clone(),
            format!("{:.3}", part.elapsed_ms),
            share(part.elapsed_ms),
            format!("{:.3}", part.busy_ms),
        ]);
    }
    let unattributed = window.unattributed_ms;
    table.row([
        "other/unattributed".to_owned(),
        format!("{unattributed:.3}"),
        share(unattributed),
    ]);
    table.row([
        "total".to_owned(),
        format!("{:.3}", window.total_ms),
        share(window.total_ms),
    ]);
    table.text(width)
}

/// File of a timeline.
struct TraceFile {
    sink: Sink,
    compressed: bool,
}

impl TraceFile {
    /// Opens the file, so that an unwritable file fails before the work.
    fn open(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let compressed = name.ends_with(".json.gz");
        if !compressed && !name.ends_with(".json") {
            let path = PathBuf::from(path);
            let text = format!(
                "--output {}: a timeline needs the extension .json or .json.gz",
                path.display()
            );
            return Err(Usage(text).into());
        }
        let sink = Sink::file(path)?;
        Ok(Self { sink, compressed })
    }

    fn write(self, profile: &Profile) -> Result<()> {
        let sink = if !self.compressed {
            let mut sink = self.sink;
            profile::write_trace(profile, &mut sink)?;
            sink
        } else {
            let mut encoder = GzEncoder::new(self.sink, Compression::default());
            profile::write_trace(profile, &mut encoder)?;
            encoder.finish()?
        };
        Ok(sink.finish()?)
    }
}
