//! From results to output tensors.

use super::parameters::Parameters;
use super::{Datatype, OutputData, OutputTensor, RequestedOutput, TensorMetadata};
use crate::explain::{ExplainOptions, Method};
use crate::outputs::{ImageOutputs, Prediction};
use crate::serve::failure::Failure;
use crate::serve::scheduler::ImageResult;

const LOGITS: &str = "logits";
const TOP: &str = "top";
const EMBEDDING: &str = "embedding";
const PATCH_TOKENS: &str = "patch_tokens";
const EXPLANATION: &str = "explanation";

/// The number of classes in `top`, unless the request says.
const DEFAULT_TOP: usize = 5;

/// The methods of `explanation`, the default first. Integrated gradients take fifty passes: too many for a server.
const METHODS: [Method; 2] = [Method::AttnLrp, Method::Conservative];

/// The outputs that a model has.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Outputs {
    /// None: it has no classification head.
    pub(in crate::serve) classes: Option<usize>,
    pub(in crate::serve) embedding: usize,
    /// Number and channels, if they are offered.
    pub(in crate::serve) patch_tokens: Option<[usize; 2]>,
    /// Height and width, if explanations are offered.
    pub(in crate::serve) explanation: Option<[usize; 2]>,
}

/// What a request wants, checked.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Selected {
    pub(in crate::serve) name: &'static str,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Logits,
    /// The largest logits, as Triton's classification extension has them.
    Classification(usize),
    Top(usize),
    Embedding,
    PatchTokens,
    Explanation(ExplainOptions),
}

impl Selected {
    /// How this output is to be explained, if it is an explanation.
    pub(in crate::serve) fn to_explain(&self) -> Option<&ExplainOptions> {
        match &self.what {
            What::Explanation(options) => Some(options),
            _ => None,
        }
    }
}

impl Outputs {
    pub(in crate::serve) fn metadata(&self) -> Vec<TensorMetadata> {
        let tensor = |name, datatype, shape: &[i64]| TensorMetadata {
            name,
            datatype,
            shape: shape.to_vec(),
        };
        let mut all = Vec::new();
        if let Some(classes) = self.classes {
            all.push(tensor(LOGITS, Datatype::Fp32, &[-1, classes as i64]));
            all.push(tensor(TOP, Datatype::Bytes, &[-1, -1]));
        }
        all.push(tensor(EMBEDDING, Datatype::Fp32, &[-1, self.embedding as i64]));
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
        }
        all
    }

    /// Checks which outputs are wanted; if none is named, all but the explanation, which costs several times the rest.
    /// `of_request` are the parameters of the request, for clients that give an output none.
    pub(in crate::serve) fn select(
        &self,
        requested: &[RequestedOutput],
        of_request: &Parameters,
    ) -> Result<Vec<Selected>, Failure> {
        let all = self.metadata();
        let select = |name, requested: &RequestedOutput| -> Result<Selected, Failure> {
            let count = |parameter| {
                let count = requested.parameters.unsigned(parameter);
                let count = count.map_err(|failure| Failure::output(name, failure.message()))?;
                // More classes than there are is all of them.
                Ok(count.map(|count| {
                    usize::try_from(count)
                        .unwrap_or(usize::MAX)
                        .min(self.classes.unwrap_or(0))
                }))
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
                    What::Top(k.unwrap_or(DEFAULT_TOP.min(self.classes.unwrap_or(0))))
                }
                EMBEDDING => What::Embedding,
                EXPLANATION => What::Explanation(self.explain_options([&requested.parameters, of_request])?),
                _ => What::PatchTokens,
            };
            Ok(Selected { name, what })
        };
        if requested.is_empty() {
            let any = RequestedOutput::default();
            let names = all.iter().map(|output| output.name);
            let names = names.filter(|&name| name != EXPLANATION);
            return names.map(|name| select(name, &any)).collect();
        }
        let one = |requested: &RequestedOutput| match all.iter().find(|output| output.name == requested.name)
        {
            Some(output) => select(output.name, requested),
            None => {
                let names: Vec<String> = all.iter().map(|output| format!("`{}`", output.name)).collect();
                let reason = match requested.name.as_str() {
                    PATCH_TOKENS => "the server was not started with --tokens".to_owned(),
                    EXPLANATION => {
                        "the server was not started with --explanation, which loads the model for it"
                            .to_owned()
                    }
                    _ => format!("the model has no such output; it has {}", names.join(", ")),
                };
                Err(Failure::output(&requested.name, reason))
            }
        };
        let selected = requested.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        if selected.iter().filter_map(Selected::to_explain).count() > 1 {
            let reason = "is named more than once; a request explains one class";
            return Err(Failure::output(EXPLANATION, reason));
        }
        Ok(selected)
    }

    /// By the first of the parameters that has one.
    fn explain_options(&self, parameters: [&Parameters; 2]) -> Result<ExplainOptions, Failure> {
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
        let choices: Vec<&str> = METHODS.iter().map(|method| method.name()).collect();
        let method = match own.choice("method", &choices).map_err(refused)? {
            Some(method) => Some(method),
            None => of_request.choice("method", &choices).map_err(refused)?,
        };
        let method = method.map_or(METHODS[0], |index| METHODS[index]);
        Ok(ExplainOptions::new().class(class).method(method))
    }

    /// The selected outputs of these images, of which `explained` has the explanations.
    pub(in crate::serve) fn write(
        &self,
        selected: &[Selected],
        images: &[ImageResult],
        explained: &[ImageResult],
    ) -> Vec<OutputTensor> {
        let write = |output: &Selected| match output.what {
            What::Explanation(_) => self.write_one(output, explained),
            _ => self.write_one(output, images),
        };
        selected.iter().map(write).collect()
    }

    fn write_one(&self, output: &Selected, images: &[ImageResult]) -> OutputTensor {
        let count = images.len();
        let tensor = |shape: &[usize], values| ([&[count], shape].concat(), OutputData::Fp32(values));
        let floats = |of: &dyn Fn(ImageOutputs<'_>, &mut Vec<f32>), shape: &[usize]| {
            let mut values = Vec::with_capacity(count * shape.iter().product::<usize>());
            let outputs = images.iter().filter_map(ImageResult::outputs);
            outputs.for_each(|image| of(image, &mut values));
            tensor(shape, values)
        };
        let classes = |k: usize, text: &dyn Fn(&Prediction) -> String| {
            let elements = images.iter().filter_map(ImageResult::outputs);
            let elements = elements.flat_map(|image| image.top(k));
            let elements = elements.map(|prediction| text(&prediction)).collect();
            (vec![count, k], OutputData::Bytes(elements))
        };
        let (shape, data) = match output.what {
            What::Logits => floats(
                &|image, values| values.extend(image.logits().into_iter().flatten()),
                &[self.classes.unwrap_or(0)],
            ),
            What::Classification(k) => classes(k, &|p| format!("{}:{}:{}", p.logit, p.index, p.label)),
            What::Top(k) => classes(k, &|p| format!("{}:{}:{}", p.probability, p.index, p.label)),
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
                    explanations.flatten().copied().collect(),
                )
            }
        };
        OutputTensor {
            name: output.name,
            shape,
            data,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ndarray::array;

    use super::*;
    use crate::labels::Labels;
    use crate::outputs::{self, Scores};
    use crate::serve::scheduler::BatchResults;

    fn model() -> (Outputs, Vec<ImageResult>) {
        let labels = Labels::from_iter(["cat", "dog", "a:b"]);
        let results = outputs::Outputs {
            labels,
            scores: Scores::Sigmoid,
            prefix_tokens: 1,
            grid: None,
            embeddings: array![[1.0, 2.0], [3.0, 4.0]],
            logits: Some(array![[0.0, 3.0, -1.0], [5.0, 1.0, 2.5]]),
            tokens: None,
            hidden_layers: Vec::new(),
            attention_statistics: Vec::new(),
        };
        let results = Arc::new(BatchResults::Outputs(Box::new(results)));
        let model = Outputs {
            classes: Some(3),
            embedding: 2,
            patch_tokens: None,
            explanation: None,
        };
        // Out of order, as batches may have them.
        let images = [1, 0].map(|row| ImageResult::new(results.clone(), row));
        (model, images.to_vec())
    }

    fn none() -> Parameters {
        Parameters::default()
    }

    fn requested(name: &str, parameters: serde_json::Value) -> RequestedOutput {
        let serde_json::Value::Object(map) = parameters else {
            panic!()
        };
        RequestedOutput {
            name: name.into(),
            parameters: map.into(),
        }
    }

    #[test]
    fn without_names_all_outputs_are_written() {
        let (model, images) = model();
        let tensors = model.write(&model.select(&[], &none()).unwrap(), &images, &[]);
        let names: Vec<_> = tensors.iter().map(|t| (t.name, t.shape.clone())).collect();
        assert_eq!(
            names,
            [
                ("logits", vec![2, 3]),
                ("top", vec![2, 3]),
                ("embedding", vec![2, 2])
            ]
        );
        assert_eq!(
            tensors[0].data,
            OutputData::Fp32(vec![5.0, 1.0, 2.5, 0.0, 3.0, -1.0])
        );
        assert_eq!(tensors[2].data, OutputData::Fp32(vec![3.0, 4.0, 1.0, 2.0]));
    }

    #[test]
    fn classes_are_written_as_tritons_classification_extension_has_them() {
        let (model, images) = model();
        let wanted = [
            requested("logits", serde_json::json!({"classification": 2})),
            requested("top", serde_json::json!({"k": 1})),
        ];
        let tensors = model.write(&model.select(&wanted, &none()).unwrap(), &images, &[]);
        let OutputData::Bytes(classes) = &tensors[0].data else {
            panic!()
        };
        assert_eq!(classes, &["5:0:cat", "2.5:2:a:b", "3:1:dog", "0:0:cat"]);
        assert_eq!(tensors[0].shape, [2, 2]);
        let OutputData::Bytes(top) = &tensors[1].data else {
            panic!()
        };
        assert_eq!(top.len(), 2);
        assert!(
            top[0].starts_with("0.9933") && top[0].ends_with(":0:cat"),
            "{top:?}"
        );
        // More than there are is all.
        let all = [requested("top", serde_json::json!({"k": 99}))];
        assert_eq!(
            model.write(&model.select(&all, &none()).unwrap(), &images, &[])[0].shape,
            [2, 3]
        );
    }

    #[test]
    fn explanations_are_written_for_those_who_name_them() {
        let (mut model, images) = model();
        model.explanation = Some([1, 2]);
        let explanations = vec![array![[1.0, 2.0]], array![[3.0, 4.0]]];
        let batch = Arc::new(BatchResults::Explanations(explanations));
        let explained = [1, 0].map(|row| ImageResult::new(batch.clone(), row));

        assert!(
            model
                .select(&[], &none())
                .unwrap()
                .iter()
                .all(|output| output.name != EXPLANATION)
        );
        let wanted = [
            requested(
                "explanation",
                serde_json::json!({"class": 2, "method": "conservative"}),
            ),
            requested("embedding", serde_json::json!({})),
        ];
        let selected = model.select(&wanted, &none()).unwrap();
        let options = selected[0].to_explain().unwrap();
        assert_eq!((options.class, options.method), (Some(2), Method::Conservative));
        assert!(selected[1].to_explain().is_none());
        let tensors = model.write(&selected, &images, &explained);
        assert_eq!(tensors[0].shape, [2, 1, 2]);
        assert_eq!(tensors[0].data, OutputData::Fp32(vec![3.0, 4.0, 1.0, 2.0]));
        assert_eq!(tensors[1].data, OutputData::Fp32(vec![3.0, 4.0, 1.0, 2.0]));

        let of_request = serde_json::json!({"class": 1, "method": "conservative"});
        let serde_json::Value::Object(of_request) = of_request else {
            panic!()
        };
        let output = requested("explanation", serde_json::json!({"method": "attnlrp"}));
        let selected = model.select(&[output], &of_request.into()).unwrap();
        let options = selected[0].to_explain().unwrap();
        assert_eq!((options.class, options.method), (Some(1), Method::AttnLrp));
        let twice = [&wanted[0], &wanted[0]].map(Clone::clone);
        let twice = model.select(&twice, &none()).unwrap_err();
        assert!(twice.message().contains("more than once"), "{twice}");
        let error = |model: &Outputs, parameters| {
            let failure = model.select(&[requested("explanation", parameters)], &none());
            failure.unwrap_err().message().to_owned()
        };
        assert_eq!(
            error(&model, serde_json::json!({"class": 3})),
            "output `explanation`: parameter `class`: 3 is not one of the model's 3, counted from 0"
        );
        assert_eq!(
            error(&model, serde_json::json!({"method": "integrated-gradients"})),
            "output `explanation`: parameter `method`: \"integrated-gradients\" is not one of attnlrp, conservative"
        );
        model.classes = None;
        assert_eq!(
            error(&model, serde_json::json!({"class": 0})),
            "output `explanation`: parameter `class`: the model has no classification head"
        );
        model.explanation = None;
        assert!(error(&model, serde_json::json!({})).contains("--explanation"));
    }

    #[test]
    fn an_unknown_output_is_named() {
        let (model, _) = model();
        let error = |name, parameters| model.select(&[requested(name, parameters)], &none()).unwrap_err();
        assert_eq!(
            error("logit", serde_json::json!({})).message(),
            "output `logit`: the model has no such output; it has `logits`, `top`, `embedding`"
        );
        assert!(
            error("patch_tokens", serde_json::json!({}))
                .message()
                .contains("--tokens")
        );
        assert_eq!(
            error("top", serde_json::json!({"k": "all"})).message(),
            "output `top`: parameter `k`: \"all\" is not a whole number, at least 0"
        );
    }
}
