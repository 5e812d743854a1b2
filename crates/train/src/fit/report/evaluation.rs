//! Part of a report about the last evaluation: confusions, and the images with the largest losses.

use std::cmp::Reverse;
use std::fmt::Write;

use hipvit_report::page::{escape, table};

use super::super::evaluation::{Confusion, Evaluation, ImageLoss};
use super::{Report, dash, percent};

/// Maximum number of classes of a confusion matrix. More classes have lists.
const MAX_MATRIX: usize = 20;
/// Maximum length of a list of confusions or classes.
const MAX_LIST: usize = 20;

impl Report<'_> {
    pub(super) fn evaluated(&self, evaluation: &Evaluation) -> String {
        if let Some(reading) = &evaluation.reading {
            return format!(
                "<p>After step {}: {} of {} texts are read exactly ({}), with a character error rate of {}.</p>\n",
                evaluation.step,
                evaluation.correct,
                evaluation.images,
                percent(reading.exact_lines),
                percent(reading.character_error_rate)
            );
        }
        if let Some(figures) = &evaluation.figures {
            return format!(
                "<p>After step {}: {figures} on {} validation images.</p>\n",
                evaluation.step, evaluation.images
            );
        }
        let mut text = format!(
            "<p>After step {}: {} of {} validation images are classified correctly ({}), with a mean loss of {}.</p>\n",
            evaluation.step,
            evaluation.correct,
            evaluation.images,
            percent(evaluation.accuracy()),
            dash(evaluation.loss.map(|loss| format!("{loss:.4}")))
        );
        if let Some(recall) = &evaluation.recall {
            let _ = writeln!(
                text,
                "<p>The classes are the captions of the validation set. The caption of an image is the nearest for {}, and among the 5 nearest for \
                 {}. An image of a caption is the nearest for {}, and among the 5 nearest for {}.</p>",
                percent(recall.image_to_text_1),
                percent(recall.image_to_text_5),
                percent(recall.text_to_image_1),
                percent(recall.text_to_image_5)
            );
        }
        text += &if self.classes.len() <= MAX_MATRIX {
            self.matrix(evaluation)
        } else {
            self.lists(evaluation)
        };
        text + &self.worst(evaluation)
    }

    /// Returns the confusion matrix.
    fn matrix(&self, evaluation: &Evaluation) -> String {
        let classes = self.classes.len();
        let mut heads = vec!["class"];
        heads.extend(self.classes.iter().map(String::as_str));
        heads.push("correct");
        let rows: Vec<Vec<String>> = (0..classes)
            .map(|label| {
                let images = class_images(evaluation, label);
                let mut row = vec![self.class(label)];
                row.extend((0..classes).map(|prediction| cell(evaluation, label, prediction, images)));
                let correct = count(evaluation, label, label);
                row.push(dash(
                    (images > 0).then(|| percent(correct as f64 / images as f64)),
                ));
                row
            })
            .collect();
        format!(
            "<h3>Confusion matrix</h3>\n<p class=\"note\">A row has the images of a class, a column those that were predicted as a \
             class.</p>\n{}",
            table(&heads, 1, &rows)
        )
    }

    /// Returns lists of the most frequent confusions, and of the classes with the lowest accuracies.
    fn lists(&self, evaluation: &Evaluation) -> String {
        let wrong = |confusion: &&Confusion| confusion.label != confusion.prediction;
        let mut confusions: Vec<&Confusion> = evaluation.confusions.iter().filter(wrong).collect();
        confusions.sort_by_key(|confusion| Reverse(confusion.images));
        let rows = confusions.iter().take(MAX_LIST).map(|confusion| {
            let images = class_images(evaluation, confusion.label);
            vec![
                self.class(confusion.label),
                self.class(confusion.prediction),
                confusion.images.to_string(),
                percent(confusion.images as f64 / images as f64),
            ]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let mut text = "<h3>Most frequent confusions</h3>\n".to_owned();
        text += &table(&["class", "predicted as", "images", "of the class"], 2, &rows);
        text += "<h3>Classes with the lowest accuracies</h3>\n";
        text + &table(&["class", "images", "correct"], 1, &self.lowest(evaluation))
    }

    /// Returns the rows of the classes with the lowest accuracies.
    fn lowest(&self, evaluation: &Evaluation) -> Vec<Vec<String>> {
        let mut classes: Vec<(usize, u64, f64)> = evaluation
            .confusions
            .chunk_by(|a, b| a.label == b.label)
            .map(|of_class| {
                let label = of_class[0].label;
                let images: u64 = of_class.iter().map(|confusion| confusion.images).sum();
                (
                    label,
                    images,
                    count(evaluation, label, label) as f64 / images as f64,
                )
            })
            .collect();
        classes.sort_by(|a, b| a.2.total_cmp(&b.2));
        let rows = classes
            .into_iter()
            .take(MAX_LIST)
            .map(|(label, images, share)| vec![self.class(label), images.to_string(), percent(share)]);
        rows.collect()
    }

    /// Returns the pictures of the images with the largest losses.
    fn worst(&self, evaluation: &Evaluation) -> String {
        let mut text = "<h3>Images with the largest losses</h3>\n<div class=\"row\">\n".to_owned();
        for (image, picture) in evaluation.worst.iter().zip(&self.pictures) {
            let name = escape(&image.name);
            let picture = match picture {
                Some(url) => format!("<img src=\"{url}\" alt=\"{name}\"/>"),
                None => "<p class=\"note\">The image cannot be read.</p>".into(),
            };
            let _ = writeln!(
                text,
                "<figure>{picture}<figcaption>{name}<br/>{}</figcaption></figure>",
                self.verdict(image)
            );
        }
        text + "</div>"
    }

    /// Returns the classes of an image, and its loss.
    fn verdict(&self, image: &ImageLoss) -> String {
        format!(
            "is {}, predicted as {} ({}), loss {}",
            self.class(image.label),
            self.class(image.prediction),
            dash(
                image
                    .probability
                    .map(|probability| percent(f64::from(probability)))
            ),
            image
                .loss
                .map_or_else(|| "not finite".into(), |loss| format!("{loss:.3}"))
        )
    }
}

/// Returns a cell of the matrix, coloured by its share of the `images` of the class.
fn cell(evaluation: &Evaluation, label: usize, prediction: usize, images: u64) -> String {
    let count = count(evaluation, label, prediction);
    if count == 0 {
        return String::new();
    }
    let class = if label == prediction {
        "share"
    } else {
        "share wrong"
    };
    let share = 100.0 * count as f64 / images as f64;
    format!("<span class=\"{class}\" style=\"--share: {share:.0}%\">{count}</span>")
}

/// Returns the number of images of the class `label` that were predicted as `prediction`.
fn count(evaluation: &Evaluation, label: usize, prediction: usize) -> u64 {
    let found = evaluation
        .confusions
        .binary_search_by_key(&(label, prediction), |confusion| {
            (confusion.label, confusion.prediction)
        });
    found.map_or(0, |index| evaluation.confusions[index].images)
}

/// Returns the number of images of a class.
fn class_images(evaluation: &Evaluation, label: usize) -> u64 {
    let confusions = &evaluation.confusions;
    let start = confusions.partition_point(|confusion| confusion.label < label);
    let of_class = confusions[start..]
        .iter()
        .take_while(|confusion| confusion.label == label);
    of_class.map(|confusion| confusion.images).sum()
}
