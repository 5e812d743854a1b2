//! `hipvit explain --method statistics`: shows how focused each attention head is. The fused kernel computes the
//! statistics during the run, in the device's dtype.

use std::env;
use std::fs;
use std::io::Write as _;

use anyhow::Result;
use hipvit::AttentionStatistics;
use hipvit::ndarray::{Array2, Axis};
use hipvit_diagnostics::table::{Column, Table};
use serde::Serialize;

use super::{Args, Files};
use crate::arrays::Tensors;
use crate::escape::lines;
use crate::outcome::{Outcome, refused};
use crate::{inputs, output, record};

#[derive(Serialize)]
struct Report<'a> {
    image: &'a str,
    model: &'a str,
    device: String,
    dtype: String,
    layers: Vec<Layer<'a>>,
    files: Vec<String>,
}

/// Statistics over all heads and queries of a layer. Entropies are in nats.
#[derive(Serialize)]
struct Layer<'a> {
    name: &'a str,
    queries: usize,
    keys: usize,
    /// Entropy of uniform attention over all keys, which is the maximum.
    uniform_entropy: f64,
    entropy: Range,
    max_probability: Range,
    /// Heads by entropy, the lowest first.
    heads: Vec<Head>,
}

#[derive(Serialize)]
struct Range {
    mean: f64,
    min: f32,
    max: f32,
}

/// Means over the queries of a head.
#[derive(Serialize)]
struct Head {
    head: usize,
    entropy: f64,
    max_probability: f64,
}

impl Args {
    pub(super) fn statistics(&self) -> Result<Outcome> {
        let source = inputs::source(&self.image)?;
        let image = source.decode(self.decode.options())?;
        let builder = self.labels.apply(self.model.builder())?;
        let session = self.model.load_with(builder.attention_statistics(true))?;
        fs::create_dir_all(&self.output).map_err(refused(&self.output))?;
        output::check(&self.output.join(REPORT))?;
        let outputs = session.run([image])?;
        let statistics = outputs.image(0).attention_statistics();
        let name = source.name();
        let mut files = Files {
            directory: &self.output,
            written: Vec::new(),
        };
        files.add("statistics.safetensors", &arrays(&name, &statistics)?)?;
        let report = Report {
            image: &name,
            model: session.name(),
            device: session.device().to_string(),
            dtype: session.dtype().to_string(),
            layers: statistics.iter().map(layer).collect(),
            files: files.written_with(REPORT),
        };
        files.add(REPORT, &serde_json::to_vec(&report)?)?;
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            out.write_all(lines(&text(&report)).as_bytes())?;
        }
        output::wrote(&self.output, &report.files.join(", "));
        Ok(Outcome::Complete)
    }
}

/// Name of the file that describes the other file.
const REPORT: &str = "statistics.json";

/// Returns the arrays, each of shape `[1, heads, queries]`.
fn arrays(image: &str, statistics: &[AttentionStatistics]) -> Result<Vec<u8>> {
    let mut arrays = Tensors::new(&env::temp_dir());
    arrays.image(image);
    for layer in statistics {
        for (name, values) in [
            ("log_sum_exp", &layer.log_sum_exp),
            ("max_probability", &layer.max_probability),
            ("entropy", &layer.entropy),
        ] {
            let shape = <[usize; 2]>::from(values.dim());
            let values: Vec<f32> = values.iter().copied().collect();
            arrays.push(format!("{}.{name}", layer.name), &shape, &values)?;
        }
    }
    let mut bytes = Vec::new();
    arrays.write(&mut bytes)?;
    Ok(bytes)
}

fn layer(of: &AttentionStatistics) -> Layer<'_> {
    let by_head = |values: &Array2<f32>| -> Vec<f64> {
        values
            .axis_iter(Axis(0))
            .map(|row| mean(row.iter().copied()))
            .collect()
    };
    let (entropies, probabilities) = (by_head(&of.entropy), by_head(&of.max_probability));
    let heads = entropies.into_iter().zip(probabilities).enumerate();
    let mut heads: Vec<Head> = heads
        .map(|(head, (entropy, max_probability))| Head {
            head,
            entropy,
            max_probability,
        })
        .collect();
    heads.sort_by(|a, b| a.entropy.total_cmp(&b.entropy));
    Layer {
        name: &of.name,
        queries: of.entropy.ncols(),
        keys: of.keys,
        uniform_entropy: (of.keys as f64).ln(),
        entropy: range(&of.entropy),
        max_probability: range(&of.max_probability),
        heads,
    }
}

fn mean(values: impl Iterator<Item = f32>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), v| (sum + f64::from(v), count + 1));
    sum / f64::from(count.max(1))
}

fn range(values: &Array2<f32>) -> Range {
    Range {
        mean: mean(values.iter().copied()),
        min: values.iter().copied().fold(f32::INFINITY, f32::min),
        max: values.iter().copied().fold(f32::NEG_INFINITY, f32::max),
    }
}

fn text(report: &Report<'_>) -> String {
    let mut table = Table::new([
        Column::left("layer"),
        Column::right("even").rank(2),
        Column::right("entropy"),
        Column::right("least"),
        Column::right("most"),
        Column::right("max p"),
        Column::right("largest").rank(1),
        Column::right("most focused heads").rank(3),
    ]);
    for layer in &report.layers {
        let focused = layer.heads.iter().take(3);
        let focused: Vec<String> = focused
            .map(|head| format!("{}: {:.2}", head.head, head.entropy))
            .collect();
        table.row([
            layer.name.to_owned(),
            format!("{:.3}", layer.uniform_entropy),
            format!("{:.3}", layer.entropy.mean),
            format!("{:.3}", layer.entropy.min),
            format!("{:.3}", layer.entropy.max),
            format!("{:.1} %", 100.0 * layer.max_probability.mean),
            format!("{:.1} %", 100.0 * layer.max_probability.max),
            focused.join(", "),
        ]);
    }
    format!(
        "{}: entropy of attention in nats over heads and queries, and the largest probability of a row, {} in {}\n{}\n",
        report.image,
        report.device,
        report.dtype,
        table.text(output::width())
    )
}
