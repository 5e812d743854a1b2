//! Kernel selection: which library computes a linear layer, by which algorithm, and whether its epilogue does what follows
//! the GEMM.
//!
//! The choice for a [`LinearShape`] is, in this order: what `hipvit tune` measured on this machine ([`Store`]); what was
//! measured on the same GPU with the same libraries and is shipped with the crate (`defaults/`); a rule. Nothing is measured
//! unless asked for, so that no first run waits.
//!
//! The rule: hipBLASLt's first algorithm with its epilogue, wherever hipBLASLt is there and has kernels for the GPU;
//! rocBLAS and a kernel of this crate otherwise. On gfx942 rocBLAS's own selection is published to be 1.36× off the best
//! algorithm, and hipBLASLt's first 1.01×. Unmeasured here, since no AMD GPU was at hand.

mod store;

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

pub use self::store::{Key, Store};
use crate::hip::{DType, Epilogue};
use crate::ops::Activation;

/// Rows of the GEMM whose algorithm all numbers of rows use where results must not depend on the batch size: between those
/// of one image and of a large batch.
pub const REFERENCE_ROWS: usize = 2048;

/// How sessions select kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectOptions {
    /// Whether a library's epilogue may do what follows a GEMM.
    pub epilogues: bool,
    /// Whether measured choices are used; the rule alone otherwise.
    pub measured: bool,
    /// Whether an image's results must have the same bits at any batch size.
    pub reproducible: bool,
}

impl Default for SelectOptions {
    fn default() -> Self {
        Self {
            epilogues: true,
            measured: true,
            reproducible: false,
        }
    }
}

/// What distinguishes linear layers to the libraries: `activation(x [m,k] · weight [n,k]ᵀ + bias) + residual`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LinearShape {
    /// Rows of x: tokens of all images.
    pub m: usize,
    /// Output channels.
    pub n: usize,
    /// Input channels.
    pub k: usize,
    /// The element type of all operands.
    pub dtype: DType,
    /// Whether there is a bias.
    pub bias: bool,
    /// What is applied to the sum.
    pub activation: Option<Activation>,
    /// Whether there is a residual.
    pub residual: bool,
}

impl LinearShape {
    /// The floating-point operations of the GEMM.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// The epilogue that computes what follows the GEMM; a residual is added through `beta · C`, before any activation, so
    /// there is none for both. `None` where there is no such epilogue.
    ///
    /// The libraries' GELU is the tanh form, at most 4.8e-4 from the error function's. In f16 and bf16 its result is nearer to
    /// the exact GELU nonetheless, since the sum is not rounded before (a test below measures it); in f32 it is not.
    pub fn epilogue(&self) -> Option<Epilogue> {
        let tanh = match self.activation {
            None => return Some(if self.bias { Epilogue::Bias } else { Epilogue::None }),
            Some(_) if self.residual => return None,
            Some(Activation::GeluTanh) => true,
            Some(Activation::GeluErf) => matches!(self.dtype, DType::F16 | DType::BF16),
            Some(Activation::Relu) => return self.bias.then_some(Epilogue::BiasRelu),
            Some(_) => false,
        };
        tanh.then_some(if self.bias {
            Epilogue::BiasGelu
        } else {
            Epilogue::Gelu
        })
    }
}

/// As `linear 50432×768×3072 bf16 +bias+gelu` (m, k, n).
impl fmt::Display for LinearShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linear {}×{}×{} {}", self.m, self.k, self.n, self.dtype)?;
        let activation = self.activation.map(Activation::name);
        let parts = [
            self.bias.then_some("bias"),
            activation,
            self.residual.then_some("residual"),
        ];
        if parts.iter().any(Option::is_some) {
            f.write_str(" ")?;
        }
        parts
            .into_iter()
            .flatten()
            .try_for_each(|part| write!(f, "+{part}"))
    }
}

/// What computes a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinearKernel {
    /// rocBLAS by its own selection, then a kernel for bias, activation and residual.
    Rocblas,
    /// hipBLASLt.
    Hipblaslt {
        /// The number of the algorithm in the order of the library's heuristics.
        algorithm: usize,
        /// Whether the library's [epilogue](LinearShape::epilogue) does the rest, or a kernel.
        epilogue: bool,
    },
}

impl fmt::Display for LinearKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rocblas => f.write_str("rocBLAS"),
            Self::Hipblaslt { algorithm, epilogue } => {
                let epilogue = if *epilogue { " with epilogue" } else { "" };
                write!(f, "hipBLASLt {algorithm}{epilogue}")
            }
        }
    }
}

/// Where a choice comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured by `hipvit tune`.
    Tuned,
    /// Measured on such a GPU; shipped with the crate.
    Shipped,
    /// The rule.
    Rule,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tuned => "tuned",
            Self::Shipped => "shipped",
            Self::Rule => "rule",
        })
    }
}

/// What an executor selects by. Can be shared between threads.
#[derive(Debug, Default)]
pub struct Selection {
    options: SelectOptions,
    /// Why hipBLASLt is no candidate.
    no_hipblaslt: Option<String>,
    tuned: Store,
    shipped: Store,
    /// The first shape that hipBLASLt turned out not to compute, and why.
    rejected: OnceLock<String>,
}

impl Selection {
    /// For the device and libraries of `key`; `Err` says why hipBLASLt is no candidate.
    pub fn new(options: SelectOptions, key: Result<Key, String>) -> Self {
        match key {
            Err(reason) => Self {
                options,
                no_hipblaslt: Some(reason),
                ..Self::default()
            },
            Ok(key) => Self {
                options,
                shipped: Store::shipped(&key),
                tuned: Store::load(key),
                ..Self::default()
            },
        }
    }

    /// The options.
    pub fn options(&self) -> SelectOptions {
        self.options
    }

    /// Sets the options.
    pub(super) fn set_options(&mut self, options: SelectOptions) {
        self.options = options;
    }

    /// Whether hipBLASLt is a candidate.
    pub fn has_hipblaslt(&self) -> bool {
        self.no_hipblaslt.is_none()
    }

    /// Whether some shape may be computed by rocBLAS.
    pub(super) fn uses_rocblas(&self) -> bool {
        !self.has_hipblaslt()
            || self.tuned.has(LinearKernel::Rocblas)
            || self.shipped.has(LinearKernel::Rocblas)
    }

    /// Why hipBLASLt is no candidate, or did not compute some layer.
    pub fn note(&self) -> Option<&str> {
        let rejected = self.rejected.get();
        self.no_hipblaslt.as_ref().or(rejected).map(String::as_str)
    }

    /// What was measured on this machine.
    pub fn tuned(&self) -> &Store {
        &self.tuned
    }

    /// What computes `shape` by the rule.
    pub fn rule(&self, shape: &LinearShape) -> LinearKernel {
        match self.no_hipblaslt {
            Some(_) => LinearKernel::Rocblas,
            None => LinearKernel::Hipblaslt {
                algorithm: 0,
                epilogue: self.can_fuse(shape),
            },
        }
    }

    fn can_fuse(&self, shape: &LinearShape) -> bool {
        self.options.epilogues && shape.epilogue().is_some()
    }

    /// What computes `shape`, and where the choice comes from.
    pub fn linear(&self, shape: &LinearShape) -> (LinearKernel, Origin) {
        let (rule, can_fuse) = (self.rule(shape), self.can_fuse(shape));
        if self.no_hipblaslt.is_some() {
            return (rule, Origin::Rule);
        }
        if self.options.reproducible || !self.options.measured {
            return (rule, Origin::Rule);
        }
        let usable = |kernel: &LinearKernel| match kernel {
            LinearKernel::Rocblas => true,
            LinearKernel::Hipblaslt { epilogue, .. } => can_fuse || !epilogue,
        };
        let found = |store: &Store| store.get(shape).filter(usable);
        match (found(&self.tuned), found(&self.shipped)) {
            (Some(kernel), _) => (kernel, Origin::Tuned),
            (None, Some(kernel)) => (kernel, Origin::Shipped),
            (None, None) => (rule, Origin::Rule),
        }
    }

    /// Records that hipBLASLt does not compute `shape`.
    pub fn reject(&self, shape: &LinearShape, reason: &str) {
        self.rejected
            .get_or_init(|| format!("hipBLASLt does not compute {shape}: {reason}"));
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    pub(super) fn shape(m: usize) -> LinearShape {
        LinearShape {
            m,
            n: 7,
            k: 5,
            dtype: DType::BF16,
            bias: true,
            activation: Some(Activation::GeluErf),
            residual: false,
        }
    }

    pub(super) fn key() -> Key {
        Key {
            device: "Some GPU".into(),
            arch: "gfx000".into(),
            libraries: "hipBLASLt 1".into(),
        }
    }

    #[test]
    fn epilogues_are_used_where_they_compute_the_same() {
        let of = |activation, bias, residual, dtype| {
            let shape = LinearShape {
                activation,
                bias,
                residual,
                dtype,
                ..shape(3)
            };
            shape.epilogue()
        };
        assert_eq!(of(None, false, true, DType::F32), Some(Epilogue::None));
        assert_eq!(of(None, true, true, DType::F32), Some(Epilogue::Bias));
        let erf = Some(Activation::GeluErf);
        assert_eq!(of(erf, true, false, DType::BF16), Some(Epilogue::BiasGelu));
        assert_eq!(of(erf, true, false, DType::F16), Some(Epilogue::BiasGelu));
        assert_eq!(of(erf, true, false, DType::F32), None);
        assert_eq!(of(erf, true, true, DType::BF16), None, "the residual comes last");
        let tanh = Some(Activation::GeluTanh);
        assert_eq!(of(tanh, false, false, DType::F32), Some(Epilogue::Gelu));
        assert_eq!(of(Some(Activation::Silu), true, false, DType::BF16), None);
    }

    /// Against the exact GELU in f64, of normally distributed sums: the unfused one rounds the GEMM's result, adds the bias
    /// and rounds again; the fused one rounds once.
    #[test]
    fn fused_tanh_is_nearer_than_unfused_erf_in_half_precision() {
        const BIAS: f64 = 0.05;
        const SAMPLES: usize = 100_000;
        let erf = |x: f64| 0.5 * x * libm::erfc(-x / 2f64.sqrt());
        let tanh = |x: f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        };
        type Round = fn(f64) -> f64;
        let rounds: [(&str, Round); 2] = [
            ("f16", |x| f16::from_f64(x).to_f64()),
            ("bf16", |x| bf16::from_f64(x).to_f64()),
        ];
        for ((name, round), deviation) in rounds
            .iter()
            .flat_map(|r| [0.25, 0.5, 1.0, 2.0, 4.0].map(|d| (r, d)))
        {
            let (mut unfused, mut fused) = ([0.0f64; 2], [0.0f64; 2]);
            for i in 0..SAMPLES {
                // The quantiles of a normal distribution, by bisection of its distribution function.
                let p = (i as f64 + 0.5) / SAMPLES as f64;
                let (mut low, mut high) = (-6.0, 6.0);
                for _ in 0..40 {
                    let middle = 0.5 * (low + high);
                    let below = 0.5 * libm::erfc(-middle / 2f64.sqrt()) < p;
                    (low, high) = if below { (middle, high) } else { (low, middle) };
                }
                let sum = deviation * low;
                let exact = erf(sum + BIAS);
                for (errors, result) in [
                    (&mut unfused, round(erf(round(sum) + BIAS))),
                    (&mut fused, round(tanh(sum + BIAS))),
                ] {
                    let error = (result - exact).abs();
                    *errors = [errors[0] + error * error, errors[1].max(error)];
                }
            }
            assert!(
                fused[0] < unfused[0],
                "{name}, {deviation}: squares {fused:?} {unfused:?}"
            );
            assert!(
                fused[1] <= unfused[1],
                "{name}, {deviation}: largest {fused:?} {unfused:?}"
            );
        }
    }

    #[test]
    fn measurements_go_before_the_rule() {
        let rule = LinearKernel::Hipblaslt {
            algorithm: 0,
            epilogue: true,
        };
        let mut selection = Selection::new(SelectOptions::default(), Ok(key()));
        selection.tuned = Store::new(key());
        assert_eq!(selection.linear(&shape(3)), (rule, Origin::Rule));
        selection.tuned.insert(shape(3), LinearKernel::Rocblas, 1.5);
        assert_eq!(
            selection.linear(&shape(3)),
            (LinearKernel::Rocblas, Origin::Tuned)
        );
        assert_eq!(selection.linear(&shape(4)), (rule, Origin::Rule));
        selection.options.reproducible = true;
        assert_eq!(selection.linear(&shape(3)), (rule, Origin::Rule));
    }

    #[test]
    fn without_hipblaslt_there_is_rocblas() {
        let selection = Selection::new(SelectOptions::default(), Err("is not there".into()));
        assert_eq!(selection.linear(&shape(3)), (LinearKernel::Rocblas, Origin::Rule));
        assert_eq!(selection.note(), Some("is not there"));
    }
}
