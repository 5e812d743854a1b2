//! Hardware counters of an AMD GPU per kernel: the requested counters, their tables and their JSON.

use hipvit::hip::{Counted, KernelCounts};
use hipvit_diagnostics::bench::DeviceInfo;
use hipvit_diagnostics::table::{Column, Table};
use serde::Serialize;

use super::counters::{format_count, format_percent};

/// A column that shows a counter.
struct Counter {
    heading: &'static str,
    /// Columns with the highest rank are dropped first if a table is too wide.
    rank: u32,
    /// Names of the counter on CDNA (gfx9) and RDNA (gfx10 to gfx12). The first one that the GPU supports is used.
    names: &'static [&'static str],
}

const fn counter(heading: &'static str, rank: u32, names: &'static [&'static str]) -> Counter {
    Counter { heading, rank, names }
}

const HITS: Counter = counter("L2 hits", 2, &["TCC_HIT_sum", "GL2C_HIT_sum"]);
const MISSES: Counter = counter("L2 misses", 2, &["TCC_MISS_sum", "GL2C_MISS_sum"]);
const LDS_CYCLES: Counter = counter("LDS cycles", 1, &["SQ_LDS_IDX_ACTIVE", "SQC_LDS_IDX_ACTIVE"]);
const CONFLICTS: Counter = counter("conflicts", 1, &["SQ_LDS_BANK_CONFLICT", "SQC_LDS_BANK_CONFLICT"]);
const WAVES: [Counter; 10] = [
    counter("waves", 4, &["SQ_WAVES"]),
    counter("VALU", 0, &["SQ_INSTS_VALU"]),
    counter("SALU", 2, &["SQ_INSTS_SALU"]),
    counter("SMEM", 4, &["SQ_INSTS_SMEM"]),
    counter("loads", 1, &["SQ_INSTS_VMEM_RD", "SQ_INSTS_TEX_LOAD"]),
    counter("stores", 1, &["SQ_INSTS_VMEM_WR", "SQ_INSTS_TEX_STORE"]),
    counter("FLAT", 3, &["SQ_INSTS_FLAT"]),
    counter("LDS", 1, &["SQ_INSTS_LDS"]),
    counter("matrix", 0, &["SQ_INSTS_MFMA"]),
    counter("busy cycles", 5, &["SQ_BUSY_CYCLES"]),
];
const MEMORY: [Counter; 7] = [
    counter("KiB read", 0, &["FETCH_SIZE"]),
    counter("KiB written", 0, &["WRITE_SIZE"]),
    HITS,
    MISSES,
    LDS_CYCLES,
    CONFLICTS,
    counter("GPU cycles", 3, &["GRBM_GUI_ACTIVE"]),
];

/// Cell text for a counter that the GPU does not have.
const ABSENT: &str = "n/a";

/// Returns all names of all counters.
pub(crate) fn wanted() -> Vec<&'static str> {
    let all = WAVES.iter().chain(&MEMORY);
    all.flat_map(|counter| counter.names).copied().collect()
}

#[derive(Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) model: &'a str,
    pub(crate) batch: usize,
    pub(crate) dtype: String,
    pub(crate) device: &'a DeviceInfo,
    source: &'static str,
    passes: usize,
    /// Counters that the GPU does not have, with their names on each architecture.
    absent: Vec<&'static [&'static str]>,
    /// Kernels in the order of their first launches.
    kernels: Vec<Kernel<'a>>,
}

#[derive(Serialize)]
struct Kernel<'a> {
    kernel: &'a str,
    launches: u64,
    counters: &'a std::collections::BTreeMap<String, f64>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        model: &'a str,
        batch: usize,
        dtype: String,
        device: &'a DeviceInfo,
        counted: &'a Counted,
    ) -> Self {
        let all = WAVES.iter().chain(&MEMORY);
        let kernel = |counts: &'a KernelCounts| Kernel {
            kernel: &counts.kernel,
            launches: counts.launches,
            counters: &counts.values,
        };
        Self {
            model,
            batch,
            dtype,
            device,
            source: "rocprofiler-sdk",
            passes: counted.passes,
            absent: all
                .filter(|counter| counter.name(counted).is_none())
                .map(|counter| counter.names)
                .collect(),
            kernels: counted.kernels.iter().map(kernel).collect(),
        }
    }
}

impl Counter {
    /// Returns the name of the counter on this GPU.
    fn name(&self, counted: &Counted) -> Option<&'static str> {
        let has = |name: &&&str| counted.counters.iter().any(|counter| counter == **name);
        self.names.iter().find(has).copied()
    }

    fn value(&self, kernel: &KernelCounts) -> Option<f64> {
        self.names
            .iter()
            .find_map(|name| kernel.values.get(*name))
            .copied()
    }

    fn cell(&self, kernel: &KernelCounts) -> String {
        self.value(kernel)
            .map_or_else(|| ABSENT.into(), |value| format_count(value.round() as u64))
    }

    fn column(&self) -> Column {
        Column::right(self.heading).rank(self.rank)
    }
}

/// Formats a fraction in percent; empty if a value is missing.
fn share(part: Option<f64>, whole: Option<f64>) -> String {
    match (part, whole) {
        (Some(part), Some(whole)) => format_percent((whole > 0.0).then(|| part / whole)),
        _ => ABSENT.into(),
    }
}

/// Returns the tables, and a legend of the counters.
pub(crate) fn text(counted: &Counted, width: Option<usize>) -> String {
    let fixed = || {
        [
            Column::left("kernel").wraps(24),
            Column::right("launches").rank(5),
        ]
    };
    let mut waves = Table::new(fixed().into_iter().chain(WAVES.iter().map(Counter::column)));
    let shares = [Column::right("L2 hit %"), Column::right("conflicts %")];
    let columns = MEMORY.iter().map(Counter::column).chain(shares);
    let mut memory = Table::new([Column::left("kernel").wraps(24)].into_iter().chain(columns));
    for kernel in &counted.kernels {
        let first = [kernel.kernel.clone(), kernel.launches.to_string()];
        waves.row(
            first
                .into_iter()
                .chain(WAVES.iter().map(|counter| counter.cell(kernel))),
        );
        let (hits, misses) = (HITS.value(kernel), MISSES.value(kernel));
        let accesses = hits.zip(misses).map(|(hits, misses)| hits + misses);
        let shares = [
            share(hits, accesses),
            share(CONFLICTS.value(kernel), LDS_CYCLES.value(kernel)),
        ];
        let cells = MEMORY.iter().map(|counter| counter.cell(kernel));
        memory.row([kernel.kernel.clone()].into_iter().chain(cells).chain(shares));
    }
    let all = || WAVES.iter().chain(&MEMORY);
    let shown = |counter: &Counter| Some(format!("{} {}", counter.heading, counter.name(counted)?));
    let shown: Vec<String> = all().filter_map(shown).collect();
    let absent = all().filter(|counter| counter.name(counted).is_none());
    let absent: Vec<String> = absent.map(|counter| counter.names.join(" or ")).collect();
    let mut text = format!(
        "Wave instructions\n{}\n\nMemory and caches\n{}\n\n\
         Columns: {}.\nCounters are sums over launches and over the units of the GPU. VALU includes matrix instructions. \
         Library kernels are included. {} passes.",
        waves.text(width),
        memory.text(width),
        shown.join(", "),
        counted.passes,
    );
    if !absent.is_empty() {
        text += &format!("\nThis GPU does not count {}.", absent.join(", "));
    }
    text.push('\n');
    text
}
