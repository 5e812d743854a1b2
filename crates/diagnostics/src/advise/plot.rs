//! Draws the roofline as SVG on logarithmic axes: operations per byte on x, operations per second on y. Each
//! kind of step is a dot below the roof of its device.

use svg::node::element::{Circle, Group, Polyline, Title};

use super::Hardware;
use super::advice::Advice;
use super::predict::Bound;
use super::text::{Alike, alike};
use crate::peaks::{bandwidth, throughput};
use hipvit::graph::Role;
use hipvit_report::drawing::{background, line, page, text};

/// Size of the picture in pixels.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 680.0;
/// Left, top, right and bottom of the plot area. The list of steps is to its right.
const LEFT: f64 = 96.0;
const TOP: f64 = 96.0;
const RIGHT: f64 = 780.0;
const BOTTOM: f64 = HEIGHT - 72.0;
const LIST: f64 = RIGHT + 36.0;

/// Colours that remain distinguishable with any colour vision, <https://jfly.uni-koeln.de/color/>.
const COLOURS: [(Role, &str); 5] = [
    (Role::Patch, "#cc79a7"),
    (Role::Qkv, "#0072b2"),
    (Role::Attention, "#009e73"),
    (Role::Ffn, "#d55e00"),
    (Role::Other, "#777777"),
];

/// Draws the roofline of `advice`. Each kind of step is at its predicted rate, launches included; a ring
/// marks its measured rate. Steps without operations are listed, but not on the axes.
pub fn plot(advice: &Advice) -> String {
    let steps = alike(&advice.prediction.steps);
    let peak = advice
        .hardware
        .flops_per_second(advice.configuration.dtype)
        .unwrap_or(1.0);
    let scale = Scale::new(&steps, peak, advice.hardware.bytes_per_second);
    page(WIDTH, HEIGHT)
        .add(background())
        .add(caption(advice))
        .add(axes(&scale))
        .add(roof(&advice.hardware, peak, &scale))
        .add(dots(&steps, &scale))
        .add(list(&steps, advice.prediction.seconds))
        .to_string()
}

/// Decades of both axes.
struct Scale {
    x: [f64; 2],
    y: [f64; 2],
}

impl Scale {
    fn new(steps: &[Alike<'_>], peak: f64, bytes_per_second: f64) -> Self {
        let drawn = || steps.iter().filter(|of| of.step.flops > 0);
        let ridge = peak / bytes_per_second;
        let intensities = drawn().map(|of| of.step.intensity).chain([ridge]);
        let rates = drawn().flat_map(Alike::rates).chain([peak]);
        let decades = |values: Vec<f64>| {
            let logarithms: Vec<f64> = values
                .into_iter()
                .map(f64::log10)
                .filter(|x| x.is_finite())
                .collect();
            let least = logarithms.iter().copied().fold(f64::INFINITY, f64::min);
            let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            [(least - 0.2).floor(), (most + 0.2).ceil()]
        };
        Self {
            x: decades(intensities.collect()),
            y: decades(rates.collect()),
        }
    }

    fn at(&self, intensity: f64, rate: f64) -> (f64, f64) {
        let part = |value: f64, [from, to]: [f64; 2]| (value.log10() - from) / (to - from);
        (
            LEFT + (RIGHT - LEFT) * part(intensity, self.x),
            BOTTOM - (BOTTOM - TOP) * part(rate, self.y),
        )
    }
}

fn caption(advice: &Advice) -> Group {
    let Advice {
        hardware, prediction, ..
    } = advice;
    let title = format!(
        "{}, batch {}, {} on {}",
        advice.model, advice.batch, advice.configuration.dtype, hardware.name
    );
    let bound = format!(
        "at least {:.3} ms per batch, at most {:.0} images/s: bounds by the roofline model and {:.1} µs per launch, no measurements",
        1e3 * prediction.seconds,
        prediction.images_per_second,
        1e6 * launch(advice),
    );
    Group::new()
        .add(
            text(title, LEFT, 30.0, "start")
                .set("font-size", 18)
                .set("font-weight", "bold"),
        )
        .add(text(bound, LEFT, 52.0, "start").set("fill", "#555"))
        .add(text(format!("peaks: {}", hardware.source), LEFT, 70.0, "start").set("fill", "#555"))
}

fn launch(advice: &Advice) -> f64 {
    let [eager, replayed] = advice.hardware.launch_seconds;
    if advice.configuration.hip_graphs {
        replayed
    } else {
        eager
    }
}

fn axes(scale: &Scale) -> Group {
    let mut group = Group::new();
    let range = |[from, to]: [f64; 2]| from as i32..=to as i32;
    for decade in range(scale.x) {
        let (x, _) = scale.at(10f64.powi(decade), 1.0);
        group = group.add(line((x, TOP), (x, BOTTOM), "#e4e4e4")).add(text(
            decimal(decade),
            x,
            BOTTOM + 20.0,
            "middle",
        ));
    }
    for decade in range(scale.y) {
        let (_, y) = scale.at(1.0, 10f64.powi(decade));
        group = group.add(line((LEFT, y), (RIGHT, y), "#e4e4e4")).add(text(
            rate_of(decade),
            LEFT - 8.0,
            y + 4.0,
            "end",
        ));
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    group
        .add(text("operations per byte", middle, BOTTOM + 44.0, "middle"))
        .add(text("operations per second (FLOP/s)", 0.0, 0.0, "middle").set(
            "transform",
            format!("translate(22 {}) rotate(-90)", f64::midpoint(TOP, BOTTOM)),
        ))
}

/// Draws the slope of the bandwidth up to the peak, then the peak.
fn roof(hardware: &Hardware, peak: f64, scale: &Scale) -> Group {
    let bytes = hardware.bytes_per_second;
    let [least, most] = scale.x.map(|decade| 10f64.powf(decade));
    // The slope starts where it enters the plot.
    let begin = least.max(10f64.powf(scale.y[0]) / bytes);
    let points = [(begin, begin * bytes), (peak / bytes, peak), (most, peak)];
    let points = points.map(|(x, y)| {
        let (x, y) = scale.at(x, y);
        format!("{x:.1},{y:.1}")
    });
    let (x, y) = scale.at(begin, begin * bytes);
    let (ridge, top) = scale.at(peak / bytes, peak);
    let angle = -((y - top) / (ridge - x)).atan().to_degrees();
    let at = (x + 0.45 * (ridge - x), y + 0.45 * (top - y));
    Group::new()
        .add(
            Polyline::new()
                .set("points", points.join(" "))
                .set("fill", "none")
                .set("stroke", "black")
                .set("stroke-width", 2),
        )
        .add(text(throughput(peak), RIGHT - 4.0, top - 8.0, "end"))
        .add(text(bandwidth(bytes), 0.0, -8.0, "middle").set(
            "transform",
            format!("translate({:.1} {:.1}) rotate({angle:.1})", at.0, at.1),
        ))
}

fn dots(steps: &[Alike<'_>], scale: &Scale) -> Group {
    let mut group = Group::new();
    // Dots that nearly coincide share one label.
    let mut labels: Vec<(f64, f64, &str, Vec<String>)> = Vec::new();
    for (index, of) in steps.iter().enumerate() {
        if of.step.flops == 0 {
            continue;
        }
        let colour = colour(of.step.role);
        for (rate, measured) in of.rates().zip([false, true]) {
            let (x, y) = scale.at(of.step.intensity, rate);
            let title = format!("{}. {}: {}", index + 1, of.name(), throughput(rate));
            let dot = Circle::new()
                .set("cx", x)
                .set("cy", y)
                .set("r", 6)
                .set("stroke", if measured { colour } else { "white" })
                .set("stroke-width", if measured { 2.0 } else { 0.75 })
                .set("fill", if measured { "none" } else { colour })
                .add(Title::new(title));
            group = group.add(dot);
            if measured {
                continue;
            }
            let number = (index + 1).to_string();
            let near = |label: &&mut (f64, f64, &str, Vec<String>)| {
                (label.0 - x).abs() < 48.0 && (label.1 - y).abs() < 12.0
            };
            match labels.iter_mut().find(near) {
                Some(label) => {
                    label.0 = label.0.max(x);
                    label.3.push(number);
                }
                None => labels.push((x, y, colour, vec![number])),
            }
        }
    }
    for (x, y, colour, numbers) in labels {
        // Near the list of steps, place the label to the left of its dot.
        let (x, anchor) = if x > RIGHT - 96.0 {
            (x - 8.0, "end")
        } else {
            (x + 8.0, "start")
        };
        let label = text(numbers.join(", "), x, y + 18.0, anchor);
        group = group.add(label.set("font-size", 11).set("fill", colour));
    }
    group
}

fn list(steps: &[Alike<'_>], total: f64) -> Group {
    let line_height = ((BOTTOM - TOP) / (steps.len() + 2) as f64).min(20.0);
    let mut group = Group::new()
        .add(text("step, share of the time, bound", LIST, TOP, "start").set("font-weight", "bold"));
    for (index, of) in steps.iter().enumerate() {
        let y = TOP + line_height * (index + 1) as f64;
        let share = 100.0 * of.count as f64 * of.step.seconds / total;
        let label = format!("{}. {}", index + 1, of.name());
        let bound = match of.step.flops {
            0 => format!("{} (0 FLOP)", of.step.bound),
            _ => of.step.bound.to_string(),
        };
        group = group
            .add(text(label, LIST, y, "start").set("fill", colour(of.step.role)))
            .add(text(format!("{share:.1} %"), LIST + 248.0, y, "end"))
            .add(text(bound, LIST + 258.0, y, "start").set("fill", bound_colour(of.step.bound)));
    }
    if steps.iter().any(|of| of.step.measured_seconds.is_some()) {
        let y = TOP + line_height * (steps.len() + 2) as f64;
        group = group.add(text("dot: predicted, ring: measured", LIST, y, "start"));
    }
    group
}

fn colour(role: Role) -> &'static str {
    let known = COLOURS.iter().find(|(known, _)| *known == role);
    known.map_or("black", |(_, colour)| colour)
}

fn bound_colour(bound: Bound) -> &'static str {
    match bound {
        Bound::Launch => "#c00",
        Bound::Memory | Bound::Compute => "#333",
    }
}

/// Formats 10^`decade` as `0.1`, `1` or `1000`.
fn decimal(decade: i32) -> String {
    format!("{}", 10f64.powi(decade))
}

/// Formats 10^`decade` operations per second, e.g. `10 GFLOP/s` for 10.
fn rate_of(decade: i32) -> String {
    let (unit, power) = match decade {
        15.. => ("P", 15),
        12.. => ("T", 12),
        9.. => ("G", 9),
        _ => ("M", 6),
    };
    format!("{} {unit}", decimal(decade - power))
}
