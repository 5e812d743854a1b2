//! Minimisation of smooth convex functions by L-BFGS (Nocedal and Wright, *Numerical Optimization*, algorithms 7.4 and 7.5).

use std::collections::VecDeque;

/// Number of steps that approximate the Hessian, as in scikit-learn.
const HISTORY: usize = 10;
/// Sufficient decrease: share of the decrease that the slope predicts.
const DECREASE: f64 = 1e-4;
/// Maximum number of halvings of a step.
const MAX_HALVINGS: usize = 30;
/// Relative error of values whose matrix products are in f32. A step may increase the value by so much.
const NOISE: f64 = f32::EPSILON as f64;

/// When the minimisation ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest component of the gradient at the minimum.
    pub(super) gradient: f64,
    /// Maximum number of steps.
    pub(super) iterations: usize,
}

/// Where and how the minimisation ended.
#[derive(Clone, Debug)]
pub(super) struct Minimum {
    pub(super) position: Vec<f64>,
    /// Number of steps.
    pub(super) iterations: usize,
    /// True if the gradient is within its limit.
    pub(super) converged: bool,
}

/// Returns the value of a function at a position, and writes its gradient.
pub(super) type Function<'a> = dyn FnMut(&[f64], &mut [f64]) -> f64 + 'a;

/// A position with the value and the gradient of the function.
struct Point {
    position: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// A step, and the resulting change of the gradient.
struct Step {
    change: Vec<f64>,
    gradient_change: Vec<f64>,
    /// Product of both.
    curvature: f64,
}

/// Minimises a function from `position` on.
pub(super) fn minimize(position: Vec<f64>, limits: Limits, function: &mut Function<'_>) -> Minimum {
    let mut point = Point::new(position, function);
    let mut history = VecDeque::with_capacity(HISTORY);
    let mut iterations = 0;
    while iterations < limits.iterations && !point.is_within(limits.gradient) {
        let direction = direction(&point.gradient, &history);
        // Without curvature, start with a step of length 1 at most.
        let first = if history.is_empty() {
            (1.0 / dot(&direction, &direction).sqrt()).min(1.0)
        } else {
            1.0
        };
        let Some(next) = point.descend(&direction, first, function) else {
            break;
        };
        remember(&mut history, &point, &next);
        point = next;
        iterations += 1;
    }
    Minimum {
        converged: point.is_within(limits.gradient),
        position: point.position,
        iterations,
    }
}

impl Point {
    fn new(position: Vec<f64>, function: &mut Function<'_>) -> Self {
        let mut gradient = vec![0.0; position.len()];
        let value = function(&position, &mut gradient);
        Self {
            position,
            value,
            gradient,
        }
    }

    fn is_within(&self, limit: f64) -> bool {
        self.gradient.iter().all(|g| g.abs() <= limit)
    }

    /// Moves along `direction`. Halves the step until the value decreases enough. Returns `None` if it never does.
    fn descend(&self, direction: &[f64], first: f64, function: &mut Function<'_>) -> Option<Self> {
        let slope = dot(direction, &self.gradient);
        let mut step = first;
        for _ in 0..=MAX_HALVINGS {
            let mut position = self.position.clone();
            add_scaled(&mut position, step, direction);
            let next = Self::new(position, function);
            if next.value <= self.value + DECREASE * step * slope + NOISE * self.value.abs() {
                return Some(next);
            }
            step *= 0.5;
        }
        None
    }
}

/// Returns the gradient times the negative inverse of the approximate Hessian (two-loop recursion).
fn direction(gradient: &[f64], history: &VecDeque<Step>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut weights = Vec::with_capacity(history.len());
    for step in history.iter().rev() {
        let weight = dot(&step.change, &direction) / step.curvature;
        add_scaled(&mut direction, -weight, &step.gradient_change);
        weights.push(weight);
    }
    if let Some(newest) = history.back() {
        let scale = newest.curvature / dot(&newest.gradient_change, &newest.gradient_change);
        direction.iter_mut().for_each(|d| *d *= scale);
    }
    for (step, weight) in history.iter().zip(weights.into_iter().rev()) {
        let correction = dot(&step.gradient_change, &direction) / step.curvature;
        add_scaled(&mut direction, weight - correction, &step.change);
    }
    direction
}

/// Adds a step to the history, unless rounding hides its curvature.
fn remember(history: &mut VecDeque<Step>, from: &Point, to: &Point) {
    let change = difference(&to.position, &from.position);
    let gradient_change = difference(&to.gradient, &from.gradient);
    let curvature = dot(&change, &gradient_change);
    if curvature <= f64::EPSILON * dot(&gradient_change, &gradient_change) {
        return;
    }
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(Step {
        change,
        gradient_change,
        curvature,
    });
}

fn difference(to: &[f64], from: &[f64]) -> Vec<f64> {
    to.iter().zip(from).map(|(to, from)| to - from).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(to: &mut [f64], factor: f64, from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        gradient: 1e-8,
        iterations: 1000,
    };

    /// Minimises `Σ cᵢ·(xᵢ − i)² / 2`, whose Hessian has the condition number 1e4.
    #[test]
    fn a_badly_conditioned_quadratic_ends_at_its_minimum() {
        let factors: Vec<f64> = (0..20).map(|i| 10f64.powf(f64::from(i) / 19.0 * 4.0)).collect();
        let minimum = minimize(vec![0.0; 20], LIMITS, &mut |x, gradient| {
            let mut value = 0.0;
            for (i, factor) in factors.iter().enumerate() {
                let distance = x[i] - i as f64;
                gradient[i] = factor * distance;
                value += factor * distance * distance / 2.0;
            }
            value
        });
        // SciPy's L-BFGS-B takes 584 steps.
        assert!(minimum.converged && minimum.iterations < 700, "{minimum:?}");
        for (i, x) in minimum.position.iter().enumerate() {
            assert!((x - i as f64).abs() < 1e-7, "{i}: {x}");
        }
    }

    #[test]
    fn a_minimum_at_infinity_is_not_reached() {
        let limits = Limits {
            iterations: 5,
            ..LIMITS
        };
        let minimum = minimize(vec![0.0], limits, &mut |x, gradient| {
            gradient[0] = -(-x[0]).exp();
            (-x[0]).exp()
        });
        assert!(!minimum.converged && minimum.iterations == 5, "{minimum:?}");
    }
}
