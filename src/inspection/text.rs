//! The inspection as text: a page of sums, and tables of all nodes, steps, parameters and kernels.

use std::collections::BTreeMap;
use std::fmt;

use super::{Cost, DeviceMemory, Inspection, NodeSummary, Place};
use crate::graph::Role;
use crate::table::{Column, Table, paragraph};

/// Everything, without a width.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch {}, {}", self.model, self.batch, self.dtype)?;
        for section in [
            self.work(None),
            self.passes(None),
            self.memory(None),
            self.graphs(None),
            self.plan(None),
            self.kernels(None),
            self.division(None),
            self.parameters(None),
        ] {
            f.write_str(&section)?;
        }
        Ok(())
    }
}

/// The sections: each begins with an empty line and its heading; its lines are `width` characters wide at most, or as wide
/// as they need.
impl Inspection {
    /// Operations and bytes by part of the model.
    pub fn work(&self, width: Option<usize>) -> String {
        let mut table = Table::new([
            Column::left("part"),
            Column::right("steps"),
            Column::right("MFLOP"),
            Column::right("%"),
            Column::right("read KiB").rank(2),
            Column::right("written KiB").rank(1),
            Column::right("FLOP/B"),
        ]);
        let mut parts: BTreeMap<Role, (usize, [u64; 3])> = BTreeMap::new();
        for step in &self.steps {
            let (steps, sums) = parts.entry(step.role).or_default();
            let Cost {
                flops,
                bytes_read,
                bytes_written,
                ..
            } = step.cost;
            *steps += 1;
            for (sum, value) in sums.iter_mut().zip([flops, bytes_read, bytes_written]) {
                *sum += value;
            }
        }
        let mut row = |part: String, steps: usize, cost: Cost| {
            let share = 100.0 * cost.flops as f64 / self.total.flops.max(1) as f64;
            table.row([
                part,
                steps.to_string(),
                mega(cost.flops),
                format!("{share:.1}"),
                kib(cost.bytes_read),
                kib(cost.bytes_written),
                format!("{:.1}", cost.intensity),
            ]);
        };
        for (role, (steps, [flops, read, written])) in parts {
            row(role.to_string(), steps, Cost::new(flops, read, written));
        }
        row("all".into(), self.steps.len(), self.total);
        section(&format!("Work of a batch of {}", self.batch), &table.text(width))
    }

    /// What each pass changed.
    pub fn passes(&self, width: Option<usize>) -> String {
        let mut table = Table::new([
            Column::left("pass"),
            Column::left("purpose").wraps(20),
            Column::right("changes"),
            Column::right("nodes before").rank(1),
            Column::right("nodes after"),
        ]);
        for pass in &self.passes {
            table.row([
                pass.name.to_string(),
                pass.purpose.to_string(),
                pass.changes.to_string(),
                pass.nodes_before.to_string(),
                pass.nodes_after.to_string(),
            ]);
        }
        section("Passes", &table.text(width))
    }

    /// The arena, and the memory on a GPU, if the model was loaded onto one.
    pub fn memory(&self, width: Option<usize>) -> String {
        let memory = &self.memory;
        let without_reuse = memory.without_reuse_bytes.max(1) as f64;
        let mut table = Table::new([
            Column::left("activations"),
            Column::right("KiB"),
            Column::right("relative"),
        ]);
        for (name, bytes) in [
            ("arena", memory.arena_bytes),
            ("peak of live buffers", memory.lower_bound_bytes),
            ("without reuse", memory.without_reuse_bytes),
        ] {
            let percent = format!("{:.1} %", 100.0 * bytes as f64 / without_reuse);
            table.row([name.to_owned(), kib(bytes as u64), percent]);
        }
        let mut text = section("Memory", &table.text(width));
        if let Some(note) = &self.kernels_note {
            text += &format!("\n{}", paragraph(&format!("note: {note}"), "  ", width));
        }
        if let Some(memory) = &self.device_memory {
            let heading = format!("Memory on {}, {}", memory.device, memory.dtype);
            text += &section(&heading, &device_memory(memory).text(width));
        }
        text
    }

    /// The graph before and after the passes.
    pub fn graphs(&self, width: Option<usize>) -> String {
        let heading =
            |when: &str, nodes: &[NodeSummary]| format!("Graph {when} the passes: {} nodes", nodes.len());
        section(&heading("before", &self.before), &nodes(&self.before).text(width))
            + &section(&heading("after", &self.after), &nodes(&self.after).text(width))
    }

    /// The steps, in the order in which they run.
    pub fn plan(&self, width: Option<usize>) -> String {
        let mut table = Table::new([
            Column::right(""),
            Column::left("step").wraps(14),
            Column::left("op").wraps(12),
            Column::left("role").rank(5),
            Column::left("result").rank(1),
            Column::right("MFLOP"),
            Column::right("read KiB").rank(3),
            Column::right("written KiB").rank(4),
            Column::right("FLOP/B"),
            Column::right("offset KiB").rank(2),
            Column::left("overwrites").rank(6),
        ]);
        for (index, step) in self.steps.iter().enumerate() {
            table.row([
                index.to_string(),
                step.name.clone(),
                step.op.clone(),
                step.role.to_string(),
                format!("{:?}", step.shape),
                mega(step.cost.flops),
                kib(step.cost.bytes_read),
                kib(step.cost.bytes_written),
                format!("{:.1}", step.cost.intensity),
                kib(step.offset as u64),
                step.overwrites.clone().unwrap_or_default(),
            ]);
        }
        let empty = String::new;
        table.row([
            empty(),
            "total".into(),
            empty(),
            empty(),
            empty(),
            mega(self.total.flops),
            kib(self.total.bytes_read),
            kib(self.total.bytes_written),
            format!("{:.1}", self.total.intensity),
        ]);
        section(&format!("Plan: {} steps", self.steps.len()), &table.text(width))
    }

    /// The kernels on a GPU; nothing if the model was not loaded onto one.
    pub fn kernels(&self, width: Option<usize>) -> String {
        if self.kernels.is_empty() {
            return String::new();
        }
        let mut table = Table::new([
            Column::right("steps"),
            Column::left("op").wraps(12),
            Column::left("result").rank(2),
            Column::left("kernels").wraps(20),
            Column::left("selected by").rank(1),
        ]);
        for of in &self.kernels {
            table.row([
                of.steps.to_string(),
                of.op.clone(),
                format!("{:?}", of.shape),
                of.kernels.join(", "),
                of.origin.clone().unwrap_or_default(),
            ]);
        }
        section("Kernels", &table.text(width))
    }

    /// What each of several GPUs would have.
    pub fn division(&self, width: Option<usize>) -> String {
        if self.parts.is_empty() {
            return String::new();
        }
        let mut table = Table::new([
            Column::right("GPU"),
            Column::left("from").wraps(12),
            Column::left("to").wraps(12),
            Column::right("parameters").rank(2),
            Column::right("weights KiB"),
            Column::right("arena KiB").rank(1),
            Column::right("MFLOP"),
            Column::right("exchanges"),
            Column::right("exchanged KiB"),
        ]);
        for part in &self.parts {
            table.row([
                part.gpu.to_string(),
                part.first.clone(),
                part.last.clone(),
                part.parameters.to_string(),
                kib(part.weight_bytes as u64),
                kib(part.arena_bytes as u64),
                format!("{:.1}", part.flops as f64 / 1e6),
                part.exchanges.to_string(),
                kib(part.exchanged_bytes as u64),
            ]);
        }
        section("Division among GPUs", &table.text(width))
    }

    /// The constants and where they are.
    pub fn parameters(&self, width: Option<usize>) -> String {
        let mut columns = vec![
            Column::left("parameter").wraps(20),
            Column::left("shape"),
            Column::left("dtype"),
            Column::right("bytes"),
            Column::left("place").rank(2),
            Column::left("address").rank(1),
        ];
        if self.device_memory.is_some() {
            columns.extend([
                Column::left("device dtype").rank(3),
                Column::right("device bytes").rank(3),
                Column::left("device address").rank(3),
            ]);
        }
        let mut table = Table::new(columns);
        for parameter in &self.parameters {
            let mut row = vec![
                parameter.name.clone(),
                format!("{:?}", parameter.shape),
                parameter.dtype.to_string(),
                parameter.bytes.to_string(),
                parameter.place.to_string(),
                parameter.address.clone(),
            ];
            if let Some(device) = &parameter.device {
                row.extend([
                    device.dtype.to_string(),
                    device.region.bytes.to_string(),
                    format!("{:#x}", device.region.address),
                ]);
            }
            table.row(row);
        }
        for place in [Place::MappedFile, Place::HostMemory] {
            let bytes = self.parameters.iter().filter(|p| p.place == place);
            let bytes: usize = bytes.map(|p| p.bytes).sum();
            let name = format!("total, {place}");
            table.row([&name, "", "", &bytes.to_string(), &place.to_string()]);
        }
        section(
            &format!("Parameters: {} tensors", self.parameters.len()),
            &table.text(width),
        )
    }
}

fn section(heading: &str, content: &str) -> String {
    format!(
        "\n{heading}\n{}\n{content}\n",
        "─".repeat(heading.chars().count())
    )
}

fn nodes(nodes: &[NodeSummary]) -> Table {
    let mut table = Table::new([
        Column::left("node").wraps(14),
        Column::left("op").wraps(12),
        Column::left("operands → result").wraps(24),
    ]);
    for node in nodes {
        let operands: Vec<String> = node
            .inputs
            .iter()
            .map(|operand| format!("{} {:?}", operand.name, operand.shape))
            .collect();
        let operands = format!("{} → {:?}", operands.join(", "), node.shape);
        table.row([&node.name, &node.op, &operands]);
    }
    table
}

fn device_memory(memory: &DeviceMemory) -> Table {
    let mut table = Table::new([
        Column::left("device memory"),
        Column::right("bytes"),
        Column::left("address"),
    ]);
    for (name, region) in [
        ("parameters", memory.weights),
        ("activations (arena)", memory.arena),
        ("scratch", memory.scratch),
        ("input", memory.input),
    ] {
        table.row([
            name.to_owned(),
            region.bytes.to_string(),
            format!("{:#x}", region.address),
        ]);
    }
    table
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MappedFile => "mapped file",
            Self::HostMemory => "folded, host memory",
        })
    }
}

fn mega(flops: u64) -> String {
    format!("{:.3}", flops as f64 * 1e-6)
}

fn kib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1024.0)
}
