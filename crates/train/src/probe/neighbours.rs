//! Weighted k-NN classification, as in DINO's `eval_knn.py`.

use std::cmp::Ordering;

use hipvit::Error;
use hipvit::ndarray::{Array2, ArrayView2, Axis};
use hipvit::outputs::normalize;
use rayon::prelude::*;

use super::{Features, KnnResult, Probe, ProbeError, Ranks, check_positive, rank};

/// Number of validation images per task. A task holds `QUERIES × BLOCK` similarities.
const QUERIES: usize = 64;
/// Number of training images per matrix product.
const BLOCK: usize = 4096;

/// A training image near a validation image.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    similarity: f32,
    index: usize,
}

impl Probe {
    /// Classifies the validation images by their nearest training images, for each number `k` of neighbours.
    ///
    /// Each neighbour with cosine similarity `s` adds `exp(s / temperature)` to the score of its class. A class without votes is never
    /// predicted.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if a number of neighbours is 0 or exceeds the training images, or the temperature is not positive.
    pub fn knn(&self, neighbours: &[usize], temperature: f64) -> Result<Vec<KnnResult>, ProbeError> {
        let images = self.train.len();
        if let Some(k) = neighbours.iter().find(|&&k| k == 0 || k > images) {
            let reason = format!("{k} neighbours, but there are {images} training images");
            return Err(Error::argument("knn", reason).into());
        }
        check_positive("temperature", temperature)?;
        Ok(evaluate(self, neighbours, temperature))
    }
}

/// Classifies the validation images for each number of neighbours. Each number must be from 1 to the number of training images.
fn evaluate(probe: &Probe, neighbours: &[usize], temperature: f64) -> Vec<KnnResult> {
    let Probe { train, validation } = probe;
    let [known, queries] = [train, validation].map(|features| unit_rows(&features.values));
    let most = neighbours.iter().copied().max().unwrap_or(0);
    let tasks: Vec<_> = queries
        .axis_chunks_iter(Axis(0), QUERIES)
        .zip(validation.labels.chunks(QUERIES))
        .collect();
    let ranks: Vec<Vec<Ranks>> = tasks
        .into_par_iter()
        .map(|(queries, labels)| {
            let nearest = nearest(queries, known.view(), most);
            let of = |&k: &usize| count_ranks(&nearest, labels, train, k, temperature);
            neighbours.iter().map(of).collect()
        })
        .collect();
    let result = |(place, &k): (usize, &usize)| KnnResult {
        k,
        accuracy: ranks
            .iter()
            .map(|of_task| of_task[place])
            .sum::<Ranks>()
            .accuracy(train.classes),
    };
    neighbours.iter().enumerate().map(result).collect()
}

/// Scales each row to a Euclidean norm of 1, so that products are cosine similarities.
fn unit_rows(values: &Array2<f32>) -> Array2<f32> {
    let mut rows = values.clone();
    rows.axis_iter_mut(Axis(0)).for_each(normalize);
    rows
}

/// Returns the `most` most similar rows of `known` for each query, most similar first.
fn nearest(queries: ArrayView2<'_, f32>, known: ArrayView2<'_, f32>, most: usize) -> Vec<Vec<Neighbour>> {
    let mut found = vec![Vec::new(); queries.nrows()];
    for (block, rows) in known.axis_chunks_iter(Axis(0), BLOCK).enumerate() {
        let similarities = queries.dot(&rows.t());
        for (found, similarities) in found.iter_mut().zip(similarities.rows()) {
            found.extend(
                similarities
                    .iter()
                    .enumerate()
                    .map(|(row, &similarity)| Neighbour {
                        similarity,
                        index: block * BLOCK + row,
                    }),
            );
            keep_nearest(found, most);
        }
    }
    for found in &mut found {
        found.sort_unstable_by(most_similar_first);
    }
    found
}

fn keep_nearest(found: &mut Vec<Neighbour>, most: usize) {
    if found.len() > most {
        found.select_nth_unstable_by(most, most_similar_first);
        found.truncate(most);
    }
}

fn most_similar_first(a: &Neighbour, b: &Neighbour) -> Ordering {
    let by_similarity = b.similarity.total_cmp(&a.similarity);
    by_similarity.then(a.index.cmp(&b.index))
}

/// Counts the ranks of `labels` among the votes of the first `k` neighbours.
fn count_ranks(
    nearest: &[Vec<Neighbour>],
    labels: &[usize],
    train: &Features,
    k: usize,
    temperature: f64,
) -> Ranks {
    let mut ranks = Ranks::default();
    for (neighbours, &label) in nearest.iter().zip(labels) {
        let votes = votes(&neighbours[..k], train, temperature);
        // A class without votes is not predicted, even if fewer than five classes have votes.
        let is_candidate = votes[label] > 0.0;
        ranks.add(if is_candidate {
            rank(&votes, label)
        } else {
            votes.len()
        });
    }
    ranks
}

/// Returns the votes for each class. They are relative to the nearest neighbour's vote, so that no temperature overflows.
fn votes(neighbours: &[Neighbour], train: &Features, temperature: f64) -> Vec<f64> {
    let mut votes = vec![0.0; train.classes];
    let most = neighbours.first().map_or(0.0, |nearest| nearest.similarity);
    for &Neighbour { similarity, index } in neighbours {
        votes[train.labels[index]] += (f64::from(similarity - most) / temperature).exp();
    }
    votes
}

#[cfg(test)]
mod tests {
    use hipvit::ndarray::arr2;

    use super::*;

    /// Returns a vector at an angle in degrees. Its length does not matter.
    fn at(degrees: f32, length: f32) -> [f32; 2] {
        let (sine, cosine) = degrees.to_radians().sin_cos();
        [length * cosine, length * sine]
    }

    #[test]
    fn near_neighbours_outvote_many_far_ones() {
        let train = arr2(&[at(5.0, 9.0), at(40.0, 1.0), at(41.0, 3.0), at(42.0, 0.1)]);
        let train = Features::new(train, vec![0, 1, 1, 1], 2).unwrap();
        let query = Features::new(arr2(&[at(0.0, 2.0)]), vec![0], 2).unwrap();
        let probe = Probe::new(train, query).unwrap();
        let accuracies = |temperature| -> Vec<f64> {
            let results = probe.knn(&[1, 2, 4], temperature).unwrap();
            results.iter().map(|result| result.accuracy.accuracy).collect()
        };
        // The vote at 5° is exp((cos 5° − cos 40°) / 0.07) = 27 times that at 40°.
        assert_eq!(accuracies(0.07), [1.0, 1.0, 1.0]);
        // Relative to the vote at 5°, the other three are exp(−0.23), exp(−0.24) and exp(−0.25), so 2.4 in total.
        assert_eq!(accuracies(1.0), [1.0, 1.0, 0.0]);
        // exp(1 / 0.001) is infinite, but votes are relative.
        assert_eq!(accuracies(0.001), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn a_class_without_votes_is_not_among_the_first_five() {
        let angles: Vec<[f32; 2]> = (0..7u8).map(|class| at(10.0 * f32::from(class), 1.0)).collect();
        let train = Features::new(Array2::from(angles.clone()), (0..7).collect(), 7).unwrap();
        let query = Features::new(Array2::from(angles), vec![0, 0, 0, 3, 3, 3, 3], 7).unwrap();
        let results = Probe::new(train, query).unwrap().knn(&[1, 3], 0.07).unwrap();
        // Image i is nearest to class i, then to its neighbours.
        let shares = |index: usize| {
            let accuracy = results[index].accuracy;
            [accuracy.accuracy, accuracy.accuracy_top5.unwrap()].map(|share| (share * 7.0).round())
        };
        assert_eq!(shares(0), [2.0, 2.0]);
        // Three neighbours of image 1 vote for 0, 1 and 2, those of image 2 for 1, 2 and 3, those of image 4 for 3, 4 and 5.
        assert_eq!(shares(1), [2.0, 4.0]);
    }

    #[test]
    fn blocks_give_the_neighbours_of_a_full_sort() {
        let images = 2 * BLOCK + 100;
        let values = Array2::from_shape_fn((images, 3), |(row, column)| {
            ((row * 7919 + column * 104_729) % 1009) as f32 - 504.0
        });
        let known = unit_rows(&values);
        let query = known.row(17).insert_axis(Axis(0)).to_owned();
        let found = nearest(query.view(), known.view(), 20);
        let mut all: Vec<Neighbour> = (0..images)
            .map(|index| Neighbour {
                similarity: known.row(index).dot(&query.row(0)),
                index,
            })
            .collect();
        all.sort_unstable_by(most_similar_first);
        assert_eq!(found[0].len(), 20);
        for (found, expected) in found[0].iter().zip(&all) {
            // Equal images are at several places, and the rounding of a product differs between them.
            assert!(
                (found.similarity - expected.similarity).abs() < 1e-6,
                "{found:?} {expected:?}"
            );
        }
    }
}
