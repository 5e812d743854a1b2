//! An inspection as text: a page of sums, and tables of all nodes, steps, parameters and kernels.

use std::collections::BTreeMap;

use hipvit::graph::Role;
use hipvit::inspection::{Cost, DeviceMemory, Inspection, NodeSummary, Place, Region};

use crate::table::{Column, Table, paragraph};

/// Sections of an inspection as text. Each starts with an empty line and its heading.
///
/// Lines have at most `width` characters. `None` means no limit.
pub trait InspectionText {
    /// Operations and bytes by part of the model.
    fn work(&self, width: Option<usize>) -> String;

    /// Changes by each pass.
    fn passes(&self, width: Option<usize>) -> String;

    /// The arena, and the memory on a GPU if the model is loaded on one.
    fn memory(&self, width: Option<usize>) -> String;

    /// The graph before and after the passes.
    fn graphs(&self, width: Option<usize>) -> String;

    /// The steps in execution order.
    fn plan(&self, width: Option<usize>) -> String;

    /// The kernels on a GPU. Empty if the model is not loaded on one.
    fn kernels(&self, width: Option<usize>) -> String;

    /// The part of each GPU if the model is divided.
    fn division(&self, width: Option<usize>) -> String;

    /// The constants and their locations.
    fn parameters(&self, width: Option<usize>) -> String;
}

impl InspectionText for Inspection {
    fn work(&self, width: Option<usize>) -> String {
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

    fn passes(&self, width: Option<usize>) -> String {
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

    fn memory(&self, width: Option<usize>) -> String {
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

    fn graphs(&self, width: Option<usize>) -> String {
        let heading =
            |when: &str, nodes: &[NodeSummary]| format!("Graph {when} the passes: {} nodes", nodes.len());
        section(&heading("before", &self.before), &nodes(&self.before).text(width))
            + &section(&heading("after", &self.after), &nodes(&self.after).text(width))
    }

    fn plan(&self, width: Option<usize>) -> String {
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

    fn kernels(&self, width: Option<usize>) -> String {
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

    fn division(&self, width: Option<usize>) -> String {
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

    fn parameters(&self, width: Option<usize>) -> String {
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
        let places = [
            Place::MappedFile,
            Place::HostMemory,
            Place::Assembled,
            Place::InitialState,
        ];
        for place in places {
            let bytes = self.parameters.iter().filter(|p| p.place == place);
            let bytes: usize = bytes.map(|p| p.bytes).sum();
            if bytes == 0 {
                continue;
            }
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
    let row = |table: &mut Table, name: &str, region: Region| {
        table.row([
            name.to_owned(),
            region.bytes.to_string(),
            format!("{:#x}", region.address),
        ]);
    };
    let mut table = Table::new([
        Column::left("device memory"),
        Column::right("bytes"),
        Column::left("address"),
    ]);
    for (name, region) in [
        ("parameters", memory.weights),
        ("activations (arena)", memory.arena),
        ("scratch", memory.scratch),
    ] {
        row(&mut table, name, region);
    }
    match memory.input {
        Some(input) => row(&mut table, "input", input),
        None => table.row(["input", "–", "in the host's memory"]),
    }
    table
}

fn mega(flops: u64) -> String {
    format!("{:.3}", flops as f64 * 1e-6)
}

fn kib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use hipvit::graph::plan::Plan;
    use hipvit::graph::{Passes, optimize};
    use hipvit::hip::DeviceAddress;
    use hipvit::inspection::Region;
    use hipvit::model::{LoadOptions, tinyvit32};
    use hipvit::tensor::DType;

    use super::*;

    fn tiny() -> (Inspection, Plan) {
        let model = tinyvit32(&LoadOptions::default()).unwrap();
        let (graph, passes) = optimize(model.graph.clone(), &Passes::default()).unwrap();
        let plan = Plan::new(Arc::new(graph), 2, DType::F32).unwrap();
        (Inspection::new(&model.graph, &passes, &plan), plan)
    }

    fn whole(inspection: &Inspection) -> String {
        let sections = [
            Inspection::work,
            Inspection::passes,
            Inspection::memory,
            Inspection::graphs,
            Inspection::plan,
            Inspection::parameters,
        ];
        sections.map(|section| section(inspection, None)).concat()
    }

    #[test]
    fn text_has_every_part_in_columns() {
        let (inspection, _) = tiny();
        let text = whole(&inspection);
        for heading in [
            &format!("Graph before the passes: {} nodes", inspection.before.len()),
            "Passes",
            &format!("Graph after the passes: {} nodes", inspection.after.len()),
            &format!("Plan: {} steps", inspection.steps.len()),
            "Memory",
            &format!("Parameters: {} tensors", inspection.parameters.len()),
        ] {
            assert!(text.contains(&format!("\n{heading}\n")), "{heading}");
        }
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        let (header, pool) = (line("node  "), line("pool  "));
        assert!(pool[header.find("op").unwrap()..].starts_with("pool "), "{pool}");
        assert!(text.lines().all(|line| line == line.trim_end()));
    }

    #[test]
    fn what_is_on_a_device_is_shown_beside_the_rest() {
        let (inspection, plan) = tiny();
        let (name, id) = inspection
            .parameters
            .iter()
            .find_map(|parameter| {
                let mut ids = plan.graph().nodes().iter().flat_map(|node| node.inputs.clone());
                let id = ids.find(|&id| plan.graph().value(id).name == parameter.name)?;
                Some((parameter.name.clone(), id))
            })
            .unwrap();
        let region = |address| Region {
            address: DeviceAddress::from_raw(address),
            bytes: 864,
        };
        let inspection = inspection.on_device(DeviceMemory {
            device: "GPU 0 (Test, gfx942)".into(),
            dtype: DType::F16,
            weights: region(0x1000),
            arena: region(0x2000),
            scratch: region(0x3000),
            input: Some(region(0x4000)),
            parameters: HashMap::from([(id, region(0x1100))]),
        });
        let text = whole(&inspection);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(text.contains("Memory on GPU 0 (Test, gfx942), f16"));
        assert!(line("activations (arena)").ends_with("864  0x2000"), "{text}");
        let parameter: Vec<&str> = line(&name).split_whitespace().collect();
        assert!(parameter.ends_with(&["f16", "864", "0x1100"]), "{text}");
    }
}
