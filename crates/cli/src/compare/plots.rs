//! Plots of the HTML report as inline SVG: throughput bars and rooflines.

use hipvit_report::drawing::{self, colour, line, number, page};
use svg::node::element::{Circle, Group as Node, Rectangle, Text, Title};

use super::super::escape::one_line;
use super::comparison::{Comparison, Group};
use super::rows::{Metric, Row};
use super::text::title;

/// Width of a plot in pixels.
const WIDTH: f64 = 960.0;

/// Height of a line of text or a bar in pixels.
const LINE_HEIGHT: f64 = 20.0;

/// Draws a bar chart with the throughput of each row. The best row of a group has the longest bar.
pub(crate) fn bars(comparison: &Comparison, metric: Metric) -> String {
    const LEFT: f64 = 190.0;
    const RIGHT: f64 = WIDTH - 190.0;
    let mut drawing = Node::new();
    let mut y = 0.0;
    for group in &comparison.groups {
        let rate = |row: &Row| row.times(metric).map(|times| row.images_per_s(times));
        let best = group.cells.iter().flatten().filter_map(rate).fold(0.0, f64::max);
        y += LINE_HEIGHT;
        drawing = drawing.add(text(title(group), 0.0, y, "start").set("font-weight", "bold"));
        for (at, row) in group.cells.iter().enumerate() {
            let Some(row) = row else { continue };
            let middle = y + 15.0;
            drawing = drawing.add(text(
                comparison.columns[at].label.clone(),
                LEFT - 8.0,
                middle,
                "end",
            ));
            let label = match (rate(row), &row.error) {
                (Some(rate), _) => {
                    let width = (RIGHT - LEFT) * rate / best;
                    let bar = Rectangle::new()
                        .set("x", LEFT)
                        .set("y", y + 3.0)
                        .set("width", width)
                        .set("height", LINE_HEIGHT - 5.0)
                        .set("fill", colour(at));
                    drawing = drawing.add(bar);
                    let speed = match comparison.speed(group, at, metric) {
                        Some((speed, _)) if at > 0 => format!(", {speed:.2}×"),
                        _ => String::new(),
                    };
                    (LEFT + width + 6.0, format!("{}{speed}", number(rate)))
                }
                (None, Some(_)) => (LEFT + 6.0, "failed".into()),
                (None, None) => (LEFT + 6.0, "–".into()),
            };
            drawing = drawing.add(text(label.1, label.0, middle, "start"));
            y += LINE_HEIGHT;
        }
        y += 8.0;
    }
    page(WIDTH, y + 4.0).add(drawing).to_string()
}

/// Returns the title and the SVG of a roofline plot per device and dtype. Plots without points or without peaks are left out.
pub(crate) fn rooflines(comparison: &Comparison) -> Vec<(String, String)> {
    let mut plots: Vec<Roofline<'_>> = Vec::new();
    for group in &comparison.groups {
        for (column, row) in group.cells.iter().enumerate() {
            if let Some(row) = row {
                add_row(&mut plots, group, column, row);
            }
        }
    }
    plots.retain(|plot| !plot.points.is_empty() && !plot.roofs.is_empty());
    plots
        .iter()
        .map(|plot| (plot.title.clone(), plot.draw()))
        .collect()
}

/// Adds a row to the plot of its device and dtype, which is created on first use.
fn add_row<'a>(plots: &mut Vec<Roofline<'a>>, group: &'a Group, column: usize, row: &'a Row) {
    let device = row.device.name.as_deref().unwrap_or(row.kind());
    let title = format!("{device}, {}", group.dtype);
    let at = plots
        .iter()
        .position(|plot| plot.title == title)
        .unwrap_or_else(|| {
            plots.push(Roofline {
                title,
                roofs: Vec::new(),
                points: Vec::new(),
            });
            plots.len() - 1
        });
    let plot = &mut plots[at];
    let peak = &row.peak;
    plot.add_roof("measured", peak.measured_tflops, peak.measured_gbps);
    plot.add_roof("datasheet", peak.datasheet_tflops, peak.datasheet_gbps);
    // Engines that do not report bytes get the intensity of another engine, which runs the same model.
    let intensity = row
        .intensity()
        .or_else(|| group.cells.iter().flatten().find_map(Row::intensity));
    if let (Some(x), Some(y)) = (intensity, row.tflops()) {
        plot.add_point(
            column,
            x,
            y,
            true,
            format!("{}: {}", row.engine, super::text::title(group)),
        );
    }
    for step in &row.steps {
        if let (Some(ms), Some(flops), Some(bytes)) = (step.ms, step.flops, step.bytes) {
            let name = format!("{}: {}, {}", row.engine, super::text::title(group), step.name);
            plot.add_point(column, flops / bytes, flops / ms / 1e9, false, name);
        }
    }
}

/// A roofline plot of one device and dtype.
struct Roofline<'a> {
    title: String,
    /// Name, peak TFLOP/s and peak TB/s of each roof.
    roofs: Vec<(&'a str, f64, f64)>,
    points: Vec<Point>,
}

/// A point of a roofline plot: a whole model or one of its steps.
struct Point {
    /// Index of the column, which determines the colour.
    column: usize,
    /// Arithmetic intensity in FLOP per byte.
    x: f64,
    /// Achieved TFLOP/s.
    y: f64,
    is_whole_model: bool,
    name: String,
}

impl<'a> Roofline<'a> {
    /// Adds a roof. If it exists, raises its peaks to those of the new row.
    fn add_roof(&mut self, name: &'a str, tflops: Option<f64>, gbps: Option<f64>) {
        let (Some(tflops), Some(gbps)) = (tflops, gbps) else {
            return;
        };
        if !(tflops > 0.0 && gbps > 0.0) {
            return;
        }
        match self.roofs.iter_mut().find(|roof| roof.0 == name) {
            Some(roof) => (roof.1, roof.2) = (roof.1.max(tflops), roof.2.max(gbps / 1e3)),
            None => self.roofs.push((name, tflops, gbps / 1e3)),
        }
    }

    /// Adds a point, unless a logarithmic scale cannot show it, such as a step without floating-point operations.
    fn add_point(&mut self, column: usize, x: f64, y: f64, is_whole_model: bool, name: String) {
        if x.is_normal() && y.is_normal() && x > 0.0 && y > 0.0 {
            self.points.push(Point {
                column,
                x,
                y,
                is_whole_model,
                name,
            });
        }
    }

    /// Returns the SVG.
    fn draw(&self) -> String {
        const HEIGHT: f64 = 420.0;
        let ridges = self.roofs.iter().map(|roof| roof.1 / roof.2);
        let xs = self
            .points
            .iter()
            .map(|p| p.x)
            .chain(ridges.flat_map(|r| [r / 10.0, r * 10.0]));
        let tops = self.roofs.iter().map(|roof| roof.1);
        let ys = self
            .points
            .iter()
            .map(|p| p.y)
            .chain(tops.flat_map(|t| [t / 10.0, t]));
        let x = Axis::containing(xs, 70.0, WIDTH - 20.0);
        let y = Axis::containing(ys, HEIGHT - 50.0, 16.0);
        let mut plot = page(WIDTH, HEIGHT).add(grid(&x, &y));
        for (name, tflops, terabytes) in &self.roofs {
            plot = plot.add(draw_roof(&x, &y, name, *tflops, *terabytes));
        }
        // Draw the steps first, and the models on top.
        for is_whole_model in [false, true] {
            let points = self.points.iter();
            for point in points.filter(|point| point.is_whole_model == is_whole_model) {
                plot = plot.add(
                    Circle::new()
                        .set("cx", x.at(point.x))
                        .set("cy", y.at(point.y))
                        .set("r", if is_whole_model { 6 } else { 2 })
                        .set("fill", colour(point.column))
                        .set("fill-opacity", if is_whole_model { 1.0 } else { 0.6 })
                        .add(Title::new(format!(
                            "{}\n{} TFLOP/s, {} FLOP/byte",
                            one_line(&point.name),
                            number(point.y),
                            number(point.x)
                        ))),
                );
            }
        }
        plot.to_string()
    }
}

/// Draws the labels of both axes, and a grid line for each power of ten.
fn grid(x: &Axis, y: &Axis) -> Node {
    let mut node = Node::new();
    for value in x.ticks() {
        let at = x.at(value);
        node = node.add(line((at, y.from), (at, y.to), "var(--line)")).add(text(
            number(value),
            at,
            y.from + 18.0,
            "middle",
        ));
    }
    for value in y.ticks() {
        let at = y.at(value);
        node = node.add(line((x.from, at), (x.to, at), "var(--line)")).add(text(
            number(value),
            x.from - 6.0,
            at + 4.0,
            "end",
        ));
    }
    let middle = f64::midpoint(y.from, y.to);
    let turned = format!("translate(16 {middle}) rotate(-90)");
    node.add(text("TFLOP/s".into(), 0.0, 0.0, "middle").set("transform", turned))
        .add(text(
            "arithmetic intensity (FLOP per byte)".into(),
            f64::midpoint(x.from, x.to),
            y.from + 40.0,
            "middle",
        ))
}

/// Draws a roof. The bandwidth limits it up to the ridge point, and the compute peak beyond.
fn draw_roof(x: &Axis, y: &Axis, name: &str, tflops: f64, terabytes: f64) -> Node {
    let ridge = tflops / terabytes;
    // The intensity at which the slope enters the plot.
    let start = x.min.max(y.min / terabytes);
    let slope = line(
        (x.at(start), y.at(start * terabytes)),
        (x.at(ridge), y.at(tflops)),
        "var(--note)",
    );
    let level = line((x.at(ridge), y.at(tflops)), (x.to, y.at(tflops)), "var(--note)");
    let dashes = if name == "datasheet" { "6 4" } else { "none" };
    let label = format!("{name}: {} TFLOP/s, {} TB/s", number(tflops), number(terabytes));
    Node::new()
        .set("stroke-dasharray", dashes)
        .set("stroke-width", 1.5)
        .add(slope)
        .add(level)
        .add(text(label, x.to, y.at(tflops) - 5.0, "end"))
}

/// Logarithmic axis that maps the values from `min` to `max` to pixels.
struct Axis {
    min: f64,
    max: f64,
    /// Pixel coordinate of `min`.
    from: f64,
    /// Pixel coordinate of `max`.
    to: f64,
}

impl Axis {
    /// Creates an axis that contains all values, and starts and ends at powers of ten.
    fn containing(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (min, max) = values.fold((f64::INFINITY, 0.0_f64), |(min, max), value| {
            (min.min(value), max.max(value))
        });
        Self {
            min: 10f64.powf(min.log10().floor()),
            max: 10f64.powf((max * 1.2).log10().ceil()),
            from,
            to,
        }
    }

    /// Returns the pixel coordinate of a value.
    fn at(&self, value: f64) -> f64 {
        let fraction = (value / self.min).log10() / (self.max / self.min).log10();
        self.from + fraction * (self.to - self.from)
    }

    /// Returns the powers of ten from `min` to `max`.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let decades = (self.max / self.min).log10().round() as i32;
        (0..=decades).map(|i| self.min * 10f64.powi(i))
    }
}

/// Draws text. `anchor` is `start`, `middle` or `end`. Control characters are escaped, because XML does not allow them.
fn text(content: String, x: f64, y: f64, anchor: &str) -> Text {
    drawing::text(one_line(&content), x, y, anchor)
}
