//! Instruction counts of an emulated GPU: reads one record per launch and adds them up by kernel. hip-emu's README
//! describes the records, and gcnrun's README the counting rules.

use std::collections::BTreeMap;

use hipvit_diagnostics::table::{Column, Table};
use serde::{Deserialize, Serialize};

/// Size of a line of global memory in bytes.
const LINE: f64 = 128.0;

/// Record of a launch.
#[derive(Deserialize)]
struct Record {
    launch: u64,
    kernel: String,
    wave: u32,
    /// Earlier launch with equal counts.
    same_as: Option<u64>,
    profile: Option<Profile>,
}

#[derive(Clone, Deserialize)]
struct Profile {
    blocks: u64,
    sampled_blocks: u64,
    waves: u64,
    instructions: u64,
    classes: BTreeMap<String, u64>,
    active_lanes: BTreeMap<String, u64>,
    lds: Lds,
    loads: Traffic,
    stores: Traffic,
    scratch_bytes: u64,
}

#[derive(Clone, Deserialize)]
struct Lds {
    load_bytes: u64,
    store_bytes: u64,
    cycles: u64,
    conflict_cycles: u64,
}

#[derive(Clone, Deserialize)]
struct Traffic {
    bytes: u64,
    distinct_bytes: u64,
    segments_128: u64,
}

/// Counts of all launches of a kernel.
#[derive(Default, Serialize)]
pub(crate) struct Counters {
    kernel: String,
    launches: u64,
    pub(crate) blocks: u64,
    /// Number of blocks that ran. Counts are extrapolated from them.
    pub(crate) sampled_blocks: u64,
    waves: u64,
    /// Number of wave instructions.
    instructions: u64,
    /// Number of wave instructions by execution unit.
    classes: BTreeMap<String, u64>,
    /// Fraction of wave instructions that run on matrix cores.
    matrix_share: f64,
    /// Fraction of active lanes in vector instructions. `None` for a kernel without vector instructions.
    active_lanes: Option<f64>,
    /// Bytes of global memory that lanes load and store.
    global_bytes: u64,
    /// Bytes of global memory, counted once per instruction even if several lanes access them.
    requested_bytes: u64,
    /// Bytes of the 128-byte lines that each instruction touches.
    line_bytes: u64,
    /// Requested bytes divided by bytes of touched lines. `None` for a kernel without global memory accesses.
    coalescing: Option<f64>,
    lds_bytes: u64,
    /// Cycles in which the LDS banks are busy.
    lds_cycles: u64,
    /// LDS cycles that bank conflicts cause.
    lds_conflict_cycles: u64,
    scratch_bytes: u64,
}

/// Returns the counters of each kernel, in the order of the first launches. `lines` is the content of a file of
/// records.
///
/// # Errors
/// Returns the number of the first invalid line, and the reason.
pub(crate) fn sum(lines: &str) -> Result<Vec<Counters>, (usize, String)> {
    let mut counted: BTreeMap<u64, Profile> = BTreeMap::new();
    let mut sums: Vec<Sum> = Vec::new();
    for (line, number) in lines.lines().zip(1..) {
        let record: Record = serde_json::from_str(line).map_err(|error| (number, error.to_string()))?;
        let profile = match (record.profile, record.same_as) {
            (Some(profile), _) => profile,
            (None, Some(earlier)) => match counted.get(&earlier) {
                Some(profile) => profile.clone(),
                None => return Err((number, format!("launch {earlier} was not counted"))),
            },
            (None, None) => return Err((number, "has no counts".into())),
        };
        let at = match sums.iter().position(|sum| sum.counters.kernel == record.kernel) {
            Some(at) => at,
            None => {
                sums.push(Sum::of(record.kernel));
                sums.len() - 1
            }
        };
        sums[at].add(&profile, f64::from(record.wave));
        counted.insert(record.launch, profile);
    }
    Ok(sums.into_iter().map(Sum::counters).collect())
}

/// Sum over a kernel's launches. Each launch is extrapolated to its whole grid.
struct Sum {
    counters: Counters,
    classes: BTreeMap<String, f64>,
    /// Number of active lanes, and of all lanes.
    lanes: [f64; 2],
    requested_bytes: f64,
    line_bytes: f64,
}

impl Sum {
    fn of(kernel: String) -> Self {
        Self {
            counters: Counters {
                kernel,
                ..Counters::default()
            },
            classes: BTreeMap::new(),
            lanes: [0.0; 2],
            requested_bytes: 0.0,
            line_bytes: 0.0,
        }
    }

    fn add(&mut self, profile: &Profile, wave: f64) {
        let scale = profile.blocks as f64 / profile.sampled_blocks.max(1) as f64;
        let scaled = |count: u64| (count as f64 * scale).round() as u64;
        let sum = &mut self.counters;
        sum.launches += 1;
        sum.blocks += profile.blocks;
        sum.sampled_blocks += profile.sampled_blocks;
        sum.waves += scaled(profile.waves);
        sum.instructions += scaled(profile.instructions);
        for (class, &count) in &profile.classes {
            *self.classes.entry(class.clone()).or_default() += count as f64 * scale;
        }
        for (class, &lanes) in &profile.active_lanes {
            let instructions = profile.classes.get(class).copied().unwrap_or(0);
            self.lanes[0] += lanes as f64 * scale;
            self.lanes[1] += instructions as f64 * wave * scale;
        }
        for traffic in [&profile.loads, &profile.stores] {
            sum.global_bytes += scaled(traffic.bytes);
            self.requested_bytes += traffic.distinct_bytes as f64 * scale;
            self.line_bytes += traffic.segments_128 as f64 * LINE * scale;
        }
        sum.lds_bytes += scaled(profile.lds.load_bytes + profile.lds.store_bytes);
        sum.lds_cycles += scaled(profile.lds.cycles);
        sum.lds_conflict_cycles += scaled(profile.lds.conflict_cycles);
        sum.scratch_bytes += scaled(profile.scratch_bytes);
    }

    fn counters(self) -> Counters {
        let part = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let matrix = self.classes.get("matrix").copied().unwrap_or(0.0);
        Counters {
            matrix_share: part(matrix, self.classes.values().sum()).unwrap_or(0.0),
            active_lanes: part(self.lanes[0], self.lanes[1]),
            requested_bytes: self.requested_bytes.round() as u64,
            line_bytes: self.line_bytes.round() as u64,
            coalescing: part(self.requested_bytes, self.line_bytes),
            classes: self
                .classes
                .into_iter()
                .map(|(class, count)| (class, count.round() as u64))
                .collect(),
            ..self.counters
        }
    }
}

/// Instruction classes that have their own column, with its heading and rank.
const CLASSES: [(&str, &str, u32); 8] = [
    ("valu", "VALU", 0),
    ("transcendental", "trans.", 4),
    ("salu", "SALU", 2),
    ("scalar_memory", "SMEM", 4),
    ("vector_memory", "VMEM", 1),
    ("lds", "LDS", 1),
    ("matrix", "matrix", 1),
    ("barrier", "barrier", 3),
];

/// Returns tables of the instructions and of the memory accesses.
pub(crate) fn text(kernels: &[Counters], width: Option<usize>) -> String {
    let fixed = [("kernel", 0), ("launches", 5), ("waves", 6), ("instr.", 0)];
    let fixed = fixed.into_iter().enumerate().map(|(n, (heading, rank))| match n {
        0 => Column::left(heading),
        _ => Column::right(heading).rank(rank),
    });
    let classes = CLASSES.map(|(_, heading, rank)| Column::right(heading).rank(rank));
    let last = [
        Column::right("other").rank(5),
        Column::right("matrix %").rank(3),
        Column::right("lanes %"),
    ];
    let mut instructions = Table::new(fixed.chain(classes).chain(last));
    for row in kernels {
        let of_class = |(class, ..): &(&str, &str, u32)| row.classes.get(*class).copied().unwrap_or(0);
        let others = row.classes.values().sum::<u64>() - CLASSES.iter().map(of_class).sum::<u64>();
        let mut cells = vec![
            row.kernel.clone(),
            row.launches.to_string(),
            short(row.waves),
            short(row.instructions),
        ];
        cells.extend(CLASSES.iter().map(|class| short(of_class(class))));
        cells.push(short(others));
        cells.push(percent(Some(row.matrix_share)));
        cells.push(percent(row.active_lanes));
        instructions.row(cells);
    }
    let mut memory = Table::new([
        Column::left("kernel"),
        Column::right("requested"),
        Column::right("of lines"),
        Column::right("coalescing %"),
        Column::right("LDS").rank(3),
        Column::right("LDS cycles").rank(1),
        Column::right("conflicts").rank(1),
        Column::right("conflicts %"),
        Column::right("scratch").rank(2),
    ]);
    for row in kernels {
        let conflicts = (row.lds_cycles > 0).then(|| row.lds_conflict_cycles as f64 / row.lds_cycles as f64);
        memory.row([
            row.kernel.clone(),
            short(row.requested_bytes),
            short(row.line_bytes),
            percent(row.coalescing),
            short(row.lds_bytes),
            short(row.lds_cycles),
            short(row.lds_conflict_cycles),
            percent(conflicts),
            short(row.scratch_bytes),
        ]);
    }
    format!(
        "Wave instructions, and active lanes of vector instructions\n{}\n\n\
         Bytes of global memory: requested, and in the touched 128-byte lines; cycles of the LDS banks\n{}\n",
        instructions.text(width),
        memory.text(width)
    )
}

pub(crate) fn percent(part: Option<f64>) -> String {
    part.map_or_else(String::new, |part| format!("{:.1}", 100.0 * part))
}

/// Formats a count with at least three significant digits and a decimal prefix.
pub(crate) fn short(count: u64) -> String {
    let prefixes = ["", "k", "M", "G", "T"];
    let mut value = count as f64;
    let mut prefix = 0;
    // 999.5 would be rounded to 1000.
    while (value >= 9999.5 || prefix > 0 && value >= 999.5) && prefix + 1 < prefixes.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let decimals = match value {
        _ if prefix == 0 => 0,
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$}{}", prefixes[prefix])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"launch":0,"kernel":"add","wave":64,"profile":{"blocks":4,"sampled_blocks":2,"waves":4,"instructions":40,"classes":{"valu":20,"matrix":10,"salu":10},"active_lanes":{"valu":640},"lds":{"load_bytes":1,"store_bytes":2,"cycles":8,"conflict_cycles":2},"loads":{"bytes":512,"distinct_bytes":256,"segments_128":4},"stores":{"bytes":256,"distinct_bytes":256,"segments_128":2},"scratch_bytes":0}}
{"launch":1,"kernel":"pool","wave":64,"profile":{"blocks":1,"sampled_blocks":1,"waves":1,"instructions":3,"classes":{"salu":3},"active_lanes":{},"lds":{"load_bytes":0,"store_bytes":0,"cycles":0,"conflict_cycles":0},"loads":{"bytes":0,"distinct_bytes":0,"segments_128":0},"stores":{"bytes":0,"distinct_bytes":0,"segments_128":0},"scratch_bytes":0}}
{"launch":2,"kernel":"add","wave":64,"same_as":0}
"#;

    #[test]
    fn launches_are_scaled_and_summed_by_kernel() {
        let kernels = sum(LINES).unwrap();
        let [add, pool] = &kernels[..] else {
            panic!("{} kernels", kernels.len())
        };
        assert_eq!((add.launches, add.blocks, add.sampled_blocks), (2, 8, 4));
        assert_eq!((add.waves, add.instructions), (16, 160));
        assert_eq!(add.classes["valu"], 80);
        assert_eq!(add.matrix_share, 0.25);
        assert_eq!(add.active_lanes, Some(0.5));
        // 512 distinct bytes in six lines. Both launches count twice what was sampled.
        assert_eq!((add.requested_bytes, add.line_bytes), (2048, 3072));
        assert_eq!(add.coalescing, Some(512.0 / 768.0));
        assert_eq!(
            (add.lds_bytes, add.lds_cycles, add.lds_conflict_cycles),
            (12, 32, 8)
        );
        assert_eq!(
            (pool.launches, pool.active_lanes, pool.coalescing),
            (1, None, None)
        );
        let text = text(&kernels, None);
        assert!(text.contains("66.7"), "{text}");
    }

    #[test]
    fn what_is_no_record_is_named_by_its_line() {
        let (line, reason) = sum(&LINES.replace("\"launch\":1,", "")).err().unwrap();
        assert_eq!((line, reason.contains("launch")), (2, true), "{reason}");
        let (line, _) = sum(&LINES.replace("same_as\":0", "same_as\":7")).err().unwrap();
        assert_eq!(line, 3);
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (count, text) in [
            (0, "0"),
            (9999, "9999"),
            (10_000, "10.0k"),
            (99_960, "100k"),
            (999_600, "1.00M"),
            (20_272_128, "20.3M"),
        ] {
            assert_eq!(short(count), text);
        }
    }
}
