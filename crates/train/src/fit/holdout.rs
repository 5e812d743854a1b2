//! Divides a dataset without a validation set into images for training and images for validation.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

use hipvit::error::Error;
use hipvit_data::random::{Draw, Purpose, Stream};
use hipvit_data::{Annotations, Content, Dataset, Result, Splits};

use super::error::FitError;

/// Some images of a dataset.
#[derive(Debug)]
struct Subset {
    dataset: Arc<dyn Dataset>,
    indices: Vec<usize>,
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn classes(&self) -> &[String] {
        self.dataset.classes()
    }

    fn has_captions(&self) -> bool {
        self.dataset.has_captions()
    }

    fn annotations(&self, index: usize) -> Option<&Annotations> {
        self.dataset.annotations(self.indices[index])
    }

    fn label(&self, index: usize) -> usize {
        self.dataset.label(self.indices[index])
    }

    fn name(&self, index: usize) -> String {
        self.dataset.name(self.indices[index])
    }

    fn read(&self, index: usize) -> Result<Content> {
        self.dataset.read(self.indices[index])
    }
}

/// Opens a dataset, and holds out `share` of the images of each class for validation, or of all pairs. `seed` determines which.
///
/// # Errors
///
/// Returns [`Error::Argument`] if images are to be held out of a dataset with a validation set, and the errors of [`hipvit_data::open`].
pub fn open_splits(data: &Path, share: f64, seed: u64) -> std::result::Result<Splits, FitError> {
    divided(hipvit_data::open(data)?, data, share, seed)
}

/// Holds out `share` of the images of the dataset at `data`, as [`open_splits`] does.
pub(crate) fn divided(
    splits: Splits,
    data: &Path,
    share: f64,
    seed: u64,
) -> std::result::Result<Splits, FitError> {
    match &splits.validation {
        Some(_) if share > 0.0 => {
            let reason = format!(
                "has no effect, because {} has a validation set. Leave it out",
                data.display()
            );
            Err(Error::argument("holdout", reason).into())
        }
        None if share > 0.0 => Ok(hold_out(splits.train, share, seed)),
        _ => Ok(splits),
    }
}

/// Holds out `share` of the images of each class for validation, or of all images with captions or annotations. `seed` determines which.
pub fn hold_out(dataset: Arc<dyn Dataset>, share: f64, seed: u64) -> Splits {
    let [train, validation] = if dataset.has_captions() || dataset.annotations(0).is_some() {
        divide_images(&*dataset, share, seed)
    } else {
        let labels: Vec<usize> = (0..dataset.len()).map(|index| dataset.label(index)).collect();
        divide(&labels, dataset.classes().len(), share, seed)
    };
    let subset = |indices: Vec<usize>| -> Arc<dyn Dataset> {
        let dataset = dataset.clone();
        Arc::new(Subset { dataset, indices })
    };
    Splits {
        validation: (!validation.is_empty()).then(|| subset(validation)),
        train: subset(train),
    }
}

/// Numbers images by their names, in the order in which they first occur.
pub(super) fn numbered<N: Eq + Hash>(names: impl Iterator<Item = N>) -> Vec<usize> {
    let mut known = HashMap::new();
    let number = |name| {
        let next = known.len();
        *known.entry(name).or_insert(next)
    };
    names.map(number).collect()
}

/// Divides the different images of a dataset, which may have several captions each, so that no image is in both parts.
fn divide_images(dataset: &dyn Dataset, share: f64, seed: u64) -> [Vec<usize>; 2] {
    let numbers = numbered((0..dataset.len()).map(|index| dataset.name(index)));
    let mut indices = vec![Vec::new(); numbers.iter().max().map_or(0, |most| most + 1)];
    for (index, number) in numbers.into_iter().enumerate() {
        indices[number].push(index);
    }
    divide(&vec![0; indices.len()], 1, share, seed).map(|part| {
        let mut part: Vec<usize> = part
            .iter()
            .flat_map(|&number| &indices[number])
            .copied()
            .collect();
        part.sort_unstable();
        part
    })
}

/// Divides images with these labels. Returns the sorted indices of those that remain, and of those that are held out: `share` of the images of
/// each class. `seed` determines which.
pub(crate) fn divide(labels: &[usize], classes: usize, share: f64, seed: u64) -> [Vec<usize>; 2] {
    let mut of_classes = vec![Vec::new(); classes];
    for (index, &label) in labels.iter().enumerate() {
        of_classes[label].push(index);
    }
    let (mut rest, mut held_out) = (Vec::new(), Vec::new());
    for (class, mut indices) in of_classes.into_iter().enumerate() {
        let draw = Draw {
            purpose: Purpose::Shuffle,
            // No epoch has this number, so the order differs from that of every epoch.
            epoch: u32::MAX,
            index: class as u64,
            repeat: 0,
        };
        Stream::new(seed, draw).shuffle(&mut indices);
        let count = (share * indices.len() as f64).round() as usize;
        rest.extend(indices.split_off(count));
        held_out.extend(indices);
    }
    rest.sort_unstable();
    held_out.sort_unstable();
    [rest, held_out]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hipvit_data::InMemory;

    use super::*;

    #[test]
    fn the_captions_of_an_image_stay_together() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("pairs.csv");
        let line = |index: usize| format!("{}.png,caption {index}\n", index / 5);
        let lines: String = (0..100).map(line).collect();
        std::fs::write(&list, format!("filepath,title\n{lines}")).unwrap();
        let splits = hold_out(Arc::new(hipvit_data::Pairs::open(&list).unwrap()), 0.25, 3);
        let validation = splits.validation.unwrap();
        assert_eq!((splits.train.len(), validation.len()), (75, 25));
        let names =
            |set: &dyn Dataset| -> BTreeSet<String> { (0..set.len()).map(|index| set.name(index)).collect() };
        assert!(names(&*splits.train).is_disjoint(&names(&*validation)));
    }

    #[test]
    fn each_class_gives_its_share_and_no_image_is_in_both() {
        let labels: Vec<usize> = (0..60).map(|index| usize::from(index % 3 == 0)).collect();
        let pixels = (0..60).collect();
        let dataset = InMemory::new("set", [1, 1], pixels, labels, vec!["a".into(), "b".into()]).unwrap();
        let splits = hold_out(Arc::new(dataset), 0.25, 7);
        let names =
            |set: &dyn Dataset| -> Vec<String> { (0..set.len()).map(|index| set.name(index)).collect() };
        let validation = splits.validation.unwrap();
        let count = |set: &dyn Dataset| (0..set.len()).filter(|&index| set.label(index) == 1).count();
        assert_eq!((validation.len(), count(&*validation)), (15, 5));
        let mut all = names(&*splits.train);
        all.extend(names(&*validation));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 60);
    }
}
