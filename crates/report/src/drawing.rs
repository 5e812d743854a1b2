//! Shared parts of SVG drawings: page, background, lines, texts, colours and numbers.

use svg::Document;
use svg::node::element::{Line, Rectangle, Text};

/// Palette that people with colour vision deficiency can distinguish, from <https://jfly.uni-koeln.de/color/>. The last colour is black
/// on a light page.
const COLOURS: [&str; 8] = [
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "currentColor",
];

/// Returns the colour of a series. Colours repeat after eight series.
pub fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// Returns an empty page whose size is in pixels.
pub fn page(width: f64, height: f64) -> Document {
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", "sans-serif")
        .set("font-size", 12)
}

/// Returns a white background, which keeps a drawing legible on a page of any colour.
pub fn background() -> Rectangle {
    Rectangle::new()
        .set("width", "100%")
        .set("height", "100%")
        .set("fill", "white")
}

/// Returns a line between two points.
pub fn line(from: (f64, f64), to: (f64, f64), colour: &str) -> Line {
    Line::new()
        .set("x1", from.0)
        .set("y1", from.1)
        .set("x2", to.0)
        .set("y2", to.1)
        .set("stroke", colour)
}

/// Returns a text whose baseline is at `y` and whose `anchor` (start, middle or end) is at `x`.
pub fn text(content: impl Into<String>, x: f64, y: f64, anchor: &str) -> Text {
    Text::new(content)
        .set("x", x)
        .set("y", y)
        .set("text-anchor", anchor)
}

/// Formats a number with three significant digits, without trailing zeros. Numbers from 1000 are rounded to integers.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.1.. => 3,
        0.0 => 0,
        small => (2.0 - small.log10().floor()).min(12.0) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (12_345.6, "12346"),
            (99.96, "100"),
            (1.5, "1.5"),
            (0.123_45, "0.123"),
            (0.000_5, "0.0005"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
