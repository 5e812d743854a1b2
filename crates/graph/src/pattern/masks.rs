//! Masks: true for the keys that a query attends to. Combine them with `&`, `|` and `!`.
//!
//! Positions are indices of queries and keys. Tokens of an image are in row-major order. Prefix and class tokens come first.

use super::typed::{Bool, Int, bools, ints};
use ints::{batch, key, keys, query};

/// Keys up to the query's own position.
pub fn causal() -> Bool {
    key().less_equal(query())
}

/// Keys from `left` positions before the query to `right` positions after it.
pub fn window(left: impl Into<Int>, right: impl Into<Int>) -> Bool {
    query().less_equal(key() + left) & key().less_equal(query() + right)
}

/// The first `count` keys. Register and class tokens are a prefix.
pub fn prefix(count: impl Into<Int>) -> Bool {
    key().less(count)
}

/// Every `step`-th key, counted from the query.
pub fn dilated(step: impl Into<Int>) -> Bool {
    (key() - query()).modulo(step).equal(0)
}

/// Keys of the query's document. The captured tensor `name` has the document of each token: i32 `[images, tokens]`.
///
/// With it, one sequence has several packed images.
pub fn documents(name: &str) -> Bool {
    ints::load(name, [batch(), query()]).equal(ints::load(name, [batch(), key()]))
}

/// Keys that are present. The captured tensor `name` is 0 for padding: i32 `[images, keys]`.
pub fn key_padding(name: &str) -> Bool {
    bools::load(name, [batch(), key()])
}

/// Keys within `radius` rows and columns of the query, in a grid with `columns` columns. The grid follows `prefix` tokens, which see
/// all keys and are seen by all queries.
pub fn window_2d(columns: i32, radius: [i32; 2], prefix: i32) -> Bool {
    let place = |token: Int| {
        let token = token - prefix;
        [token.floor_div(columns), token.modulo(columns)]
    };
    let [query_row, query_column] = place(query());
    let [key_row, key_column] = place(key());
    let near = |x: Int, y: Int, radius: i32| (x - y).abs().less_equal(radius);
    let is_near = near(query_row, key_row, radius[0]) & near(query_column, key_column, radius[1]);
    or_prefix(is_near, prefix)
}

/// Keys in the query's window, for a grid of `grid` rows and columns that is divided into windows of `window` rows and columns. The grid
/// follows `prefix` tokens, which see all keys and are seen by all queries.
///
/// The windows are shifted by `shift` rows and columns. Swin rolls the grid instead: tokens that come together only by rolling do
/// not see each other, so that the windows at the edges are parts of windows here.
/// <https://arxiv.org/abs/2103.14030>
pub fn shifted_window(grid: [i32; 2], window: [i32; 2], shift: [i32; 2], prefix: i32) -> Bool {
    // Windows are counted from the one that is cut off by the first edge.
    let of = |token: Int| {
        let token = token - prefix;
        let row = token.floor_div(grid[1]) + (window[0] - shift[0]);
        let column = token.modulo(grid[1]) + (window[1] - shift[1]);
        [row.floor_div(window[0]), column.floor_div(window[1])]
    };
    let [query_row, query_column] = of(query());
    let [key_row, key_column] = of(key());
    or_prefix(query_row.equal(key_row) & query_column.equal(key_column), prefix)
}

/// Lets the first `prefix` tokens see all keys, and be seen by all queries.
fn or_prefix(mask: Bool, prefix: i32) -> Bool {
    if prefix == 0 {
        mask
    } else {
        mask | key().less(prefix) | query().less(prefix)
    }
}

/// Keys at the same distance from the last key as the query from the last query, or earlier: causal attention in which the queries are
/// the last tokens.
pub fn causal_from_end() -> Bool {
    key().less_equal(query() + (keys() - ints::queries()))
}
