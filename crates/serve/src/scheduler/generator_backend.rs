//! The backend of models that make texts of images.

use std::sync::atomic::{AtomicUsize, Ordering};

use hipvit::error::{Error, Result};
use hipvit::hip;
use hipvit::ndarray::Array3;
use hipvit::session::Session;
use hipvit_generate::{GenerateOptions, Generator, Progress, TextId};
use parking_lot::Mutex;

use super::backend::{Backend, Preparation, PrepareTimes, SessionBackend, TextMaker};
use super::request::{BatchResults, Content, Prepared};
use crate::statistics::RunTimes;

/// A model whose encoder runs batches, and whose decoder computes a token of each text in a step.
pub(crate) struct GeneratorBackend {
    encoder: SessionBackend,
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
            while texts <= generator.vacant() {
                let encoded = Array3::zeros((texts, tokens, dim));
                let options = vec![GenerateOptions::default(); texts];
                generator.start_encoded(encoded.view(), &options)?;
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

impl TextMaker for GeneratorBackend {
    fn pages(&self) -> [usize; 2] {
        self.pages.each_ref().map(|pages| pages.load(Ordering::Relaxed))
    }

    fn vacant(&self) -> usize {
        self.generator.lock().vacant()
    }

    fn start(&self, batch: &[Prepared]) -> Result<Vec<TextId>> {
        let (mut images, mut options) = (Vec::new(), Vec::new());
        for prepared in batch {
            let Prepared::ToText(image, to_text) = prepared else {
                return Err(Error::internal("batch", "has images without options of a text"));
            };
            images.push(Prepared::clone(image));
            options.push(to_text.options.clone());
        }
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
        let image = self.encoder.prepare(name, *content, how, times)?;
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
