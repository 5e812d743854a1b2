//! Learning rate of each step: a linear warm-up, then a decay.

use serde::{Deserialize, Serialize};

/// Shape of the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decay {
    /// Half a cosine over all steps, as timm's `CosineLRScheduler` computes it.
    ///
    /// The cosine starts at step 0, so the warm-up hides its beginning.
    #[default]
    Cosine,
    /// A straight line from the end of the warm-up to the last step.
    Linear,
    /// No decay.
    Constant,
}

/// Learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Shape after the warm-up.
    pub decay: Decay,
    /// Learning rate that the warm-up reaches.
    pub peak: f64,
    /// Learning rate after the last step.
    pub minimum: f64,
    /// Learning rate of step 0, if there is a warm-up.
    pub warmup_start: f64,
    /// Number of steps of the warm-up.
    pub warmup_steps: u64,
    /// Number of steps in all.
    pub steps: u64,
}

impl Schedule {
    /// Returns the learning rate of `step`, counted from 0.
    #[must_use]
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            let slope = (self.peak - self.warmup_start) / self.warmup_steps as f64;
            return self.warmup_start + step as f64 * slope;
        }
        self.minimum + (self.peak - self.minimum) * self.remaining(step)
    }

    /// Returns the share of the decay that remains at `step`: 1 at the peak, 0 at the minimum.
    fn remaining(&self, step: u64) -> f64 {
        match self.decay {
            Decay::Constant => 1.0,
            _ if step >= self.steps => 0.0,
            Decay::Cosine => {
                let done = step as f64 / self.steps as f64;
                0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
            Decay::Linear => {
                let after_warmup = self.steps.saturating_sub(self.warmup_steps).max(1);
                (self.steps - step) as f64 / after_warmup as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: Schedule = Schedule {
        decay: Decay::Cosine,
        peak: 5e-4,
        minimum: 1e-6,
        warmup_start: 1e-5,
        warmup_steps: 10,
        steps: 100,
    };

    fn assert_rates(schedule: &Schedule, expected: &[(u64, f64)]) {
        for &(step, expected) in expected {
            let rate = schedule.rate(step);
            assert!((rate - expected).abs() <= 1e-12 * schedule.peak, "{step}: {rate}");
        }
    }

    /// The figures are those of timm 1.0.31: `CosineLRScheduler(optimizer, t_initial=100, lr_min=1e-6, warmup_t=10,
    /// warmup_lr_init=1e-5, t_in_epochs=False)`.
    #[test]
    fn cosine_has_the_rates_of_timm() {
        let expected = [
            (0, 1e-05),
            (1, 5.9e-05),
            (5, 0.000255),
            (9, 0.000451),
            (10, 0.000_487_788_600_815_640_85),
            (11, 0.000_485_249_751_854_079_3),
            (50, 0.0002505),
            (99, 1.123_113_188_749_965_8e-06),
            (100, 1e-06),
        ];
        assert_rates(&SCHEDULE, &expected);
        let plain = Schedule {
            peak: 1e-3,
            minimum: 0.0,
            warmup_steps: 0,
            steps: 7,
            ..SCHEDULE
        };
        assert_rates(&plain, &[(0, 0.001), (3, 0.000_611_260_466_978_157_2), (7, 0.0)]);
    }

    /// The figures are those of PyTorch 2.15: `LambdaLR` with the factors of transformers'
    /// `get_linear_schedule_with_warmup` and `get_constant_schedule_with_warmup`.
    #[test]
    fn linear_and_constant_have_the_rates_of_pytorch() {
        let linear = Schedule {
            decay: Decay::Linear,
            minimum: 0.0,
            warmup_start: 0.0,
            ..SCHEDULE
        };
        let warmup = [(0, 0.0), (1, 5e-05), (5, 0.00025), (9, 0.00045), (10, 0.0005)];
        assert_rates(&linear, &warmup);
        let decay = [
            (11, 0.000_494_444_444_444_444_5),
            (50, 0.000_277_777_777_777_777_8),
            (99, 5.555_555_555_555_556e-06),
            (100, 0.0),
        ];
        assert_rates(&linear, &decay);
        let constant = Schedule {
            decay: Decay::Constant,
            ..linear
        };
        assert_rates(&constant, &warmup);
        assert_rates(&constant, &[(99, 0.0005), (100, 0.0005)]);
    }
}
