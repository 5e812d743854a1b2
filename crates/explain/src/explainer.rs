//! A model that is loaded to explain its results.

use std::path::Path;

use ndarray::{Array2, ArrayView1};
use serde::Serialize;

use super::attribution::{Attribution, Baseline, Direction, Method, integrated, propagated};
use super::maps::{AttentionMap, attention_maps, readout, rollout};
use super::program::{Program, Run};
use hipvit::error::{Error, Result};
use hipvit::graph::{Graph, OutputKind};
use hipvit::image::{Preprocess, RgbImage};
use hipvit::labels::Labels;
use hipvit::model::{self, Info, InputKind, LoadOptions, Model};
use hipvit::outputs::{Prediction, Scores};
use hipvit::session::Session;
use hipvit::threads;

/// A model that is loaded on the host to explain its results. See [`explain`] for one image.
pub struct Explainer {
    name: String,
    info: Info,
    preprocess: Preprocess,
    labels: Labels,
    scores: Scores,
    /// The graph. Its constants map the weight files.
    graph: Graph,
    exact: Program<f64>,
}

/// The explained output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Target {
    /// The logit of a class.
    Class {
        /// Index of the class.
        index: usize,
        /// Name of the class.
        label: String,
    },
    /// The length of the embedding, for a model without a classifier.
    Embedding,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Class { index, label } if label == &index.to_string() => write!(f, "class {index}"),
            Self::Class { index, label } => write!(f, "class {index}, {label}"),
            Self::Embedding => f.write_str("the embedding's length"),
        }
    }
}

/// Options of [`Explainer::explain_with`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainOptions {
    /// The class to explain. By default the most likely one.
    pub class: Option<usize>,
    /// Attribution method.
    pub method: Method,
    /// Baseline of integrated gradients.
    pub baseline: Baseline,
    /// Number of Gauss-Legendre nodes of integrated gradients.
    pub steps: usize,
}

impl ExplainOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`class`](Self::class).
    pub fn class(mut self, class: Option<usize>) -> Self {
        self.class = class;
        self
    }

    /// Sets [`method`](Self::method).
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets [`baseline`](Self::baseline).
    pub fn baseline(mut self, baseline: Baseline) -> Self {
        self.baseline = baseline;
        self
    }

    /// Sets [`steps`](Self::steps).
    pub fn steps(mut self, steps: usize) -> Self {
        self.steps = steps;
        self
    }
}

impl Default for ExplainOptions {
    fn default() -> Self {
        Self {
            class: None,
            method: Method::default(),
            baseline: Baseline::default(),
            steps: 50,
        }
    }
}

/// Explanation of a model's result for an image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The explained output.
    pub target: Target,
    /// The most likely classes, at most five.
    pub top: Vec<Prediction>,
    /// The image at the model's size, on which the maps are drawn.
    pub resized: RgbImage,
    /// Rows and columns of patches.
    pub grid: [usize; 2],
    /// Height and width of a patch, in pixels.
    pub patch: [usize; 2],
    /// Tokens before the patches.
    pub prefix_tokens: usize,
    /// Attention of each layer. Empty if the model has no attention.
    pub attention: Vec<AttentionMap>,
    /// Attention rollout over the patches, `[rows, columns]`. Empty if the model has no attention.
    pub rollout: Array2<f32>,
    /// Contributions of the pixels to the output.
    pub attribution: Attribution,
    readout: Vec<f64>,
}

impl Explanation {
    /// Returns how much the tokens that the model's head uses read from each patch in a layer: `[rows, columns]` per attention head.
    pub fn attention_to_patches(&self, layer: usize) -> Vec<Array2<f32>> {
        let Some(map) = self.attention.get(layer) else {
            return Vec::new();
        };
        let by_head = map.by_head(&self.readout);
        by_head.outer_iter().map(|head| self.on_grid(head)).collect()
    }

    fn on_grid(&self, tokens: ArrayView1<'_, f32>) -> Array2<f32> {
        on_grid(tokens.iter().copied(), self.prefix_tokens, self.grid)
    }
}

fn on_grid(tokens: impl Iterator<Item = f32>, prefix: usize, [rows, columns]: [usize; 2]) -> Array2<f32> {
    let patches = tokens.skip(prefix).collect();
    Array2::from_shape_vec((rows, columns), patches).unwrap_or_default()
}

impl Explainer {
    /// Loads the model of `session` again, since the session's executor has the weights in another form.
    ///
    /// # Errors
    ///
    /// The errors of loading it, and [`Error::Argument`] for a session loaded from bytes, which it does not keep.
    pub fn new(session: &Session) -> Result<Self> {
        let mut model = session.reload(InputKind::PixelValues)?;
        model.labels = session.labels().clone();
        Self::of(model)
    }

    /// Loads the model at `path`, as [`Session::load`] finds it.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let options = LoadOptions {
            input: InputKind::PixelValues,
            ..LoadOptions::default()
        };
        Self::of(model::load(path.as_ref(), &options)?)
    }

    fn of(model: Model) -> Result<Self> {
        if model.info.merged_grid.is_some() {
            let reason = format!(
                "{} merges patches or pools tokens between its blocks. Use a model whose blocks all have the same tokens, such as a ViT",
                model.name
            );
            return Err(Error::argument("model to explain", reason));
        }
        if model.info.depth_map.is_some() {
            let reason = format!(
                "{} estimates depth, and has neither a logit nor an embedding to explain",
                model.name
            );
            return Err(Error::argument("model to explain", reason));
        }
        threads::start_shared()?;
        Ok(Self {
            exact: Program::new(&model.graph)?,
            name: model.name,
            info: model.info,
            preprocess: model.preprocess,
            labels: model.labels,
            scores: model.scores,
            graph: model.graph,
        })
    }

    /// Returns the name of the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the family and sizes of the model.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the names of the classes.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    pub(super) fn preprocess(&self) -> &Preprocess {
        &self.preprocess
    }

    pub(super) fn grid(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.info.image_size[axis] / self.info.patch[axis])
    }

    /// Explains the logit of `class`, by default of the most likely one, with AttnLRP.
    ///
    /// # Errors
    ///
    /// The errors of [`explain_with`](Self::explain_with).
    pub fn explain(&self, image: &RgbImage, class: Option<usize>) -> Result<Explanation> {
        let options = ExplainOptions {
            class,
            ..ExplainOptions::default()
        };
        self.explain_with(image, &options)
    }

    /// Explains an image with options.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a class that does not exist, for 0 steps, or for an image that preprocessing cannot bring to the model's
    /// size.
    pub fn explain_with(&self, image: &RgbImage, options: &ExplainOptions) -> Result<Explanation> {
        let (resized, values) = self.pixel_values(image)?;
        let run = self.run(&values)?;
        let (target, attribution) = self.attribution(&run, &values, options)?;
        let attention = attention_maps(&run);
        let readout = readout(run.graph(), self.info.tokens);
        let rollout = if self.info.has_attention() {
            self.on_grid(&rollout(&attention, &readout))
        } else {
            Array2::default((0, 0))
        };
        Ok(Explanation {
            top: self.top(&run),
            target,
            resized,
            grid: self.grid(),
            patch: self.info.patch,
            prefix_tokens: self.info.prefix_tokens,
            attention,
            rollout,
            attribution,
            readout,
        })
    }

    /// Computes the attribution for a preprocessed image. `values` are normalised, `[3, H, W]` at the model's size.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a wrong number of values, a class that does not exist, or 0 steps.
    pub fn attribute(&self, values: &[f32], options: &ExplainOptions) -> Result<(Target, Attribution)> {
        self.check_values(values)?;
        self.attribution(&self.run(values)?, values, options)
    }

    /// Computes attention rollout (Abnar & Zuidema 2020, <https://arxiv.org/abs/2005.00928>) for a preprocessed image: how much the result
    /// reads from each patch, `[rows, columns]`. `values` are normalised, `[3, H, W]` at the model's size.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a wrong number of values, or a model without attention.
    pub fn attention_rollout(&self, values: &[f32]) -> Result<Array2<f32>> {
        self.check_values(values)?;
        if !self.info.has_attention() {
            return Err(Error::argument(
                "attention rollout",
                format!("{} has no attention", self.name),
            ));
        }
        let run = self.run(values)?;
        let readout = readout(run.graph(), self.info.tokens);
        Ok(self.on_grid(&rollout(&attention_maps(&run), &readout)))
    }

    /// Returns the patches' part of one value per token, as rows and columns.
    fn on_grid(&self, tokens: &[f64]) -> Array2<f32> {
        let tokens = tokens.iter().map(|&value| value as f32);
        on_grid(tokens, self.info.prefix_tokens, self.grid())
    }

    fn check_values(&self, values: &[f32]) -> Result<()> {
        let [height, width] = self.info.image_size;
        if values.len() == 3 * height * width {
            return Ok(());
        }
        let reason = format!("{} values for 3×{height}×{width}", values.len());
        Err(Error::argument("pixel values", reason))
    }

    fn attribution(
        &self,
        run: &Run<'_, f64>,
        values: &[f32],
        options: &ExplainOptions,
    ) -> Result<(Target, Attribution)> {
        if options.steps == 0 {
            return Err(Error::argument("steps", "must be at least 1"));
        }
        let (target, direction) = self.target(run, options.class)?;
        let attribution = match options.method {
            Method::IntegratedGradients => {
                let baseline = self.baseline(options.baseline)?;
                // Many passes. The precision of f32 suffices for their sum.
                let program = Program::<f32>::new(&self.graph)?;
                integrated(&program, values, &baseline, &direction, options.steps)?
            }
            method => propagated(run, method, &direction)?,
        };
        Ok((target, attribution))
    }

    /// Returns the image at the model's size, and its normalised values, `[3, H, W]`.
    pub fn pixel_values(&self, image: &RgbImage) -> Result<(RgbImage, Vec<f32>)> {
        let resized = self.preprocess.apply(image)?;
        let mut values = vec![0.0; resized.data.len()];
        self.preprocess.normalize(&resized.data, &mut values)?;
        Ok((resized, values))
    }

    /// Runs the forward pass in double precision.
    pub(super) fn run(&self, values: &[f32]) -> Result<Run<'_, f64>> {
        self.exact.run(1, values.iter().map(|&v| v.into()).collect())
    }

    /// Returns the values of a baseline image.
    fn baseline(&self, baseline: Baseline) -> Result<Vec<f32>> {
        let elements = 3 * self.info.image_size.iter().product::<usize>();
        let byte = match baseline {
            Baseline::Mean => return Ok(vec![0.0; elements]),
            Baseline::Black => 0,
            Baseline::White => 255,
        };
        let mut values = vec![0.0; elements];
        self.preprocess.normalize(&vec![byte; elements], &mut values)?;
        Ok(values)
    }

    fn logits(&self, run: &Run<'_, f64>) -> Option<Vec<f32>> {
        let outputs = self.graph.outputs().iter();
        let mut logits = outputs.filter(|(kind, _)| *kind == OutputKind::Logits);
        let values = run.value(logits.next()?.1);
        Some(values.iter().map(|&v| v as f32).collect())
    }

    pub(super) fn top(&self, run: &Run<'_, f64>) -> Vec<Prediction> {
        match self.logits(run) {
            Some(logits) => self.scores.top(ArrayView1::from(&logits), 5, &self.labels),
            None => Vec::new(),
        }
    }

    /// Returns the explained output, as a direction of the graph's output.
    pub(super) fn target(&self, run: &Run<'_, f64>, class: Option<usize>) -> Result<(Target, Direction)> {
        let output = |wanted| {
            let mut outputs = self.graph.outputs().iter();
            outputs.find(|(kind, _)| *kind == wanted).map(|&(_, id)| id)
        };
        if let Some(logits) = output(OutputKind::Logits) {
            let values = run.value(logits);
            let best = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b]));
            let class = class.or(best).unwrap_or(0);
            if class >= values.len() {
                let reason = format!(
                    "{class} is not one of the model's {}, counted from 0",
                    values.len()
                );
                return Err(Error::argument("class", reason));
            }
            let mut weights = vec![0.0; values.len()];
            weights[class] = 1.0;
            let label = if class < self.labels.len() {
                self.labels.get(class).to_owned()
            } else {
                class.to_string()
            };
            let direction = Direction {
                output: logits,
                weights,
            };
            return Ok((Target::Class { index: class, label }, direction));
        }
        let Some(embedding) = output(OutputKind::Embedding).filter(|_| class.is_none()) else {
            let reason = format!("{} has no classification head", self.name);
            return Err(Error::argument("class", reason));
        };
        let values = run.value(embedding);
        let length = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let weights = values.iter().map(|v| v / length.max(f64::MIN_POSITIVE)).collect();
        let direction = Direction {
            output: embedding,
            weights,
        };
        Ok((Target::Embedding, direction))
    }
}

impl std::fmt::Debug for Explainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explainer")
            .field("model", &self.name)
            .finish_non_exhaustive()
    }
}

/// Explains a session's result for an image: attention maps, rollout, and the AttnLRP contributions of the pixels to the logit of `class`.
///
/// Without `class`, the most likely class is explained. The host computes it on any device of the session, and loads the model again. Use
/// an [`Explainer`] for several images, which is faster.
///
/// # Errors
///
/// The errors of [`Explainer::new`] and [`Explainer::explain_with`].
pub fn explain(session: &Session, image: &RgbImage, class: Option<usize>) -> Result<Explanation> {
    Explainer::new(session)?.explain(image, class)
}
