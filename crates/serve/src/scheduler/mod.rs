//! Runs admitted images. An image first waits for a decoder thread, then in the queue of its model. Instances
//! of the model take batches from the queue whenever they are free. So the least loaded device takes the next
//! batch, and the next batch forms while one runs.
//!
//! Everything here uses plain threads. Only the channel of the answer can be awaited by an async task.

mod backend;
mod decode;
mod fair;
mod generator_backend;
mod instance;
mod queue;
mod request;
mod shared;
mod tensor_backend;
#[cfg(test)]
mod tests;
mod texts;
mod threads;
mod turns;
mod vision;
mod vision_backend;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

pub(crate) use self::backend::{Backend, ExplainerBackend, SessionBackend, TextBackend};
pub(crate) use self::decode::Decoders;
pub(crate) use self::generator_backend::GeneratorBackend;
use self::instance::Instance;
pub(crate) use self::queue::BatchRule;
use self::queue::Queue;
use self::request::Request;
#[cfg(test)]
pub(crate) use self::request::{BatchResults, Explained};
pub(crate) use self::request::{Content, Explain, ImageResult, Reply, Terms, ToText};
pub(crate) use self::shared::EngineOptions;
use self::shared::{Item, NO_DEVICE, Shared, Slot, Stage, State};
pub(crate) use self::tensor_backend::TensorBackend;
use self::threads::join_until;
pub(crate) use self::turns::Turns;
pub(crate) use self::vision::{ObjectPrompt, VisionQuery, VisionRequest, VisionResult};
pub(crate) use self::vision_backend::{ImageSegmenter, VisionBackend, VisionModel};
use super::failure::{Failure, Kind};
use super::metrics::EngineMetrics;
use super::priority::Priority;
use hipvit::error::{Error, Result};
use hipvit::hip;

/// A running model: its queue and the threads of its instances. Dropping it [closes](Engine::close) it.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    decoders: Arc<Decoders>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A pending answer. Dropping it abandons the request: images that have not run are skipped.
#[derive(Debug)]
pub(crate) struct Pending {
    request: Arc<Request>,
    deadline: Instant,
    reply: oneshot::Receiver<Reply>,
}

impl Pending {
    /// Waits until there is an answer or the deadline has passed.
    pub(crate) async fn wait(mut self) -> Reply {
        match tokio::time::timeout_at(self.deadline.into(), &mut self.reply).await {
            Ok(Ok(reply)) => reply,
            // Unreachable, because items answer when they are dropped.
            Ok(Err(_)) => Err(Failure::new(Kind::Internal, "the server lost the request")),
            Err(_) => Err(Failure::new(
                Kind::DeadlineExceeded,
                "the deadline passed before there was a result",
            )),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.request.abandon();
    }
}

impl Engine {
    /// Starts the threads of each backend. `name` is the model's name in messages.
    pub(crate) fn start(
        name: &str,
        backends: Vec<Arc<dyn Backend>>,
        options: EngineOptions,
        decoders: Arc<Decoders>,
        metrics: EngineMetrics,
    ) -> Result<Self> {
        let concurrency: Vec<usize> = backends.iter().map(|backend| backend.concurrency()).collect();
        let engine = Self {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                options,
                instances: backends.into_iter().map(Instance::new).collect(),
                admitted: Default::default(),
                state: Mutex::new(State {
                    ready: Queue::new(options.batch),
                    by_client: HashMap::new(),
                    closed: false,
                    threads: 0,
                }),
                changed: Condvar::new(),
                metrics,
            }),
            decoders,
            threads: Mutex::default(),
        };
        let instances = engine.shared.instances.iter().zip(concurrency);
        for (index, (instance, concurrency)) in instances.enumerate() {
            for thread in 0..concurrency {
                let shared = engine.shared.clone();
                engine.shared.state.lock().threads += 1;
                let spawned = thread::Builder::new()
                    .name(format!("hipvit-{}-{thread}", instance.device))
                    .spawn(move || shared.work(index));
                match spawned {
                    Ok(thread) => engine.threads.lock().push(thread),
                    Err(error) => {
                        engine.shared.state.lock().threads -= 1;
                        engine.close();
                        return Err(Error::resource("threads", error));
                    }
                }
            }
        }
        Ok(engine)
    }

    /// Admits a request completely or not at all. `tensor` is the input with the images.
    pub(crate) fn submit(
        &self,
        images: Vec<(&'static str, Content)>,
        terms: Terms,
    ) -> Result<Pending, Failure> {
        let (reply, answer) = oneshot::channel();
        let slots = self.admit(images.len(), &terms)?;
        let deadline = terms.deadline;
        let request = Request::new(images.len(), terms, reply);
        let pending = Pending {
            request: request.clone(),
            deadline,
            reply: answer,
        };
        let now = Instant::now();
        let items = images.into_iter().zip(slots).enumerate();
        let items = items.map(|(index, (image, slot))| Item::new(&request, index, image, now, slot));
        let (ready, received): (Vec<Item>, Vec<Item>) =
            items.partition(|item| matches!(item.stage, Stage::Ready(_)));
        if !received.is_empty() {
            self.decoders.push(received);
        }
        if !ready.is_empty() {
            self.shared.ready(ready);
        }
        Ok(pending)
    }

    fn admit(&self, images: usize, terms: &Terms) -> Result<Vec<Slot>, Failure> {
        let shared = &self.shared;
        let (priority, client) = (terms.priority, terms.client);
        if images == 0 {
            let what = shared.metrics.what();
            return Err(Failure::invalid(format!("the request has no {what}")));
        }
        // Bulk requests leave space for interactive ones.
        let share = |places: usize| match priority {
            Priority::Interactive => places,
            Priority::Bulk => places.div_ceil(2),
        };
        let capacity = share(shared.options.capacity);
        if images > capacity {
            return Err(Failure::invalid(format!(
                "the request has {images} {}; the queue (--queue) holds {capacity} of its priority. Send at most {capacity} at once",
                shared.metrics.what()
            )));
        }
        // Hold the lock of the queue, so that a request is admitted before the engine closes or loses its
        // last instance, or not at all.
        let mut state = shared.state.lock();
        if state.closed || state.threads == 0 {
            return Err(shared.unavailable(state.closed));
        }
        let admitted = shared.admitted();
        let working = shared.computes().max(1);
        let backlog = share(shared.options.backlog.saturating_mul(working)).min(capacity);
        // A client that fills the backlog does not take the share of another client, which then waits behind
        // it.
        let held = state.by_client.get(&client).copied().unwrap_or(0);
        let clients = state.by_client.len() + usize::from(held == 0);
        let share = (backlog / clients).max(1);
        let is_full = admitted >= backlog && held >= share;
        let has_place = admitted + images <= capacity
            // A request that takes the whole queue does not take the share of others either.
            || held + images <= share && admitted + images <= capacity + backlog;
        if is_full || !has_place {
            drop(state);
            shared.give_up_abandoned();
            shared.metrics.shed(priority, images);
            let failure = if is_full {
                format!(
                    "model `{}` is overloaded: {admitted} {} wait or run; the maximum is {backlog}",
                    shared.name,
                    shared.metrics.what()
                )
            } else {
                format!(
                    "model `{}` is overloaded: {admitted} of {capacity} queue places are taken",
                    shared.name
                )
            };
            return Err(Failure::new(
                Kind::Overloaded(shared.retry_after(admitted)),
                failure,
            ));
        }
        let class = priority as usize;
        shared.admitted[class].fetch_add(images, Ordering::AcqRel);
        *state.by_client.entry(client).or_default() += images;
        drop(state);
        let slot = || Slot {
            engine: shared.clone(),
            class,
            client,
        };
        Ok(std::iter::repeat_with(slot).take(images).collect())
    }

    /// Returns true if an instance is left to run on and makes progress.
    pub(crate) fn is_ready(&self) -> bool {
        self.fault().is_none()
    }

    /// Returns the reason if the engine runs nothing. `None` if it runs.
    pub(crate) fn fault(&self) -> Option<String> {
        let shared = &self.shared;
        let state = shared.state.lock();
        let (closed, threads) = (state.closed, state.threads);
        drop(state);
        if closed {
            return Some("is being unloaded".into());
        }
        if threads == 0 || !shared.works() {
            return Some(NO_DEVICE.into());
        }
        let (now, stall) = (Instant::now(), shared.options.stall);
        let mut working = shared.instances.iter().filter(|instance| instance.is_alive());
        if !working.all(|instance| instance.is_stalled(now, stall)) {
            return None;
        }
        shared.give_up_abandoned();
        Some(format!(
            "runs batches, and none has ended for {stall:?}: a device may hang"
        ))
    }

    /// Returns the number of admitted and unfinished images.
    pub(crate) fn admitted(&self, priority: Priority) -> usize {
        self.shared.admitted[priority as usize].load(Ordering::Acquire)
    }

    /// Returns the devices, and true for each that still works.
    pub(crate) fn instances(&self) -> impl Iterator<Item = (&str, bool)> {
        let instances = self.shared.instances.iter();
        instances.map(|instance| (instance.device.as_str(), instance.is_alive()))
    }

    /// Returns the GPUs that still work.
    pub(crate) fn gpus(&self) -> Vec<hip::Device> {
        let instances = self.shared.instances.iter();
        let working = instances.filter_map(|instance| instance.backend.try_read());
        working
            .filter_map(|backend| backend.as_ref().map(|backend| backend.gpus()))
            .flatten()
            .collect()
    }

    /// Returns the devices, and the numbers of used and of all pages of the cache of each. Empty for a model that makes no texts.
    pub(crate) fn caches(&self) -> Vec<(&str, [usize; 2])> {
        let cache = |instance: &Instance| {
            let backend = instance.backend.try_read()?;
            Some(backend.as_ref()?.text_maker()?.pages())
        };
        let instances = self.shared.instances.iter();
        instances
            .filter_map(|instance| Some((instance.device.as_str(), cache(instance)?)))
            .collect()
    }

    /// Drops the backends on lost devices, so that the model can be loaded there again.
    pub(crate) fn release_lost(&self) {
        self.shared.instances.iter().for_each(Instance::release_if_lost);
    }

    /// Stops admitting requests. The threads end after running all admitted images.
    pub(crate) fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_all();
    }

    /// Waits until the threads have ended, after [`close`](Self::close), so that they hold no session.
    /// Returns false if one still runs at `deadline`.
    pub(crate) fn join(&self, deadline: Instant) -> bool {
        join_until(&mut self.threads.lock(), deadline)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("model", &self.shared.name)
            .finish_non_exhaustive()
    }
}
