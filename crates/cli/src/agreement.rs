//! Comparison of the settings and inputs that all processes of a run must share.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use hipvit::model;
use hipvit::pipeline::Source;
use hipvit_files::regular_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::outcome::refused;

/// Named facts in a fixed order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts(Vec<(String, String)>);

impl Facts {
    pub(crate) fn add(&mut self, name: &str, value: impl Display) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    pub(crate) fn append(&mut self, mut facts: Self) {
        self.0.append(&mut facts.0);
    }

    /// Describes the first fact that differs from `now`; `None` if all are equal.
    pub(crate) fn first_difference(&self, now: &Self) -> Option<String> {
        let none = (String::new(), String::from("nothing"));
        let most = self.0.len().max(now.0.len());
        (0..most).find_map(|index| {
            let [then, now] = [self, now].map(|facts| facts.0.get(index).unwrap_or(&none));
            let name = if then.0.is_empty() { &now.0 } else { &then.0 };
            (then != now).then(|| format!("{name} was {}, and is {}", then.1, now.1))
        })
    }

    /// Describes how the facts of the ranks differ; `None` if they are equal.
    pub(crate) fn differences(by_rank: &[Self]) -> Option<String> {
        let most = by_rank.iter().map(|facts| facts.0.len()).max().unwrap_or(0);
        let mut differences = Vec::new();
        for index in 0..most {
            let fact = |facts: &Self| facts.0.get(index).cloned().unwrap_or_default();
            let mut values: BTreeMap<_, Vec<usize>> = BTreeMap::new();
            for (rank, facts) in by_rank.iter().enumerate() {
                values.entry(fact(facts)).or_default().push(rank);
            }
            if values.len() > 1 {
                let mut values: Vec<_> = values.into_iter().collect();
                values.sort_by_key(|(_, ranks)| ranks[0]);
                let name = values[0].0.0.clone();
                let values = values
                    .iter()
                    .map(|((_, value), ranks)| format!("{value} at {}", named(ranks)));
                differences.push(format!("{name}: {}", values.collect::<Vec<_>>().join(", ")));
            }
        }
        (!differences.is_empty()).then(|| differences.join("; "))
    }
}

fn named(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match &numbers[..] {
        [one] => format!("rank {one}"),
        several => format!("ranks {}", several.join(", ")),
    }
}

/// Returns the number of images, and a digest of their names and of the contents that are in memory.
pub(crate) fn images(sources: &[Source]) -> String {
    let mut digest = Fingerprint::default();
    for source in sources {
        match source {
            Source::File(path) => digest.add(path.as_os_str().as_encoded_bytes()),
            other => digest.add(other.name().as_bytes()),
        }
        match source {
            Source::Bytes(_, bytes) | Source::Pixels(_, bytes) => digest.add(bytes),
            Source::Decoded(_, image) => digest.add(&image.data),
            _ => {}
        }
    }
    format!("{} (list {})", sources.len(), digest.hex())
}

/// Returns a digest of a model's files. JSON files are hashed as a whole. Weight files contribute their size and
/// samples from the whole file.
///
/// # Errors
///
/// Returns an error if a file cannot be read.
pub(crate) fn model(path: Option<&Path>) -> hipvit::Result<String> {
    let Some(path) = path else {
        return Ok("the embedded one".into());
    };
    let directory = model::directory(path)?;
    let has_ending = |file: &Path, ending: &str| file.extension().is_some_and(|found| found == ending);
    let mut files: Vec<PathBuf> = if directory.is_file() {
        onnx_files(path)
    } else {
        let entries = fs::read_dir(&directory).map_err(refused(&directory))?;
        let files = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut files: Vec<PathBuf> = files.collect::<Result<_, _>>().map_err(refused(&directory))?;
        // If the path names one of several weight files, only that file counts.
        files.retain(|file| has_ending(file, "json") || (has_ending(file, "safetensors") && !path.is_file()));
        if path.is_file() {
            files.push(path.to_owned());
        }
        files
    };
    files.sort();
    let mut digest = Fingerprint::default();
    for file in &files {
        digest.add(file.file_name().unwrap_or_default().as_encoded_bytes());
        digest
            .add_file(file, has_ending(file, "json"))
            .map_err(refused(file))?;
    }
    Ok(digest.hex())
}

/// Returns the files of an ONNX model: the graph, its external weights under their usual names, and the configuration beside it.
fn onnx_files(graph: &Path) -> Vec<PathBuf> {
    let weights = [".data", "_data"].map(|ending| {
        let mut name = graph.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    });
    let beside = ["config.json", "preprocessor_config.json"].map(|name| graph.with_file_name(name));
    let files = [graph.to_owned()].into_iter().chain(weights).chain(beside);
    files.filter(|file| file.is_file()).collect()
}

/// A hash of a list of parts. Each part's length is hashed too, so that different lists never hash the same bytes.
#[derive(Default)]
struct Fingerprint(Sha256);

impl Fingerprint {
    fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn add_file(&mut self, path: &Path, whole: bool) -> std::io::Result<()> {
        const SAMPLES: u64 = 16;
        const SAMPLE: u64 = 64 << 10;
        let mut file = regular_file::open(path)?;
        let length = file.metadata()?.len();
        if whole || length <= SAMPLES * SAMPLE {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            self.add(&bytes);
            return Ok(());
        }
        self.add(&length.to_le_bytes());
        let mut bytes = vec![0; SAMPLE as usize];
        for sample in 0..SAMPLES {
            // The first sample starts at the beginning, the last one ends at the end.
            let at = u128::from(length - SAMPLE) * u128::from(sample) / u128::from(SAMPLES - 1);
            file.seek(SeekFrom::Start(at as u64))?;
            file.read_exact(&mut bytes)?;
            self.add(&bytes);
        }
        Ok(())
    }

    fn hex(self) -> String {
        let digest = self.0.finalize();
        digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        let mut facts = Facts::default();
        for (name, value) in pairs {
            facts.add(name, value);
        }
        facts
    }

    #[test]
    fn a_difference_names_the_ranks_and_what_each_has() {
        let ranks = [
            facts(&[("images", "3"), ("--dtype", "f32")]),
            facts(&[("images", "2"), ("--dtype", "f32")]),
            facts(&[("images", "2"), ("--dtype", "f16")]),
        ];
        assert_eq!(
            Facts::differences(&ranks).unwrap(),
            "images: 3 at rank 0, 2 at ranks 1, 2; --dtype: f32 at ranks 0, 1, f16 at rank 2"
        );
        assert_eq!(Facts::differences(&ranks[..1]), None);
    }

    #[test]
    fn the_order_of_images_matters() {
        let list = |names: [&str; 2]| images(&names.map(Source::from));
        assert_eq!(list(["a", "b"]), list(["a", "b"]));
        assert_ne!(list(["a", "b"]), list(["b", "a"]));
        assert_ne!(list(["ab", ""]), list(["a", "b"]));
        assert!(list(["a", "b"]).starts_with("2 (list "));
    }

    #[test]
    fn a_changed_weight_file_is_another_model() {
        let folder = tempfile::tempdir().unwrap();
        let model_of = |config: &str, end: u8| {
            fs::write(folder.path().join("config.json"), config).unwrap();
            let mut weights = vec![0; 2 << 20];
            weights.push(end);
            fs::write(folder.path().join("model.safetensors"), weights).unwrap();
            model(Some(folder.path())).unwrap()
        };
        let first = model_of("{}", 1);
        assert_eq!(first, model_of("{}", 1));
        assert_ne!(first, model_of("{}", 2));
        assert_ne!(first, model_of("{ }", 1));
    }

    #[test]
    fn other_files_beside_an_onnx_model_do_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join("model.onnx");
        let with = |name: &str| {
            fs::write(folder.path().join(name), "{}").unwrap();
            model(Some(&graph)).unwrap()
        };
        let alone = with("model.onnx");
        assert_eq!(with("package.json"), alone);
        let external = with("model.onnx.data");
        assert_ne!(external, alone);
        assert_ne!(with("preprocessor_config.json"), external);
    }
}
