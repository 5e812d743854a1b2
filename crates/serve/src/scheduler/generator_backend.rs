//! The backend of models that make texts of images.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hipvit::error::{Error, Result};
use hipvit::hip;
use hipvit::image::{RgbImage, Tiles, Tiling};
use hipvit::ndarray::Array3;
use hipvit::session::Session;
use hipvit_generate::{GenerateOptions, Generator, Progress, TextId};
use parking_lot::Mutex;

use super::backend::{Backend, Preparation, PrepareTimes, SessionBackend, TextMaker, image_of};
use super::request::{BatchResults, Content, Prepared, ToText};
use crate::statistics::RunTimes;

/// A model whose encoder runs batches, and whose decoder computes a token of each text in a step.
pub(crate) struct GeneratorBackend {
    encoder: SessionBackend,
    /// Rule that divides images, for a decoder that reads tiles.
    tiling: Option<Tiling>,
    /// Locked by the thread of the instance while it computes.
    generator: Mutex<Generator>,
    /// Numbers of used and of all pages after the last change, for metrics.
    pages: [AtomicUsize; 2],
}

impl GeneratorBackend {
    /// Creates a backend. `encoder` runs the generator's session.
    pub(crate) fn new(encoder: SessionBackend, generator: Generator) -> Self {
        let (_, all) = generator.pages();
        Self {
            encoder,
            tiling: generator.tiling(),
            generator: Mutex::new(generator),
            pages: [AtomicUsize::new(0), AtomicUsize::new(all)],
        }
    }

    /// Runs the encoder, and steps of all sizes, so that no request waits for one-time work.
    pub(crate) fn warm_up(&self) -> Result<()> {
        self.encoder.warm_up()?;
        self.with(|generator| {
            let session: &Session = generator.session();
            let (dim, tokens) = (session.info().dim, session.info().tokens);
            let mut texts = 1;
            let of_one = GenerateOptions {
                beams: Some(1),
                ..GenerateOptions::default()
            };
            while texts <= generator.vacant() {
                let options = vec![of_one.clone(); texts];
                match self.tiling {
                    Some(tiling) => {
                        let side = tiling.tile();
                        let tiles = tiling.split(&RgbImage::new(side, side, vec![0; 3 * side * side])?)?;
                        generator.start_tiles(&vec![&tiles; texts], &options)?;
                    }
                    None => {
                        let encoded = Array3::zeros((texts, tokens, dim));
                        generator.start_encoded(encoded.view(), &options)?;
                    }
                }
                generator.step()?;
                generator.cancel_all();
                texts *= 2;
            }
            Ok(())
        })
    }

    fn with<R>(&self, work: impl FnOnce(&mut Generator) -> R) -> R {
        let mut generator = self.generator.lock();
        let result = work(&mut generator);
        let (used, all) = generator.pages();
        for (shown, pages) in self.pages.iter().zip([used, all]) {
            shown.store(pages, Ordering::Relaxed);
        }
        result
    }
}

/// Returns an image with the options of its text.
fn to_text(prepared: &Prepared) -> Result<(&Prepared, &ToText)> {
    match prepared {
        Prepared::ToText(image, to_text) => Ok((image, to_text)),
        _ => Err(Error::internal("batch", "has images without options of a text")),
    }
}

/// Returns the tiles of an image, if it was divided.
fn tiles(image: &Prepared) -> Option<&Tiles> {
    match image {
        Prepared::Tiles(tiles, _) => Some(tiles),
        _ => None,
    }
}

impl TextMaker for GeneratorBackend {
    fn pages(&self) -> [usize; 2] {
        self.pages.each_ref().map(|pages| pages.load(Ordering::Relaxed))
    }

    fn vacant(&self) -> usize {
        self.generator.lock().vacant()
    }

    fn has_pages(&self, text: &Prepared) -> Result<bool> {
        let (image, to_text) = to_text(text)?;
        self.generator.lock().has_pages(&to_text.options, tiles(image))
    }

    fn start(&self, batch: &[Prepared]) -> Result<Vec<TextId>> {
        let (mut images, mut options) = (Vec::new(), Vec::new());
        for prepared in batch {
            let (image, to_text) = to_text(prepared)?;
            images.push(image);
            options.push(to_text.options.clone());
        }
        if self.tiling.is_some() {
            let tiles: Option<Vec<&Tiles>> = images.into_iter().map(tiles).collect();
            let tiles = tiles.ok_or_else(|| Error::internal("batch", "has images without tiles"))?;
            return self.with(|generator| generator.start_tiles(&tiles, &options));
        }
        let images: Vec<Prepared> = images.into_iter().cloned().collect();
        let outputs = self.encoder.run_in_memory(&images, None)?;
        let tokens = outputs.tokens.as_ref();
        let tokens = tokens.ok_or_else(|| Error::internal("encoder", "returns no tokens"))?;
        self.with(|generator| generator.start_encoded(tokens.view(), &options))
    }

    fn step(&self) -> Result<Vec<Progress>> {
        self.with(Generator::step)
    }

    fn cancel(&self, text: TextId) {
        self.with(|generator| generator.cancel(text));
    }

    fn cancel_all(&self) {
        self.with(Generator::cancel_all);
    }
}

/// Decodes an image, and divides it into tiles.
fn divided(
    tiling: Tiling,
    name: &str,
    content: Content,
    how: Preparation<'_>,
    times: &mut PrepareTimes,
) -> Result<Prepared> {
    let (image, permit) = image_of(content, name, how, times)?;
    let start = Instant::now();
    let tiles = tiling.split(&image)?;
    times.resize = Some(start.elapsed());
    Ok(Prepared::Tiles(Arc::new(tiles), permit.map(Arc::new)))
}

impl Backend for GeneratorBackend {
    fn prepare(
        &self,
        name: &str,
        content: Content,
        how: Preparation<'_>,
        times: &mut PrepareTimes,
    ) -> Result<Prepared> {
        let Content::ToText(content, to_text) = content else {
            return Err(Error::internal("content", "has no options of a text"));
        };
        let image = match self.tiling {
            Some(tiling) => divided(tiling, name, *content, how, times)?,
            None => self.encoder.prepare(name, *content, how, times)?,
        };
        Ok(Prepared::ToText(Box::new(image), to_text))
    }

    fn run(&self, _: &[Prepared], _: u32) -> Result<(BatchResults, Option<RunTimes>)> {
        Err(Error::internal("batch", "makes texts, step by step"))
    }

    fn check(&self) -> Result<()> {
        self.encoder.check()
    }

    fn device(&self) -> String {
        self.encoder.device()
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn text_maker(&self) -> Option<&dyn TextMaker> {
        Some(self)
    }

    fn gpus(&self) -> Vec<hip::Device> {
        self.encoder.gpus()
    }
}
