//! Tables of rates, as text and on a terminal.

use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Table};

use super::rates::{Rates, STAGES};
use crate::cli::one_line;

type Cells = Vec<Vec<String>>;

const MODELS: [&str; 10] = [
    "model",
    "req/s",
    "images/s",
    "batch",
    "waiting",
    "p50 ms",
    "p99 ms",
    "shed/s",
    "errors/s",
    "instances",
];
const GPUS: [&str; 6] = ["GPU", "memory GiB", "busy", "W", "J/image", "°C"];

fn or_dash(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}

fn models(rates: &Rates) -> Cells {
    let row = |model: &super::rates::Model| {
        let milliseconds = |seconds: Option<f64>| or_dash(seconds.map(|seconds| 1e3 * seconds), 1);
        vec![
            one_line(&model.name),
            format!("{:.1}", model.requests),
            format!("{:.1}", model.images),
            or_dash(model.batch, 1),
            format!("{:.0}", model.queued),
            milliseconds(model.median),
            milliseconds(model.p99),
            format!("{:.1}", model.shed),
            format!("{:.1}", model.errors),
            format!("{:.0}", model.instances),
        ]
    };
    rates.models.iter().map(row).collect()
}

fn stages(rates: &Rates) -> Cells {
    let row = |model: &super::rates::Model| {
        let times = model
            .stages
            .iter()
            .map(|time| or_dash(time.map(|time| 1e3 * time), 2));
        std::iter::once(one_line(&model.name)).chain(times).collect()
    };
    rates.models.iter().map(row).collect()
}

fn gpus(rates: &Rates) -> Cells {
    let gib = |bytes: Option<f64>| or_dash(bytes.map(|bytes| bytes / f64::from(1 << 30)), 1);
    let row = |gpu: &super::rates::Gpu| {
        vec![
            one_line(&gpu.device),
            format!("{} / {}", gib(gpu.memory_used), gib(gpu.memory)),
            gpu.busy
                .map_or_else(|| "-".into(), |busy| format!("{:.0} %", 100.0 * busy)),
            or_dash(gpu.power, 0),
            or_dash(gpu.joules_per_image, 3),
            or_dash(gpu.temperature, 0),
        ]
    };
    rates.gpus.iter().map(row).collect()
}

fn stage_header() -> Vec<String> {
    let stages = STAGES.iter().map(|stage| format!("{stage} ms"));
    std::iter::once("mean time".to_owned()).chain(stages).collect()
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The tables, as text.
pub fn text(rates: &Rates) -> String {
    let mut text = String::new();
    let tables = [
        (header(&MODELS), models(rates)),
        (stage_header(), stages(rates)),
        (header(&GPUS), gpus(rates)),
    ];
    for (header, rows) in tables {
        if rows.is_empty() {
            continue;
        }
        let mut table = comfy_table::Table::new();
        table
            .load_style(comfy_table::presets::NOTHING)
            .set_header(header)
            .add_rows(rows);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        let _ = writeln!(text, "{table}\n");
    }
    text
}

/// The tables, on a terminal.
pub fn draw(frame: &mut Frame<'_>, url: &str, rates: &Rates, failure: Option<&str>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let height = |rows: usize| Constraint::Length(rows as u16 + 3);
    let [top, first, second, third, bottom] = Layout::vertical([
        Constraint::Length(1),
        height(rates.models.len()),
        height(rates.models.len()),
        height(rates.gpus.len()),
        Constraint::Min(1),
    ])
    .areas(frame.area());
    let title = match failure {
        None => Line::styled(format!(" {url}   {:.0} connections", rates.connections), bold),
        Some(failure) => Line::styled(format!(" {failure}"), Style::new().fg(Color::Red)),
    };
    frame.render_widget(title, top);
    let table = |header: Vec<String>, rows: Cells| {
        let columns = header.len() as u32;
        let widths: Vec<Constraint> = header.iter().map(|_| Constraint::Ratio(1, columns)).collect();
        Table::new(rows.into_iter().map(Row::new), widths)
            .header(Row::new(header).style(bold))
            .block(Block::bordered())
    };
    frame.render_widget(table(header(&MODELS), models(rates)), first);
    frame.render_widget(table(stage_header(), stages(rates)), second);
    if !rates.gpus.is_empty() {
        frame.render_widget(table(header(&GPUS), gpus(rates)), third);
    }
    frame.render_widget(Line::raw(" q: quit"), bottom);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::rates::{Gpu, Model};
    use super::*;

    fn rates() -> Rates {
        Rates {
            models: vec![Model {
                name: "vit".into(),
                images: 123.4,
                p99: Some(0.0125),
                ..Model::default()
            }],
            gpus: vec![Gpu {
                device: "hip:0".into(),
                busy: Some(0.5),
                ..Gpu::default()
            }],
            connections: 3.0,
        }
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let text = text(&rates());
        for part in ["vit", "123.4", "12.5", "hip:0", "50 %", "- / -"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let without = Rates {
            gpus: Vec::new(),
            ..rates()
        };
        assert!(!self::text(&without).contains("GPU"));
    }

    #[test]
    fn names_do_not_act_on_the_terminal() {
        let mut rates = rates();
        rates.models[0].name = "\u{1b}]0;title\u{7}".into();
        rates.gpus[0].device = "\u{1b}[2J".into();
        let text = text(&rates);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text:?}");
        assert!(
            text.contains(r"\u{1b}]0;title\u{7}") && text.contains(r"\u{1b}[2J"),
            "{text:?}"
        );
    }

    #[test]
    fn a_terminal_shows_the_tables_or_why_there_are_none() {
        let mut terminal = Terminal::new(TestBackend::new(120, 20)).unwrap();
        let mut screen = |failure: Option<&str>| {
            terminal
                .draw(|frame| draw(frame, "http://host:8000", &rates(), failure))
                .unwrap();
            let cells = terminal.backend().buffer().content().iter();
            cells.map(ratatui::buffer::Cell::symbol).collect::<String>()
        };
        let shown = screen(None);
        for part in [
            "http://host:8000",
            "3 connections",
            "vit",
            "12.5",
            "hip:0",
            "q: quit",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert!(screen(Some("connection refused")).contains("connection refused"));
    }
}
