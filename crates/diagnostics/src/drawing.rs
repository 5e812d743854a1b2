//! Shared parts of SVG drawings: page, background, lines and texts.

use svg::Document;
use svg::node::element::{Line, Rectangle, Text};

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
