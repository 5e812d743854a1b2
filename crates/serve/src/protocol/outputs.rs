//! Converts results to output tensors.

use ndarray::Array1;

use super::parameters::Parameters;
use super::tensors::Given;
use super::{Datatype, MAX_TENSORS, OutputData, OutputTensor, RequestedOutput, TensorMetadata};
use crate::failure::Failure;
use crate::scheduler::{Explain, ImageResult};
use hipvit::outputs::{ImageOutputs, Prediction};
use hipvit::zero_shot::Classifier;
use hipvit_explain::{ExplainOptions, Method};

const LOGITS: &str = "logits";
const PROBABILITIES: &str = "probabilities";
const TOP: &str = "top";
const EMBEDDING: &str = "embedding";
const TEXT_EMBEDDING: &str = "text_embedding";
const PATCH_TOKENS: &str = "patch_tokens";
const EXPLANATION: &str = "explanation";
const RESIZED: &str = "resized";

/// Bytes that an answer is charged for each label of a model.
const MODEL_LABEL_BYTES: usize = 128;

/// Default number of classes in `top`.
const DEFAULT_TOP: usize = 5;

/// Methods of `explanation`, the default first. Integrated gradients need fifty passes, which is too many for
/// a server.
const METHODS: [Method; 2] = [Method::AttnLrp, Method::Conservative];

/// Method of `explanation` that shows attention instead of the pixels of a logit.
const ROLLOUT: &str = "rollout";

/// Outputs of a model.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    /// Number of classes. `None` without a classification head.
    pub(crate) classes: Option<usize>,
    pub(crate) embedding: usize,
    /// Number and channels of the patch tokens, if they are offered.
    pub(crate) patch_tokens: Option<[usize; 2]>,
    /// Height and width, if explanations are offered.
    pub(crate) explanation: Option<[usize; 2]>,
    /// True if the model has a text tower, so that texts can be labels.
    pub(crate) texts: bool,
}

/// Results that outputs are written from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Results<'a> {
    pub(crate) images: &'a [ImageResult],
    pub(crate) explained: &'a [ImageResult],
    pub(crate) texts: &'a [ImageResult],
    /// Classifier of the texts, for a request with images and texts.
    pub(crate) classifier: Option<&'a Classifier>,
    /// True if the texts are embedded in prompt templates.
    pub(crate) has_templates: bool,
}

/// Numbers of images and texts of a request, which are the numbers of output rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rows<'a> {
    pub(crate) images: usize,
    pub(crate) texts: usize,
    /// The texts as labels, for a request with images and texts.
    pub(crate) labels: Option<&'a [String]>,
}

/// A checked output of a request.
#[derive(Clone, Debug)]
pub(crate) struct Selected {
    pub(crate) name: &'static str,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Logits,
    /// The largest logits, in the form of Triton's classification extension.
    Classification(usize),
    Probabilities,
    Top(usize),
    Embedding,
    TextEmbedding,
    PatchTokens,
    Explanation(Explain),
    Resized,
}

impl Selected {
    /// Returns what is to be explained, if this output is an explanation.
    pub(crate) fn to_explain(&self) -> Option<&Explain> {
        match &self.what {
            What::Explanation(explain) => Some(explain),
            _ => None,
        }
    }

    /// Returns true for an output that comes with an explanation.
    pub(crate) fn is_of_explanation(&self) -> bool {
        matches!(self.what, What::Explanation(_) | What::Resized)
    }

    /// Returns true for the image at the model's size, which a request with normalised values does not have.
    pub(crate) fn is_resized_image(&self) -> bool {
        matches!(self.what, What::Resized)
    }
}

impl Outputs {
    pub(crate) fn metadata(&self) -> Vec<TensorMetadata> {
        let metadata = |(name, datatype, shape): (&'static str, _, _)| TensorMetadata {
            name: name.into(),
            datatype,
            shape,
        };
        self.tensors().into_iter().map(metadata).collect()
    }

    /// Returns name, data type and shape of each output.
    fn tensors(&self) -> Vec<(&'static str, Datatype, Vec<i64>)> {
        let tensor = |name, datatype, shape: &[i64]| (name, datatype, shape.to_vec());
        let mut all = Vec::new();
        if let Some(classes) = self.classes {
            all.push(tensor(LOGITS, Datatype::Fp32, &[-1, classes as i64]));
            all.push(tensor(TOP, Datatype::Bytes, &[-1, -1]));
        } else if self.texts {
            all.push(tensor(LOGITS, Datatype::Fp32, &[-1, -1]));
            all.push(tensor(PROBABILITIES, Datatype::Fp32, &[-1, -1]));
            all.push(tensor(TOP, Datatype::Bytes, &[-1, -1]));
        }
        all.push(tensor(EMBEDDING, Datatype::Fp32, &[-1, self.embedding as i64]));
        if self.texts {
            all.push(tensor(
                TEXT_EMBEDDING,
                Datatype::Fp32,
                &[-1, self.embedding as i64],
            ));
        }
        if let Some([patches, channels]) = self.patch_tokens {
            all.push(tensor(
                PATCH_TOKENS,
                Datatype::Fp32,
                &[-1, patches as i64, channels as i64],
            ));
        }
        if let Some(size) = self.explanation {
            let [height, width] = size.map(|side| side as i64);
            all.push(tensor(EXPLANATION, Datatype::Fp32, &[-1, height, width]));
            all.push(tensor(RESIZED, Datatype::Uint8, &[-1, height, width, 3]));
        }
        all
    }

    /// Returns the input that an output needs and the request lacks. `None` if nothing is missing.
    fn missing(&self, name: &str, given: Given) -> Option<&'static str> {
        let Given { images, texts } = given;
        match name {
            EMBEDDING => None,
            TEXT_EMBEDDING => (!texts).then_some("needs the input `text`"),
            LOGITS | PROBABILITIES | TOP if self.classes.is_none() || !images => {
                (!(images && texts)).then_some("needs images and, in the input `text`, labels")
            }
            _ => (!images).then_some("needs an image"),
        }
    }

    /// Checks the outputs of a request with the inputs `given`.
    ///
    /// A request that names none gets all but the explanation, which costs several times the rest. A request
    /// with texts alone gets their embedding. `of_request` are the parameters of the request, which apply to
    /// outputs without parameters.
    pub(crate) fn select(
        &self,
        requested: &[RequestedOutput],
        of_request: &Parameters,
        given: Given,
    ) -> Result<Vec<Selected>, Failure> {
        let all: Vec<&'static str> = self.tensors().into_iter().map(|(name, ..)| name).collect();
        if requested.is_empty() {
            let any = RequestedOutput::default();
            let names = all.iter().copied().filter(|&name| match name {
                EXPLANATION | RESIZED => false,
                TEXT_EMBEDDING => given.images && given.texts,
                name => self.missing(name, given).is_none(),
            });
            return names
                .map(|name| self.select_one(name, &any, of_request, given))
                .collect();
        }
        if requested.len() > MAX_TENSORS {
            let count = requested.len();
            return Err(Failure::invalid(format!(
                "the request names {count} outputs; the maximum is {MAX_TENSORS}"
            )));
        }
        let is_again = |(index, output): &(usize, &RequestedOutput)| {
            requested[..*index]
                .iter()
                .any(|before| before.name == output.name)
        };
        if let Some((_, output)) = requested.iter().enumerate().find(is_again) {
            let reason = "is named more than once. Name each output once";
            return Err(Failure::output(&output.name, reason));
        }
        let one = |requested: &RequestedOutput| match all.iter().copied().find(|&name| name == requested.name)
        {
            Some(name) => match self.missing(name, given) {
                Some(reason) => Err(Failure::output(name, reason)),
                None => self.select_one(name, requested, of_request, given),
            },
            None => {
                let names: Vec<String> = all.iter().map(|name| format!("`{name}`")).collect();
                let reason = match requested.name.as_str() {
                    PATCH_TOKENS => "the server was not started with --tokens".to_owned(),
                    EXPLANATION | RESIZED => {
                        "the server was not started with --explanation, which loads the model for it"
                            .to_owned()
                    }
                    _ => format!("the model has no such output; it has {}", names.join(", ")),
                };
                Err(Failure::output(&requested.name, reason))
            }
        };
        let selected = requested.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        let explained = selected.iter().any(|output| output.to_explain().is_some());
        if !explained && selected.iter().any(Selected::is_resized_image) {
            return Err(Failure::output(
                RESIZED,
                "comes with the output `explanation`. Name that, too",
            ));
        }
        Ok(selected)
    }

    fn select_one(
        &self,
        name: &'static str,
        requested: &RequestedOutput,
        of_request: &Parameters,
        given: Given,
    ) -> Result<Selected, Failure> {
        let of_output = |failure: Failure| {
            Failure::new(failure.kind(), format!("output `{name}`: {}", failure.message()))
        };
        check_parameters(name, &requested.parameters).map_err(of_output)?;
        // The number of texts as labels is checked when the output is written.
        let most = if given.texts {
            usize::MAX
        } else {
            self.classes.unwrap_or(0)
        };
        let count = |parameter| {
            let count = requested.parameters.unsigned(parameter).map_err(of_output)?;
            // A number above the number of classes selects all.
            Ok(count.map(|count| usize::try_from(count).unwrap_or(usize::MAX).min(most)))
        };
        let what = match name {
            LOGITS => match count("classification")?.filter(|&k| k > 0) {
                Some(k) => What::Classification(k),
                None => What::Logits,
            },
            TOP => {
                let k = match count("k")? {
                    Some(k) => Some(k),
                    None => count("classification")?,
                };
                What::Top(k.unwrap_or(DEFAULT_TOP.min(most)))
            }
            PROBABILITIES => What::Probabilities,
            EMBEDDING if given.images => What::Embedding,
            EMBEDDING | TEXT_EMBEDDING => What::TextEmbedding,
            EXPLANATION => What::Explanation(self.explain_options([&requested.parameters, of_request])?),
            RESIZED => What::Resized,
            _ => What::PatchTokens,
        };
        Ok(Selected { name, what })
    }

    /// Returns what to explain, by the first of the parameters that says it.
    fn explain_options(&self, parameters: [&Parameters; 2]) -> Result<Explain, Failure> {
        let refused = |failure: Failure| Failure::output(EXPLANATION, failure.message());
        let [own, of_request] = parameters;
        let class = match own.unsigned("class").map_err(refused)? {
            Some(class) => Some(class),
            None => of_request.unsigned("class").map_err(refused)?,
        };
        let class = match (class, self.classes) {
            (None, _) => None,
            (Some(_), None) => {
                let reason = "parameter `class`: the model has no classification head";
                return Err(Failure::output(EXPLANATION, reason));
            }
            (Some(class), Some(classes)) => match usize::try_from(class) {
                Ok(class) if class < classes => Some(class),
                _ => {
                    let reason = format!(
                        "parameter `class`: {class} is not one of the model's {classes}, counted from 0"
                    );
                    return Err(Failure::output(EXPLANATION, reason));
                }
            },
        };
        let choices: Vec<&str> = METHODS
            .iter()
            .map(|method| method.name())
            .chain([ROLLOUT])
            .collect();
        let method = match own.choice("method", &choices).map_err(refused)? {
            Some(method) => Some(method),
            None => of_request.choice("method", &choices).map_err(refused)?,
        };
        let Some(&method) = METHODS.get(method.unwrap_or(0)) else {
            if class.is_some() {
                let reason =
                    "parameter `class`: attention rollout is the same for all classes. Leave the class out";
                return Err(Failure::output(EXPLANATION, reason));
            }
            return Ok(Explain::Rollout);
        };
        Ok(Explain::Pixels(ExplainOptions::new().class(class).method(method)))
    }

    /// Returns how many bytes the selected outputs take at most, and refuses more than `most`.
    pub(crate) fn check_size(
        &self,
        selected: &[Selected],
        rows: Rows<'_>,
        most: usize,
    ) -> Result<usize, Failure> {
        let Rows {
            images,
            texts,
            labels,
        } = rows;
        let classes = labels.map_or(self.classes.unwrap_or(0), <[String]>::len);
        // A label needs space for its index, its logit or probability, and its handle, too.
        let longest = labels.into_iter().flatten().map(String::len).max();
        let longest = 96 + longest.unwrap_or(MODEL_LABEL_BYTES);
        let floats =
            |rows: usize, [a, b]: [usize; 2]| [rows, a, b, 4].into_iter().fold(1, usize::saturating_mul);
        let bytes = |selected: &Selected| match selected.what {
            What::Top(k) | What::Classification(k) => {
                images.saturating_mul(k.min(classes)).saturating_mul(longest)
            }
            What::Logits | What::Probabilities => floats(images, [classes, 1]),
            What::Embedding => floats(images, [self.embedding, 1]),
            What::TextEmbedding => floats(texts, [self.embedding, 1]),
            What::PatchTokens => floats(images, self.patch_tokens.unwrap_or_default()),
            What::Explanation(_) => floats(images, self.explanation.unwrap_or_default()),
            // Three bytes instead of the four of a float.
            What::Resized => floats(images, self.explanation.unwrap_or_default()),
        };
        let mut total = 0usize;
        for output in selected {
            total = total.saturating_add(bytes(output));
            if total > most {
                let advice = match output.what {
                    What::Top(_) | What::Classification(_) => {
                        "Ask for fewer labels by `k`, or send fewer images"
                    }
                    _ => "Name fewer outputs, or send fewer images",
                };
                let reason =
                    format!("the outputs up to this one would have more than {most} bytes. {advice}");
                return Err(Failure::output(output.name, reason));
            }
        }
        Ok(total)
    }

    /// Returns how many bytes the results take that outputs are written from.
    pub(crate) fn results_size(&self, rows: Rows<'_>) -> usize {
        let [patches, channels] = self.patch_tokens.unwrap_or_default();
        let each = self.classes.unwrap_or(0) + self.embedding + patches.saturating_mul(channels);
        let values = rows.images.saturating_mul(each);
        let values = values.saturating_add(rows.texts.saturating_mul(self.embedding));
        values.saturating_mul(4)
    }

    /// Writes the selected outputs.
    pub(crate) fn write(&self, selected: &[Selected], results: Results<'_>) -> Vec<OutputTensor> {
        let by_texts = results
            .classifier
            .map(|classifier| ByTexts::new(classifier, results.images));
        let write = |output: &Selected| {
            let (shape, data) = match (&output.what, &by_texts) {
                (What::Logits, Some(by_texts)) => by_texts.logits(),
                (What::Probabilities, Some(by_texts)) => by_texts.probabilities(),
                (What::Classification(k), Some(by_texts)) => by_texts.top(*k, logit_text),
                (What::Top(k), Some(by_texts)) => by_texts.top(*k, probability_text),
                (What::TextEmbedding, _) => self.text_embedding(results),
                (What::Explanation(_) | What::Resized, _) => self.write_one(output, results.explained),
                _ => self.write_one(output, results.images),
            };
            OutputTensor {
                name: output.name.into(),
                shape,
                data,
            }
        };
        selected.iter().map(write).collect()
    }

    /// Returns the embedding of each text. With templates it is the mean of unit vectors.
    fn text_embedding(&self, results: Results<'_>) -> (Vec<usize>, OutputData) {
        let (rows, values): (usize, Vec<f32>) = match results.classifier {
            Some(classifier) if results.has_templates => {
                let embeddings = classifier.embeddings();
                (embeddings.nrows(), embeddings.iter().copied().collect())
            }
            _ => {
                let texts = results.texts.iter().filter_map(ImageResult::text);
                let values = texts.flat_map(|text| text.embedding.to_vec());
                (results.texts.len(), values.collect())
            }
        };
        (vec![rows, self.embedding], OutputData::Fp32(values))
    }

    fn write_one(&self, output: &Selected, images: &[ImageResult]) -> (Vec<usize>, OutputData) {
        let count = images.len();
        let tensor = |shape: &[usize], values| ([&[count], shape].concat(), OutputData::Fp32(values));
        let floats = |of: &dyn Fn(ImageOutputs<'_>, &mut Vec<f32>), shape: &[usize]| {
            let mut values = Vec::with_capacity(count * shape.iter().product::<usize>());
            let outputs = images.iter().filter_map(ImageResult::outputs);
            outputs.for_each(|image| of(image, &mut values));
            tensor(shape, values)
        };
        let classes = |k: usize, text: fn(&Prediction) -> String| {
            let elements = images.iter().filter_map(ImageResult::outputs);
            let elements = elements.flat_map(|image| image.top(k));
            let elements = elements.map(|prediction| text(&prediction)).collect();
            (vec![count, k], OutputData::Bytes(elements))
        };
        match output.what {
            What::Logits => floats(
                &|image, values| values.extend(image.logits().into_iter().flatten()),
                &[self.classes.unwrap_or(0)],
            ),
            What::Classification(k) => classes(k, logit_text),
            What::Top(k) => classes(k, probability_text),
            What::Embedding => floats(
                &|image, values| values.extend(image.embedding()),
                &[self.embedding],
            ),
            What::PatchTokens => floats(
                &|image, values| values.extend(image.tokens().into_iter().flatten()),
                &self.patch_tokens.unwrap_or_default(),
            ),
            What::Explanation(_) => {
                let explanations = images.iter().filter_map(ImageResult::explanation);
                tensor(
                    &self.explanation.unwrap_or_default(),
                    explanations
                        .flat_map(|explained| &explained.map)
                        .copied()
                        .collect(),
                )
            }
            What::Resized => {
                let explanations = images.iter().filter_map(ImageResult::explanation);
                let pixels = explanations.filter_map(|explained| explained.resized.as_ref());
                let bytes = pixels.flat_map(|image| &image.data).copied().collect();
                let [height, width] = self.explanation.unwrap_or_default();
                (vec![count, height, width, 3], OutputData::Uint8(bytes))
            }
            // These are selected only for requests with texts, whose outputs are written elsewhere.
            What::Probabilities | What::TextEmbedding => tensor(&[0], Vec::new()),
        }
    }
}

fn logit_text(prediction: &Prediction) -> String {
    format!("{}:{}:{}", prediction.logit, prediction.index, prediction.label)
}

fn probability_text(prediction: &Prediction) -> String {
    let Prediction {
        probability,
        index,
        label,
        ..
    } = prediction;
    format!("{probability}:{index}:{label}")
}

/// Refuses parameters of an output that would be ignored.
fn check_parameters(name: &str, parameters: &Parameters) -> Result<(), Failure> {
    parameters.check_tensor()?;
    if name != TOP {
        parameters.only_for(&["k"], "the output `top`")?;
    }
    if ![LOGITS, TOP].contains(&name) {
        parameters.only_for(&["classification"], "the outputs `logits` and `top`")?;
    }
    if name != EXPLANATION {
        parameters.only_for(&["class", "method"], "the output `explanation`")?;
    }
    Ok(())
}

/// Images classified by texts.
struct ByTexts<'a> {
    classifier: &'a Classifier,
    /// For each image, the logits of the texts.
    logits: Vec<Array1<f32>>,
}

impl<'a> ByTexts<'a> {
    fn new(classifier: &'a Classifier, images: &[ImageResult]) -> Self {
        let images = images.iter().filter_map(ImageResult::outputs);
        Self {
            classifier,
            logits: images.map(|image| classifier.logits(image.embedding())).collect(),
        }
    }

    fn shape(&self) -> Vec<usize> {
        vec![self.logits.len(), self.classifier.labels().len()]
    }

    fn logits(&self) -> (Vec<usize>, OutputData) {
        let values = self.logits.iter().flatten().copied().collect();
        (self.shape(), OutputData::Fp32(values))
    }

    fn probabilities(&self) -> (Vec<usize>, OutputData) {
        let scores = self.classifier.scores();
        let rows = self.logits.iter();
        let values = rows.flat_map(|logits| scores.probabilities(logits.view()));
        (self.shape(), OutputData::Fp32(values.collect()))
    }

    fn top(&self, k: usize, text: fn(&Prediction) -> String) -> (Vec<usize>, OutputData) {
        let labels = self.classifier.labels();
        let k = k.min(labels.len());
        let scores = self.classifier.scores();
        let best = self.logits.iter();
        let best = best.flat_map(|logits| scores.top(logits.view(), k, labels));
        let elements = best.map(|prediction| text(&prediction)).collect();
        (vec![self.logits.len(), k], OutputData::Bytes(elements))
    }
}

#[cfg(test)]
mod tests;
