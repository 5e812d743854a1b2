//! From results to output tensors.

use super::{Datatype, OutputData, OutputTensor, RequestedOutput, TensorMetadata};
use crate::outputs::Prediction;
use crate::serve::failure::Failure;
use crate::serve::scheduler::ImageResult;

const LOGITS: &str = "logits";
const TOP: &str = "top";
const EMBEDDING: &str = "embedding";
const PATCH_TOKENS: &str = "patch_tokens";

/// The number of classes in `top`, unless the request says.
const DEFAULT_TOP: usize = 5;

/// The outputs that a model has.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Outputs {
    /// None: it has no classification head.
    pub(in crate::serve) classes: Option<usize>,
    pub(in crate::serve) embedding: usize,
    /// Number and channels, if they are offered.
    pub(in crate::serve) patch_tokens: Option<[usize; 2]>,
}

/// What a request wants, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Selected {
    pub(in crate::serve) name: &'static str,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Logits,
    /// The largest logits, as Triton's classification extension has them.
    Classification(usize),
    Top(usize),
    Embedding,
    PatchTokens,
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
        all
    }

    /// Checks which outputs are wanted; all of them if none is named.
    pub(in crate::serve) fn select(&self, requested: &[RequestedOutput]) -> Result<Vec<Selected>, Failure> {
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
                _ => What::PatchTokens,
            };
            Ok(Selected { name, what })
        };
        if requested.is_empty() {
            let any = RequestedOutput::default();
            return all.iter().map(|output| select(output.name, &any)).collect();
        }
        let one = |requested: &RequestedOutput| match all.iter().find(|output| output.name == requested.name)
        {
            Some(output) => select(output.name, requested),
            None => {
                let names: Vec<String> = all.iter().map(|output| format!("`{}`", output.name)).collect();
                let reason = match requested.name.as_str() {
                    PATCH_TOKENS => "the server was not started with --tokens".to_owned(),
                    _ => format!("the model has no such output; it has {}", names.join(", ")),
                };
                Err(Failure::output(&requested.name, reason))
            }
        };
        requested.iter().map(one).collect()
    }

    /// The selected outputs of these images.
    pub(in crate::serve) fn write(&self, selected: &[Selected], images: &[ImageResult]) -> Vec<OutputTensor> {
        selected
            .iter()
            .map(|output| self.write_one(*output, images))
            .collect()
    }

    fn write_one(&self, output: Selected, images: &[ImageResult]) -> OutputTensor {
        let count = images.len();
        let floats = |of: &dyn Fn(&ImageResult, &mut Vec<f32>), shape: &[usize]| {
            let mut values = Vec::with_capacity(count * shape.iter().product::<usize>());
            images.iter().for_each(|image| of(image, &mut values));
            ([&[count], shape].concat(), OutputData::Fp32(values))
        };
        let classes = |k: usize, text: &dyn Fn(&Prediction) -> String| {
            let elements = images.iter().flat_map(|image| image.get().top(k));
            let elements = elements.map(|prediction| text(&prediction)).collect();
            (vec![count, k], OutputData::Bytes(elements))
        };
        let (shape, data) = match output.what {
            What::Logits => floats(
                &|image, values| values.extend(image.get().logits().into_iter().flatten()),
                &[self.classes.unwrap_or(0)],
            ),
            What::Classification(k) => classes(k, &|p| format!("{}:{}:{}", p.logit, p.index, p.label)),
            What::Top(k) => classes(k, &|p| format!("{}:{}:{}", p.probability, p.index, p.label)),
            What::Embedding => floats(
                &|image, values| values.extend(image.get().embedding()),
                &[self.embedding],
            ),
            What::PatchTokens => floats(
                &|image, values| values.extend(image.get().tokens().into_iter().flatten()),
                &self.patch_tokens.unwrap_or_default(),
            ),
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

    fn model() -> (Outputs, Vec<ImageResult>) {
        let labels = Labels::from_iter(["cat", "dog", "a:b"]);
        let results = outputs::Outputs {
            labels,
            scores: Scores::Sigmoid,
            prefix_tokens: 1,
            embeddings: array![[1.0, 2.0], [3.0, 4.0]],
            logits: Some(array![[0.0, 3.0, -1.0], [5.0, 1.0, 2.5]]),
            tokens: None,
            hidden_layers: Vec::new(),
        };
        let results = Arc::new(results);
        let model = Outputs {
            classes: Some(3),
            embedding: 2,
            patch_tokens: None,
        };
        // Out of order, as batches may have them.
        let images = [1, 0].map(|row| ImageResult::new(results.clone(), row));
        (model, images.to_vec())
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
        let tensors = model.write(&model.select(&[]).unwrap(), &images);
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
        let tensors = model.write(&model.select(&wanted).unwrap(), &images);
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
            model.write(&model.select(&all).unwrap(), &images)[0].shape,
            [2, 3]
        );
    }

    #[test]
    fn an_unknown_output_is_named() {
        let (model, _) = model();
        let error = |name, parameters| model.select(&[requested(name, parameters)]).unwrap_err();
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
