//! Evaluation of a decoder of texts: how many validation images are read exactly, and how many characters are wrong.

use std::sync::Arc;

use hipvit_data::Dataset;
use hipvit_generate::{GenerateOptions, Generator};

use super::reading::Reading;
use super::{Callbacks, Evaluation, Fit, FitError};
use crate::trainer::Weights;

/// Counts of the texts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    images: u64,
    exact: u64,
    characters: u64,
    errors: u64,
}

impl Fit {
    /// Evaluates the present weights on the texts of the validation images. Counts and reports broken images if there are `callbacks`.
    pub(super) fn evaluate_texts(
        &mut self,
        dataset: &Arc<dyn Dataset>,
        weights: Weights,
        callbacks: Option<&mut dyn Callbacks>,
    ) -> Result<Evaluation, FitError> {
        let session = self.session(weights)?;
        let trainer = &self.trainer;
        let checkpoint = trainer.checkpoint().with_values(&trainer.values(weights)?)?;
        let options = GenerateOptions {
            beams: Some(1),
            ..GenerateOptions::default()
        };
        let mut generator = Generator::of_checkpoint(session, checkpoint, &self.run.initial(), &options)?;
        let mut counts = Counts::default();
        self.decode_all(&**dataset, callbacks, |indices, images| {
            let texts = generator.generate(images, &options, &mut |_, _| {})?;
            for (text, &index) in texts.iter().zip(indices) {
                counts.add(&text.text, &dataset.classes()[dataset.label(index)]);
            }
            Ok(())
        })?;
        Ok(counts.evaluation(self.progress.step))
    }
}

impl Counts {
    /// Adds a text that was read, and that of the dataset.
    fn add(&mut self, read: &str, expected: &str) {
        self.images += 1;
        self.exact += u64::from(read == expected);
        self.characters += expected.chars().count() as u64;
        self.errors += distance(read, expected) as u64;
    }

    fn evaluation(self, step: u64) -> Evaluation {
        Evaluation {
            reading: Some(Reading {
                exact_lines: self.exact as f64 / self.images.max(1) as f64,
                character_error_rate: self.errors as f64 / self.characters.max(1) as f64,
            }),
            ..Evaluation::without_classes(step, self.images, self.exact)
        }
    }
}

/// Returns the number of insertions, deletions and replacements of characters between two texts (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (above, a) in a.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (column, &b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_characters() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("Größe", "Grosse", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn shares_are_of_texts_and_of_characters() {
        let mut counts = Counts::default();
        counts.add("12", "12");
        counts.add("one", "onee");
        counts.add("xyz123", "x");
        let evaluation = counts.evaluation(7);
        let reading = evaluation.reading.unwrap();
        assert_eq!(
            (evaluation.images, evaluation.correct, evaluation.step),
            (3, 1, 7)
        );
        assert!((reading.exact_lines - 1.0 / 3.0).abs() < 1e-12);
        // One deletion and five insertions per seven characters.
        assert!((reading.character_error_rate - 6.0 / 7.0).abs() < 1e-12);
    }
}
