//! Orders of the tokens of a grid.

use std::fmt;

use crate::op::OpError;

/// Order of the tokens of a grid: window by window, and by rows or columns in each window.
///
/// A grid that is no multiple of the window is padded at its end. One window of the size of the grid is the order by rows.
///
/// | order | shape |
/// | --- | --- |
/// | windows | `[B·windows, rows·columns, D]` |
/// | [merged](Self::merged) | `[B, windows, columns·rows·D]` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenOrder {
    /// Rows and columns of a window.
    pub window: [usize; 2],
    /// Number of rows and columns by which the grid is rolled towards its start.
    pub shift: [usize; 2],
    /// Rows and columns that are rolled: those of the grid, or of the padded grid.
    pub rolled: [usize; 2],
    /// True if the tokens of a window, column by column, are the channels of one token.
    pub merged: bool,
}

impl TokenOrder {
    /// Returns the order by rows.
    pub fn rows(grid: [usize; 2]) -> Self {
        Self::windows(grid, grid)
    }

    /// Returns the order by windows of this size.
    pub fn windows(grid: [usize; 2], window: [usize; 2]) -> Self {
        Self {
            window,
            shift: [0, 0],
            rolled: grid,
            merged: false,
        }
    }

    /// Returns the order by windows of this size, each of which is one token.
    pub fn merged(grid: [usize; 2], window: [usize; 2]) -> Self {
        Self {
            merged: true,
            ..Self::windows(grid, window)
        }
    }

    /// Returns the order in which the grid is rolled first by `shift`. `rolled` is the size of the grid, or of the
    /// [padded](Self::padded) grid.
    #[must_use]
    pub fn rolled(self, shift: [usize; 2], rolled: [usize; 2]) -> Self {
        Self {
            shift,
            rolled,
            ..self
        }
    }

    /// Returns the rows and columns of windows.
    pub fn window_grid(&self, grid: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| grid[axis].div_ceil(self.window[axis].max(1)))
    }

    /// Returns the rows and columns of the grid with its padding.
    pub fn padded(&self, grid: [usize; 2]) -> [usize; 2] {
        let windows = self.window_grid(grid);
        [0, 1].map(|axis| windows[axis] * self.window[axis])
    }

    /// Returns the number of tokens of an image with its padding.
    pub(super) fn tokens(&self, grid: [usize; 2]) -> usize {
        self.padded(grid).iter().product()
    }

    /// Checks the order.
    pub(super) fn check(&self, grid: [usize; 2]) -> Result<(), OpError> {
        if grid.contains(&0) || self.window.contains(&0) {
            return Err("has a grid or a window without tokens".into());
        }
        let padded = self.padded(grid);
        for axis in 0..2 {
            let (shift, rolled) = (self.shift[axis], self.rolled[axis]);
            if !(grid[axis]..=padded[axis]).contains(&rolled) {
                return Err(format!(
                    "rolls {rolled} rows or columns of {}, padded to {}",
                    grid[axis], padded[axis]
                )
                .into());
            }
            if shift >= rolled {
                return Err(format!("rolls {shift} rows or columns of {rolled}").into());
            }
        }
        Ok(())
    }

    /// Returns the shape of `images` images whose tokens have `channels` channels.
    pub fn shape(&self, grid: [usize; 2], images: usize, channels: usize) -> Vec<usize> {
        let (windows, tokens): (usize, usize) = self.counts(grid);
        if self.merged {
            vec![images, windows, tokens * channels]
        } else {
            vec![images * windows, tokens, channels]
        }
    }

    /// Returns the number of windows, and of the tokens of each.
    fn counts(&self, grid: [usize; 2]) -> (usize, usize) {
        (
            self.window_grid(grid).iter().product(),
            self.window.iter().product(),
        )
    }

    /// Returns the number of images and of the channels of a token, for a tensor in this order.
    ///
    /// # Errors
    ///
    /// [`OpError`] if no images have this shape.
    pub fn extents(&self, grid: [usize; 2], shape: &[usize]) -> Result<(usize, usize), OpError> {
        let (windows, tokens) = self.counts(grid);
        match *shape {
            [images, count, channels] if self.merged => {
                if count == windows && channels.is_multiple_of(tokens) && channels > 0 {
                    return Ok((images, channels / tokens));
                }
                Err(OpError::layout("x", shape, format!("[B, {windows}, {tokens}·D]")))
            }
            [all, count, channels] if all.is_multiple_of(windows) && count == tokens && channels > 0 => {
                Ok((all / windows, channels))
            }
            _ => Err(OpError::layout("x", shape, format!("[{windows}·B, {tokens}, D]"))),
        }
    }

    /// Returns the row and column of the grid at `token` of an image. `None` for padding.
    pub(super) fn cell(&self, grid: [usize; 2], token: usize) -> Option<[usize; 2]> {
        let across = self.window_grid(grid)[1];
        let [rows, columns] = self.window;
        let (window, inner) = (token / (rows * columns), token % (rows * columns));
        let inner = if self.merged {
            [inner % rows, inner / rows]
        } else {
            [inner / columns, inner % columns]
        };
        let place = [
            window / across * rows + inner[0],
            window % across * columns + inner[1],
        ];
        let cell = [0, 1].map(|axis| (place[axis] + self.shift[axis]) % self.rolled[axis]);
        let exists = (0..2).all(|axis| place[axis] < self.rolled[axis] && cell[axis] < grid[axis]);
        exists.then_some(cell)
    }

    /// Returns the token of an image at a row and column of the grid: the inverse of [`cell`](Self::cell).
    pub(super) fn token(&self, grid: [usize; 2], cell: [usize; 2]) -> usize {
        let across = self.window_grid(grid)[1];
        let [rows, columns] = self.window;
        let [row, column] =
            [0, 1].map(|axis| (cell[axis] + self.rolled[axis] - self.shift[axis]) % self.rolled[axis]);
        let window = row / rows * across + column / columns;
        let inner = if self.merged {
            column % columns * rows + row % rows
        } else {
            row % rows * columns + column % columns
        };
        window * rows * columns + inner
    }
}

/// Formats the window, and the shift if there is one: `7×7+3×3`.
impl fmt::Display for TokenOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.window[0], self.window[1])?;
        if self.shift != [0, 0] {
            write!(f, "+{}×{}", self.shift[0], self.shift[1])?;
        }
        f.write_str(if self.merged { " merged" } else { "" })
    }
}
