//! Scaling of the loss, so that gradients in f16 neither overflow nor vanish.

/// Number of updates after which the factor doubles.
const INTERVAL: u32 = 2000;
const LARGEST: f32 = 4_294_967_296.0;

/// Factor of the loss, as PyTorch's `GradScaler` chooses it: it halves if gradients overflow, and doubles after 2,000 updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LossScale {
    pub(crate) factor: f32,
    /// Number of updates since the factor changed.
    pub(crate) updates: u32,
    is_dynamic: bool,
}

impl LossScale {
    /// Creates a factor that changes.
    pub(crate) fn dynamic(factor: f32) -> Self {
        Self {
            factor,
            updates: 0,
            is_dynamic: true,
        }
    }

    /// Creates a factor of 1 that stays.
    pub(crate) fn none() -> Self {
        Self {
            factor: 1.0,
            updates: 0,
            is_dynamic: false,
        }
    }

    /// Returns true if steps change the factor.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.is_dynamic
    }

    /// Returns true if a step without an update is to be expected, since the factor is chosen by trial.
    pub(crate) fn is_searching(&self) -> bool {
        self.is_dynamic && self.factor >= 1.0
    }

    /// Chooses the factor after a step.
    pub(crate) fn after(&mut self, updated: bool) {
        if !self.is_dynamic {
            return;
        }
        if !updated {
            (self.factor, self.updates) = (0.5 * self.factor, 0);
        } else if self.updates + 1 == INTERVAL {
            (self.factor, self.updates) = ((2.0 * self.factor).min(LARGEST), 0);
        } else {
            self.updates += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_halves_at_once_and_doubles_after_an_interval() {
        let mut scale = LossScale::dynamic(8.0);
        scale.after(false);
        assert_eq!((scale.factor, scale.updates), (4.0, 0));
        for _ in 1..INTERVAL {
            scale.after(true);
        }
        assert_eq!((scale.factor, scale.updates), (4.0, INTERVAL - 1));
        scale.after(true);
        assert_eq!((scale.factor, scale.updates), (8.0, 0));
        for _ in 0..4 {
            assert!(scale.is_searching());
            scale.after(false);
        }
        assert!(!scale.is_searching());

        let mut fixed = LossScale::none();
        fixed.after(false);
        assert_eq!(fixed, LossScale::none());
    }
}
