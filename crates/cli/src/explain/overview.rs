//! Drawing of the way from the image to the logits. The SVG embeds its pictures and loads nothing.

use anyhow::Result;
use hipvit::Prediction;
use hipvit::image::RgbImage;
use hipvit_explain::{AttentionMap, Explanation, Target, enlarge, heat, signed, tiles};
use hipvit_report::drawing::{background, line, page, text};
use hipvit_report::page::data_url;
use svg::node::element::{Group, Image, Polygon, Rectangle};

/// Height of the drawing in pixels.
const HEIGHT: f64 = 296.0;
const MARGIN: f64 = 20.0;
/// Top edge and side of a panel, and width of the arrow between two panels.
const TOP: f64 = 52.0;
const SIDE: f64 = 192.0;
const ARROW: f64 = 44.0;
/// Size of the bar chart of the logits.
const BARS: f64 = 220.0;

const NOTE: &str = "#59636e";
const POSITIVE: &str = "#2f7bd6";
const NEGATIVE: &str = "#b8b8b8";

/// A picture with the text above and below it.
struct Panel {
    title: String,
    notes: [String; 2],
    picture: RgbImage,
}

/// Draws the image, its patches, the attention of the last block, the attributions, and the most likely classes.
pub(crate) fn overview(explanation: &Explanation, attributes: bool) -> Result<String> {
    let panels = panels(explanation, attributes)?;
    let pictures = panels.len() as f64;
    let mut right = MARGIN + pictures * SIDE + (pictures - 1.0) * ARROW;
    let mut drawing = Group::new();
    for (index, panel) in panels.iter().enumerate() {
        let left = MARGIN + index as f64 * (SIDE + ARROW);
        if index > 0 {
            drawing = drawing.add(arrow(left - ARROW));
        }
        drawing = drawing.add(drawn(panel, left)?);
    }
    if !explanation.top.is_empty() {
        drawing = drawing.add(arrow(right)).add(bars(explanation, right + ARROW));
        right += ARROW + BARS;
    }
    let width = right + MARGIN;
    let document = page(width, HEIGHT).add(background().set("rx", 8)).add(drawing);
    Ok(document.to_string() + "\n")
}

fn panels(explanation: &Explanation, attributes: bool) -> Result<Vec<Panel>> {
    let resized = &explanation.resized;
    // Enlarge by a whole factor close to the panel's size, because viewers differ in how they interpolate.
    let to_side = |side: f64| enlarge(resized, side as usize / resized.width.max(resized.height));
    let image = to_side(SIDE);
    let [rows, columns] = explanation.grid;
    let [patch_height, patch_width] = explanation.patch;
    let mut panels = vec![
        Panel {
            title: format!("{}×{} pixels", resized.width, resized.height),
            notes: [
                "the model's input:".into(),
                "a byte each of red, green, blue".into(),
            ],
            picture: image.clone(),
        },
        Panel {
            title: format!("{} patches", rows * columns),
            notes: [
                format!("of {patch_width}×{patch_height} pixels; each is"),
                "projected to a vector, its token".into(),
            ],
            picture: cut(resized, explanation.patch)?,
        },
    ];
    let of_block = |(_, map): &(usize, &AttentionMap)| map.block.is_some();
    if let Some((layer, map)) = explanation.attention.iter().enumerate().rfind(of_block) {
        let maps = explanation.attention_to_patches(layer);
        let across = (1..=maps.len()).find(|n| n * n >= maps.len()).unwrap_or(1);
        let small = to_side(SIDE / across as f64);
        let heads = maps.iter().map(|map| heat(&small, map));
        let heads = heads.collect::<hipvit::Result<Vec<_>>>()?;
        panels.push(Panel {
            title: format!("attention, {} heads", heads.len()),
            notes: [
                "brighter: more attention to a patch;".into(),
                format!("block {}, the last", map.block.unwrap_or_default()),
            ],
            picture: tiles(&heads, across)?,
        });
    }
    if attributes {
        let of = match &explanation.target {
            Target::Class { label, .. } => shortened(label, 12),
            _ => "embedding".into(),
        };
        panels.push(Panel {
            title: format!("attribution: {of}"),
            notes: [
                "red raises it, blue lowers it;".into(),
                format!("by {}", name(explanation)),
            ],
            picture: signed(&image, &explanation.attribution.by_patch(explanation.patch))?,
        });
    }
    Ok(panels)
}

/// Returns the attribution's name without its citation.
fn name(explanation: &Explanation) -> String {
    let source = explanation.attribution.method.source();
    source.split(',').next().unwrap_or(source).to_owned()
}

/// Returns the image's patches with gaps between them.
fn cut(image: &RgbImage, [patch_height, patch_width]: [usize; 2]) -> Result<RgbImage> {
    // Enlarge to about the panel's size. `tiles` leaves 2 pixels between the patches.
    let across = (image.width / patch_width).max(1);
    let factor = (SIDE as usize / across).saturating_sub(2) / patch_width;
    let factor = factor.max(1);
    let large = enlarge(image, factor);
    let (height, width) = (patch_height * factor, patch_width * factor);
    let columns = large.width / width;
    let mut patches = Vec::new();
    for row in 0..large.height / height {
        for column in 0..columns {
            let lines = (0..height).flat_map(|y| {
                let begin = ((row * height + y) * large.width + column * width) * 3;
                &large.data[begin..begin + width * 3]
            });
            patches.push(RgbImage::new(width, height, lines.copied().collect())?);
        }
    }
    Ok(tiles(&patches, columns)?)
}

fn drawn(panel: &Panel, left: f64) -> Result<Group> {
    let (width, height) = (panel.picture.width as f64, panel.picture.height as f64);
    let scale = SIDE / width.max(height);
    let picture = Image::new()
        .set("x", rounded(left + (SIDE - scale * width) / 2.0))
        .set("y", rounded(TOP + (SIDE - scale * height) / 2.0))
        .set("width", rounded(scale * width))
        .set("height", rounded(scale * height))
        .set("image-rendering", "optimizeSpeed")
        .set("href", data_url(&panel.picture)?);
    let mut group = Group::new()
        .add(
            text(panel.title.as_str(), left, 36.0, "start")
                .set("font-size", 15)
                .set("font-weight", "bold"),
        )
        .add(picture);
    for (index, note) in panel.notes.iter().enumerate() {
        let y = TOP + SIDE + 20.0 + 16.0 * index as f64;
        group = group.add(text(note, left, y, "start").set("fill", NOTE));
    }
    Ok(group)
}

/// Draws the most likely classes with their logits.
fn bars(explanation: &Explanation, left: f64) -> Group {
    const LINE: f64 = 36.0;
    let top = &explanation.top;
    let logits = || top.iter().map(|of| f64::from(of.logit));
    let least = logits().fold(0.0, f64::min);
    let scale = BARS / (logits().fold(0.0, f64::max) - least).max(f64::MIN_POSITIVE);
    let zero = left - least * scale;
    let mut group = Group::new().add(
        text("logits", left, 36.0, "start")
            .set("font-size", 15)
            .set("font-weight", "bold"),
    );
    for (index, of) in top.iter().enumerate() {
        let y = TOP + LINE * index as f64;
        let length = f64::from(of.logit) * scale;
        let bold = if explains(&explanation.target, of) {
            "bold"
        } else {
            "normal"
        };
        group = group
            .add(text(shortened(&of.label, 16), left, y + 12.0, "start").set("font-weight", bold))
            .add(
                text(format!("{:.2}", of.logit), left + BARS - 64.0, y + 12.0, "end")
                    .set("font-weight", bold),
            )
            .add(
                text(
                    format!("{:.2} %", 100.0 * of.probability),
                    left + BARS,
                    y + 12.0,
                    "end",
                )
                .set("font-weight", bold),
            )
            .add(
                Rectangle::new()
                    .set("x", rounded(zero + length.min(0.0)))
                    .set("y", y + 18.0)
                    .set("width", rounded(length.abs()))
                    .set("height", 9)
                    .set("fill", if length < 0.0 { NEGATIVE } else { POSITIVE }),
            )
            .add(line((rounded(zero), y + 16.0), (rounded(zero), y + 29.0), NOTE));
    }
    group
}

fn explains(target: &Target, of: &Prediction) -> bool {
    matches!(target, Target::Class { index, .. } if *index == of.index)
}

/// Draws the arrow between two panels, starting at `left`.
fn arrow(left: f64) -> Group {
    let y = TOP + SIDE / 2.0;
    let (from, to) = (left + 11.0, left + ARROW - 11.0);
    Group::new()
        .add(line((from, y), (to - 6.0, y), NOTE).set("stroke-width", 2))
        .add(
            Polygon::new()
                .set(
                    "points",
                    format!("{},{} {to},{y} {},{}", to - 8.0, y - 5.0, to - 8.0, y + 5.0),
                )
                .set("fill", NOTE),
        )
}

/// Shortens a label to at most `most` characters. ImageNet has long names.
fn shortened(label: &str, most: usize) -> String {
    match label.char_indices().nth(most) {
        Some(_) => label.chars().take(most - 1).chain(['…']).collect(),
        None => label.to_owned(),
    }
}

/// Rounds to tenths, so that the file does not depend on the rounding of sums.
fn rounded(pixels: f64) -> f64 {
    (10.0 * pixels).round() / 10.0
}
