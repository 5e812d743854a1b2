//! `hipvit devices`: lists the GPUs and the CPU.

use std::io::Write;

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use hipvit::hip::{Device, KernelCache, Library, LinkType, Properties, Runtime, Topology};
use hipvit::kernels::kernel_cache;
use hipvit_diagnostics::table::paragraph;
use serde::Serialize;

use super::escape::lines;
use super::outcome::Outcome;
use super::{output, record};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Output of the command.
#[derive(Serialize)]
struct Report {
    cpu: Cpu,
    /// Version of the HIP runtime.
    hip_version: Option<i32>,
    gpus: Vec<Gpu>,
    /// Reason why there are no GPUs.
    no_gpu: Option<String>,
    libraries: Vec<Library>,
    /// Cache of compiled kernels; `None` if it is disabled.
    kernel_cache: Option<Cache>,
}

#[derive(Serialize)]
struct Cache {
    folder: String,
    files: usize,
    bytes: u64,
    /// Reason why the cache cannot be written.
    error: Option<String>,
}

#[derive(Serialize)]
struct Cpu {
    name: String,
    cores: usize,
    threads: usize,
    features: Vec<&'static str>,
}

#[derive(Serialize)]
struct Gpu {
    ordinal: usize,
    #[serde(flatten)]
    properties: Properties,
    free_memory: Option<usize>,
    memory_bandwidth: f64,
    #[serde(flatten)]
    topology: Option<Topology>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let report = Report::new();
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            write!(out, "{}", lines(&report.text()))?;
        }
        Ok(Outcome::Complete)
    }
}

impl Report {
    /// Collects the report. A missing GPU is a result, not an error.
    fn new() -> Self {
        let mut report = Self {
            cpu: Cpu::new(),
            hip_version: None,
            gpus: Vec::new(),
            no_gpu: None,
            libraries: Vec::new(),
            kernel_cache: None,
        };
        match Runtime::open() {
            Ok(runtime) => {
                report.hip_version = runtime.version().ok();
                report.libraries = runtime.libraries();
                report.kernel_cache = kernel_cache().map(|cache| Cache::new(&cache));
                match runtime.devices() {
                    Ok(devices) => report.gpus = devices.iter().map(Gpu::new).collect(),
                    Err(error) => report.no_gpu = Some(error.to_string()),
                }
                if report.gpus.is_empty() && report.no_gpu.is_none() {
                    report.no_gpu = runtime.device(0).err().map(|error| error.to_string());
                }
            }
            Err(error) => report.no_gpu = Some(error.to_string()),
        }
        report
    }

    fn text(&self) -> String {
        let Cpu {
            name, cores, threads, ..
        } = &self.cpu;
        let mut text = format!("cpu: {name}, {cores} cores, {threads} threads");
        if !self.cpu.features.is_empty() {
            text += &format!(", {}", self.cpu.features.join(" "));
        }
        let width = output::width();
        text = paragraph(&text, "  ", width);
        for gpu in &self.gpus {
            text += &format!(
                "\nhip:{}: {}\n{}\n",
                gpu.ordinal,
                gpu.properties.name,
                gpu.table()
            );
        }
        if let Some(links) = self.links() {
            text += &format!("\nlinks\n{links}\n");
        }
        if !self.libraries.is_empty() {
            text.push('\n');
        }
        for library in &self.libraries {
            let found = library.path.as_ref().or(library.error.as_ref());
            text += &format!("{}: {}\n", library.name, found.map_or("", String::as_str));
        }
        if !self.libraries.is_empty() {
            text += &match &self.kernel_cache {
                None => "kernel cache: off\n".to_owned(),
                Some(Cache {
                    error: Some(error), ..
                }) => format!("kernel cache: {error}\n"),
                Some(Cache {
                    folder,
                    files,
                    bytes: size,
                    ..
                }) => {
                    let ending = if *files == 1 { "" } else { "s" };
                    format!(
                        "kernel cache: {folder}, {files} file{ending}, {}\n",
                        bytes(*size as usize)
                    )
                }
            };
        }
        if let Some(reason) = &self.no_gpu {
            let prefix = if reason.starts_with("no GPU") {
                ""
            } else {
                "no GPU: "
            };
            text += &format!(
                "\n{}Models run on the CPU.\n",
                paragraph(&format!("{prefix}{reason}"), "  ", width)
            );
            if let (true, Some(advice)) = (self.libraries.is_empty(), super::errors::gpu_libraries()) {
                text += &paragraph(&format!("{advice}."), "  ", width);
            }
        }
        text
    }

    /// Returns the links from each GPU (rows) to each other GPU (columns), and the NUMA nodes that are known.
    fn links(&self) -> Option<Table> {
        if self.gpus.len() < 2 {
            return None;
        }
        let mut table = new_table();
        let name = |ordinal: usize| format!("hip:{ordinal}");
        let node = |gpu: &Gpu| gpu.properties.numa_node;
        let nodes = self.gpus.iter().any(|gpu| node(gpu).is_some());
        let heading = self.gpus.iter().map(|gpu| name(gpu.ordinal));
        let heading = std::iter::once(String::new()).chain(heading);
        table.add_row(heading.chain(nodes.then(|| "NUMA node".to_owned())));
        for gpu in &self.gpus {
            let node = node(gpu).map_or_else(|| "?".to_owned(), |node| node.to_string());
            let links = gpu.topology.iter().flat_map(|topology| &topology.links);
            let cells = self.gpus.iter().map(|other| {
                let link = links.clone().find(|link| link.to == other.ordinal);
                let Some(link) = link else { return "–".to_owned() };
                let mut parts = vec![link.kind.map_or("?".to_owned(), kind)];
                parts.extend(
                    link.hops
                        .map(|hops| format!("{hops} hop{}", if hops == 1 { "" } else { "s" })),
                );
                parts.extend((link.peer_access == Some(true)).then(|| "peer".to_owned()));
                parts.extend((link.atomics == Some(true)).then(|| "atomics".to_owned()));
                parts.join(", ")
            });
            let cells = std::iter::once(name(gpu.ordinal)).chain(cells);
            table.add_row(cells.chain(nodes.then_some(node)));
        }
        Some(table)
    }
}

fn kind(kind: LinkType) -> String {
    match kind {
        LinkType::HyperTransport => "HyperTransport".into(),
        LinkType::Qpi => "QPI".into(),
        LinkType::Pcie => "PCIe".into(),
        LinkType::InfiniBand => "InfiniBand".into(),
        LinkType::Xgmi => "xGMI or NVLink".into(),
        other => format!("{other:?}"),
    }
}

impl Cache {
    fn new(cache: &KernelCache) -> Self {
        let usage = cache.usage();
        let (files, bytes) = *usage.as_ref().unwrap_or(&(0, 0));
        Self {
            folder: cache.folder().display().to_string(),
            files,
            bytes,
            error: usage.err().map(|error| error.to_string()),
        }
    }
}

impl Cpu {
    fn new() -> Self {
        // Linux has this file, and Windows the variable. Elsewhere only the architecture is known.
        let name = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        Self {
            name: name
                .or_else(|| std::env::var("PROCESSOR_IDENTIFIER").ok())
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: num_cpus::get_physical(),
            threads: num_cpus::get(),
            features: features(),
        }
    }
}

/// Returns the vector extensions that the CPU kernels use.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let detected = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ("amx-int8", hipvit::cpu::int8::has_amx()),
        ("amx-bf16", hipvit::cpu::bf16::has_amx()),
    ];
    detected
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect()
}

/// Returns the vector extensions that the CPU kernels use.
#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected;
    let detected = [
        ("neon", is_aarch64_feature_detected!("neon")),
        ("dotprod", is_aarch64_feature_detected!("dotprod")),
        ("i8mm", is_aarch64_feature_detected!("i8mm")),
    ];
    detected
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect()
}

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

impl Gpu {
    fn new(device: &Device) -> Self {
        let properties = device.properties().clone();
        Self {
            ordinal: device.ordinal(),
            free_memory: device.memory().ok().map(|(free, _)| free),
            memory_bandwidth: properties.memory_bandwidth(),
            topology: device.topology().ok(),
            properties,
        }
    }

    fn table(&self) -> Table {
        let p = &self.properties;
        let mut table = new_table();
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("target", p.target.clone());
        row(
            "compute units",
            format!("{}, at {} MHz", p.compute_units, p.clock / 1000),
        );
        row(
            "waves",
            format!(
                "{} lanes, {} per compute unit",
                p.wave_size,
                p.waves_per_compute_unit()
            ),
        );
        row(
            "block",
            format!("{} threads, {:?} along x, y, z", p.threads_per_block, p.block),
        );
        row("grid", format!("{:?} blocks along x, y, z", p.grid));
        row(
            "registers",
            format!(
                "{} per compute unit, {} per block (32-bit)",
                p.registers_per_compute_unit, p.registers_per_block
            ),
        );
        row(
            "LDS",
            format!(
                "{} per compute unit, {} per block, up to {} on request",
                bytes(p.lds_per_compute_unit),
                bytes(p.lds_per_block),
                bytes(p.lds_per_block_max)
            ),
        );
        row("L2 cache", bytes(p.l2_cache));
        let free = self.free_memory.map(|free| format!(", {} free", bytes(free)));
        let shared = if p.integrated {
            ", shared with the host"
        } else {
            ""
        };
        row(
            "memory",
            format!(
                "{}{}{shared}{}",
                bytes(p.memory),
                free.unwrap_or_default(),
                if p.ecc { ", ECC" } else { "" }
            ),
        );
        row(
            "memory bus",
            format!(
                "{} bits at {} MHz: {:.0} GB/s at two transfers per clock",
                p.memory_bus_bits,
                p.memory_clock / 1000,
                self.memory_bandwidth / 1e9
            ),
        );
        let link = p.pcie_link.as_ref().map(|link| format!(", {link}"));
        let node = p.numa_node.map(|node| format!(", NUMA node {node}"));
        row(
            "PCI",
            format!(
                "{}{}{}",
                p.pci,
                link.unwrap_or_default(),
                node.unwrap_or_default()
            ),
        );
        table
    }
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(width) = output::width().and_then(|width| u16::try_from(width).ok()) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    table
}

/// Formats a size in the largest binary unit in which it is at least 1.
fn bytes(bytes: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB"];
    let power = (0..3).take_while(|p| bytes >> (10 * (p + 1)) > 0).count();
    let value = bytes as f64 / f64::from(1 << (10 * power));
    match value.fract() {
        0.0 => format!("{value} {}", units[power]),
        _ => format!("{value:.1} {}", units[power]),
    }
}
