//! Line charts as SVG.

use svg::Document;
use svg::node::element::{Circle, Group, Polyline, Title};

use crate::drawing::{colour, line, number, page, text};

/// Size of a chart in pixels.
const WIDTH: f64 = 500.0;
const HEIGHT: f64 = 230.0;
/// Edges of the plot area.
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// Maximum number of points of a drawn curve. Longer curves are averaged.
const MAX_POINTS: usize = 250;
/// Maximum number of points that have a mark each.
const MAX_MARKS: usize = 40;

/// Lines and texts use the colours of [`document`](crate::page::document).
const GRID: &str = "var(--line)";

/// A chart of curves over a common horizontal axis.
#[derive(Clone, Debug)]
pub struct LineChart<'a> {
    /// Title above the chart.
    pub title: &'a str,
    /// Name of the horizontal axis.
    pub x_name: &'a str,
    /// Curves, each in a colour of its own.
    pub curves: Vec<Curve<'a>>,
}

/// A curve of a [`LineChart`].
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// Points by ascending x.
    pub points: Vec<[f64; 2]>,
}

impl LineChart<'_> {
    /// Draws the chart as SVG. Points that are not finite are left out. Returns `None` if no points remain.
    pub fn draw(&self) -> Option<String> {
        let curves: Vec<Curve<'_>> = self.curves.iter().map(Curve::drawable).collect();
        let values = |axis: usize| {
            curves
                .iter()
                .flat_map(|curve| &curve.points)
                .map(move |p| p[axis])
        };
        let x = Axis::containing(values(0), [LEFT, RIGHT], 0.0)?;
        let y = Axis::containing(values(1), [BOTTOM, TOP], 0.05)?;
        let mut chart: Document = page(WIDTH, HEIGHT)
            .set("role", "img")
            .set("aria-label", self.title.replace('"', "'"))
            .add(text(self.title, LEFT, 16.0, "start").set("font-weight", "bold"))
            .add(text(self.x_name, RIGHT, HEIGHT - 4.0, "end"))
            .add(grid(&x, &y));
        for (index, curve) in curves.iter().enumerate() {
            chart = chart.add(curve.draw(&x, &y, colour(index)));
        }
        if curves.len() > 1 {
            chart = chart.add(legend(&curves));
        }
        Some(chart.to_string())
    }
}

impl Curve<'_> {
    /// Returns the finite points, or averages of them if there are too many.
    fn drawable(&self) -> Self {
        let finite = |point: &&[f64; 2]| point.iter().all(|value| value.is_finite());
        let points: Vec<[f64; 2]> = self.points.iter().filter(finite).copied().collect();
        let together = points.len().div_ceil(MAX_POINTS).max(1);
        let mean = |points: &[[f64; 2]]| {
            [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / points.len() as f64)
        };
        Self {
            name: self.name,
            points: points.chunks(together).map(mean).collect(),
        }
    }

    /// Draws the curve. The points of a short curve have marks with tooltips.
    fn draw(&self, x: &Axis, y: &Axis, colour: &str) -> Group {
        let places: Vec<String> = self
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x.at(point[0]), y.at(point[1])))
            .collect();
        let path = Polyline::new()
            .set("points", places.join(" "))
            .set("fill", "none")
            .set("stroke", colour)
            .set("stroke-width", 1.6);
        let mut group = Group::new().add(path);
        let marks = if self.points.len() <= MAX_MARKS {
            &self.points[..]
        } else {
            &[]
        };
        for point in marks {
            let tooltip = format!("{}: {} at {}", self.name, number(point[1]), number(point[0]));
            let mark = Circle::new()
                .set("cx", format!("{:.1}", x.at(point[0])))
                .set("cy", format!("{:.1}", y.at(point[1])))
                .set("r", 2.5)
                .set("fill", colour);
            group = group.add(mark.add(Title::new(tooltip)));
        }
        group
    }
}

/// Draws the lines and labels of both axes.
fn grid(x: &Axis, y: &Axis) -> Group {
    let [bottom, top] = y.range;
    let [left, right] = x.range;
    let mut group = Group::new();
    for value in x.ticks() {
        let at = x.at(value);
        group = group.add(line((at, bottom), (at, top), GRID)).add(text(
            x.label(value),
            at,
            bottom + 16.0,
            "middle",
        ));
    }
    for value in y.ticks() {
        let at = y.at(value);
        group = group.add(line((left, at), (right, at), GRID)).add(text(
            y.label(value),
            left - 6.0,
            at + 4.0,
            "end",
        ));
    }
    group
}

/// Draws the names of the curves from right to left, at the height of the title.
fn legend(curves: &[Curve<'_>]) -> Group {
    /// Width of a character in pixels, as a bound for common fonts.
    const CHARACTER: f64 = 7.0;
    let mut group = Group::new();
    let mut right = RIGHT;
    for (index, curve) in curves.iter().enumerate().rev() {
        let start = right - CHARACTER * curve.name.chars().count() as f64;
        let swatch = line((start - 20.0, 12.0), (start - 5.0, 12.0), colour(index)).set("stroke-width", 3);
        group = group.add(swatch).add(text(curve.name, start, 16.0, "start"));
        right = start - 34.0;
    }
    group
}

/// Linear axis that maps the values from `min` to `max` to pixels.
struct Axis {
    min: f64,
    max: f64,
    /// Pixel coordinates of `min` and `max`.
    range: [f64; 2],
    /// Distance between two ticks.
    step: f64,
}

impl Axis {
    /// Creates an axis that contains all values, with a margin on both sides relative to their range.
    fn containing(values: impl Iterator<Item = f64>, range: [f64; 2], margin: f64) -> Option<Self> {
        let (min, max) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
            (min.min(value), max.max(value))
        });
        if min > max {
            return None;
        }
        let margin = if max > min {
            margin * (max - min)
        } else {
            (0.5 * min.abs()).max(0.5)
        };
        let (min, max) = (min - margin, max + margin);
        Some(Self {
            min,
            max,
            range,
            step: round_step((max - min) / 5.0),
        })
    }

    /// Returns the pixel coordinate of a value.
    fn at(&self, value: f64) -> f64 {
        let [from, to] = self.range;
        from + (value - self.min) / (self.max - self.min) * (to - from)
    }

    /// Returns the multiples of the step on the axis.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let first = (self.min / self.step).ceil() as i64;
        let last = (self.max / self.step).floor() as i64;
        (first..=last).map(|index| index as f64 * self.step)
    }

    /// Formats a tick with the digits that distinguish it from its neighbours.
    fn label(&self, value: f64) -> String {
        let digits = (-self.step.log10().floor()).clamp(0.0, 12.0) as usize;
        format!("{value:.digits$}")
    }
}

/// Returns 1, 2 or 5 times a power of ten: the smallest that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<[f64; 2]>) -> Option<String> {
        let curves = vec![Curve { name: "loss", points }];
        LineChart {
            title: "Loss",
            x_name: "step",
            curves,
        }
        .draw()
    }

    #[test]
    fn ticks_are_round_and_within_the_values() {
        let axis = Axis::containing([0.0, 120.0].into_iter(), [0.0, 240.0], 0.0).unwrap();
        let ticks: Vec<String> = axis.ticks().map(|value| axis.label(value)).collect();
        assert_eq!(ticks, ["0", "50", "100"]);
        assert!((axis.at(50.0) - 100.0).abs() < 1e-9);
        let axis = Axis::containing([0.913, 0.947].into_iter(), [0.0, 1.0], 0.0).unwrap();
        let ticks: Vec<String> = axis.ticks().map(|value| axis.label(value)).collect();
        assert_eq!(ticks, ["0.92", "0.93", "0.94"]);
    }

    #[test]
    fn points_that_are_not_finite_are_left_out() {
        let svg = chart(vec![
            [1.0, 2.0],
            [2.0, f64::NAN],
            [3.0, f64::INFINITY],
            [4.0, 1.0],
        ])
        .unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(chart(vec![[1.0, f64::NAN]]), None);
        assert_eq!(chart(Vec::new()), None);
        // All values are equal.
        assert!(chart(vec![[1.0, 0.0]]).unwrap().contains("<circle"));
    }

    #[test]
    fn long_curves_are_averaged() {
        let points = (0..1000)
            .map(|index| [f64::from(index), f64::from(index % 2)])
            .collect();
        let curve = Curve { name: "", points }.drawable();
        assert_eq!(curve.points.len(), 250);
        assert_eq!(curve.points[1], [5.5, 0.5]);
    }
}
