//! The choice of a token from logits.

use std::cmp::Ordering;

use super::operands::{count, exactly, expect};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, integers, single};
use crate::dtype::DType;

/// `(logits [B,V], rules [B,4], top_k [B,1] i32) → (logit [B,1], token [B,1] i32)`: chooses a token of each row. The rules are f32.
///
/// The rules of a row are a temperature, top p, and a random number from 0 to below 1 as `rules₂ + rules₃ / 2¹⁶`, in steps of 2⁻¹⁶ each.
///
/// 1. Logits are divided by the temperature.
/// 2. Logits below the `top_k`-th largest are left out. 0 leaves out none.
/// 3. The fewest largest logits stay whose probability together reaches top p; of equal ones, the last. Top p of 1 leaves out none.
/// 4. The token is the first one up to which the probabilities of those that stay exceed the random number.
///
/// At temperature 0, or if the largest logit is infinite or NaN, the token is the one of the largest logit, the first of equal ones. NaN counts as the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample;

/// Numbers of a row's rules.
pub const RULES: usize = 4;

/// Binary digits of a weight after the point.
const WEIGHT_BITS: u32 = 40;

/// `(ln 2)ᵏ / k! · 2³²`, from k = 1 on.
const EXP2: [u32; 10] = [
    2_977_044_472,
    1_031_764_991,
    238_388_332,
    41_309_550,
    5_726_720,
    661_577,
    65_510,
    5676,
    437,
    30,
];

/// The rules of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleRules {
    /// Divisor of the logits. 0 for the largest logit.
    pub temperature: f32,
    /// Number of largest logits that are considered. 0 for all.
    pub top_k: usize,
    /// Probability of those that are considered.
    pub top_p: f32,
    /// Random number, in units of 2⁻³².
    pub random: u32,
}

impl SampleRules {
    /// Reads the rules of a row.
    pub fn new<T: Real>(rules: &[T], top_k: T) -> Self {
        let part = |index: usize| (rules[index].to_f64() * 65536.0) as u32 & 0xffff;
        Self {
            temperature: rules[0].to_f32(),
            top_k: top_k.to_f64() as usize,
            top_p: rules[1].to_f32(),
            random: (part(2) << 16) | part(3),
        }
    }

    /// Returns the rules as an operand has them, without top k.
    pub fn numbers(&self) -> [f32; RULES] {
        let part = |bits: u32| (bits & 0xffff) as f32 / 65536.0;
        [
            self.temperature,
            self.top_p,
            part(self.random >> 16),
            part(self.random),
        ]
    }

    /// Returns `log₂ e` by the temperature.
    pub fn factor(&self) -> f32 {
        (std::f32::consts::LOG2_E / self.temperature).min(f32::MAX)
    }
}

/// Returns `2^((logit − largest) · factor)` in units of 2⁻⁴⁰. Kernels compute the same number, so that sums and choices are the same.
pub fn weight(logit: f32, largest: f32, factor: f32) -> u64 {
    let exponent = (largest - logit) * factor;
    if exponent.is_nan() || exponent >= WEIGHT_BITS as f32 {
        return 0;
    }
    let fixed = (exponent * (1 << 24) as f32) as u32;
    let high = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    let fraction = fixed << 8;
    let series = EXP2.iter().rev().fold(0, |sum, &term| term - high(fraction, sum));
    let power = (1 << 32) - u64::from(high(fraction, series));
    power << (WEIGHT_BITS - 32) >> (fixed >> 24)
}

/// Returns the index of the largest number, the first of equal ones. NaN is the largest.
pub fn argmax<T: Real>(row: &[T]) -> usize {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    let is_less = |a: T, b: T| a < b || is_nan(b) && !is_nan(a);
    let larger = |best: usize, index: usize| {
        if is_less(row[best], row[index]) {
            index
        } else {
            best
        }
    };
    (0..row.len()).fold(0, larger)
}

/// Compares two tokens by their logits, none of which is NaN. The larger one is the first, and the last of equal ones.
pub fn descending<T: Real>(row: &[T], a: usize, b: usize) -> Ordering {
    let ordering = row[b].partial_cmp(&row[a]).unwrap_or(Ordering::Equal);
    ordering.then(b.cmp(&a))
}

impl Sample {
    /// Maximum number of tokens, whose weights have a sum of 64 bits.
    pub const MAX_TOKENS: usize = 1 << 22;

    /// Returns the probability of each token, with 0 for those that are left out. `None` for rules that choose the token of the largest logit.
    fn probabilities<T: Real>(row: &[T], rules: SampleRules) -> Option<Vec<f64>> {
        let largest = row[argmax(row)].to_f64();
        if rules.temperature == 0.0 || !largest.is_finite() {
            return None;
        }
        let temperature = f64::from(rules.temperature);
        let weight = |logit: &T| ((logit.to_f64() - largest) / temperature).exp();
        let mut weights: Vec<f64> = row.iter().map(weight).collect();
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| descending(row, a, b));
        if (1..row.len()).contains(&rules.top_k) {
            let least = row[order[rules.top_k - 1]];
            order
                .iter()
                .filter(|&&token| row[token] < least)
                .for_each(|&token| weights[token] = 0.0);
        }
        let sum: f64 = weights.iter().sum();
        if rules.top_p < 1.0 {
            let mut before = 0.0;
            for (rank, token) in order.into_iter().enumerate() {
                let own = weights[token];
                if rank > 0 && before >= f64::from(rules.top_p) * sum {
                    weights[token] = 0.0;
                }
                before += own;
            }
        }
        let sum: f64 = weights.iter().sum();
        Some(weights.into_iter().map(|weight| weight / sum).collect())
    }
}

impl Definition for Sample {
    const NAME: &'static str = "sample";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [logits, rules, top_k] = exactly(operands)?;
        let &[rows, tokens] = logits else {
            return Err(OpError::layout("`logits`", logits, "[B, V]".to_owned()));
        };
        if tokens == 0 || tokens > Self::MAX_TOKENS {
            let most = Self::MAX_TOKENS;
            return Err(format!("chooses from 1 to {most} tokens, and the logits have {tokens}").into());
        }
        expect("rules", rules, &[rows, RULES])?;
        expect("top_k", top_k, &[rows, 1])?;
        Ok(vec![vec![rows, 1]; 2])
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            1 => DType::I32,
            _ => dtype,
        }
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            0 => dtype,
            1 => DType::F32,
            _ => DType::I32,
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [logits, rules, top_k] = operands else { return };
        let [values, chosen] = results else { return };
        let rows = logits.values().chunks_exact(logits.shape()[1]);
        let rules = rules.values().chunks_exact(RULES).zip(top_k.values());
        let results = values.values_mut().iter_mut().zip(chosen.values_mut());
        for ((row, (rules, &top_k)), (value, chosen)) in rows.zip(rules).zip(results) {
            let rules = SampleRules::new(rules, top_k);
            let mut token = argmax(row);
            if let Some(probabilities) = Self::probabilities(row, rules) {
                let mut rest = f64::from(rules.random) / 2f64.powi(32);
                for (index, probability) in probabilities.into_iter().enumerate() {
                    if rest < probability {
                        token = index;
                        break;
                    }
                    rest -= probability;
                }
            }
            *value = row[token];
            *chosen = T::from_f64(token as f64);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let (rows, is_micro) = ((batch * tokens).min(40), cases.is_micro());
            let mut push = |logits: Operand, most: i32| {
                let rows = logits.shape[0];
                // Temperatures, top p and random numbers from 0 to 1.
                let rules = Operand {
                    mean: 0.5,
                    spread: 0.5,
                    ..single(&[rows, RULES])
                };
                let operands = vec![logits, rules, integers(&[rows, 1], most)];
                cases.push(Self, operands.clone());
                cases.push_result(1, Self, operands);
            };
            let logits = |rows: usize, channels: usize, spread: f32| Operand {
                spread,
                ..activation(&[rows, channels])
            };
            push(logits(rows, channels, 4.0), 1);
            push(logits(rows, channels, 4.0), 9);
            if is_micro {
                // Many are equal in half precision.
                let equal = Operand {
                    mean: 100.0,
                    ..logits(rows, 300, 0.5)
                };
                push(equal.clone(), 1);
                push(equal, 9);
                push(logits(rows, 5003, 0.5), 100);
                push(logits(2, 50_265, 6.0), 1);
                push(logits(2, 50_265, 6.0), 3);
            }
        });
    }

    /// Elements are moved, and indices are exact. The reference has other rounding errors, but no case is at a limit.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f64; 7] = [1.5, -0.5, 2.0, 0.25, 2.0, -3.0, 0.0];

    fn rules(temperature: f32, top_k: usize, top_p: f32, random: u32) -> SampleRules {
        SampleRules {
            temperature,
            top_k,
            top_p,
            random,
        }
    }

    /// Softmax of LOGITS after TemperatureLogitsWarper, TopKLogitsWarper and TopPLogitsWarper of transformers 5.24.
    #[test]
    fn probabilities_are_those_of_transformers() {
        let check = |rules, expected: [f64; 7]| {
            for (found, expected) in Sample::probabilities(&LOGITS, rules)
                .unwrap()
                .into_iter()
                .zip(expected)
            {
                assert!(
                    (found - expected).abs() < 1e-6,
                    "{rules:?}: {found} instead of {expected}"
                );
            }
        };
        let all = [
            0.184_179, 0.010_578, 0.376_228, 0.030_883, 0.376_228, 0.000_297, 0.021_608,
        ];
        check(rules(0.7, 0, 1.0, 0), all);
        check(
            rules(0.7, 3, 1.0, 0),
            [0.196_639, 0.0, 0.401_68, 0.0, 0.401_68, 0.0, 0.0],
        );
        check(rules(1.0, 2, 1.0, 0), [0.0, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0]);
        check(
            rules(1.0, 9, 0.8, 0),
            [0.232_697, 0.0, 0.383_652, 0.0, 0.383_652, 0.0, 0.0],
        );
        check(
            rules(2.0, 5, 0.6, 0),
            [0.280_265, 0.0, 0.359_867, 0.0, 0.359_867, 0.0, 0.0],
        );
        // One of two equal ones.
        check(rules(1.0, 0, 0.2, 0), [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        check(rules(1.0, 0, 0.45, 0), [0.0, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn weights_are_powers_to_a_few_units() {
        for step in 0..4000_u16 {
            let logit = -f32::from(step) / 137.0;
            let exact = f64::from(logit * std::f32::consts::LOG2_E).exp2();
            let found = weight(logit, 0.0, std::f32::consts::LOG2_E) as f64 / (1_u64 << 40) as f64;
            // The exponent is rounded down to 2⁻²⁴, and the weight to 2⁻⁴⁰; the series has an error of some 2⁻³².
            let bound = exact * (2f64.powi(-24) * 0.7 + 4.0 * 2f64.powi(-32)) + 2f64.powi(-40);
            assert!(
                (found - exact).abs() <= bound,
                "{logit}: {found} instead of {exact}"
            );
        }
        assert_eq!(weight(1.0, 1.0, f32::MAX), 1 << 40);
        assert_eq!(weight(f32::NEG_INFINITY, 1.0, 1.0), 0);
        assert_eq!(weight(f32::INFINITY, f32::INFINITY, 1.0), 0);
    }

    #[test]
    fn the_most_likely_token_is_chosen_where_no_other_can_be() {
        let row = |logits: &[f64], rules: SampleRules| {
            let logits = Array::new([1, logits.len()], logits.to_vec()).unwrap();
            let top_k = Array::new([1, 1], vec![rules.top_k as f64]).unwrap();
            let rules = Array::new([1, RULES], rules.numbers().map(f64::from).to_vec()).unwrap();
            let results = Sample.eval(&[&logits, &rules, &top_k]).unwrap();
            (results[0].values()[0], results[1].values()[0])
        };
        let random = rules(1.0, 0, 1.0, u32::MAX);
        assert_eq!(row(&LOGITS, rules(0.0, 0, 1.0, u32::MAX)), (2.0, 2.0));
        assert_eq!(row(&LOGITS, random), (0.0, 6.0));
        assert_eq!(row(&LOGITS, rules(1.0, 0, 1.0, 0)), (1.5, 0.0));
        assert_eq!(row(&[f64::NEG_INFINITY; 3], random).1, 0.0);
        assert_eq!(row(&[0.0, f64::INFINITY, f64::INFINITY], random).1, 1.0);
        assert!(row(&[0.0, f64::NAN, f64::INFINITY], random).0.is_nan());
        assert_eq!(row(&[f64::NEG_INFINITY, 1.0], rules(1.0, 2, 0.5, 0)), (1.0, 1.0));
        let shapes: [&[usize]; 3] = [&[2, 5], &[2, 3], &[2, 1]];
        assert!(Sample.shapes(&shapes).is_err());
    }
}
