//! Tiers of validation: named sets of sizes and baselines, each with an expected maximum time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::config::Config;
use super::model::Baseline;
use hipvit::error::{Error, Result};

/// Set of checks: `hipvit validate --tier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Each op at the smallest sizes, and the model against one baseline. For use after each change; below 30
    /// s.
    Unit,
    /// Sizes of models, awkward numbers of tokens, all head sizes, and the model against each baseline
    /// without other requirements. For use before a merge; below 5 min.
    Integration,
    /// All sizes, timed. For use on a new machine, driver or ROCm; below 30 min.
    Stress,
}

impl Tier {
    /// All tiers, the shorter ones first.
    pub const ALL: [Self; 3] = [Self::Unit, Self::Integration, Self::Stress];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Integration => "integration",
            Self::Stress => "stress",
        }
    }

    /// Returns the expected maximum time. Exceeding it is not a failure, because a machine may be slow or
    /// shared.
    pub fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Unit => 30,
            Self::Integration => 5 * 60,
            Self::Stress => 30 * 60,
        })
    }

    /// Returns the sizes of the ops.
    pub fn configs(self) -> &'static [Config] {
        match self {
            Self::Unit => &[Config::Micro],
            Self::Integration => &[
                Config::Micro,
                Config::Small,
                Config::Realistic,
                Config::Awkward,
                Config::Heads,
            ],
            Self::Stress => &Config::ALL,
        }
    }

    /// Returns true if ops are timed.
    pub fn times(self) -> bool {
        self == Self::Stress
    }

    /// Returns the baselines of the model, on a GPU or on the CPU.
    pub fn baselines(self, on_gpu: bool) -> Vec<Baseline> {
        match (self, on_gpu) {
            (_, false) => vec![Baseline::Unoptimized],
            (Self::Unit, true) => vec![Baseline::Cpu],
            (_, true) => vec![Baseline::Cpu, Baseline::Unoptimized, Baseline::Eager],
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Tier {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|tier| tier.name() == text);
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::argument("tier", format!("`{text}` is not one of {names}"))
        })
    }
}

impl Serialize for Tier {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tier_has_what_the_one_before_has() {
        for pair in Tier::ALL.windows(2) {
            let [smaller, larger] = [pair[0], pair[1]];
            assert!(smaller.limit() < larger.limit());
            assert!(
                smaller
                    .configs()
                    .iter()
                    .all(|config| larger.configs().contains(config))
            );
            for on_gpu in [false, true] {
                let more = larger.baselines(on_gpu);
                assert!(
                    smaller
                        .baselines(on_gpu)
                        .iter()
                        .all(|baseline| more.contains(baseline))
                );
            }
        }
        assert_eq!("stress".parse::<Tier>().unwrap(), Tier::Stress);
        assert!(
            "quick"
                .parse::<Tier>()
                .unwrap_err()
                .to_string()
                .contains("unit, integration, stress")
        );
    }
}
