//! Trace of a pixel as text.

use hipvit_diagnostics::table::{Column, Table, wrap};
use hipvit_explain::{Contribution, Head, Layer, Trace};

use super::places::{Place, Places};
use super::report::Report;

/// Returns the trace in lines of at most `width` characters. Includes memory locations if `memory` is true.
pub(crate) fn text(report: &Report<'_>, width: Option<usize>, memory: bool) -> String {
    let trace = report.trace;
    let mut parts = Vec::new();
    for (heading, lines) in sections(trace) {
        let lines = lines.iter().map(|line| format!("\n{}", indented(line, width)));
        parts.push(format!("{heading}{}", lines.collect::<String>()));
    }
    if !trace.layers.is_empty() {
        parts.push(format!("The token in each block\n{}", layers(trace).text(width)));
        parts.push(format!(
            "Its attention, head by head\n{}",
            heads(trace).text(width)
        ));
    }
    let contribution = contribution(&trace.contribution).text(width);
    parts.push(format!("Part of the output\n{contribution}"));
    if memory {
        parts.push(in_memory(report.memory, width));
    }
    parts.extend(report.machine.as_ref().map(|machine| machine.text(width)));
    parts.join("\n\n") + "\n"
}

/// Returns a line within a section, wrapped at `width`.
fn indented(line: &str, width: Option<usize>) -> String {
    const INDENT: &str = "  ";
    let lines = match width {
        Some(width) => wrap(line, width.saturating_sub(INDENT.len())),
        None => vec![line.to_owned()],
    };
    INDENT.to_owned() + &lines.join("\n  ")
}

fn in_memory(memory: &Places, width: Option<usize>) -> String {
    let mut text = format!("In memory: {}\n", memory.title());
    if let Some(input) = memory.of_input() {
        let line = format!("the pixel's red byte: {input}, u8 [1, H, W, 3]");
        text += &format!("{}\n", indented(&line, width));
    }
    text + &places(memory).text(width)
}

/// Heading of the section behind the last block.
pub(crate) const POOLING: &str = "Pooling";

/// Returns the sections up to the token.
pub(crate) fn sections(trace: &Trace) -> Vec<(&'static str, Vec<String>)> {
    let pixel = &trace.pixel;
    let [width, height] = pixel.image;
    let mut all = vec![(
        "Decoded",
        vec![format!(
            "pixel {},{} of {width}×{height} is {}",
            pixel.x,
            pixel.y,
            rgb(pixel.rgb)
        )],
    )];
    let mut resized = vec![trace.resize.rule.clone()];
    match trace.input {
        None => {
            resized.push("it is cropped away or not sampled: it does not affect the model's input".into());
        }
        Some(input) => {
            resized.push(format!(
                "it affects {} of the model's input; its weight is largest in {},{}, which is {}",
                match trace.resize.outputs.len() {
                    1 => "1 pixel".to_owned(),
                    several => format!("{several} pixels"),
                },
                input.x,
                input.y,
                rgb(input.rgb)
            ));
            let listed = trace.resize.outputs.iter().take(9);
            let weights: Vec<String> = listed
                .map(|part| format!("{},{} × {:.4}", part.x, part.y, part.weight))
                .collect();
            resized.push(weights.join("   "));
        }
    }
    all.push(("Resized", resized));
    let Some(input) = trace.input else { return all };
    // In most models the factor is not a round number, but its inverse is.
    let inverse = 1.0 / input.rescale;
    let rescale = if (inverse - inverse.round()).abs() < 1e-9 * inverse {
        format!("/ {inverse:.0}")
    } else {
        format!("· {}", input.rescale)
    };
    let normalised = ["red", "green", "blue"].iter().enumerate();
    let normalised = normalised.map(|(c, name)| {
        format!(
            "{name:<5} ({} {rescale} − {}) / {} = {}",
            input.rgb[c], input.mean[c], input.std[c], input.values[c]
        )
    });
    all.push(("Normalised", normalised.collect()));
    let Some(place) = trace.patch else {
        all.push((
            "Patch",
            vec!["it is beyond the last whole patch: the model ignores it".into()],
        ));
        return all;
    };
    all.push((
        "Patch",
        vec![
            format!(
                "patch {} (row {}, column {}), there row {}, column {}",
                place.index, place.row, place.column, place.inner_row, place.inner_column
            ),
            format!(
                "in the library's patch vector (channel, row, column): values {}",
                list(&place.library)
            ),
            format!(
                "in hipvit's patch vector (row, column, channel): values {}",
                list(&place.permuted)
            ),
        ],
    ));
    if let Some(embedding) = &trace.embedding {
        let channels = embedding.channels.iter();
        let channels: Vec<String> = channels
            .map(|part| {
                format!(
                    "channel {} {:+.4} of {:+.4}",
                    part.channel, part.pixel, part.total
                )
            })
            .collect();
        all.push((
            "Patch embedding",
            vec![
                format!(
                    "its contribution to the dot products has length {:.4}, the sum {:.4}; along the sum it is {:.2} %",
                    embedding.pixel_norm,
                    embedding.patch_norm,
                    100.0 * embedding.share
                ),
                channels.join("   "),
            ],
        ));
    }
    if let Some(token) = trace.token {
        all.push((
            "Token",
            vec![format!(
                "token {}: length {:.4}, with its position {:.4} as it enters the first block",
                token.index, token.embedding_norm, token.norm
            )],
        ));
    }
    all.push((POOLING, trace.pooling.clone()));
    all
}

fn rgb([r, g, b]: [u8; 3]) -> String {
    format!("({r}, {g}, {b})")
}

fn list(numbers: &[usize; 3]) -> String {
    numbers.map(|n| n.to_string()).join(", ")
}

/// Column headings of [`layers`].
pub(crate) const LAYER_HEADS: [&str; 9] = [
    "block",
    "+ attention",
    "+ FFN",
    "length",
    "of all tokens",
    "hidden > 0",
    "largest units",
    "relevance",
    "of all",
];

/// Returns a table with one row per block.
fn layers(trace: &Trace) -> Table {
    // A narrow terminal keeps the block, the length and the relevance.
    const RANKS: [u32; 9] = [0, 2, 2, 0, 1, 4, 5, 0, 3];
    let columns = LAYER_HEADS.into_iter().zip(RANKS);
    let mut table = Table::new(columns.map(|(head, rank)| Column::right(head).rank(rank)));
    for layer in &trace.layers {
        table.row(layer_cells(layer));
    }
    table
}

/// Returns the cells of [`layers`].
pub(crate) fn layer_cells(layer: &Layer) -> [String; 9] {
    let units = layer.ffn.largest.iter().take(3);
    let units: Vec<String> = units
        .map(|unit| format!("{} {:.2}", unit.unit, unit.value))
        .collect();
    [
        layer.block.to_string(),
        format!("{:.3}", layer.attention_update),
        format!("{:.3}", layer.ffn_update),
        format!("{:.3}", layer.norm),
        format!("{:.2} %", 100.0 * layer.share),
        format!("{} of {}", layer.ffn.positive, layer.ffn.hidden),
        units.join(", "),
        format!("{:+.5}", layer.relevance),
        format!("{:+.5}", layer.relevance_of_all),
    ]
}

/// Returns a table with one row per head of each block.
fn heads(trace: &Trace) -> Table {
    // A narrow terminal drops the lengths of the vectors first.
    let heads = [
        ("block", 0),
        ("head", 0),
        ("‖q‖", 2),
        ("‖k‖", 2),
        ("‖v‖", 2),
        ("received", 0),
        ("by the readout", 1),
        ("given", 3),
    ];
    let mut table = Table::new(heads.map(|(head, rank)| Column::right(head).rank(rank)));
    for layer in &trace.layers {
        let several = layer
            .heads
            .iter()
            .any(|head| head.attention != layer.heads[0].attention);
        for head in &layer.heads {
            let [q, k, v, received, readout, given] = head_cells(head);
            table.row([
                layer.block.to_string(),
                head_name(head, several),
                q,
                k,
                v,
                received,
                readout,
                given,
            ]);
        }
    }
    table
}

/// Returns the head's number, after the name of its attention layer if the block has several: `attn.2 0`.
pub(crate) fn head_name(head: &Head, several: bool) -> String {
    match head.attention.splitn(3, '.').nth(2).filter(|_| several) {
        Some(layer) => format!("{layer} {}", head.head),
        None => head.head.to_string(),
    }
}

/// Returns the cells of a head.
pub(crate) fn head_cells(head: &Head) -> [String; 6] {
    let given = head.given.iter().take(3);
    let given: Vec<String> = given
        .map(|read| format!("{}: {:.1} %", read.token, 100.0 * read.weight))
        .collect();
    [
        format!("{:.3}", head.query),
        format!("{:.3}", head.key),
        format!("{:.3}", head.value),
        format!("{:.2} %", 100.0 * head.received),
        format!("{:.2} %", 100.0 * head.received_by_readout),
        given.join(", "),
    ]
}

fn contribution(contribution: &Contribution) -> Table {
    let mut table = Table::new([Column::left(""), Column::right(""), Column::left("").wraps(20)]);
    for [name, value, note] in contribution_rows(contribution) {
        table.row([name, value, note]);
    }
    table
}

/// Returns rows with a name, a value and a remark.
pub(crate) fn contribution_rows(of: &Contribution) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: f64, note: String| {
        rows.push([name.to_owned(), format!("{value:+.6}"), note]);
    };
    row(
        "the decoded pixel",
        of.source_pixel,
        "by its weights in the resize".into(),
    );
    if let Some([r, g, b]) = of.input_pixel {
        row(
            "the resized pixel",
            r + g + b,
            format!("red {r:+.6}, green {g:+.6}, blue {b:+.6}"),
        );
    }
    if let (Some(patch), Some(rank)) = (of.patch, of.patch_rank) {
        row(
            "its patch",
            patch,
            format!("number {rank} of the patches by size"),
        );
    }
    row("all pixels", of.pixels, String::new());
    let constants = of.constants.iter().take(3);
    let constants: Vec<String> = constants
        .map(|c| format!("{} {:+.4}", c.name, c.contribution))
        .collect();
    row("constants", of.constant, constants.join(", "));
    row(
        "the output",
        of.output,
        format!("{}; by {}", of.target, of.method),
    );
    rows.push(["gap".into(), format!("{:.1e}", of.gap), String::new()]);
    rows
}

fn places(places: &Places) -> Table {
    let mut table = Table::new([
        Column::left("step").wraps(12),
        Column::left("op").wraps(10).rank(2),
        Column::left("shape").wraps(12).rank(1),
        Column::right("begins at"),
        Column::right("carries the pixel"),
        Column::left("computed by").wraps(16).rank(3),
    ]);
    for place in &places.steps {
        table.row(place_cells(places, place));
    }
    table
}

/// Returns the cells of [`places`].
pub(crate) fn place_cells(places: &Places, place: &Place) -> [String; 6] {
    [
        place.step.clone(),
        place.op.clone(),
        format!("{} {:?}", place.dtype, place.shape),
        places.begin(place),
        place
            .pixel_offset
            .map_or_else(|| "–".into(), |offset| format!("+ {offset:#x}")),
        place.computed_by(),
    ]
}
