//! What drawings in SVG share: the page, lines, texts.

use svg::Document;
use svg::node::element::{Line, Rectangle, Text};

/// An empty page, in pixels.
pub fn page(width: f64, height: f64) -> Document {
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", "sans-serif")
        .set("font-size", 12)
}

/// White behind a drawing, so that it is legible on a page of any colour.
pub fn background() -> Rectangle {
    Rectangle::new()
        .set("width", "100%")
        .set("height", "100%")
        .set("fill", "white")
}

/// A line between two points.
pub fn line(from: (f64, f64), to: (f64, f64), colour: &str) -> Line {
    Line::new()
        .set("x1", from.0)
        .set("y1", from.1)
        .set("x2", to.0)
        .set("y2", to.1)
        .set("stroke", colour)
}

/// A text whose `anchor`, its start, middle or end, is at x; its baseline is at y.
pub fn text(content: impl Into<String>, x: f64, y: f64, anchor: &str) -> Text {
    Text::new(content)
        .set("x", x)
        .set("y", y)
        .set("text-anchor", anchor)
}
