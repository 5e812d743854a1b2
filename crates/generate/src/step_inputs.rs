//! The inputs of a step.

use hipvit::exec::{InputData, Inputs};
use hipvit::tensor::Input;

use crate::graph::{CacheSize, inputs};
use crate::pages::place;
use crate::spec::DecoderSpec;

/// A token of a sequence, which a step computes.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) token: u32,
    /// Index of the token in its sequence.
    pub(crate) position: usize,
    /// Pages of the sequence, with room for the token.
    pub(crate) pages: &'a [u32],
    /// Number of the sequence's image in the cache.
    pub(crate) image: usize,
}

/// The inputs of a step, in the order of `NAMES`.
pub(crate) struct StepInputs([Vec<i32>; NAMES.len()]);

const NAMES: [&str; 7] = [
    inputs::TOKENS,
    inputs::POSITIONS,
    inputs::PLACES,
    inputs::PAGES,
    inputs::LENGTHS,
    inputs::IMAGES,
    inputs::IMAGE_LENGTHS,
];

impl StepInputs {
    /// Few sizes of batches have few plans and captured graphs. Rows that fill a batch write nothing and attend to nothing.
    pub(crate) fn new(rows: &[Row<'_>], spec: &DecoderSpec, cache: CacheSize) -> Self {
        let batch = rows.len().next_power_of_two();
        let of_rows = |of: &dyn Fn(&Row<'_>) -> i32, filling: i32| {
            let mut values: Vec<i32> = rows.iter().map(of).collect();
            values.resize(batch, filling);
            values
        };
        let mut pages = vec![0; batch * cache.sequence];
        for (table, row) in pages.chunks_exact_mut(cache.sequence).zip(rows) {
            table
                .iter_mut()
                .zip(row.pages)
                .for_each(|(to, &page)| *to = page as i32);
        }
        Self([
            of_rows(&|row| row.token as i32, 0),
            of_rows(&|row| spec.position(row.token, row.position) as i32, 0),
            of_rows(&|row| place(row.pages, row.position), -1),
            pages,
            of_rows(&|row| row.position as i32 + 1, 0),
            of_rows(&|row| row.image as i32, 0),
            of_rows(&|_| cache.tokens as i32, 0),
        ])
    }

    /// Returns the number of rows, with those that fill the batch.
    pub(crate) fn batch(&self) -> usize {
        self.0[0].len()
    }

    pub(crate) fn named(&self) -> Inputs<'_> {
        let named = NAMES.iter().zip(&self.0);
        Inputs::new(named.map(|(&name, values)| (name, InputData::Host(Input::Integers(values)))))
    }
}
