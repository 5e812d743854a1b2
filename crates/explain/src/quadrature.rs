//! Gauss-Legendre quadrature on [0, 1].

/// Returns the `(node, weight)` pairs of the Gauss-Legendre rule with `n` nodes.
///
/// The rule is exact for polynomials up to degree `2n − 1`. Its nodes are the roots of the Legendre polynomial of degree `n`, mapped to
/// [0, 1]. Newton's method computes the roots from Tricomi's initial estimate.
pub(super) fn gauss_legendre(n: usize) -> Vec<(f64, f64)> {
    let node_and_weight = |i: usize| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n as f64 + 0.5)).cos();
        let mut derivative = 1.0;
        // Newton's method doubles the number of correct digits per step. 16 steps are more than enough.
        for _ in 0..16 {
            let value;
            (value, derivative) = legendre(n, x);
            x -= value / derivative;
        }
        (0.5 * (1.0 - x), 1.0 / ((1.0 - x * x) * derivative * derivative))
    };
    (0..n).map(node_and_weight).collect()
}

/// Returns the value and the derivative of the Legendre polynomial of degree `n` at `x`, for −1 < `x` < 1.
fn legendre(n: usize, x: f64) -> (f64, f64) {
    let (mut previous, mut value) = (1.0, x);
    for k in 2..=n {
        let k = k as f64;
        (previous, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * previous) / k);
    }
    (value, n as f64 * (x * value - previous) / (x * x - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_are_integrated_exactly() {
        for n in [1, 2, 5, 20, 50, 300] {
            let rule = gauss_legendre(n);
            for degree in 0..(2 * n).min(60) {
                let integral: f64 = rule.iter().map(|(x, w)| w * x.powi(degree as i32)).sum();
                let expected = 1.0 / (degree as f64 + 1.0);
                assert!(
                    (integral - expected).abs() < 1e-13,
                    "{n} nodes, degree {degree}: {integral}"
                );
            }
        }
    }
}
