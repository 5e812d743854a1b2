//! Measures the time of each phase of a run, as `--timing` prints it.
//!
//! The host's clock measures phases on the host; events measure phases on a GPU. In a [pipeline](crate::pipeline) the
//! phases of several batches overlap, so their sum may exceed the wall time. The ratio of both is the
//! [overlap](Timing::overlap).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

pub use crate::graph::Role;

/// Phases from a file to its labels, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// Reading a file and decoding it to RGB.
    Decode,
    /// Resizing and cropping to the model's size.
    Resize,
    /// Copying the inputs of a batch to pinned memory, and submitting the batch.
    Stage,
    /// Copying the pixels to a GPU. Memory that is not pinned is copied through pinned memory.
    CopyIn,
    /// Copying decoded images to a GPU and resizing them there.
    DeviceResize,
    /// Steps of the model, by the part of the model that they belong to.
    Step(Role),
    /// All steps of the model, if a GPU replays them as a captured HIP graph.
    Replay,
    /// Copying the results to the caller.
    CopyOut,
    /// Converting logits to the most likely labels.
    Softmax,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode => f.pad("decode"),
            Self::Resize => f.pad("resize"),
            Self::Stage => f.pad("stage"),
            Self::CopyIn => f.pad("copy-in"),
            Self::DeviceResize => f.pad("device-resize"),
            Self::Step(role) => role.fmt(f),
            Self::Replay => f.pad("replay"),
            Self::CopyOut => f.pad("copy-out"),
            Self::Softmax => f.pad("softmax"),
        }
    }
}

/// Time of each phase.
///
/// Decode and resize run on several threads at once and count the sum of the threads' times. All other phases count
/// elapsed time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    phases: BTreeMap<Phase, Duration>,
    wall: Duration,
    most_in_flight: usize,
}

impl Timing {
    /// Adds `time` to `phase`.
    pub fn add(&mut self, phase: Phase, time: Duration) {
        *self.phases.entry(phase).or_default() += time;
    }

    /// Adds `time` to the wall time.
    pub fn add_wall(&mut self, time: Duration) {
        self.wall += time;
    }

    /// Records that `batches` batches were in flight at once.
    pub fn note_in_flight(&mut self, batches: usize) {
        self.most_in_flight = self.most_in_flight.max(batches);
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (&phase, &time) in &other.phases {
            self.add(phase, time);
        }
        self.add_wall(other.wall);
        self.note_in_flight(other.most_in_flight);
    }

    /// Iterates over the phases that occurred, in the order in which they happen.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, Duration)> + '_ {
        self.phases.iter().map(|(&phase, &time)| (phase, time))
    }

    /// Returns the sum of all phases.
    pub fn total(&self) -> Duration {
        self.phases.values().sum()
    }

    /// Returns the time from the first image to the last result.
    pub fn wall(&self) -> Duration {
        self.wall
    }

    /// Returns the mean number of phases that ran at once: their sum over the wall time. Returns `None` without a wall
    /// time.
    pub fn overlap(&self) -> Option<f64> {
        let wall = self.wall.as_secs_f64();
        (wall > 0.0).then(|| self.total().as_secs_f64() / wall)
    }

    /// Returns the maximum number of batches that were in flight at once.
    pub fn most_in_flight(&self) -> usize {
        self.most_in_flight
    }
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Formats a table of milliseconds and percentages by phase, with their sum, the wall time, the overlap and the batches
/// in flight.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let share = |time: Duration| 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
        for (phase, time) in self.phases() {
            writeln!(
                f,
                "{phase:<15} {:>10.3} ms {:>6.1} %",
                milliseconds(time),
                share(time)
            )?;
        }
        write!(
            f,
            "{:<15} {:>10.3} ms {:>6.1} %",
            "sum",
            milliseconds(total),
            share(total)
        )?;
        if let Some(overlap) = self.overlap() {
            let wall = milliseconds(self.wall);
            write!(f, "\n{:<15} {wall:>10.3} ms, overlap {overlap:.2}", "wall")?;
        }
        if self.most_in_flight > 0 {
            write!(
                f,
                "\n{:<15} at most {} batch{}",
                "in flight",
                self.most_in_flight,
                if self.most_in_flight == 1 { "" } else { "es" }
            )?;
        }
        Ok(())
    }
}

/// Serialises times in milliseconds.
///
/// | field | content |
/// | --- | --- |
/// | `phases_ms` | time by phase |
/// | `sum_ms` | sum of the phases |
/// | `wall_ms` | wall time |
/// | `overlap` | ratio of sum to wall time |
/// | `most_in_flight` | number of batches |
impl Serialize for Timing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let phases: serde_json::Map<String, serde_json::Value> = self
            .phases()
            .map(|(phase, time)| (phase.to_string(), milliseconds(time).into()))
            .collect();
        let mut timing = serializer.serialize_struct("Timing", 5)?;
        timing.serialize_field("phases_ms", &phases)?;
        timing.serialize_field("sum_ms", &milliseconds(self.total()))?;
        timing.serialize_field("wall_ms", &milliseconds(self.wall))?;
        timing.serialize_field("overlap", &self.overlap())?;
        timing.serialize_field("most_in_flight", &self.most_in_flight)?;
        timing.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_come_in_order_and_percentages_sum_to_a_hundred() {
        let mut timing = Timing::default();
        timing.add(Phase::CopyOut, Duration::from_millis(1));
        timing.add(Phase::Step(Role::Ffn), Duration::from_millis(6));
        timing.add(Phase::Decode, Duration::from_millis(2));
        timing.add(Phase::Step(Role::Ffn), Duration::from_millis(1));
        let text = timing.to_string();
        let names: Vec<_> = text.lines().filter_map(|l| l.split_whitespace().next()).collect();
        assert_eq!(names, ["decode", "FFN", "copy-out", "sum"]);
        let per_cent: Vec<f64> = text
            .lines()
            .map(|l| l.rsplit(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        assert_eq!(per_cent, [20.0, 70.0, 10.0, 100.0]);
        let json = serde_json::to_value(&timing).unwrap();
        assert_eq!(json["sum_ms"], 10.0);
        assert_eq!(json["phases_ms"]["FFN"], 7.0);
    }

    #[test]
    fn phases_that_overlap_sum_to_more_than_the_wall_time() {
        let mut timing = Timing::default();
        timing.add(Phase::CopyIn, Duration::from_millis(6));
        timing.add(Phase::Replay, Duration::from_millis(6));
        assert_eq!(timing.overlap(), None);
        let mut wall = Timing::default();
        wall.add_wall(Duration::from_millis(8));
        wall.note_in_flight(3);
        timing.merge(&wall);
        let text = timing.to_string();
        assert!(text.contains("8.000 ms, overlap 1.50"), "{text}");
        assert!(text.ends_with("at most 3 batches"), "{text}");
        let mut one = Timing::default();
        one.note_in_flight(1);
        assert!(one.to_string().ends_with("at most 1 batch"), "{one}");
        let json = serde_json::to_value(&timing).unwrap();
        assert_eq!((&json["wall_ms"], &json["overlap"]), (&8.0.into(), &1.5.into()));
        assert_eq!(json["most_in_flight"], 3);
    }
}
