//! Tests of the engine with backends that a test steers step by step, without time measurements and sleeping.

mod neighbours;

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ndarray::Array2;

use super::backend::{Preparation, PrepareTimes};
use super::request::Prepared;
use super::*;
use crate::client::Client;
use crate::metrics::{Metrics, Runs};
use crate::statistics::RunTimes;
use crate::traces::Trace;
use hipvit::ImageErrorKind;
use hipvit::image::Limits;
use hipvit::labels::Labels;
use hipvit::outputs::{Outputs, Scores};

/// A batch that waits for the test.
struct Started {
    instance: usize,
    images: Vec<f32>,
    go: Sender<Result<()>>,
}

/// An image whose decoding ends only if it is cancelled.
const ENDLESS: &[u8] = b"endless";

/// File whose decoding panics.
const PANICS: &[u8] = b"panics";

/// Image with wrong results.
const WRONG: f32 = 13.0;

/// Image whose results make the engine's thread panic.
const PANIC: f32 = 666.0;

/// Reports each batch, and waits for the test to decide its outcome. Image x has the logits [x, -x].
struct Fake {
    instance: usize,
    started: Mutex<Sender<Started>>,
    alive: Arc<AtomicBool>,
}

impl Backend for Fake {
    fn prepare(
        &self,
        name: &str,
        content: Content,
        how: Preparation<'_>,
        _: &mut PrepareTimes,
    ) -> Result<Prepared> {
        match content {
            Content::Encoded(bytes) if bytes[..] == *ENDLESS => {
                while !how.cancellation.is_cancelled() {
                    std::thread::yield_now();
                }
                Err(Error::image(
                    name,
                    ImageErrorKind::Damaged,
                    "decoding was cancelled",
                ))
            }
            Content::Encoded(bytes) if bytes.is_empty() => {
                Err(Error::image(name, ImageErrorKind::Truncated, "the file is empty"))
            }
            Content::Encoded(bytes) if bytes[..] == *PANICS => panic!("the decoder has a bug"),
            Content::Encoded(bytes) => Ok(Prepared::Values(vec![f32::from(bytes[0])])),
            _ => Err(Error::argument("content", "is not encoded")),
        }
    }

    fn run(&self, batch: &[Prepared], _: u32) -> Result<(BatchResults, Option<RunTimes>)> {
        let image = |prepared: &Prepared| match prepared {
            Prepared::Values(values) => values[0],
            other => panic!("{other:?}"),
        };
        let images: Vec<f32> = batch.iter().map(image).collect();
        let (go, wait) = channel();
        let started = Started {
            instance: self.instance,
            images: images.clone(),
            go,
        };
        self.started.lock().send(started).unwrap();
        wait.recv().unwrap()?;
        let logits = Array2::from_shape_fn((images.len(), 2), |(row, column)| match column {
            0 => images[row],
            _ => -images[row],
        });
        let outputs = Outputs {
            labels: Labels::default(),
            scores: Scores::Softmax,
            prefix_tokens: 0,
            grid: None,
            embeddings: Array2::zeros((images.len(), 1)),
            logits: Some(logits),
            tokens: None,
            hidden_layers: Vec::new(),
            attention_statistics: Vec::new(),
        };
        Ok((BatchResults::Outputs(Box::new(outputs)), None))
    }

    fn refused(&self, results: &BatchResults, row: usize) -> Option<String> {
        let BatchResults::Outputs(outputs) = results else {
            return None;
        };
        let image = outputs.image(row).logits()?[0];
        assert!(image != PANIC, "as the test wants it");
        (image == WRONG).then(|| "`logits`: 2 of 2 values are NaN or infinite".into())
    }

    fn check(&self) -> Result<()> {
        if self.alive.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(Error::argument("device", "is gone"))
        }
    }

    fn device(&self) -> String {
        format!("fake:{}", self.instance)
    }

    fn concurrency(&self) -> usize {
        1
    }
}

struct Steered {
    engine: Engine,
    started: Receiver<Started>,
    alive: Vec<Arc<AtomicBool>>,
    metrics: Arc<Metrics>,
}

impl Steered {
    fn new(instances: usize, max_batch: usize, capacity: usize) -> Self {
        Self::with_backlog(instances, max_batch, capacity, usize::MAX)
    }

    fn with_backlog(instances: usize, max_batch: usize, capacity: usize, backlog: usize) -> Self {
        let options = EngineOptions {
            batch: BatchRule {
                max_batch,
                max_delay: Duration::ZERO,
            },
            capacity,
            backlog,
            stall: Duration::from_secs(3600),
        };
        Self::with_options(instances, options)
    }

    fn with_options(instances: usize, options: EngineOptions) -> Self {
        let (sender, started) = channel();
        let alive: Vec<_> = (0..instances).map(|_| Arc::new(AtomicBool::new(true))).collect();
        let backends = alive.iter().enumerate().map(|(instance, alive)| {
            let fake = Fake {
                instance,
                started: Mutex::new(sender.clone()),
                alive: alive.clone(),
            };
            Arc::new(fake) as Arc<dyn Backend>
        });
        let decoders = Arc::new(Decoders::new(1, Limits::default()).unwrap());
        let metrics = Metrics::new();
        let of_engine = metrics.engine("fake", Runs::Images, Arc::default());
        let engine = Engine::start("fake", backends.collect(), options, decoders, of_engine);
        Self {
            engine: engine.unwrap(),
            started,
            alive,
            metrics,
        }
    }

    fn submit_as(&self, images: &[f32], priority: Priority) -> Result<Pending, Failure> {
        let image = |&x: &f32| ("pixel_values", Content::Values(vec![x]));
        self.engine
            .submit(images.iter().map(image).collect(), terms(priority))
    }

    fn submit(&self, images: &[f32]) -> Pending {
        self.submit_as(images, Priority::Interactive).unwrap()
    }

    fn next(&self) -> Started {
        self.started.recv().unwrap()
    }

    /// Lets the next batch run, which must consist of these images.
    fn runs(&self, images: &[f32]) {
        let started = self.next();
        assert_eq!(started.images, images);
        started.go.send(Ok(())).unwrap();
    }
}

/// Deadline for work that should have ended.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn becomes_ready(steered: &Steered, ready: bool) {
    let end = soon();
    while steered.engine.is_ready() != ready {
        assert!(Instant::now() < end, "still not so: ready {ready}");
        thread::yield_now();
    }
}

/// Deadline after the end of any test.
fn terms(priority: Priority) -> Terms {
    Terms {
        priority,
        deadline: Instant::now() + Duration::from_secs(3600),
        client: None,
        trace: Trace::default(),
        memory: Default::default(),
    }
}

fn answer(pending: Pending) -> Result<Vec<f32>, Failure> {
    let reply = crate::block_on(pending.wait())?;
    Ok(reply
        .iter()
        .map(|image| image.outputs().unwrap().logits().unwrap()[0])
        .collect())
}

#[test]
fn while_one_batch_runs_the_next_one_forms() {
    let steered = Steered::new(1, 3, 16);
    let first = steered.submit(&[1.0]);
    let running = steered.next();
    assert_eq!(running.images, [1.0]);
    let rest: Vec<Pending> = [&[2.0, 3.0][..], &[4.0], &[5.0]]
        .map(|images| steered.submit(images))
        .into();
    running.go.send(Ok(())).unwrap();
    assert_eq!(answer(first), Ok(vec![1.0]));
    // A request's images may be in several batches.
    steered.runs(&[2.0, 3.0, 4.0]);
    steered.runs(&[5.0]);
    let answers: Vec<_> = rest.into_iter().map(|pending| answer(pending).unwrap()).collect();
    assert_eq!(answers, [vec![2.0, 3.0], vec![4.0], vec![5.0]]);
}

#[test]
fn a_request_is_split_over_batches_and_answered_in_its_order() {
    let steered = Steered::new(1, 2, 16);
    let pending = steered.submit(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    for images in [&[1.0, 2.0][..], &[3.0, 4.0], &[5.0]] {
        steered.runs(images);
    }
    assert_eq!(answer(pending), Ok(vec![1.0, 2.0, 3.0, 4.0, 5.0]));
}

#[test]
fn encoded_images_are_decoded_first_and_a_bad_one_is_named() {
    let steered = Steered::new(1, 2, 16);
    let image = |bytes: &'static [u8]| ("image", Content::Encoded(bytes::Bytes::from_static(bytes)));
    let submit = |images| {
        steered
            .engine
            .submit(images, terms(Priority::Interactive))
            .unwrap()
    };
    let good = submit(vec![image(&[7])]);
    steered.runs(&[7.0]);
    assert_eq!(answer(good), Ok(vec![7.0]));
    let failure = answer(submit(vec![image(&[])])).unwrap_err();
    assert_eq!(failure.kind(), Kind::InvalidArgument);
    assert_eq!(failure.message(), "input `image`, image 0: the file is empty");
    // A bug of the decoder is not the client's fault.
    let failure = answer(submit(vec![image(PANICS)])).unwrap_err();
    assert_eq!(failure.kind(), Kind::Internal);
}

#[test]
fn a_full_queue_sheds_and_takes_requests_again() {
    let steered = Steered::new(1, 2, 4);
    let overloaded = |images: &[f32], priority| {
        let failure = steered.submit_as(images, priority).unwrap_err();
        assert!(matches!(failure.kind(), Kind::Overloaded(after) if after >= Duration::from_secs(1)));
        failure.message().to_owned()
    };
    let first = steered.submit(&[1.0]);
    let running = steered.next();
    let rest = [steered.submit(&[2.0]), steered.submit(&[3.0])];
    // A request is admitted completely or not at all; running images count.
    assert_eq!(
        overloaded(&[4.0, 5.0], Priority::Interactive),
        "model `fake` is overloaded: 3 of 4 queue places are taken"
    );
    overloaded(&[4.0], Priority::Bulk);
    let last = steered.submit(&[4.0]);
    overloaded(&[5.0], Priority::Interactive);
    // More images than the queue can hold are an error, not overload.
    let failure = steered.submit_as(&[0.0; 5], Priority::Interactive).unwrap_err();
    assert_eq!(failure.kind(), Kind::InvalidArgument);
    running.go.send(Ok(())).unwrap();
    steered.runs(&[2.0, 3.0]);
    steered.runs(&[4.0]);
    for (pending, expected) in [first]
        .into_iter()
        .chain(rest)
        .chain([last])
        .zip([1.0, 2.0, 3.0, 4.0])
    {
        assert_eq!(answer(pending), Ok(vec![expected]));
    }
    // The last slot is freed just after the answer.
    while steered.engine.admitted(Priority::Interactive) > 0 {
        std::thread::yield_now();
    }
    let again = steered.submit_as(&[8.0, 9.0], Priority::Bulk).unwrap();
    steered.runs(&[8.0, 9.0]);
    assert_eq!(answer(again), Ok(vec![8.0, 9.0]));
}

/// With a small backlog a request of any size is admitted. With a large backlog none is, even if the queue
/// has space.
#[test]
fn a_long_backlog_sheds_before_the_queue_is_full() {
    let steered = Steered::with_backlog(1, 8, 100, 2);
    let first = steered.submit(&[1.0]);
    let running = steered.next();
    let large = steered.submit(&[2.0, 3.0, 4.0, 5.0]);
    let failure = steered.submit_as(&[6.0], Priority::Interactive).unwrap_err();
    assert!(matches!(failure.kind(), Kind::Overloaded(_)));
    assert_eq!(
        failure.message(),
        "model `fake` is overloaded: 5 images wait or run; the maximum is 2"
    );
    running.go.send(Ok(())).unwrap();
    steered.runs(&[2.0, 3.0, 4.0, 5.0]);
    assert_eq!(answer(first), Ok(vec![1.0]));
    assert_eq!(answer(large), Ok(vec![2.0, 3.0, 4.0, 5.0]));
    while steered.engine.admitted(Priority::Interactive) > 0 {
        std::thread::yield_now();
    }
    let again = steered.submit(&[6.0]);
    steered.runs(&[6.0]);
    assert_eq!(answer(again), Ok(vec![6.0]));
}

#[test]
fn interactive_requests_overtake_bulk() {
    let steered = Steered::new(1, 1, 16);
    let first = steered.submit(&[0.0]);
    let running = steered.next();
    let bulk = steered.submit_as(&[1.0, 2.0], Priority::Bulk).unwrap();
    let interactive = steered.submit(&[3.0]);
    running.go.send(Ok(())).unwrap();
    for image in [3.0, 1.0, 2.0] {
        steered.runs(&[image]);
    }
    assert_eq!(answer(first), Ok(vec![0.0]));
    assert_eq!(answer(interactive), Ok(vec![3.0]));
    assert_eq!(answer(bulk), Ok(vec![1.0, 2.0]));
}

#[test]
fn what_a_client_no_longer_waits_for_is_not_run() {
    let steered = Steered::new(1, 4, 16);
    let first = steered.submit(&[1.0]);
    let running = steered.next();
    let abandoned = steered.submit(&[2.0, 3.0]);
    let late = {
        let terms = Terms {
            priority: Priority::Interactive,
            deadline: Instant::now(),
            ..terms(Priority::Interactive)
        };
        let image = ("pixel_values", Content::Values(vec![4.0]));
        steered.engine.submit(vec![image], terms).unwrap()
    };
    let last = steered.submit(&[5.0]);
    drop(abandoned);
    running.go.send(Ok(())).unwrap();
    steered.runs(&[5.0]);
    assert_eq!(answer(first), Ok(vec![1.0]));
    assert_eq!(answer(last), Ok(vec![5.0]));
    assert_eq!(answer(late).unwrap_err().kind(), Kind::DeadlineExceeded);
}

#[test]
fn a_failed_batch_runs_again_once() {
    let steered = Steered::new(1, 2, 16);
    let fail = || Err(Error::argument("kernel", "timed out"));
    let pending = steered.submit(&[1.0, 2.0]);
    let started = steered.next();
    assert_eq!(started.images, [1.0, 2.0]);
    started.go.send(fail()).unwrap();
    // Each image runs alone.
    steered.runs(&[1.0]);
    steered.runs(&[2.0]);
    assert_eq!(answer(pending), Ok(vec![1.0, 2.0]));

    let pending = steered.submit(&[3.0]);
    steered.next().go.send(fail()).unwrap();
    steered.next().go.send(fail()).unwrap();
    let failure = answer(pending).unwrap_err();
    assert_eq!(
        (failure.kind(), failure.message()),
        (Kind::Internal, "kernel: timed out")
    );
    // The device still works, and so does the engine.
    assert!(steered.engine.is_ready());
    let pending = steered.submit(&[4.0]);
    steered.runs(&[4.0]);
    assert_eq!(answer(pending), Ok(vec![4.0]));
}

#[test]
fn a_lost_device_is_taken_out_and_its_batch_runs_elsewhere() {
    let steered = Steered::new(2, 2, 16);
    let lose = |started: Started| {
        steered.alive[started.instance].store(false, Ordering::Release);
        started
            .go
            .send(Err(Error::argument("device", "is gone")))
            .unwrap();
    };
    let pending = steered.submit(&[1.0]);
    let first = steered.next();
    let lost = first.instance;
    lose(first);
    let second = steered.next();
    assert_eq!((second.instance, &second.images[..]), (1 - lost, &[1.0][..]));
    second.go.send(Ok(())).unwrap();
    assert_eq!(answer(pending), Ok(vec![1.0]));
    assert!(steered.engine.is_ready());
    let alive: Vec<bool> = steered.engine.instances().map(|(_, alive)| alive).collect();
    assert_eq!(alive.iter().filter(|alive| **alive).count(), 1);

    // Without the other instance, waiting images are answered and nothing more is admitted.
    let running = steered.submit(&[2.0]);
    let started = steered.next();
    let waiting = steered.submit(&[3.0, 4.0]);
    lose(started);
    for pending in [running, waiting] {
        assert_eq!(answer(pending).unwrap_err().kind(), Kind::Unavailable);
    }
    assert!(steered.engine.join(soon()));
    assert!(!steered.engine.is_ready());
    let failure = steered.submit_as(&[5.0], Priority::Interactive).unwrap_err();
    assert_eq!(failure.kind(), Kind::Unavailable);
}

#[test]
fn closing_runs_what_was_admitted_and_admits_nothing_more() {
    let steered = Steered::new(1, 2, 16);
    let pending = steered.submit(&[1.0, 2.0, 3.0]);
    let started = steered.next();
    steered.engine.close();
    let failure = steered.submit_as(&[4.0], Priority::Interactive).unwrap_err();
    assert_eq!(failure.kind(), Kind::Unavailable);
    started.go.send(Ok(())).unwrap();
    steered.runs(&[3.0]);
    assert_eq!(answer(pending), Ok(vec![1.0, 2.0, 3.0]));
    assert!(steered.engine.join(soon()));
}

#[test]
fn an_image_that_fails_its_batch_fails_alone() {
    let steered = Steered::new(1, 4, 16);
    let fail = || Err(Error::argument("kernel", "timed out"));
    let first = steered.submit(&[0.0]);
    let running = steered.next();
    let pending = [1.0, 2.0, 3.0].map(|image| steered.submit(&[image]));
    running.go.send(Ok(())).unwrap();
    assert_eq!(answer(first), Ok(vec![0.0]));
    let together = steered.next();
    assert_eq!(together.images, [1.0, 2.0, 3.0]);
    together.go.send(fail()).unwrap();
    // Later images are in no batch with them.
    let later = steered.submit(&[4.0]);
    steered.runs(&[1.0]);
    let alone = steered.next();
    assert_eq!(alone.images, [2.0]);
    alone.go.send(fail()).unwrap();
    steered.runs(&[3.0]);
    steered.runs(&[4.0]);
    let [one, two, three] = pending;
    assert_eq!(answer(one), Ok(vec![1.0]));
    assert_eq!(answer(two).unwrap_err().kind(), Kind::Internal);
    assert_eq!(answer(three), Ok(vec![3.0]));
    assert_eq!(answer(later), Ok(vec![4.0]));
}

#[test]
fn an_image_with_wrong_results_fails_alone_and_is_named() {
    let steered = Steered::new(1, 4, 16);
    let first = steered.submit(&[0.0]);
    let running = steered.next();
    let good = steered.submit(&[1.0]);
    let bad = steered.submit(&[2.0, WRONG]);
    let last = steered.submit(&[3.0]);
    running.go.send(Ok(())).unwrap();
    steered.runs(&[1.0, 2.0, WRONG, 3.0]);
    for (pending, image) in [(first, 0.0), (good, 1.0), (last, 3.0)] {
        assert_eq!(answer(pending), Ok(vec![image]));
    }
    let failure = answer(bad).unwrap_err();
    assert_eq!(
        failure.message(),
        "image 1: `logits`: 2 of 2 values are NaN or infinite"
    );
}

#[test]
fn a_thread_that_panics_is_replaced_and_counted() {
    let steered = Steered::new(1, 4, 16);
    for restarts in 1..=4 {
        let pending = steered.submit(&[PANIC]);
        steered.runs(&[PANIC]);
        assert_eq!(answer(pending).unwrap_err().kind(), Kind::Internal);
        let good = steered.submit(&[1.0]);
        steered.runs(&[1.0]);
        assert_eq!(answer(good), Ok(vec![1.0]));
        let counted =
            format!("hipvit_instance_restarts_total{{model=\"fake\",device=\"fake:0\"}} {restarts}\n");
        assert!(steered.metrics.encode().contains(&counted));
        assert!(steered.engine.is_ready());
    }
    // The thread panicked too often.
    let last = steered.submit(&[PANIC]);
    let started = steered.next();
    let waiting = steered.submit(&[1.0]);
    started.go.send(Ok(())).unwrap();
    assert_eq!(answer(last).unwrap_err().kind(), Kind::Internal);
    assert_eq!(answer(waiting).unwrap_err().kind(), Kind::Unavailable);
    assert!(steered.engine.join(soon()));
    assert!(!steered.engine.is_ready());
}

#[test]
fn an_engine_that_makes_no_progress_is_not_ready() {
    let options = EngineOptions {
        batch: BatchRule {
            max_batch: 1,
            max_delay: Duration::ZERO,
        },
        capacity: 16,
        backlog: usize::MAX,
        stall: Duration::ZERO,
    };
    let steered = Steered::with_options(2, options);
    let pending = [steered.submit(&[1.0]), steered.submit(&[2.0])];
    let [one, two] = [steered.next(), steered.next()];
    becomes_ready(&steered, false);
    let fault = steered.engine.fault().unwrap();
    assert!(fault.contains("none has ended for 0ns"), "{fault}");
    // One working instance is enough.
    one.go.send(Ok(())).unwrap();
    becomes_ready(&steered, true);
    two.go.send(Ok(())).unwrap();
    for pending in pending {
        answer(pending).unwrap();
    }
    becomes_ready(&steered, true);
}

#[test]
fn a_batch_that_hangs_does_not_hold_up_the_end() {
    let steered = Steered::new(1, 1, 16);
    let pending = steered.submit(&[1.0]);
    let hanging = steered.next();
    steered.engine.close();
    assert!(!steered.engine.join(Instant::now() + Duration::from_millis(10)));
    hanging.go.send(Ok(())).unwrap();
    assert_eq!(answer(pending), Ok(vec![1.0]));
    assert!(steered.engine.join(soon()));
}
