//! `hipvit.train`: the training loop of the library.

use std::path::{Path, PathBuf};

use hipvit::{DType, Device};
use hipvit_data::Broken;
use hipvit_diagnostics::bench::DeviceInfo;
use hipvit_train::MemoryLimit;
use hipvit_train::fit::{Callbacks, EpochEvent, Event, FitOptions, StepEvent, Summary};
use hipvit_train::recipe::Overrides;
use hipvit_train::start::{Origin, ReadyRun, RunOptions};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use serde_json::{Value, json};

use crate::arguments::parse_dtype;
use crate::error::{argument, convert, convert_fit, module};
use crate::process;
use crate::ranks::Rank;

/// Short names of recipe keys, which are keyword arguments.
const SHORT: [(&str, &str); 2] = [("lr", "optimizer.lr"), ("lora", "lora.rank")];

/// Trains a model on labelled images, as the command `hipvit train` does. The overrides are keys of the recipe.
#[pyfunction]
#[pyo3(signature = (
    data, model = None, *, output, recipe = None, device = None, dtype = None, threads = None, resume = false, holdout = 0.0,
    image_size = None, skip_broken = false, memory = None, tune = false, log_every = 10, distributed = false, callback = None, **overrides,
))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn train<'py>(
    py: Python<'py>,
    data: PathBuf,
    model: Option<PathBuf>,
    output: PathBuf,
    recipe: Option<PathBuf>,
    device: Option<&Bound<'py, PyAny>>,
    dtype: Option<&Bound<'py, PyAny>>,
    threads: Option<usize>,
    resume: bool,
    holdout: f64,
    image_size: Option<usize>,
    skip_broken: bool,
    memory: Option<&Bound<'py, PyAny>>,
    tune: bool,
    log_every: u64,
    distributed: bool,
    callback: Option<Py<PyAny>>,
    overrides: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    process::check(py)?;
    let overrides = parse_overrides(py, overrides)?;
    let origin = match model {
        Some(model) if !resume => Origin::New {
            model,
            image_size,
            recipe,
            overrides,
        },
        None if resume && recipe.is_none() && image_size.is_none() && overrides.is_empty() => {
            Origin::Checkpoint
        }
        None if !resume => {
            return Err(argument(
                py,
                "model: is missing. Only a resumed run has its model",
            ));
        }
        _ => {
            let message = "resume: a run keeps its model and its recipe. Leave out model, image_size, recipe and its keys";
            return Err(argument(py, message));
        }
    };
    let options = RunOptions {
        data,
        holdout,
        output,
        memory: memory.map(parse_memory).transpose()?,
        origin,
    };
    let rank = if distributed {
        let joined = py.detach(Rank::join);
        Some(joined.map_err(|error| convert(py, &error, None))?)
    } else {
        None
    };
    let device = parse_device(device)?;
    let device = rank.as_ref().map_or(device, |rank| rank.device(device));
    let dtype = dtype.map_or(Ok(DType::F32), parse_dtype)?;
    let info = DeviceInfo::open(device).map_err(|error| convert(py, &error, None))?;
    let fit = FitOptions {
        device,
        dtype,
        threads,
        skip_broken,
        log_every,
        device_name: info.title(),
        collectives: rank.as_ref().map(Rank::collectives),
    };
    let mut calls = Calls {
        function: callback.filter(|_| rank.as_ref().is_none_or(Rank::leads)),
        log_every: log_every.max(1),
        raised: None,
    };
    let ran = py.detach(|| {
        let run = || {
            let ReadyRun { mut fit, model, .. } = options.ready(fit)?;
            if tune {
                (fit, _) = fit.tuned()?;
            }
            Ok((fit.run(&mut calls)?, model))
        };
        let ran = run();
        match &rank {
            Some(rank) => rank.end(ran),
            None => ran,
        }
    });
    let (summary, model) = ran.map_err(|error| convert_fit(py, error))?;
    match calls.raised {
        Some(error) => Err(error),
        None => result(py, &summary, &model),
    }
}

/// Returns the device of this name.
pub fn parse_device(device: Option<&Bound<'_, PyAny>>) -> PyResult<Device> {
    let Some(device) = device else {
        return Ok(Device::Auto);
    };
    let parsed = device.str()?.to_cow()?.parse();
    parsed.map_err(|error| convert(device.py(), &error, None))
}

/// Returns the limit that this text or number states.
fn parse_memory(memory: &Bound<'_, PyAny>) -> PyResult<MemoryLimit> {
    let text = memory.str()?;
    let parsed = text.to_cow()?.parse();
    parsed.map_err(|error| argument(memory.py(), format!("memory: {error}")))
}

/// Returns the overridden keys of the recipe. `None` is no value.
fn parse_overrides(py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Overrides> {
    let mut overrides = Overrides::default();
    for (name, value) in given.into_iter().flatten() {
        if value.is_none() {
            continue;
        }
        let name: String = name.extract()?;
        let text: String = json_module(py)?.call_method1("dumps", (value,))?.extract()?;
        let refused = |error: &dyn std::fmt::Display| argument(py, format!("{name}: {error}"));
        let value: Value = serde_json::from_str(&text).map_err(|error| refused(&error))?;
        let long = SHORT
            .iter()
            .find(|(short, _)| *short == name && !value.is_object());
        let key = long.map_or(name.as_str(), |(_, long)| long);
        let set = overrides.set(key, Some(value));
        set.map_err(|error| refused(&error))?;
    }
    Ok(overrides)
}

fn json_module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static JSON: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    module(py, &JSON, "json")
}

/// Returns a `hipvit.TrainingResult`.
fn result<'py>(py: Python<'py>, summary: &Summary, model: &Path) -> PyResult<Bound<'py, PyAny>> {
    static PACKAGE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let progress = &summary.progress;
    let last = summary.last;
    let arguments = PyDict::new(py);
    arguments.set_item("model", model)?;
    arguments.set_item("epochs", progress.epoch)?;
    arguments.set_item("steps", progress.step)?;
    arguments.set_item("skipped", progress.skipped)?;
    arguments.set_item("loss", last.map(|event| event.loss))?;
    arguments.set_item("train_accuracy", last.and_then(|event| event.train_accuracy))?;
    arguments.set_item("val_loss", last.and_then(|event| event.val_loss))?;
    arguments.set_item("val_accuracy", last.and_then(|event| event.val_accuracy))?;
    let class = module(py, &PACKAGE, "hipvit._results")?.getattr("TrainingResult")?;
    class.call((), Some(&arguments))
}

/// Calls a function of Python with events, and stops the run if it raises an exception or a signal arrived.
struct Calls {
    function: Option<Py<PyAny>>,
    log_every: u64,
    raised: Option<PyErr>,
}

impl Calls {
    /// Calls the function with an event in JSON, after the handlers of Python's signals.
    fn call(&mut self, event: Option<&str>) {
        if self.raised.is_some() {
            return;
        }
        let called = Python::attach(|py| {
            py.check_signals()?;
            let (Some(function), Some(event)) = (&self.function, event) else {
                return Ok(());
            };
            let event = json_module(py)?.call_method1("loads", (event,))?;
            function.call1(py, (event,)).map(drop)
        });
        self.raised = called.err();
    }

    fn call_with(&mut self, event: &Event) {
        // The log has the same text.
        if let Ok(event) = serde_json::to_string(event) {
            self.call(Some(&event));
        }
    }
}

impl Callbacks for Calls {
    fn on_step(&mut self, event: &StepEvent) {
        if event.step.is_multiple_of(self.log_every) {
            self.call_with(&Event::Step(*event));
        } else {
            self.call(None);
        }
    }

    fn on_epoch(&mut self, event: &EpochEvent) {
        self.call_with(&Event::Epoch(*event));
    }

    fn on_checkpoint(&mut self, path: &Path) {
        let event = json!({ "event": "checkpoint", "path": path.to_string_lossy() });
        self.call(Some(&event.to_string()));
    }

    fn on_skipped_step(&mut self, step: u64, cause: &str) {
        let event = json!({ "event": "skipped_step", "step": step, "cause": cause });
        self.call(Some(&event.to_string()));
    }

    fn on_smaller_micro_batches(&mut self, step: u64, images: usize) {
        let event = json!({ "event": "smaller_micro_batches", "step": step, "images": images });
        self.call(Some(&event.to_string()));
    }

    fn on_broken(&mut self, broken: &Broken) {
        let event = json!({ "event": "broken_image", "error": broken.error.to_string() });
        self.call(Some(&event.to_string()));
    }

    fn must_stop(&self) -> bool {
        self.raised.is_some()
    }
}
