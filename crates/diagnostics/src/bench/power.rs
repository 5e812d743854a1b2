//! Energy, load and clocks of a GPU while it runs.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::times::median;
use hipvit::error::{Error, Result};
use hipvit::hip::Monitor;

/// Between two samples: sensors change every few milliseconds at best, and asking more often would load the host.
const INTERVAL: Duration = Duration::from_millis(20);

/// What a GPU's sensors say over a sustained run; `None` where the GPU or its provider does not offer it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Power {
    /// The share of the time in which a kernel ran, in percent.
    pub busy_percent: Option<f64>,
    /// The mean power.
    pub watts: Option<f64>,
    /// Energy per image.
    pub joules_per_image: Option<f64>,
    /// Floating-point operations per second and watt, in GFLOP.
    pub gflops_per_watt: Option<f64>,
    /// The median clock of the compute units.
    pub clock_mhz: Option<f64>,
}

/// A sustained run.
#[derive(Debug, Default)]
pub(super) struct Sustained {
    pub(super) power: Power,
    /// The peak of the PCIe link as it was during the run, in bytes per second and direction.
    pub(super) link: Option<f64>,
}

#[derive(Default)]
struct Samples {
    watts: Vec<f64>,
    clock: Vec<f64>,
    busy: Vec<f64>,
    link: Option<f64>,
}

impl Samples {
    fn take(&mut self, monitor: &Monitor) {
        self.watts.extend(monitor.power().ok());
        self.clock.extend(monitor.clock().ok());
        self.busy.extend(monitor.utilisation().ok());
        if let Ok(link) = monitor.pcie_link() {
            // A link that was idle takes a while to reach its speed.
            let now = link.bytes_per_second();
            self.link = Some(self.link.map_or(now, |before| before.max(now)));
        }
    }
}

/// Samples `monitor` while `run`, which returns how many images it ran, goes on. `flops_per_image` are those of an image.
pub(super) fn sustained(
    monitor: &Monitor,
    flops_per_image: f64,
    run: impl FnOnce() -> Result<usize>,
) -> Result<Sustained> {
    let ended = AtomicBool::new(false);
    let (images, seconds, joules, samples) = thread::scope(|scope| {
        let sampler = thread::Builder::new().spawn_scoped(scope, || {
            let mut samples = Samples::default();
            // Not the first moment, when the power is still that of an idle GPU.
            thread::sleep(INTERVAL);
            while !ended.load(Ordering::Relaxed) {
                samples.take(monitor);
                thread::sleep(INTERVAL);
            }
            samples
        });
        let sampler = sampler.map_err(|error| Error::argument("threads", error))?;
        let energy = monitor.energy().ok();
        let start = Instant::now();
        let images = run();
        let seconds = start.elapsed().as_secs_f64();
        let joules = monitor
            .energy()
            .ok()
            .zip(energy)
            .map(|(after, before)| after - before);
        ended.store(true, Ordering::Relaxed);
        let samples = sampler.join().unwrap_or_else(|panic| resume_unwind(panic));
        images.map(|images| (images, seconds, joules, samples))
    })?;
    let mean =
        |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    // A counter that did not move is not one.
    let joules = joules.filter(|&joules| joules > 0.0);
    let joules = joules.or_else(|| mean(&samples.watts).map(|watts| watts * seconds));
    Ok(Sustained {
        power: Power {
            busy_percent: mean(&samples.busy).map(|busy| 100.0 * busy),
            watts: joules.map(|joules| joules / seconds),
            joules_per_image: joules.map(|joules| joules / images.max(1) as f64),
            gflops_per_watt: joules.map(|joules| flops_per_image * images as f64 / joules / 1e9),
            clock_mhz: median(&samples.clock),
        },
        link: samples.link,
    })
}
