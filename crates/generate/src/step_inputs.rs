//! The inputs of a step.

use hipvit::exec::{InputData, Inputs};
use hipvit::ops::sample::{RULES, SampleRules};
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
    /// Index among the image's tokens, of which this is one. `None` for a token of text.
    pub(crate) feature: Option<usize>,
    /// How the next token is chosen.
    pub(crate) rules: SampleRules,
    /// Tokens of the text up to this one, in two parts. Rules against repetitions read them.
    pub(crate) history: [&'a [u32]; 2],
}

/// The inputs of a step, with their names.
pub(crate) struct StepInputs {
    /// The first one has an element per row.
    integers: Vec<(&'static str, Vec<i32>)>,
    rules: Vec<f32>,
}

/// Returns the tokens of the texts that rules against repetitions read, for the rows of a batch.
pub(crate) fn history(rows: &[Row<'_>], spec: &DecoderSpec) -> Vec<i32> {
    let length = spec.history();
    let mut history = vec![-1; rows.len().next_power_of_two() * length];
    for (text, row) in history.chunks_exact_mut(length).zip(rows) {
        let tokens = row.history.into_iter().flatten();
        text.iter_mut()
            .zip(tokens)
            .for_each(|(to, &token)| *to = token as i32);
    }
    history
}

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
        let mut all = vec![
            (inputs::TOKENS, of_rows(&|row| row.token as i32, 0)),
            (
                inputs::POSITIONS,
                of_rows(&|row| spec.position(row.token, row.position) as i32, 0),
            ),
            (inputs::PLACES, of_rows(&|row| place(row.pages, row.position), -1)),
            (inputs::PAGES, pages),
            (inputs::LENGTHS, of_rows(&|row| row.position as i32 + 1, 0)),
        ];
        if let Some(llama) = &spec.llama {
            let of_image = cache.tiles * llama.tile_tokens();
            // The first row of the images' tokens is zeros, for tokens of text.
            let feature =
                |row: &Row<'_>| row.feature.map_or(0, |index| 1 + row.image * of_image + index) as i32;
            all.push((inputs::FEATURES, of_rows(&feature, 0)));
            all.push((inputs::TEXTS, of_rows(&|row| i32::from(row.feature.is_none()), 1)));
        } else {
            all.push((inputs::IMAGES, of_rows(&|row| row.image as i32, 0)));
            all.push((inputs::IMAGE_LENGTHS, of_rows(&|_| cache.tokens as i32, 0)));
        }
        all.push((inputs::TOP_K, of_rows(&|row| row.rules.top_k as i32, 0)));
        if spec.rules.repetition.is_some() {
            all.push((inputs::HISTORY, history(rows, spec)));
        }
        let mut rules: Vec<f32> = rows.iter().flat_map(|row| row.rules.numbers()).collect();
        rules.resize(batch * RULES, 0.0);
        Self { integers: all, rules }
    }

    /// Returns the number of rows, with those that fill the batch.
    pub(crate) fn batch(&self) -> usize {
        self.integers.first().map_or(0, |(_, rows)| rows.len())
    }

    pub(crate) fn named(&self) -> Inputs<'_> {
        let named = self.integers.iter();
        let named = named.map(|(name, values)| (*name, Input::Integers(values)));
        let named = named.chain([(inputs::RULES, Input::Values(&self.rules))]);
        Inputs::new(named.map(|(name, values)| (name, InputData::Host(values))))
    }
}
