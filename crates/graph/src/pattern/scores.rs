//! Scores before the softmax, as functions of the score that they change.

use super::expression::{Expression, Node};
use super::typed::{Float, Int, floats, ints};
use ints::{head, heads, key, query};

/// The score before the pattern: `scale · q·k`.
pub fn score() -> Float {
    Float(Expression::new(Node::Score))
}

/// ALiBi: subtracts `2^(−8·(h + 1)/heads) · |query − key|` in head h. <https://arxiv.org/abs/2108.12409>
pub fn alibi(score: Float) -> Float {
    let head = (head() + 1).to_float();
    let slope = (head / heads().to_float() * (-8.0 * std::f32::consts::LN_2)).exp();
    score - slope * (query() - key()).abs().to_float()
}

/// Soft cap: `cap · tanh(score / cap)`. <https://arxiv.org/abs/2408.00118>
pub fn soft_cap(score: Float, cap: impl Into<Float>) -> Float {
    let cap = cap.into();
    cap.clone() * (score / cap).tanh()
}

/// Divides the score by a temperature.
pub fn temperature(score: Float, temperature: impl Into<Float>) -> Float {
    score / temperature
}

/// Adds the captured tensor `name`, `[heads, queries, keys]`.
pub fn bias(score: Float, name: &str) -> Float {
    score + floats::load(name, [head(), query(), key()])
}

/// Adds Swin's relative position bias for a window of `window` rows and columns. The captured tensor `name` is
/// `[(2·rows − 1)·(2·columns − 1), heads]`. <https://arxiv.org/abs/2103.14030>
pub fn relative_bias(score: Float, name: &str, window: [i32; 2]) -> Float {
    score + floats::load(name, [relative_position(query(), key(), window), head()])
}

/// Adds BEiT's relative position bias for a class token, followed by a grid of `grid` rows and columns. The captured tensor `name` is
/// `[(2·rows − 1)·(2·columns − 1) + 3, heads]`. Its last rows belong to the pairs of the class token with a key, of a query with the
/// class token, and of the class token with itself. <https://arxiv.org/abs/2106.08254>
pub fn relative_bias_with_class(score: Float, name: &str, grid: [i32; 2]) -> Float {
    let pairs = (2 * grid[0] - 1) * (2 * grid[1] - 1);
    let [query_is_class, key_is_class] = [query(), key()].map(|token| token.equal(0));
    let of_grid = relative_position(query() - 1, key() - 1, grid);
    let of_query = Int::select(&key_is_class, pairs + 2, pairs);
    let of_key = Int::select(&key_is_class, pairs + 1, of_grid);
    let index = Int::select(&query_is_class, of_query, of_key);
    score + floats::load(name, [index, head()])
}

/// Returns the index of a pair of tokens in the table of relative positions, which is row-major in the differences of rows and columns.
fn relative_position(query: Int, key: Int, [rows, columns]: [i32; 2]) -> Int {
    let row = query.floor_div(columns) - key.floor_div(columns) + (rows - 1);
    let column = query.modulo(columns) - key.modulo(columns) + (columns - 1);
    row * (2 * columns - 1) + column
}
