//! Trace of a pixel as one page, which embeds its pictures and loads nothing.

use std::fmt::Write as _;

use anyhow::Result;
use hipvit::image::RgbImage;
use hipvit::ndarray::{Array2, ArrayView1, s};
use hipvit_explain::{Trace, colours, signed};
use hipvit_report::page::{data_url, document, escape, table};

use super::machine::{Call, Carrier, Machine};
use super::report::Report;
use super::text::{
    LAYER_HEADS, POOLING, contribution_rows, head_cells, head_name, layer_cells, place_cells, sections,
};

/// Style in addition to that of all reports.
const STYLE: &str = "
.heads { display: flex; flex-wrap: wrap; gap: 8px; margin: .6em 0 }
image { image-rendering: pixelated }
ol.steps { list-style: none; padding: 0; counter-reset: step }
ol.steps > li { counter-increment: step; background: var(--panel); border-radius: 6px; padding: .5em .9em; margin: .6em 0 }
ol.steps > li > b::before { content: counter(step) \". \" }
ol.steps p { margin: .2em 0; overflow-wrap: anywhere }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px }
.bar { display: inline-block; height: .7em; background: var(--bar); border-radius: 2px }
";

pub(crate) fn page(report: &Report<'_>) -> Result<String> {
    let trace = report.trace;
    let of = &trace.contribution;
    let mut page = format!(
        "<h1>The journey of pixel {},{}</h1>\n<p>{} through {}, to {}.</p>\n",
        trace.pixel.x,
        trace.pixel.y,
        escape(report.image),
        escape(&trace.model),
        escape(&of.target.to_string())
    );
    page += "<p class=\"note\">A Vision Transformer cuts a picture into patches, and computes a vector for each patch, its token. In \
             each block, the tokens exchange information. At the end, a classifier reads the result. This page follows one pixel \
             through these steps.</p>\n";
    page += &pictures(trace)?;
    page += &top(trace);
    page += "<h2>From pixel to token</h2>\n<ol class=\"steps\">\n";
    let sections = sections(trace);
    for (heading, body) in sections.iter().filter(|(heading, _)| *heading != POOLING) {
        page += &step(heading, body);
    }
    page += "</ol>\n";
    if !trace.layers.is_empty() {
        page += &layers(trace)?;
    }
    page += "<h2>From tokens to the output</h2>\n";
    for (heading, body) in sections.iter().filter(|(heading, _)| *heading == POOLING) {
        page += &format!("<ol class=\"steps\">{}</ol>\n", step(heading, body));
    }
    page += "<p class=\"note\">Contributions to the output. Attention, standard deviations and gates are treated as constants. \
             The rest is affine in the pixels, so that all contributions add up to the output.</p>\n";
    let rows = contribution_rows(of)
        .into_iter()
        .map(|row| row.map(|cell| escape(&cell)).to_vec());
    page += &table(&["", "part", ""], 1, &rows.collect::<Vec<_>>());
    page += &places(report);
    if let Some(machine) = &report.machine {
        page += &in_the_machine(machine, trace)?;
    }
    Ok(document("hipvit trace", STYLE, &page))
}

/// Returns a section: its heading, what the step does, and what happens to this pixel.
fn step(heading: &str, body: &[String]) -> String {
    let note = match heading {
        "Decoded" => "An image file becomes bytes: red, green and blue of each pixel.",
        "Resized" => {
            "The model takes pictures of one size. Each pixel of the resized picture is a weighted sum of decoded pixels."
        }
        "Normalised" => "As in training: scaled to 0…1, minus the mean, divided by the standard deviation.",
        "Patch" => "The values of a patch's pixels are one row of a matrix.",
        "Patch embedding" => {
            "Each row is multiplied by a learned matrix: this gives a vector for each patch, to which all of its pixels contribute."
        }
        "Token" => {
            "A learned position embedding encodes where the patch was. The sum of both vectors is the patch's token."
        }
        POOLING => {
            "After the last block the tokens are pooled to one vector. The head maps it to logits, one per class."
        }
        _ => "",
    };
    let mut text = format!("<li><b>{heading}</b><p class=\"note\">{note}</p>");
    for line in body {
        text += &format!("<p>{}</p>", escape(line));
    }
    text + "</li>\n"
}

/// Returns the most likely classes.
fn top(trace: &Trace) -> String {
    if trace.top.is_empty() {
        return String::new();
    }
    let rows = trace.top.iter().map(|prediction| {
        let percent = 100.0 * prediction.probability;
        vec![
            escape(&prediction.label),
            format!("{percent:.2} %"),
            format!("{:.4}", prediction.logit),
            format!(
                "<span class=\"bar\" style=\"width: {:.0}px\"></span>",
                2.0 * percent
            ),
        ]
    });
    let heads = ["class", "probability", "logit", ""];
    table(&heads, heads.len(), &rows.collect::<Vec<_>>())
}

/// Returns the image with its patches, and their contributions.
fn pictures(trace: &Trace) -> Result<String> {
    let attribution = &trace.attribution;
    let by_pixel = signed(&trace.resized, &attribution.by_pixel())?;
    let by_patch = signed(&trace.resized, &attribution.by_patch(trace.patch_size))?;
    let output = escape(&trace.contribution.target.to_string());
    Ok(format!(
        "<div class=\"row\">\n{}{}{}</div>\n<p class=\"note\"><span class=\"swatch\" style=\"background: var(--for)\"></span> raises \
         {output}, <span class=\"swatch\" style=\"background: var(--against)\"></span> lowers it. By {}.</p>\n",
        figure(
            trace,
            Layer::Input,
            320,
            true,
            "The model's input, cut into patches. The pixel's patch is marked."
        )?,
        figure(
            trace,
            Layer::Picture(&by_patch),
            320,
            true,
            "What each patch contributes"
        )?,
        figure(
            trace,
            Layer::Picture(&by_pixel),
            320,
            false,
            "What each pixel contributes"
        )?,
        escape(&trace.contribution.method)
    ))
}

/// Content of a figure.
enum Layer<'a> {
    Input,
    Picture(&'a RgbImage),
    /// A value per patch, drawn over the model's input. The page contains the input once.
    Map(&'a Array2<f32>),
}

fn figure(trace: &Trace, layer: Layer<'_>, width: usize, grid: bool, caption: &str) -> Result<String> {
    Ok(format!(
        "<figure>{}<figcaption style=\"width: {width}px\">{}</figcaption></figure>\n",
        picture(trace, layer, width, grid)?,
        escape(caption)
    ))
}

/// Returns a picture that is `width` wide on the page, with the pixel's patch marked.
fn picture(trace: &Trace, layer: Layer<'_>, width: usize, grid: bool) -> Result<String> {
    let (columns, rows) = (trace.resized.width, trace.resized.height);
    let height = width * rows / columns;
    let stroke = columns as f64 / width as f64;
    let [patch_height, patch_width] = trace.patch_size;
    let content = match layer {
        // Maps are drawn on top of it.
        Layer::Input => format!(
            "<g id=\"input\">{}</g>",
            embedded(&trace.resized, [columns, rows], "")?
        ),
        Layer::Picture(image) => embedded(image, [columns, rows], "")?,
        Layer::Map(map) => format!(
            "<use href=\"#input\"/>{}",
            embedded(
                &colours(map)?,
                [trace.grid[1] * patch_width, trace.grid[0] * patch_height],
                " opacity=\".75\""
            )?
        ),
    };
    let mut svg =
        format!("<svg viewBox=\"0 0 {columns} {rows}\" width=\"{width}\" height=\"{height}\">{content}");
    if grid {
        let mut path = String::new();
        for column in 1..=trace.grid[1] {
            write!(
                path,
                "M{} 0V{}",
                column * patch_width,
                trace.grid[0] * patch_height
            )?;
        }
        for row in 1..=trace.grid[0] {
            write!(path, "M0 {}H{}", row * patch_height, trace.grid[1] * patch_width)?;
        }
        write!(
            svg,
            "<path d=\"{path}\" stroke=\"#fff\" stroke-opacity=\".35\" stroke-width=\"{stroke}\"/>"
        )?;
    }
    if let Some(place) = trace.patch {
        write!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{patch_width}\" height=\"{patch_height}\" fill=\"none\" stroke=\"#0c8\" \
             stroke-width=\"{}\"/>",
            place.column * patch_width,
            place.row * patch_height,
            2.0 * stroke
        )?;
    }
    if let Some(input) = trace.input.filter(|_| grid) {
        write!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"1\" height=\"1\" fill=\"none\" stroke=\"#f0f\" stroke-width=\"{stroke}\"/>",
            input.x, input.y
        )?;
    }
    Ok(svg + "</svg>")
}

/// Returns an embedded picture, stretched to a width and height.
fn embedded(image: &RgbImage, [width, height]: [usize; 2], attributes: &str) -> Result<String> {
    Ok(format!(
        "<image width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\"{attributes} \
         href=\"{}\"/>",
        data_url(image)?
    ))
}

/// Returns a table of the token in each block: numbers, and what it attends to.
fn layers(trace: &Trace) -> Result<String> {
    let mut text = String::from(
        "<h2>Block by block</h2>\n<p class=\"note\">In each block the token first collects from the tokens that its attention \
         selects, head by head; then a feed-forward network changes each token by itself. Both results are added to it. Attention of the \
         pixel's token, as the mean of all heads (brighter is more):</p>\n<div class=\"heads\">",
    );
    let token = trace.token.map_or(0, |token| token.index);
    let maps = |block: usize| trace.attention.iter().filter(move |map| map.block == Some(block));
    for layer in &trace.layers {
        let mut mean = Array2::zeros((trace.grid[0], trace.grid[1]));
        for map in maps(layer.block) {
            mean += &on_grid(map.mean().row(token), trace);
        }
        text += &figure(
            trace,
            Layer::Map(&mean),
            112,
            false,
            &format!("block {}", layer.block),
        )?;
    }
    text += "</div>\n<p class=\"note\">The part of the output that passes through the token after each block (relevance):</p>\n";
    text += &relevance_chart(trace)?;
    text += "<p class=\"note\">+ attention, + FFN: length of the vector that is added to the token. length: the token's length after \
             the block, and its fraction of all tokens' lengths. hidden &gt; 0: number of active units, and the largest. of all: \
             relevance of all tokens, which grows to the output minus the later constants.</p>\n";
    let rows = trace
        .layers
        .iter()
        .map(|layer| layer_cells(layer).map(|cell| escape(&cell)).to_vec());
    text += &table(&LAYER_HEADS, 1, &rows.collect::<Vec<_>>());
    for layer in &trace.layers {
        let open = if layer.block == 0 { " open" } else { "" };
        writeln!(
            text,
            "<details{open}><summary>Block {}: attention of each head</summary>\n<div class=\"heads\">",
            layer.block
        )?;
        let several = maps(layer.block).count() > 1;
        let heads = maps(layer.block).flat_map(|map| (0..map.weights.dim().0).map(move |head| (map, head)));
        for ((map, index), head) in heads.zip(&layer.heads) {
            let row = map.weights.slice(s![index, token, ..]);
            let mut caption = head_name(head, several);
            if trace.prefix_tokens > 0 {
                let prefix: f32 = row.iter().take(trace.prefix_tokens).sum();
                write!(caption, ", {:.0} % not of patches", 100.0 * prefix)?;
            }
            let map = on_grid(row, trace);
            text += &figure(trace, Layer::Map(&map), 112, false, &format!("head {caption}"))?;
        }
        text += "</div>\n<p class=\"note\">Lengths of the token's query, key and value; mean attention of all tokens to it, and of \
                 the tokens that the model's head uses; the tokens that it attends to most.</p>\n";
        let rows = layer.heads.iter().map(|head| {
            let cells = head_cells(head).into_iter().map(|cell| escape(&cell));
            std::iter::once(escape(&head_name(head, several)))
                .chain(cells)
                .collect::<Vec<String>>()
        });
        let heads = [
            "head",
            "‖q‖",
            "‖k‖",
            "‖v‖",
            "received",
            "by the readout",
            "given to tokens",
        ];
        text += &table(&heads, 1, &rows.collect::<Vec<_>>());
        text += "</details>\n";
    }
    Ok(text)
}

fn on_grid(tokens: ArrayView1<'_, f32>, trace: &Trace) -> Array2<f32> {
    let [rows, columns] = trace.grid;
    let patches = tokens.iter().skip(trace.prefix_tokens).copied().collect();
    Array2::from_shape_vec((rows, columns), patches).unwrap_or_default()
}

/// Returns a bar chart of the token's relevance after each block.
fn relevance_chart(trace: &Trace) -> Result<String> {
    const HEIGHT: f64 = 60.0;
    let largest = trace.layers.iter().map(|layer| layer.relevance.abs());
    let largest = largest.fold(f64::MIN_POSITIVE, f64::max);
    let width = 26 * trace.layers.len();
    let mut svg = format!(
        "<svg viewBox=\"0 -70 {width} 155\" width=\"{width}\" height=\"155\" role=\"img\">\
         <title>The token's relevance after each block</title><path d=\"M0 0H{width}\" stroke=\"var(--line)\"/>"
    );
    for (index, layer) in trace.layers.iter().enumerate() {
        let size = HEIGHT * layer.relevance.abs() / largest;
        let (top, colour) = if layer.relevance >= 0.0 {
            (-size, "var(--for)")
        } else {
            (0.0, "var(--against)")
        };
        let left = 26 * index + 3;
        write!(
            svg,
            "<rect x=\"{left}\" y=\"{top:.2}\" width=\"20\" height=\"{size:.2}\" fill=\"{colour}\">\
             <title>block {}: {:+.5}</title></rect><text x=\"{}\" y=\"80\" font-size=\"11\" text-anchor=\"middle\">{}</text>",
            layer.block,
            layer.relevance,
            left + 10,
            layer.block
        )?;
    }
    Ok(svg + "</svg>\n")
}

fn places(report: &Report<'_>) -> String {
    let memory = report.memory;
    let mut text = format!("<h2>In memory</h2>\n<p>{}", escape(&memory.title()));
    if let Some(input) = memory.of_input() {
        text += &format!("; the pixel's red byte: {}, u8 [1, H, W, 3]", escape(&input));
    }
    text += ".</p>\n<p class=\"note\">Steps of the optimised model. Each has the address of its result, and the offset of the \
             pixel's or its token's first value in it. hipvit's own kernels have &lt;blocks, threads per block&gt;.</p>\n";
    let heads = [
        "step",
        "op",
        "shape",
        "begins at",
        "carries the pixel",
        "computed by",
    ];
    let rows = memory.steps.iter().map(|place| {
        let cells = place_cells(memory, place);
        cells.map(|cell| escape(&cell)).to_vec()
    });
    text + &table(&heads, heads.len(), &rows.collect::<Vec<_>>())
}

/// Returns the pixel's path through the instructions of the emulated GPU.
fn in_the_machine(machine: &Machine, trace: &Trace) -> Result<String> {
    let mut text = format!(
        "<h2>In the machine</h2>\n<p>On the {}.</p>\n<p class=\"note\">The emulated GPU marks the three bytes of the pixel and follows \
         them through registers, lanes, LDS, matrix instructions and memory. An instruction carries the pixel if its result \
         depends on a marked byte. These rows of the results depend on one, arranged like the patches:</p>\n<div class=\"row\">",
        escape(&machine.gpu)
    );
    for calls in machine
        .calls
        .chunk_by(|a, b| (&a.rows, a.of_rows) == (&b.rows, b.of_rows))
    {
        text += &reach(calls, trace)?;
    }
    text += "</div>\n<p class=\"note\">Instructions and lanes of each kernel that carry the pixel, and the first and last of \
             these. Only the results of library calls are known.</p>\n";
    let heads = [
        "step",
        "kernel or call",
        "first",
        "last",
        "rows",
        "instructions",
        "lanes",
    ];
    let rows = machine.calls.iter().map(|call| {
        let cells = call.cells();
        let cell = |column: usize| cells.get(column).map_or_else(String::new, |cell| escape(cell));
        let mut cells = [0, 1, 5, 6, 2, 3, 4].map(cell);
        // Prevent a line break.
        cells[4] = cells[4].replace(' ', "\u{a0}");
        cells.to_vec()
    });
    text += &table(&heads, 4, &rows.collect::<Vec<_>>());
    text += "<p class=\"note\">By kind of instruction, in the order in which data usually passes them:</p>\n";
    for call in &machine.calls {
        text += &carriers(call);
    }
    Ok(text)
}

/// Returns a map of the rows that the pixel reaches, for calls that reach the same rows.
fn reach(calls: &[Call], trace: &Trace) -> Result<String> {
    const CELL: usize = 12;
    let ([first, ..], [.., last]) = (calls, calls) else {
        return Ok(String::new());
    };
    let [rows, columns] = trace.grid;
    // Tokens before the patches have their own line, so that the patches are arranged as in the picture.
    let (prefix, columns) = match first.of_rows.checked_sub(rows * columns) {
        Some(0) => (0, columns),
        Some(prefix) if prefix == trace.prefix_tokens => (prefix, columns),
        _ => (0, first.of_rows.min(columns)),
    };
    let columns = columns.max(1);
    let place = |row: usize| match row.checked_sub(prefix) {
        None => (row, 0),
        Some(patch) => (patch % columns, patch / columns + usize::from(prefix > 0)),
    };
    let (_, lowest) = place(first.of_rows.saturating_sub(1));
    let (width, height) = (columns.max(prefix) * CELL, (lowest + 1) * CELL);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">");
    for row in 0..first.of_rows {
        let (x, y) = place(row);
        let colour = match first.rows.binary_search(&row) {
            Ok(_) => "#0c8",
            Err(_) => "var(--line)",
        };
        write!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{colour}\"/>",
            x * CELL,
            y * CELL,
            CELL - 1,
            CELL - 1
        )?;
    }
    let steps = match calls.len() {
        1 => escape(&first.step),
        calls => format!("{} to {}, {calls} calls", escape(&first.step), escape(&last.step)),
    };
    Ok(format!(
        "<figure>{svg}</svg><figcaption style=\"max-width: 200px\">{steps}: {}</figcaption></figure>\n",
        escape(&first.reach())
    ))
}

/// Returns the number of a kernel's instructions that carry the pixel, by kind.
fn carriers(call: &Call) -> String {
    /// Kinds of instructions with gcnrun's names.
    const KINDS: [(&str, &str); 7] = [
        ("load", "load from memory"),
        ("lds_store", "store to LDS"),
        ("lds_load", "load from LDS"),
        ("vector", "vector ALU"),
        ("scalar", "scalar ALU"),
        ("matrix", "matrix core"),
        ("store", "store to memory"),
    ];
    let Some(taint) = &call.taint else {
        return String::new();
    };
    let known = KINDS
        .iter()
        .filter_map(|&(kind, name)| Some((name, taint.steps.get(kind)?)));
    let rows = known.filter(|(_, of)| of.instructions > 0).map(|(name, of)| {
        let first = |cell: &dyn Fn(&Carrier) -> String| of.first.as_ref().map(cell).unwrap_or_default();
        vec![
            name.to_owned(),
            of.instructions.to_string(),
            of.lanes.to_string(),
            first(&|carrier| format!("<code>{}</code>", escape(&carrier.instruction))),
            first(&|carrier| {
                let [x, y, z] = carrier.block;
                let lane = carrier
                    .lane
                    .map(|lane| format!(", lane {lane}"))
                    .unwrap_or_default();
                format!("block ({x}, {y}, {z}), wave {}{lane}", carrier.wave)
            }),
            first(&|carrier| {
                carrier
                    .address
                    .map(|address| format!("{address:#x}"))
                    .unwrap_or_default()
            }),
        ]
    });
    let heads = ["", "instructions", "lanes, summed", "the first", "in", "address"];
    format!(
        "<details><summary>{}: {}</summary>\n<p>{} in {} of {} in {}.</p>\n{}</details>\n",
        escape(&call.step),
        escape(&call.name),
        count(taint.instructions, "wave instruction"),
        count(taint.lanes, "lane"),
        count(taint.waves, "wave"),
        count(taint.blocks, "block"),
        table(&heads, heads.len(), &rows.collect::<Vec<_>>())
    )
}

fn count(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}
