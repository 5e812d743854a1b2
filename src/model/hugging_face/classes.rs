//! Reads the classes of transformers' classifiers, `id2label` and `num_labels`, by the rules of `PreTrainedConfig`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::kind::{Class, Kind};
use crate::error::Result;
use crate::labels::Labels;
use crate::model::fields::Fields;
use crate::model::weights::Weights;
use hipvit_files::json::scalar_text;

const NAMES: &str = "id2label";
const COUNT: &str = "num_labels";
/// The library's default number of classes.
const DEFAULT: usize = 2;

/// Number and names of the classes.
pub(super) struct Classes<'a> {
    config: Fields<'a>,
    /// Key that determines the number of classes.
    key: &'static str,
    count: usize,
    names: BTreeMap<i64, Cow<'a, str>>,
}

impl<'a> Classes<'a> {
    /// Reads the keys. As in the library, a `num_labels` that differs from the number of names replaces all of them.
    pub(super) fn new(config: Fields<'a>) -> Result<Self> {
        let given = config.count(COUNT)?;
        let map = config.object(NAMES)?;
        let mut ids = BTreeMap::new();
        for key in map.iter().flat_map(Fields::keys) {
            let id = id(key).ok_or_else(|| {
                config.error(
                    NAMES,
                    format_args!("has the key \"{key}\", expected a whole number"),
                )
            })?;
            ids.insert(id, map.and_then(|map| map.get(key)));
        }
        let (key, count) = match (map, given) {
            (_, Some(count)) if map.is_none() || count != ids.len() => {
                ids.clear();
                (COUNT, count)
            }
            (Some(_), _) => (NAMES, ids.len()),
            (None, _) => (NAMES, DEFAULT),
        };
        Ok(Self {
            config,
            key,
            count,
            names: ids
                .into_iter()
                .filter_map(|(id, name)| Some((id, scalar_text(name?)?)))
                .collect(),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Checks that there is a class.
    pub(super) fn check_any(&self) -> Result<()> {
        if self.count > 0 {
            return Ok(());
        }
        let reason = "names no class, but the model is a classifier";
        Err(self.config.error(self.key, reason))
    }

    /// Checks that there are as many classes as the classifier in the weights has, and at least one.
    pub(super) fn check(&self, kind: &Kind, class: Class, weights: &Weights) -> Result<()> {
        self.check_any()?;
        let head = match class {
            Class::WithTeacher => kind.names.heads_of_two[0],
            _ => kind.names.head,
        };
        let tensor = format!("{head}.weight");
        match weights.shape(&tensor) {
            Some(&[rows, _]) if rows != self.count => {
                let (count, key) = (self.count, self.key);
                let says = match self.config.get(key) {
                    Some(_) => "makes it",
                    None => "is missing, which makes it",
                };
                let reason = format_args!(
                    "{says} {count} classes, but the checkpoint's classifier, `{tensor}`, has {rows}"
                );
                Err(self.config.error(key, reason))
            }
            _ => Ok(()),
        }
    }

    /// Returns the labels of the first `count` classes.
    pub(super) fn labels(&self, count: usize) -> Labels {
        let unnamed = |index: usize| format!("LABEL_{index}");
        let known = |index: usize| {
            let name: &str = self.names.get(&i64::try_from(index).ok()?)?;
            // The library writes this label for a class without a name.
            (name != unnamed(index)).then_some((None, name))
        };
        Labels::of_model(count, known, unnamed)
    }
}

/// Parses a number like Python's `int`, which allows spaces around it, a sign, leading zeros and single underscores.
fn id(key: &str) -> Option<i64> {
    let digits = key.trim();
    let bare = digits.trim_start_matches(['+', '-']);
    if bare.starts_with('_') || bare.ends_with('_') || bare.contains("__") {
        return None;
    }
    digits.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<(usize, Vec<String>), String> {
        let fields = Fields::new(Path::new("config.json"), value).unwrap();
        let classes = Classes::new(fields).map_err(|error| error.to_string())?;
        let labels = classes.labels(classes.count());
        Ok((classes.count(), labels.iter().map(str::to_owned).collect()))
    }

    #[test]
    fn the_library_counts_names_or_believes_the_number() {
        let named =
            |labels: &[&str]| Ok((labels.len(), labels.iter().map(|&name| name.to_owned()).collect()));
        for (config, expected) in [
            (json!({}), named(&["LABEL_0", "LABEL_1"])),
            (
                json!({ "num_labels": 3, "id2label": null }),
                named(&["LABEL_0", "LABEL_1", "LABEL_2"]),
            ),
            (
                json!({ "id2label": { "0": "a", "1": "b" }, "num_labels": 2 }),
                named(&["a", "b"]),
            ),
            // With a gap in the indices, three names still mean three classes.
            (
                json!({ "id2label": { "0": "a", "1": "b", "9": "z" } }),
                named(&["a", "b", "LABEL_2"]),
            ),
            // A different number of labels drops the names.
            (
                json!({ "id2label": { "0": "a", "1": "b" }, "num_labels": 3 }),
                named(&["LABEL_0", "LABEL_1", "LABEL_2"]),
            ),
            // Keys are parsed like Python's `int`. The last of several equal keys counts.
            (
                json!({ "id2label": { " 0": "a", "01": "x", "1": "b" } }),
                named(&["a", "b"]),
            ),
            (
                json!({ "id2label": { "0": 7, "1": null } }),
                named(&["7", "LABEL_1"]),
            ),
            (
                json!({ "id2label": { "-1": "a", "0": "b" } }),
                named(&["b", "LABEL_1"]),
            ),
        ] {
            assert_eq!(read(&config), expected, "{config}");
        }
        let error = read(&json!({ "id2label": { "x": "a" } })).unwrap_err();
        assert_eq!(
            error,
            "config.json: `id2label` has the key \"x\", expected a whole number"
        );
    }

    #[test]
    fn python_reads_these_numbers() {
        for (key, expected) in [
            ("7", Some(7)),
            (" 07\n", Some(7)),
            ("+1_0", Some(10)),
            ("-3", Some(-3)),
            ("1__0", None),
            ("_1", None),
            ("1.0", None),
            ("", None),
            ("+-1", None),
        ] {
            assert_eq!(id(key), expected, "{key}");
        }
    }
}
