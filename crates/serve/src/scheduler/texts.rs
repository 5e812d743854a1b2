//! Thread of an instance that makes texts of images (continuous batching).
//!
//! The thread computes a token of each text in a step. Between two steps, texts that are complete or abandoned leave, and waiting images
//! enter. An image enters by a run of the encoder, for which all texts in progress wait. Hence only a [part](entrants) of a batch enters
//! between two steps, unless no text is in progress.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;

use super::backend::TextMaker;
use super::instance::Instance;
use super::queue::Waiting as _;
use super::request::{BatchResults, ImageResult, Prepared};
use super::shared::{Item, Shared, Stage};
use crate::failure::Failure;
use crate::stage::Stage as Measured;
use hipvit::error::{Error, Result};
use hipvit_generate::{Event, Generated, Progress, TextId};

/// Divisor of the batch size: the part of a batch that enters between two steps.
const PARTS: usize = 4;

/// Reason of a text that was not complete in time.
const LATE: &str = "the deadline passed before the text was complete";

/// A text in progress.
struct Text {
    id: TextId,
    item: Item,
    prepared: Prepared,
    begin: Instant,
    tokens: usize,
}

impl Text {
    /// Passes a token to its receiver, if there is one.
    fn send(&mut self, token: u32) {
        self.tokens += 1;
        if let Prepared::ToText(_, to_text) = &self.prepared
            && let Some(tokens) = &to_text.tokens
        {
            // A client that has left is noticed by its request.
            let _ = tokens.send(token);
        }
    }

    /// Returns true if the text cannot begin again, because a client has its first tokens.
    fn is_sent(&self) -> bool {
        let streams = matches!(&self.prepared, Prepared::ToText(_, to_text) if to_text.tokens.is_some());
        streams && self.tokens > 0
    }
}

/// Returns true if the text of an image is made by beam search.
fn has_beams(item: &Item) -> bool {
    matches!(&item.stage, Stage::Ready(Prepared::ToText(_, to_text)) if to_text.options.beams != Some(1))
}

/// Returns how many images may enter before the next step.
fn entrants(vacant: usize, batch: usize) -> usize {
    vacant.min(batch.div_ceil(PARTS))
}

impl Shared {
    /// Makes texts on an instance until the engine is closed and empty, or the instance is lost.
    pub(super) fn make_texts(&self, instance: &Instance) {
        // A thread that panicked left its texts behind.
        let _ = with_maker(instance, |maker| {
            maker.cancel_all();
            Ok(())
        });
        let mut texts: Vec<Text> = Vec::new();
        // Images whose beams wait for pages of the cache. No image overtakes them.
        let mut waiting: VecDeque<Item> = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let Some(items) = self.next_images(instance, &texts) else {
                    return;
                };
                let (searched, single): (Vec<Item>, Vec<Item>) = items.into_iter().partition(has_beams);
                waiting = searched.into();
                self.begin_texts(instance, single, &mut texts);
            }
            self.begin_searches(instance, &mut waiting, &mut texts);
            end_abandoned(instance, &mut texts);
            self.step(instance, &mut texts);
        }
    }

    /// Returns the images that enter before the next step. Waits for one if no text is in progress. Returns `None` at the end.
    fn next_images(&self, instance: &Instance, texts: &[Text]) -> Option<Vec<Item>> {
        if texts.is_empty() {
            return self.next_batch(instance);
        }
        let vacant = with_maker(instance, |maker| Ok(maker.vacant())).unwrap_or(0);
        let most = entrants(vacant, vacant + texts.len());
        if most == 0 {
            return Some(Vec::new());
        }
        let (now, mut dropped) = (Instant::now(), Vec::new());
        let items = self.state.lock().ready.take_waiting(most, now, &mut dropped);
        self.give_up(dropped, now);
        Some(items)
    }

    /// Begins the texts by beam search for which the cache has pages, in their order.
    fn begin_searches(&self, instance: &Instance, waiting: &mut VecDeque<Item>, texts: &mut Vec<Text>) {
        while let Some(item) = waiting.pop_front() {
            let now = Instant::now();
            if item.is_abandoned(now) {
                self.give_up(vec![item], now);
                continue;
            }
            let Stage::Ready(prepared) = &item.stage else {
                continue;
            };
            match with_maker(instance, |maker| {
                Ok(maker.vacant() > 0 && maker.has_pages(prepared)?)
            }) {
                Ok(true) => self.begin_texts(instance, vec![item], texts),
                // Pages are free once the others are complete.
                Ok(false) => return waiting.push_front(item),
                Err(error) => item.finish(Err(Failure::of_content(&error))),
            }
        }
    }

    /// Encodes images and begins their texts.
    fn begin_texts(&self, instance: &Instance, mut items: Vec<Item>, texts: &mut Vec<Text>) {
        if items.is_empty() {
            return;
        }
        let _running = instance.begin();
        let begin = Instant::now();
        let batch = Item::begin(&mut items, begin);
        match with_maker(instance, |maker| maker.start(&batch)) {
            Ok(ids) => {
                let time = begin.elapsed();
                let prepared = items.iter().map(|item| item.parts.input).max();
                self.metrics
                    .batch(items.len(), prepared.unwrap_or_default(), time, None);
                let count = KeyValue::new("hipvit.batch.size", items.len() as i64);
                trace(&items, instance, "encode", count, begin, time);
                let begun = items.into_iter().zip(batch).zip(ids);
                texts.extend(begun.map(|((item, prepared), id)| Text {
                    id,
                    item,
                    prepared,
                    begin,
                    tokens: 0,
                }));
            }
            Err(error) => self.failed(instance, items, batch, &error),
        }
    }

    /// Computes a token of each text.
    fn step(&self, instance: &Instance, texts: &mut Vec<Text>) {
        if texts.is_empty() {
            return;
        }
        let _running = instance.begin();
        let begin = Instant::now();
        match with_maker(instance, |maker| maker.step()) {
            Ok(events) => {
                self.metrics.stage(Measured::Step, begin.elapsed());
                for progress in events {
                    self.progress(instance, texts, progress);
                }
            }
            Err(error) => {
                let _ = with_maker(instance, |maker| {
                    maker.cancel_all();
                    Ok(())
                });
                let (sent, others): (Vec<Text>, Vec<Text>) = texts.drain(..).partition(Text::is_sent);
                let (items, batch) = others.into_iter().map(|text| (text.item, text.prepared)).unzip();
                self.failed(instance, items, batch, &error);
                for text in sent {
                    text.item.finish(Err(Failure::of_model(&error)));
                }
            }
        }
    }

    fn progress(&self, instance: &Instance, texts: &mut Vec<Text>, progress: Progress) {
        let Some(index) = texts.iter().position(|text| text.id == progress.text) else {
            return;
        };
        match progress.event {
            Event::Token(token) => {
                let text = &mut texts[index];
                text.send(token);
                if text.tokens == 1 {
                    self.metrics
                        .stage(Measured::FirstToken, text.item.arrived.elapsed());
                }
            }
            Event::Finished(generated) => {
                let running = texts.len();
                self.finish_text(instance, texts.remove(index), generated, running);
            }
            Event::Failed(error) => {
                let (model, device) = (&self.name, &instance.device);
                tracing::warn!(%model, %device, %error, "a text failed");
                let text = texts.remove(index);
                text.item.finish(Err(Failure::of_model(&error)));
            }
        }
    }

    fn finish_text(&self, instance: &Instance, text: Text, generated: Generated, running: usize) {
        let Text { mut item, begin, .. } = text;
        let (time, tokens) = (begin.elapsed(), generated.tokens.len());
        self.metrics.generated(tokens, time, running);
        item.parts.infer = time;
        let count = KeyValue::new("hipvit.tokens", tokens as i64);
        let items = std::slice::from_ref(&item);
        trace(items, instance, Measured::Generate.name(), count, begin, time);
        let results = Arc::new(BatchResults::Generated(generated));
        let result = ImageResult::new(results, 0).with_parts(item.parts);
        item.finish(Ok(result));
    }
}

/// Ends texts whose clients have left or whose deadlines have passed, and frees their part of the cache.
fn end_abandoned(instance: &Instance, texts: &mut Vec<Text>) {
    let now = Instant::now();
    for text in texts.extract_if(.., |text| text.item.is_abandoned(now)) {
        let _ = with_maker(instance, |maker| {
            maker.cancel(text.id);
            Ok(())
        });
        text.item.end_abandoned(now, LATE);
    }
}

/// Calls the part of an instance that makes texts. A panic becomes an error.
fn with_maker<R>(instance: &Instance, work: impl FnOnce(&dyn TextMaker) -> Result<R>) -> Result<R> {
    let call = || {
        instance.with(|backend| match backend.text_maker() {
            Some(maker) => work(maker),
            None => Err(Error::internal("backend", "makes no texts")),
        })
    };
    let result = catch_unwind(AssertUnwindSafe(call));
    result.unwrap_or_else(|_| Err(Error::internal("texts", "computing them panicked")))
}

/// Adds a span to the traces of the items' requests, with an attribute.
fn trace(
    items: &[Item],
    instance: &Instance,
    name: &'static str,
    attribute: KeyValue,
    begin: Instant,
    time: Duration,
) {
    for trace in Item::traces(items) {
        let device = KeyValue::new("hipvit.device", instance.device.clone());
        let attributes = || vec![attribute.clone(), device];
        trace.stage(name, begin, time, attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::entrants;

    #[test]
    fn a_part_of_a_batch_enters_between_steps() {
        assert_eq!([1, 3, 8].map(|batch| entrants(batch - 1, batch)), [0, 1, 2]);
        assert_eq!(entrants(1, 8), 1);
        assert_eq!(entrants(0, 8), 0);
    }
}
