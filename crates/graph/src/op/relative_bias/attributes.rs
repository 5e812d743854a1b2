//! Attributes of biases by relative position.

use super::super::Shape;

/// `(table [R,H]) → bias [H,N,N]`: the bias of each pair of a query and a key, by their distance in a grid of tokens. The table has a row
/// for each distance, in rows and columns. With a class token, which is the first token, three more rows follow: of the class token and a
/// patch, of a patch and the class token, and of the class token and itself.
///
/// With a shift, the result `[4,H,N,N]` has the bias of each kind of a shifted window: inside of the image, at its right edge, at its lower
/// edge, and in the corner. Windows at the edges have parts from opposite edges of the image, which [do not see each
/// other](Self::HIDDEN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeBias {
    /// Rows and columns of tokens.
    pub grid: [usize; 2],
    /// True if there is a class token before those of the grid.
    pub class_token: bool,
    /// Rows and columns by which the windows are shifted.
    pub shift: Option<[usize; 2]>,
}

impl RelativeBias {
    /// Number of kinds of shifted windows.
    pub const KINDS: usize = 4;

    /// Added to the bias of tokens that are neighbours only because the image was rolled, as in timm and transformers.
    pub const HIDDEN: f32 = -100.0;

    /// Rows of the table for a class token.
    pub const OF_CLASS_TOKEN: usize = 3;

    /// Returns the numbers of distances, in rows and columns.
    pub fn distances(&self) -> [usize; 2] {
        self.grid.map(|n| (2 * n).saturating_sub(1))
    }

    /// Returns the number of rows of the table.
    pub fn table_rows(&self) -> usize {
        let [rows, columns] = self.distances();
        rows * columns + if self.class_token { Self::OF_CLASS_TOKEN } else { 0 }
    }

    /// Returns the number of tokens.
    pub fn tokens(&self) -> usize {
        self.grid[0] * self.grid[1] + usize::from(self.class_token)
    }

    /// Returns the shape of the bias.
    pub fn bias_shape(&self, heads: usize) -> Shape {
        let kinds = self.shift.map(|_| Self::KINDS);
        kinds
            .into_iter()
            .chain([heads, self.tokens(), self.tokens()])
            .collect()
    }

    /// Returns the row of the table for a query and a key.
    pub(in crate::op) fn row_of(&self, query: usize, key: usize) -> usize {
        let [rows, columns] = self.grid;
        let [down, across] = self.distances();
        let first = usize::from(self.class_token);
        match (query.checked_sub(first), key.checked_sub(first)) {
            (None, None) => down * across + 2,
            (Some(_), None) => down * across + 1,
            (None, Some(_)) => down * across,
            (Some(query), Some(key)) => {
                let down = query / columns + rows - 1 - key / columns;
                let right = query % columns + columns - 1 - key % columns;
                down * across + right
            }
        }
    }

    /// Returns true if a query and a key belong to the same part of a window of this kind.
    pub(in crate::op) fn is_visible(&self, kind: usize, query: usize, key: usize) -> bool {
        let Some(shift) = self.shift else {
            return true;
        };
        let is_last = [kind / 2 == 1, kind % 2 == 1];
        let part = |token: usize| {
            let place = [token / self.grid[1], token % self.grid[1]];
            [0, 1]
                .map(|axis| is_last[axis] && shift[axis] > 0 && place[axis] + shift[axis] >= self.grid[axis])
        };
        part(query) == part(key)
    }
}
