//! Draws a plan's arena over time as SVG: steps to the right, bytes upwards, one rectangle for each buffer.

use svg::node::element::{Group, Rectangle, Text, Title};

use hipvit::graph::Role;
use hipvit::graph::plan::{Buffer, Operand, Plan};
use hipvit_report::drawing::{background, line, page, text};

/// Width of the picture in pixels.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 640.0;
/// Left, top, right and bottom edge of the area of the arena.
const LEFT: f64 = 90.0;
const TOP: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;
const BOTTOM: f64 = HEIGHT - 64.0;

/// Colours that remain distinguishable with any colour vision, <https://jfly.uni-koeln.de/color/>.
const COLOURS: [(Role, &str); 5] = [
    (Role::Patch, "#cc79a7"),
    (Role::Qkv, "#56b4e9"),
    (Role::Attention, "#009e73"),
    (Role::Ffn, "#e69f00"),
    (Role::Other, "#b8b8b8"),
];

/// Draws the arena of `plan`: lifetime and offset of each buffer, with its content in a tooltip. The colour is the role of the step that
/// writes the buffer.
pub fn plot(plan: &Plan) -> String {
    let scale = Scale::new(plan);
    let document = page(WIDTH, HEIGHT)
        .add(background())
        .add(caption(plan))
        .add(legend())
        .add(byte_axis(plan, &scale))
        .add(step_axis(plan, &scale))
        .add(buffers(plan, &scale))
        .add(lower_bound(plan, &scale));
    document.to_string()
}

/// Scale from steps and bytes to pixels.
struct Scale {
    step: f64,
    byte: f64,
}

impl Scale {
    fn new(plan: &Plan) -> Self {
        Self {
            step: (RIGHT - LEFT) / plan.steps().len().max(1) as f64,
            byte: (BOTTOM - TOP) / plan.arena_bytes().max(1) as f64,
        }
    }

    fn x(&self, step: usize) -> f64 {
        LEFT + self.step * step as f64
    }

    fn y(&self, byte: usize) -> f64 {
        BOTTOM - self.byte * byte as f64
    }
}

fn caption(plan: &Plan) -> Group {
    let title = format!(
        "{}: activation arena, batch {}, {}",
        plan.graph().name(),
        plan.batch(),
        plan.dtype()
    );
    let reuse = format!(
        "{}; {} without reuse; lower bound {} (peak of live buffers)",
        size(plan.arena_bytes()),
        size(plan.naive_bytes()),
        size(plan.lower_bound_bytes())
    );
    Group::new()
        .add(
            text(title, LEFT, 28.0, "start")
                .set("font-size", 18)
                .set("font-weight", "bold"),
        )
        .add(text(reuse, LEFT, 48.0, "start").set("fill", "#555"))
}

fn legend() -> Group {
    let mut group = Group::new();
    for (i, (role, colour)) in COLOURS.into_iter().enumerate() {
        let x = LEFT + 96.0 * i as f64;
        let swatch = Rectangle::new()
            .set("x", x)
            .set("y", 58)
            .set("width", 12)
            .set("height", 12);
        group = group
            .add(swatch.set("fill", colour))
            .add(text(role.to_string(), x + 18.0, 68.5, "start"));
    }
    group
}

fn byte_axis(plan: &Plan, scale: &Scale) -> Group {
    let mut group = Group::new().add(text("offset in the arena (bytes)", 0.0, 0.0, "middle").set(
        "transform",
        format!("translate(18 {}) rotate(-90)", f64::midpoint(TOP, BOTTOM)),
    ));
    let tick = round_step(plan.arena_bytes() as f64 / 6.0, 2.0) as usize;
    for byte in (0..=plan.arena_bytes()).step_by(tick.max(1)) {
        let y = scale.y(byte);
        group = group.add(line((LEFT, y), (RIGHT, y), "#e4e4e4")).add(text(
            size(byte),
            LEFT - 8.0,
            y + 4.0,
            "end",
        ));
    }
    group.add(line((LEFT, TOP), (LEFT, BOTTOM), "#333"))
}

fn step_axis(plan: &Plan, scale: &Scale) -> Group {
    let middle = f64::midpoint(LEFT, RIGHT);
    let mut group = Group::new()
        .add(line((LEFT, BOTTOM), (RIGHT, BOTTOM), "#333"))
        .add(text("step", middle, HEIGHT - 20.0, "middle"));
    let tick = round_step(plan.steps().len() as f64 / 20.0, 10.0) as usize;
    for step in (0..plan.steps().len()).step_by(tick.max(1)) {
        let x = scale.x(step);
        group = group.add(line((x, BOTTOM), (x, BOTTOM + 5.0), "#333")).add(text(
            step.to_string(),
            x + scale.step / 2.0,
            BOTTOM + 20.0,
            "middle",
        ));
    }
    group
}

fn buffers(plan: &Plan, scale: &Scale) -> Group {
    let mut ends: Vec<usize> = plan.buffers().iter().map(|buffer| buffer.last_step + 1).collect();
    for step in plan.steps() {
        // The step that overwrites a buffer is only drawn for the new buffer.
        if let Some(Operand::Buffer(id)) = step.in_place.map(|i| step.inputs[i]) {
            ends[id.index()] -= 1;
        }
    }
    let mut group = Group::new().set("stroke", "white").set("stroke-width", 0.75);
    for ((step, buffer), &end) in plan.steps().iter().zip(plan.buffers()).zip(&ends) {
        let node = plan.node(step);
        let colour = COLOURS
            .iter()
            .find(|(role, _)| *role == node.role)
            .map_or("black", |c| c.1);
        let area = Area {
            x: scale.x(buffer.first_step),
            y: scale.y(buffer.offset + buffer.bytes),
            width: scale.x(end) - scale.x(buffer.first_step),
            height: scale.byte * buffer.bytes as f64,
        };
        let rectangle = Rectangle::new()
            .set("x", area.x)
            .set("y", area.y)
            .set("width", area.width)
            .set("height", area.height)
            .set("fill", colour)
            .add(Title::new(tooltip(&node.name, &node.op.to_string(), buffer)));
        group = group.add(rectangle);
        if let Some(label) = label(&node.name, &area) {
            group = group.add(label);
        }
    }
    group
}

/// A rectangle in pixels.
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Draws the lower bound of an arena's size.
fn lower_bound(plan: &Plan, scale: &Scale) -> Group {
    let y = scale.y(plan.lower_bound_bytes());
    Group::new()
        .add(line((LEFT, y), (RIGHT, y), "#c00").set("stroke-dasharray", "6 4"))
        .add(text("lower bound", RIGHT, y - 5.0, "end").set("fill", "#c00"))
}

fn tooltip(name: &str, op: &str, buffer: &Buffer) -> String {
    let Buffer {
        shape,
        offset,
        bytes,
        first_step,
        last_step,
        ..
    } = buffer;
    format!("{name} ({op})\n{shape:?}, {bytes} bytes at {offset}\nsteps {first_step} to {last_step}")
}

/// Writes the name in the middle of its rectangle, horizontally or vertically, if it fits.
fn label(name: &str, area: &Area) -> Option<Text> {
    let (length, thickness) = (7.0 * name.chars().count() as f64 + 4.0, 14.0);
    let angle = if area.width >= length && area.height >= thickness {
        0
    } else if area.height >= length && area.width >= thickness {
        -90
    } else {
        return None;
    };
    let (x, y) = (area.x + area.width / 2.0, area.y + area.height / 2.0);
    let label = text(name.to_owned(), 0.0, 4.0, "middle")
        .set("transform", format!("translate({x} {y}) rotate({angle})"))
        .set("stroke", "none")
        .set("pointer-events", "none");
    Some(label)
}

/// Returns the smallest round step that is at least `least`: 1, 2 or 5 times a power of `base`. For base 2, a power of two.
fn round_step(least: f64, base: f64) -> f64 {
    let power = base.powf(least.max(1.0).log(base).floor());
    let factors: &[f64] = if base == 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let fits = factors
        .iter()
        .map(|factor| factor * power)
        .find(|&step| step >= least);
    fits.unwrap_or(base * power)
}

fn size(bytes: usize) -> String {
    let kib = bytes as f64 / 1024.0;
    let (value, unit) = if kib < 1024.0 {
        (kib, "KiB")
    } else {
        (kib / 1024.0, "MiB")
    };
    if value.fract() == 0.0 {
        format!("{value} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hipvit::graph::{Passes, optimize};
    use hipvit::model::{LoadOptions, tinyvit32};
    use hipvit::tensor::DType;

    use super::*;

    #[test]
    fn every_buffer_is_drawn_and_named() {
        let (graph, _) = optimize(
            tinyvit32(&LoadOptions::default()).unwrap().graph,
            &Passes::default(),
        )
        .unwrap();
        let plan = Plan::new(Arc::new(graph), 2, DType::F32).unwrap();
        let drawing = plot(&plan);
        assert_eq!(drawing.matches("<title>").count(), plan.buffers().len());
        for node in plan.graph().nodes() {
            assert!(drawing.contains(&format!("{} (", node.name)), "{}", node.name);
        }
        for (role, colour) in COLOURS {
            assert!(drawing.contains(&role.to_string()) && drawing.contains(colour));
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(round_step(3.2, 10.0), 5.0);
        assert_eq!(round_step(6.0, 10.0), 10.0);
        assert_eq!(round_step(0.1, 10.0), 1.0);
        assert_eq!(round_step(600.0, 2.0), 1024.0);
        assert_eq!(round_step(1024.0, 2.0), 1024.0);
    }
}
