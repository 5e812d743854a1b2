//! Formats text tables that fit a given width. Columns of high rank are left out first, then long cells are wrapped
//! between words.

use comfy_table::{Cell, CellAlignment, presets};
use textwrap::core::Word;
use textwrap::{Options, WordSeparator};

/// Number of spaces between two columns.
const GAP: usize = 2;

/// A column: its heading, and how it shrinks if the table is too wide.
#[derive(Clone, Debug)]
pub struct Column {
    heading: String,
    alignment: CellAlignment,
    rank: u32,
    least: Option<usize>,
}

impl Column {
    /// Creates a left-aligned column of text.
    pub fn left(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            alignment: CellAlignment::Left,
            rank: 0,
            least: None,
        }
    }

    /// Creates a right-aligned column of numbers.
    pub fn right(heading: impl Into<String>) -> Self {
        Self {
            alignment: CellAlignment::Right,
            ..Self::left(heading)
        }
    }

    /// Sets the rank. Columns with the highest rank are left out first; columns of rank 0 always stay.
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = rank;
        self
    }

    /// Allows cells to be wrapped to a width of at least `least` characters.
    pub fn wraps(mut self, least: usize) -> Self {
        self.least = Some(least);
        self
    }
}

/// A table of headings and rows of cells.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Missing cells at its end are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Formats the table without a line break at the end. Lines have at most `width` characters; `None` means no limit.
    pub fn text(&self, width: Option<usize>) -> String {
        let layout = self.layout(width.unwrap_or(usize::MAX));
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        let cell = |text: &str, &(index, width): &(usize, usize)| {
            Cell::new(wrap(text, width).join("\n")).set_alignment(self.columns[index].alignment)
        };
        if self.columns.iter().any(|column| !column.heading.is_empty()) {
            let headings = layout
                .iter()
                .map(|place| cell(&self.columns[place.0].heading, place));
            table.set_header(headings.collect::<Vec<_>>());
        }
        for row in &self.rows {
            table.add_row(layout.iter().map(|place| cell(&row[place.0], place)));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, GAP as u16));
        }
        table.trim_fmt()
    }

    /// Returns the index and width of each column that is shown.
    fn layout(&self, width: usize) -> Vec<(usize, usize)> {
        let natural = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].as_str());
            let lines = cells.chain([self.columns[index].heading.as_str()]);
            lines.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let natural: Vec<usize> = (0..self.columns.len()).map(natural).collect();
        let least = |index: usize| match self.columns[index].least {
            Some(least) => natural[index].min(least),
            None => natural[index],
        };
        let mut shown: Vec<(usize, usize)> = (0..natural.len()).map(|i| (i, least(i))).collect();
        let taken = |shown: &[(usize, usize)]| {
            let cells: usize = shown.iter().map(|&(_, width)| width).sum();
            cells + GAP * shown.len().saturating_sub(1)
        };
        while taken(&shown) > width {
            let rank = |&(index, _): &(usize, usize)| self.columns[index].rank;
            match shown.iter().map(rank).max() {
                None | Some(0) => break,
                Some(last) => shown.retain(|place| rank(place) != last),
            }
        }
        let mut spare = width.saturating_sub(taken(&shown));
        // Widen the column that was shortened most.
        while spare > 0
            && let Some(place) = shown
                .iter_mut()
                .max_by_key(|(index, width)| natural[*index] - width)
            && place.1 < natural[place.0]
        {
            place.1 += 1;
            spare -= 1;
        }
        shown
    }
}

/// Wraps `text` into lines of at most `width` characters. Lines end between words, or after signs that join words.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let separator = WordSeparator::Custom(|line| Box::new(words(line).into_iter().map(Word::from)));
    let options = Options::new(width.max(1)).word_separator(separator);
    let lines = textwrap::wrap(text, options);
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Splits `line` where it may be broken, which is never within a number.
fn words(line: &str) -> Vec<&str> {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let mut words = Vec::new();
    let mut start = 0;
    for (at, sign) in line.char_indices() {
        let end = at + sign.len_utf8();
        let next = digit(line[end..].chars().next());
        let joins = match sign {
            ' ' | '+' | '/' | '_' | '→' => true,
            '.' => !(next && digit(line[..at].chars().next_back())),
            '-' => !next,
            _ => false,
        };
        if joins || end == line.len() {
            words.push(&line[start..end]);
            start = end;
        }
    }
    words
}

/// Formats a paragraph that ends with a line break. Wraps it at `width` with `indent` before further lines; `None`
/// means one line.
pub fn paragraph(text: &str, indent: &str, width: Option<usize>) -> String {
    match width {
        None => format!("{text}\n"),
        Some(width) => textwrap::fill(text, Options::new(width.max(20)).subsequent_indent(indent)) + "\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            Column::left("op").wraps(8),
            Column::left("shape").rank(2),
            Column::right("ms"),
            Column::right("share").rank(1),
        ]);
        table.row(["linear+bias+gelu", "8×197×3072", "1.25", "40 %"]);
        table.row(["softmax", "8×197×197", "10.5"]);
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn without_a_width_everything_is_on_one_line() {
        let text = table().text(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "op                shape         ms  share",
                "linear+bias+gelu  8×197×3072  1.25   40 %",
                "softmax           8×197×197   10.5",
            ]
        );
    }

    #[test]
    fn columns_are_left_out_by_rank_and_cells_wrapped_between_words() {
        for width in [14, 20, 30, 41] {
            let text = table().text(Some(width));
            assert!(widest(&text) <= width, "{width}:\n{text}");
            assert_eq!(text.contains("share"), width >= 21, "{width}:\n{text}");
            assert_eq!(text.contains("shape"), width >= 33, "{width}:\n{text}");
            // Cells never break within a word.
            for word in ["linear+", "softmax", "10.5"] {
                assert!(text.contains(word), "{width}:\n{text}");
            }
        }
    }

    #[test]
    fn words_longer_than_the_width_are_broken() {
        assert_eq!(wrap("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("blocks.11.attn.qkv", 10), ["blocks.11.", "attn.qkv"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn numbers_are_not_broken() {
        assert_eq!(
            wrap("[0.48145466, 0.4578275]", 16),
            ["[0.48145466,", "0.4578275]"]
        );
        assert_eq!(wrap("layer_norm ε=1e-6", 15), ["layer_norm", "ε=1e-6"]);
        assert_eq!(wrap("scale -0.3", 8), ["scale", "-0.3"]);
    }

    #[test]
    fn paragraphs_are_indented() {
        assert_eq!(
            paragraph("one two three four five", "  ", Some(20)),
            "one two three four\n  five\n"
        );
        assert_eq!(
            paragraph("one two three four five", "  ", None),
            "one two three four five\n"
        );
    }
}
