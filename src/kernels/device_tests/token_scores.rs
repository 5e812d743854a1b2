//! `token_scores`, compared with the reference, with sequences that are excluded.

use hipvit_graph::op::Definition as _;

use super::{DTYPES, Gpu, Part, numbers, random, rounded};
use crate::kernels::TokenScoresArgs;
use crate::ops::TokenScores;
use crate::reference::Array;
use crate::tensor::DType;

#[test]
fn scores_are_those_of_the_reference() {
    let Some(gpu) = Gpu::get() else { return };
    let mut excluded = 0;
    for dtype in DTYPES {
        for (seed, [vocabulary, length]) in [[1, 1], [70, 40], [2048, 300], [5003, 257]]
            .into_iter()
            .enumerate()
        {
            for (ngram, penalty) in [(0, 1.3), (1, 1.0), (2, 1.0), (3, 0.8), (length + 1, 1.0)] {
                let rows = 3;
                let logits = rounded(&random(rows * vocabulary, seed, 4.0), dtype);
                // Few different tokens, and one beyond the vocabulary. The texts of the last two rows are shorter.
                let few = (vocabulary / 2 + 2) as f32 / 40.0;
                let mut tokens: Vec<i32> = random(rows * length, seed + ngram, 2.0)
                    .iter()
                    .map(|x| ((x + 2.0).trunc() * 10.0 * few) as i32)
                    .collect();
                for (row, text) in tokens.chunks_exact_mut(length).enumerate() {
                    text[length - row * length / 3..].fill(-1);
                }
                let parts = [
                    Part::numbers(&logits, dtype),
                    Part::operand(&tokens),
                    Part::result(rows * vocabulary, size_of::<f32>()),
                ];
                let op = TokenScores {
                    log: false,
                    penalty,
                    ngram,
                };
                let results = gpu.run(dtype, &parts, (seed + ngram) % 3, |addresses| {
                    Ok(TokenScoresArgs::new(addresses, [rows, vocabulary, length], op)?.into())
                });
                let scores = numbers(&results[0], DType::F32);
                let tokens = tokens.into_iter().map(|token| token as f32).collect();
                let operands = [
                    Array::<f32>::new([rows, vocabulary], logits).unwrap(),
                    Array::<f32>::new([rows, length], tokens).unwrap(),
                ];
                let expected = op.eval(&operands.each_ref()).unwrap();
                assert_eq!(
                    scores,
                    expected[0].values(),
                    "{dtype} {vocabulary}, text of {length}, {op:?}"
                );
                excluded += scores.iter().filter(|score| score.is_infinite()).count();
            }
        }
    }
    assert!(excluded > 50, "{excluded}");
}
