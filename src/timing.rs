//! Where the time of a run went: one duration a phase, as `--timing` prints it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::graph::Role;

/// The phases of the way from a file to its logits, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Reading a file and decoding it to RGB.
    Decode,
    /// Resizing and cropping to the model's size.
    Resize,
    /// Moving the pixels of a batch to where the model reads them. Where the normalisation constants are not folded
    /// into the weights this includes applying them.
    Copy,
    /// The model's steps, by the part of the model that they belong to.
    Step(Role),
    /// Moving the results to the caller.
    Readback,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode => f.pad("decode"),
            Self::Resize => f.pad("resize"),
            Self::Copy => f.pad("copy/normalise"),
            Self::Step(role) => role.fmt(f),
            Self::Readback => f.pad("readback"),
        }
    }
}

/// Time spent in each phase. Phases that ran on several threads at once count the sum of their threads' time for
/// decode and resize, and elapsed time for all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    phases: BTreeMap<Phase, Duration>,
}

impl Timing {
    /// Counts `time` to `phase`.
    pub fn add(&mut self, phase: Phase, time: Duration) {
        *self.phases.entry(phase).or_default() += time;
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (&phase, &time) in &other.phases {
            self.add(phase, time);
        }
    }

    /// The phases that were seen, in the order in which they happen.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, Duration)> + '_ {
        self.phases.iter().map(|(&phase, &time)| (phase, time))
    }

    /// The sum of all phases.
    pub fn total(&self) -> Duration {
        self.phases.values().sum()
    }
}

/// A table: phase, milliseconds, per cent of the total.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let share = |time: Duration| 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
        for (phase, time) in self.phases() {
            writeln!(
                f,
                "{phase:<15} {:>10.3} ms {:>6.1} %",
                1e3 * time.as_secs_f64(),
                share(time)
            )?;
        }
        write!(
            f,
            "{:<15} {:>10.3} ms {:>6.1} %",
            "total",
            1e3 * total.as_secs_f64(),
            share(total)
        )
    }
}

/// Milliseconds by phase, and their `total`.
impl Serialize for Timing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.phases.len() + 1))?;
        for (phase, time) in self.phases() {
            map.serialize_entry(&phase.to_string(), &(1e3 * time.as_secs_f64()))?;
        }
        map.serialize_entry("total", &(1e3 * self.total().as_secs_f64()))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_come_in_order_and_percentages_sum_to_a_hundred() {
        let mut timing = Timing::default();
        timing.add(Phase::Readback, Duration::from_millis(1));
        timing.add(Phase::Step(Role::Ffn), Duration::from_millis(6));
        timing.add(Phase::Decode, Duration::from_millis(2));
        timing.add(Phase::Step(Role::Ffn), Duration::from_millis(1));
        let text = timing.to_string();
        let names: Vec<_> = text.lines().filter_map(|l| l.split_whitespace().next()).collect();
        assert_eq!(names, ["decode", "FFN", "readback", "total"]);
        let per_cent: Vec<f64> = text
            .lines()
            .map(|l| l.rsplit(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        assert_eq!(per_cent, [20.0, 70.0, 10.0, 100.0]);
        assert_eq!(serde_json::to_value(&timing).unwrap()["total"], 10.0);
    }
}
