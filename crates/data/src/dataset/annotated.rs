//! Lists of images with maps and objects: CSV, TSV and JSON Lines files.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::annotations::{Annotations, Objects};
use super::list::{at, image_of, rows};
use super::{Content, Dataset};
use crate::error::{Error, Result};

/// Key of the file with the depth of each pixel.
const DEPTH: &str = "depth_file_name";
/// Key of the file with the object of each pixel.
const MASK: &str = "mask_file_name";
/// Key of the objects, which only JSON Lines have.
const OBJECTS: &str = "objects";

/// Image files with maps or objects. They have no classes.
///
/// A list is a CSV, TSV or JSON Lines file, such as `metadata.jsonl` of Hugging Face's `ImageFolder`. It has a column of images, and at least
/// one of `depth_file_name`, `mask_file_name` and `objects`. Paths are relative to its directory.
#[derive(Clone, Debug)]
pub struct Annotated {
    images: Vec<(PathBuf, Annotations)>,
}

impl Annotated {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Dataset`], with the line, for a line without an image, or with other kinds of annotations than the first line. Returns
    /// [`Error::Io`] if the list cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut images: Vec<(PathBuf, Annotations)> = Vec::new();
        for (line, row) in rows(path)? {
            let image = image_of(&row).ok_or_else(|| at(path, line, "there is no path of an image"))?;
            let annotations = annotations(folder, &row).map_err(|reason| at(path, line, reason))?;
            let first = images.first().map_or(&annotations, |(_, first)| first);
            if kinds(first) != kinds(&annotations) {
                let reason = format!(
                    "`{image}` has no {DEPTH}, {MASK} or {OBJECTS} that the first line has, or has one that it lacks"
                );
                return Err(at(path, line, reason));
            }
            images.push((folder.join(image), annotations));
        }
        if images.is_empty() {
            return Err(Error::dataset(path, "has no images"));
        }
        Ok(Self { images })
    }
}

/// Returns true if a row has maps or objects of an image.
pub(super) fn is_annotated(row: &Map<String, Value>) -> bool {
    image_of(row).is_some() && [DEPTH, MASK, OBJECTS].iter().any(|key| row.contains_key(*key))
}

fn kinds(annotations: &Annotations) -> [bool; 3] {
    [
        annotations.depth.is_some(),
        annotations.mask.is_some(),
        annotations.objects.is_some(),
    ]
}

/// Returns the annotations of a row, or what is wrong with them.
fn annotations(folder: &Path, row: &Map<String, Value>) -> Result<Annotations, String> {
    let file = |key: &str| match row.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if !name.trim().is_empty() => Ok(Some(folder.join(name.trim()))),
        Some(other) => Err(format!("`{key}` is {other}, expected the path of a file")),
    };
    let objects = match row.get(OBJECTS) {
        None | Some(Value::Null) => None,
        Some(objects) => {
            let objects = Objects::deserialize(objects).map_err(|error| format!("`{OBJECTS}`: {error}"))?;
            if objects.boxes.len() != objects.classes.len() {
                return Err(format!(
                    "`{OBJECTS}` has {} boxes and {} categories. Give each box a category",
                    objects.boxes.len(),
                    objects.classes.len()
                ));
            }
            Some(objects)
        }
    };
    Ok(Annotations {
        depth: file(DEPTH)?,
        mask: file(MASK)?,
        objects,
    })
}

impl Dataset for Annotated {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn classes(&self) -> &[String] {
        &[]
    }

    fn label(&self, _index: usize) -> usize {
        0
    }

    fn name(&self, index: usize) -> String {
        self.images[index].0.display().to_string()
    }

    fn read(&self, index: usize) -> Result<Content> {
        Content::of_file(&self.images[index].0)
    }

    fn annotations(&self, index: usize) -> Option<&Annotations> {
        Some(&self.images[index].1)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::dataset::open;

    fn refused(content: &str, reasons: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("metadata.jsonl");
        fs::write(&list, content).unwrap();
        let error = Annotated::open(&list).unwrap_err().to_string();
        for reason in reasons {
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn lists_have_maps_and_objects() {
        let folder = tempfile::tempdir().unwrap();
        let line = r#"{"file_name": "a.png", "depth_file_name": "maps/a.png", "objects": {"bbox": [[1, 2.5, 3, 4]], "categories": [7]}}"#;
        fs::write(folder.path().join("metadata.jsonl"), format!("{line}\n")).unwrap();
        let set = open(folder.path()).unwrap().train;
        assert_eq!(
            (set.len(), set.classes().len(), set.has_captions()),
            (1, 0, false)
        );
        let annotations = set.annotations(0).unwrap();
        assert_eq!(annotations.depth, Some(folder.path().join("maps/a.png")));
        assert_eq!(annotations.mask, None);
        let objects = annotations.objects.as_ref().unwrap();
        assert_eq!(
            (&objects.boxes[..], &objects.classes[..]),
            (&[[1.0, 2.5, 3.0, 4.0]][..], &[7][..])
        );
    }

    #[test]
    fn directories_of_splits_have_tables() {
        let folder = tempfile::tempdir().unwrap();
        for split in ["train", "validation"] {
            fs::create_dir(folder.path().join(split)).unwrap();
            let table = "\u{feff}file_name,mask_file_name,note\na.png,b.png,x\nc.png,d.png,y\n";
            fs::write(folder.path().join(split).join("metadata.csv"), table).unwrap();
        }
        let splits = open(folder.path()).unwrap();
        let set = splits.validation.unwrap();
        assert_eq!(set.len(), 2);
        let mask = set.annotations(1).unwrap().mask.clone();
        assert_eq!(mask, Some(folder.path().join("validation/d.png")));
        assert!(set.name(1).ends_with("c.png"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let first = r#"{"file_name": "a.png", "mask_file_name": "b.png"}"#;
        refused("", &["has no images"]);
        refused(
            &format!("{first}\n{{\"mask_file_name\": \"b.png\"}}"),
            &["line 2", "no path of an image"],
        );
        refused(
            &format!("{first}\n{{\"file_name\": \"c.png\"}}"),
            &["line 2", "`c.png`", "mask_file_name"],
        );
        refused(
            r#"{"file_name": "a.png", "depth_file_name": 3}"#,
            &["line 1", "`depth_file_name` is 3"],
        );
        refused(
            r#"{"file_name": "a.png", "objects": {"bbox": [[1, 2, 3, 4]], "categories": []}}"#,
            &["1 boxes and 0 categories"],
        );
        refused(
            r#"{"file_name": "a.png", "objects": {"bbox": [[1, 2, 3]], "categories": [0]}}"#,
            &["line 1", "`objects`"],
        );
    }
}
