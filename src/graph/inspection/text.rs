//! The inspection as text: tables with aligned columns, one unit per column.

use std::fmt;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{DeviceMemory, Inspection, NodeSummary, Parameter, Place, SelectedKernels, StepSummary};
use crate::graph::PassReport;

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, batch {}, {}", self.model, self.batch, self.dtype)?;
        heading(
            f,
            &format!("Graph before the passes: {} nodes", self.before.len()),
        )?;
        writeln!(f, "{}", nodes(&self.before))?;
        heading(f, "Passes")?;
        writeln!(f, "{}", passes(&self.passes))?;
        heading(f, &format!("Graph after the passes: {} nodes", self.after.len()))?;
        writeln!(f, "{}", nodes(&self.after))?;
        heading(f, &format!("Plan: {} steps", self.steps.len()))?;
        writeln!(f, "{}", self.steps_table())?;
        heading(f, "Memory")?;
        writeln!(f, "{}", self.memory_table())?;
        if !self.kernels.is_empty() {
            heading(f, "Kernels")?;
            writeln!(f, "{}", selected(&self.kernels))?;
        }
        if let Some(note) = &self.kernels_note {
            writeln!(f, "note: {note}")?;
        }
        if let Some(memory) = &self.device_memory {
            heading(f, &format!("Memory on {}, {}", memory.device, memory.dtype))?;
            writeln!(f, "{}", device_memory(memory))?;
        }
        heading(f, &format!("Parameters: {} tensors", self.parameters.len()))?;
        writeln!(
            f,
            "{}",
            parameters(&self.parameters, self.device_memory.is_some())
        )
    }
}

fn heading(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    writeln!(f, "\n{text}\n{}", "─".repeat(text.chars().count()))
}

impl Inspection {
    fn steps_table(&self) -> String {
        let mut table = table(&[
            "",
            "step",
            "op",
            "role",
            "result",
            "MFLOP",
            "read KiB",
            "written KiB",
            "FLOP/B",
            "offset KiB",
            "overwrites",
        ]);
        for (index, step) in self.steps.iter().enumerate() {
            table.add_row(step_row(index, step));
        }
        table.add_row(vec![
            Cell::new(""),
            Cell::new("total"),
            Cell::new(""),
            Cell::new(""),
            Cell::new(""),
            right(mega(self.total.flops)),
            right(kib(self.total.bytes_read)),
            right(kib(self.total.bytes_written)),
            right(format!("{:.1}", self.total.intensity)),
        ]);
        text(&table)
    }

    fn memory_table(&self) -> String {
        let memory = &self.memory;
        let without_reuse = memory.without_reuse_bytes.max(1) as f64;
        let mut table = table(&["activations", "KiB", "relative"]);
        for (name, bytes) in [
            ("arena", memory.arena_bytes),
            ("lower bound (peak of live buffers)", memory.lower_bound_bytes),
            ("without reuse", memory.without_reuse_bytes),
        ] {
            let percent = format!("{:.1} %", 100.0 * bytes as f64 / without_reuse);
            table.add_row(vec![Cell::new(name), right(kib(bytes as u64)), right(percent)]);
        }
        text(&table)
    }
}

fn nodes(nodes: &[NodeSummary]) -> String {
    let mut table = table(&["node", "op", "operands → result"]);
    for node in nodes {
        let operands: Vec<String> = node
            .inputs
            .iter()
            .map(|operand| format!("{} {:?}", operand.name, operand.shape))
            .collect();
        let operands = format!("{} → {:?}", operands.join(", "), node.shape);
        table.add_row([&node.name, &node.op, &operands]);
    }
    text(&table)
}

fn passes(passes: &[PassReport]) -> String {
    let mut table = table(&["pass", "purpose", "changes", "nodes before", "nodes after"]);
    for pass in passes {
        table.add_row(vec![
            Cell::new(pass.name),
            Cell::new(pass.purpose),
            right(pass.changes),
            right(pass.nodes_before),
            right(pass.nodes_after),
        ]);
    }
    text(&table)
}

fn step_row(index: usize, step: &StepSummary) -> Vec<Cell> {
    vec![
        right(index),
        Cell::new(&step.name),
        Cell::new(&step.op),
        Cell::new(step.role),
        Cell::new(format!("{:?}", step.shape)),
        right(mega(step.cost.flops)),
        right(kib(step.cost.bytes_read)),
        right(kib(step.cost.bytes_written)),
        right(format!("{:.1}", step.cost.intensity)),
        right(kib(step.offset as u64)),
        Cell::new(step.overwrites.as_deref().unwrap_or_default()),
    ]
}

fn selected(kernels: &[SelectedKernels]) -> String {
    let mut table = table(&["steps", "op", "result", "kernels", "selected by"]);
    for of in kernels {
        table.add_row(vec![
            right(of.steps),
            Cell::new(&of.op),
            Cell::new(format!("{:?}", of.shape)),
            Cell::new(of.kernels.join(", ")),
            Cell::new(of.origin.as_deref().unwrap_or_default()),
        ]);
    }
    text(&table)
}

fn device_memory(memory: &DeviceMemory) -> String {
    let mut table = table(&["device memory", "bytes", "address"]);
    for (name, region) in [
        ("parameters", memory.weights),
        ("activations (arena)", memory.arena),
        ("scratch", memory.scratch),
        ("input", memory.input),
    ] {
        let address = format!("{:#x}", region.address);
        table.add_row(vec![Cell::new(name), right(region.bytes), Cell::new(address)]);
    }
    text(&table)
}

fn parameters(parameters: &[Parameter], on_device: bool) -> String {
    let mut header = vec!["parameter", "shape", "dtype", "bytes", "place", "address"];
    if on_device {
        header.extend(["device dtype", "device bytes", "device address"]);
    }
    let mut table = table(&header);
    for parameter in parameters {
        let mut row = vec![
            Cell::new(&parameter.name),
            Cell::new(format!("{:?}", parameter.shape)),
            Cell::new(parameter.dtype),
            right(parameter.bytes),
            Cell::new(parameter.place),
            Cell::new(&parameter.address),
        ];
        if let Some(device) = &parameter.device {
            row.extend([
                Cell::new(device.dtype),
                right(device.region.bytes),
                Cell::new(format!("{:#x}", device.region.address)),
            ]);
        }
        table.add_row(row);
    }
    for place in [Place::MappedFile, Place::HostMemory] {
        let bytes = parameters.iter().filter(|p| p.place == place).map(|p| p.bytes);
        table.add_row(vec![
            Cell::new("total"),
            Cell::new(""),
            Cell::new(""),
            right(bytes.sum::<usize>()),
            Cell::new(place),
        ]);
    }
    text(&table)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MappedFile => "mapped file",
            Self::HostMemory => "folded, host memory",
        })
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// Two spaces between columns, none around them.
fn text(table: &Table) -> String {
    let mut table = table.clone();
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

fn right(content: impl ToString) -> Cell {
    Cell::new(content).set_alignment(CellAlignment::Right)
}

fn mega(flops: u64) -> String {
    format!("{:.3}", flops as f64 * 1e-6)
}

fn kib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1024.0)
}
