//! Energy, load and clocks of a GPU during a run.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::times::median;
use hipvit::error::{Error, Result};
use hipvit::hip::Monitor;

/// Interval between samples. Sensors change every few milliseconds at best, and faster polling would load the
/// host.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// Sensor readings of a GPU over a sustained run. A field is `None` if the GPU or its provider does not offer
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Power {
    /// Share of the time with a kernel running, in percent.
    pub busy_percent: Option<f64>,
    /// Mean power.
    pub watts: Option<f64>,
    /// Energy per image.
    pub joules_per_image: Option<f64>,
    /// Energy efficiency in GFLOP/s per watt.
    pub gflops_per_watt: Option<f64>,
    /// Median clock of the compute units.
    pub clock_mhz: Option<f64>,
}

/// Result of a sustained run.
#[derive(Debug, Default)]
pub(super) struct Sustained {
    pub(super) power: Power,
    /// Peak of the PCIe link during the run, in bytes per second and direction.
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
            // An idle link takes a while to reach its speed.
            let now = link.bytes_per_second();
            self.link = Some(self.link.map_or(now, |before| before.max(now)));
        }
    }
}

/// Samples `monitor` during `run`, which returns the number of images that it ran. `flops_per_image` is the
/// work of one image.
pub(super) fn sustained(
    monitor: &Monitor,
    flops_per_image: f64,
    run: impl FnOnce() -> Result<usize>,
) -> Result<Sustained> {
    let ended = AtomicBool::new(false);
    let (images, seconds, joules, samples) = thread::scope(|scope| {
        let sampler = thread::Builder::new().spawn_scoped(scope, || {
            let mut samples = Samples::default();
            // Skip the first moment, when the power is still that of an idle GPU.
            thread::sleep(SAMPLE_INTERVAL);
            while !ended.load(Ordering::Relaxed) {
                samples.take(monitor);
                thread::sleep(SAMPLE_INTERVAL);
            }
            samples
        });
        let sampler = sampler.map_err(|error| Error::resource("threads", error))?;
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
    // Ignore an energy counter that did not advance.
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
