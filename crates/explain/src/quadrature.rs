//! Gauss-Legendre quadrature on [0, 1].

/// Returns nodes and weights of the rule with `n` nodes, which is exact for polynomials of degree `2n − 1`. The nodes are the roots of the
/// Legendre polynomial, computed by Newton's method from Tricomi's estimate.
pub(super) fn gauss_legendre(n: usize) -> Vec<(f64, f64)> {
    let node = |i: usize| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n as f64 + 0.5)).cos();
        let mut slope = 1.0;
        // Each step doubles the correct digits, so a few suffice.
        for _ in 0..16 {
            let value;
            (value, slope) = legendre(n, x);
            x -= value / slope;
        }
        (0.5 * (1.0 - x), 1.0 / ((1.0 - x * x) * slope * slope))
    };
    (0..n).map(node).collect()
}

/// Returns the Legendre polynomial of degree `n` and its derivative at `x` in (−1, 1).
fn legendre(n: usize, x: f64) -> (f64, f64) {
    let (mut before, mut value) = (1.0, x);
    for k in 2..=n {
        let k = k as f64;
        (before, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k);
    }
    (value, n as f64 * (x * value - before) / (x * x - 1.0))
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
