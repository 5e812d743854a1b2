//! Attribution of an output to pixel values.

use std::fmt;

use ndarray::{Array2, Array3, ArrayD, Axis};
use rayon::prelude::*;
use serde::Serialize;

use super::backward::{Gradients, Rules};
use super::program::{Program, Run};
use super::quadrature::gauss_legendre;
use hipvit::error::{Error, Result};
use hipvit::graph::ValueId;
use hipvit::reference::Real;

/// Attribution method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// AttnLRP: one backward pass with rules for attention (Achtibat et al., ICML 2024, <https://arxiv.org/abs/2402.05602>), with ε = 0.
    /// Relevance absorbed by softmax and biases is not attributed to pixels.
    #[default]
    #[serde(rename = "attnlrp")]
    AttnLrp,
    /// Integrated gradients (Sundararajan et al., ICML 2017, <https://arxiv.org/abs/1703.01365>). The contributions sum to the difference
    /// between the outputs of image and baseline, up to the error of the quadrature.
    IntegratedGradients,
    /// Conservative propagation (Ali et al., ICML 2022, <https://arxiv.org/abs/2202.07304>). Attention, standard deviations and gates are
    /// treated as constants. The contributions of pixels and constants sum exactly to the output.
    Conservative,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::AttnLrp, Self::IntegratedGradients, Self::Conservative];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AttnLrp => "attnlrp",
            Self::IntegratedGradients => "integrated-gradients",
            Self::Conservative => "conservative",
        }
    }

    /// Returns the citation of the paper.
    pub fn source(self) -> &'static str {
        match self {
            Self::AttnLrp => "AttnLRP, Achtibat et al. 2024, arXiv:2402.05602",
            Self::IntegratedGradients => "integrated gradients, Sundararajan et al. 2017, arXiv:1703.01365",
            Self::Conservative => "conservative propagation, Ali et al. 2022, arXiv:2202.07304",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Baseline image of integrated gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Baseline {
    /// The mean colour of the preprocessing: pixel values of 0.
    #[default]
    Mean,
    /// Bytes of 0.
    Black,
    /// Bytes of 255.
    White,
}

/// Contribution of one of the model's constants: a bias, a token or position embeddings.
#[derive(Clone, Debug, Serialize)]
pub struct Constant {
    /// Name of the tensor in the weight file.
    pub name: String,
    /// Contribution to the output.
    pub contribution: f64,
}

/// Contributions of all pixel values to one output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attribution {
    /// Attribution method.
    pub method: Method,
    /// The explained output: a logit, or the length of an embedding.
    pub output: f64,
    /// Contribution of each pixel value, `[3, H, W]`.
    pub values: Array3<f64>,
    /// Part of the output that is not attributed to pixels. Integrated gradients: the output of the baseline. Conservative propagation: the
    /// sum of `constants`. `None` for AttnLRP, which does not determine it.
    pub constant: Option<f64>,
    /// Contributions of the model's constants. Only for conservative propagation.
    pub constants: Vec<Constant>,
    /// Contribution per unit of each pixel value.
    gradients: Array3<f64>,
}

impl Attribution {
    /// Returns the contribution per unit of a pixel value.
    pub(super) fn gradient(&self, channel: usize, y: usize, x: usize) -> f64 {
        self.gradients[[channel, y, x]]
    }

    /// Returns the sum of the contributions of all pixels.
    pub fn sum(&self) -> f64 {
        self.values.sum()
    }

    /// Returns the contributions and the constant minus the output. `None` if the method is not complete.
    pub fn gap(&self) -> Option<f64> {
        Some(self.sum() + self.constant? - self.output)
    }

    /// Returns the contribution of each pixel, summed over its channels: `[H, W]`.
    pub fn by_pixel(&self) -> Array2<f64> {
        self.values.sum_axis(Axis(0))
    }

    /// Returns the contribution of each whole patch of this height and width, `[rows, columns]`.
    pub fn by_patch(&self, [height, width]: [usize; 2]) -> Array2<f64> {
        let pixels = self.by_pixel();
        let whole = pixels.exact_chunks((height, width));
        let (rows, columns) = (pixels.nrows() / height, pixels.ncols() / width);
        let sums: Vec<f64> = whole.into_iter().map(|patch| patch.sum()).collect();
        // There are as many patches as sums.
        Array2::from_shape_vec((rows, columns), sums).unwrap_or_default()
    }
}

/// The explained scalar: the dot product of a graph's output with a fixed direction.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    pub(super) output: ValueId,
    pub(super) weights: Vec<f64>,
}

impl Direction {
    fn dot<T: Real>(&self, run: &Run<'_, T>) -> f64 {
        let values = run.value(self.output).iter().zip(&self.weights);
        values.map(|(v, w)| v.to_f64() * w).sum()
    }

    pub(super) fn seed<T: Real>(&self) -> Vec<T> {
        self.weights.iter().map(|&w| T::from_f64(w)).collect()
    }
}

/// Computes gradient of relevance times value, by one backward pass of `run`.
pub(super) fn propagated<T: Real>(
    run: &Run<'_, T>,
    method: Method,
    direction: &Direction,
) -> Result<Attribution> {
    let rules = match method {
        Method::Conservative => Rules::Conservative,
        _ => Rules::AttnLrp,
    };
    let constants = rules == Rules::Conservative;
    let backward = run.program().backward(rules, direction.output, constants)?;
    let gradients = backward.run(run, direction.seed(), |_| false)?;
    from_gradients(run, method, direction, &gradients)
}

/// Computes gradient of relevance times value, given the backward pass by the rules of `method`.
pub(super) fn from_gradients<T: Real>(
    run: &Run<'_, T>,
    method: Method,
    direction: &Direction,
    gradients: &Gradients<T>,
) -> Result<Attribution> {
    let graph = run.graph();
    let contribution = |id| -> Vec<f64> {
        let gradient: &[T] = gradients.of(id).unwrap_or_default();
        let products = gradient.iter().zip(run.value(id));
        products.map(|(g, x)| g.to_f64() * x.to_f64()).collect()
    };
    let pixels = run.value(graph.input());
    let gradient: Vec<f64> = match gradients.of(graph.input()) {
        Some(gradient) => gradient.iter().map(|g| g.to_f64()).collect(),
        // The output does not depend on any pixel.
        None => vec![0.0; pixels.len()],
    };
    let values = gradient.iter().zip(pixels).map(|(g, x)| g * x.to_f64()).collect();
    let mut constants: Vec<Constant> = Vec::new();
    let of_node = graph.nodes().iter().flat_map(|node| &node.inputs);
    let mut seen = vec![false; graph.values().len()];
    for &id in of_node {
        let is_constant = graph.value(id).is_constant() && gradients.of(id).is_some();
        if is_constant && !std::mem::replace(&mut seen[id.index()], true) {
            constants.push(Constant {
                name: graph.value(id).name.clone(),
                contribution: contribution(id).iter().sum(),
            });
        }
    }
    Ok(Attribution {
        method,
        output: direction.dot(run),
        values: planes(run.shape(graph.input()), values)?,
        gradients: planes(run.shape(graph.input()), gradient)?,
        constant: (method == Method::Conservative)
            .then(|| constants.iter().map(|constant| constant.contribution).sum()),
        constants,
    })
}

/// Computes integrated gradients along the straight line from `baseline` to `image`, with `steps` quadrature nodes.
pub(super) fn integrated<T: Real>(
    program: &Program<T>,
    image: &[f32],
    baseline: &[f32],
    direction: &Direction,
    steps: usize,
) -> Result<Attribution> {
    /// Number of passes in memory at a time.
    const TOGETHER: usize = 8;
    let blend = |alpha: f64| -> Vec<T> {
        let pairs = baseline.iter().zip(image);
        let at = |(&from, &to): (&f32, &f32)| {
            let (from, to) = (f64::from(from), f64::from(to));
            T::from_f64(from + alpha * (to - from))
        };
        pairs.map(at).collect()
    };
    let value = |alpha| Ok::<_, Error>(direction.dot(&program.run(1, blend(alpha))?));
    let (output, at_baseline) = (value(1.0)?, value(0.0)?);
    let mut mean = vec![0.0; image.len()];
    let backward = program.backward(Rules::Gradient, direction.output, false)?;
    let rule = gauss_legendre(steps);
    for nodes in rule.chunks(rayon::current_num_threads().clamp(1, TOGETHER)) {
        let gradients: Vec<Vec<f64>> = nodes
            .par_iter()
            .map(|&(alpha, weight)| {
                let run = program.run(1, blend(alpha))?;
                let gradients = backward.run(&run, direction.seed(), |_| false)?;
                let gradient: &[T] = gradients.of(program.graph().input()).unwrap_or_default();
                Ok(gradient.iter().map(|g| weight * g.to_f64()).collect())
            })
            .collect::<Result<_>>()?;
        for gradient in gradients {
            mean.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
        }
    }
    let differences = image
        .iter()
        .zip(baseline)
        .map(|(&x, &b)| f64::from(x) - f64::from(b));
    let values = mean.iter().zip(differences).map(|(g, d)| g * d).collect();
    let shape = &program.graph().value(program.graph().input()).shape;
    Ok(Attribution {
        method: Method::IntegratedGradients,
        output,
        values: planes(shape, values)?,
        gradients: planes(shape, mean)?,
        constant: Some(at_baseline),
        constants: Vec::new(),
    })
}

/// Returns the values of one image as `[3, H, W]`.
fn planes(shape: &[usize], values: Vec<f64>) -> Result<Array3<f64>> {
    let wrong = |e: ndarray::ShapeError| Error::internal("pixel values", e);
    let array = ArrayD::from_shape_vec(&shape[1..], values).map_err(wrong)?;
    array.into_dimensionality().map_err(wrong)
}
