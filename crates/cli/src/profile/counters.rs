//! Performance counters of an emulated GPU. Parses one record per launch, and sums the counts of each kernel. hip-emu's
//! README describes the records, and gcnrun's README the counting rules.

use std::collections::BTreeMap;

use hipvit_diagnostics::table::{Column, Table};
use serde::{Deserialize, Serialize};

/// Size of a cache line of global memory in bytes.
const LINE_BYTES: f64 = 128.0;

/// Record of one launch: a line of hip-emu's JSON output.
#[derive(Deserialize)]
struct Record {
    launch: u64,
    kernel: String,
    wave: u32,
    /// Number of an earlier launch with the same counts. Set if `profile` is absent.
    same_as: Option<u64>,
    profile: Option<Profile>,
}

/// Counts over the sampled blocks of one launch.
#[derive(Clone, Deserialize)]
struct Profile {
    /// Number of blocks in the grid.
    blocks: u64,
    /// Number of blocks that ran and were counted.
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

/// Accesses to LDS.
#[derive(Clone, Deserialize)]
struct Lds {
    load_bytes: u64,
    store_bytes: u64,
    cycles: u64,
    conflict_cycles: u64,
}

/// Loads from or stores to global memory.
#[derive(Clone, Deserialize)]
struct Traffic {
    /// Bytes that all lanes access.
    bytes: u64,
    /// Distinct bytes per instruction, summed over instructions.
    distinct_bytes: u64,
    /// 128-byte lines that each instruction touches, summed over instructions.
    segments_128: u64,
}

/// Counts of a kernel, summed over its launches.
#[derive(Default, Serialize)]
pub(crate) struct Counters {
    kernel: String,
    launches: u64,
    /// Number of blocks in the grids.
    pub(crate) blocks: u64,
    /// Number of blocks that ran and were counted. The other counts are extrapolated from them.
    pub(crate) sampled_blocks: u64,
    waves: u64,
    /// Number of wave instructions.
    instructions: u64,
    /// Number of wave instructions by execution unit.
    classes: BTreeMap<String, u64>,
    /// Fraction of wave instructions that run on matrix cores.
    matrix_share: f64,
    /// Average fraction of lanes that are active in a vector instruction. `None` for a kernel without vector instructions.
    active_lanes: Option<f64>,
    /// Bytes that all lanes load from and store to global memory.
    global_bytes: u64,
    /// Distinct bytes of global memory that each instruction accesses, summed over instructions.
    requested_bytes: u64,
    /// Size of the 128-byte lines that each instruction touches, summed over instructions.
    line_bytes: u64,
    /// `requested_bytes` divided by `line_bytes`. `None` for a kernel without global memory accesses.
    coalescing: Option<f64>,
    lds_bytes: u64,
    /// Number of cycles in which the LDS banks are busy.
    lds_cycles: u64,
    /// Number of additional LDS cycles due to bank conflicts.
    lds_conflict_cycles: u64,
    scratch_bytes: u64,
}

/// Sums the counters of each kernel, in the order of first launches. `lines` are the records, one per line.
///
/// # Errors
/// Returns the number of the first invalid line, and the reason.
pub(crate) fn sum_by_kernel(lines: &str) -> Result<Vec<Counters>, (usize, String)> {
    let mut counted: BTreeMap<u64, Profile> = BTreeMap::new();
    let mut sums: Vec<Sum> = Vec::new();
    for (line, number) in lines.lines().zip(1..) {
        let record: Record = serde_json::from_str(line).map_err(|error| (number, error.to_string()))?;
        let profile = match (record.profile, record.same_as) {
            (Some(profile), _) => profile,
            (None, Some(earlier)) => match counted.get(&earlier) {
                Some(profile) => profile.clone(),
                None => {
                    return Err((
                        number,
                        format!("`same_as` refers to launch {earlier}, which has no earlier record"),
                    ));
                }
            },
            (None, None) => return Err((number, "neither `profile` nor `same_as` is set".into())),
        };
        let index = match sums.iter().position(|sum| sum.counters.kernel == record.kernel) {
            Some(index) => index,
            None => {
                sums.push(Sum::new(record.kernel));
                sums.len() - 1
            }
        };
        sums[index].add(&profile, f64::from(record.wave));
        counted.insert(record.launch, profile);
    }
    Ok(sums.into_iter().map(Sum::into_counters).collect())
}

/// Running sum over the launches of a kernel. Each launch is extrapolated to its whole grid.
struct Sum {
    counters: Counters,
    classes: BTreeMap<String, f64>,
    /// Number of active lanes and of all lanes, summed over vector instructions.
    lanes: [f64; 2],
    requested_bytes: f64,
    line_bytes: f64,
}

impl Sum {
    fn new(kernel: String) -> Self {
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
            self.line_bytes += traffic.segments_128 as f64 * LINE_BYTES * scale;
        }
        sum.lds_bytes += scaled(profile.lds.load_bytes + profile.lds.store_bytes);
        sum.lds_cycles += scaled(profile.lds.cycles);
        sum.lds_conflict_cycles += scaled(profile.lds.conflict_cycles);
        sum.scratch_bytes += scaled(profile.scratch_bytes);
    }

    fn into_counters(self) -> Counters {
        let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let matrix = self.classes.get("matrix").copied().unwrap_or(0.0);
        Counters {
            matrix_share: ratio(matrix, self.classes.values().sum()).unwrap_or(0.0),
            active_lanes: ratio(self.lanes[0], self.lanes[1]),
            requested_bytes: self.requested_bytes.round() as u64,
            line_bytes: self.line_bytes.round() as u64,
            coalescing: ratio(self.requested_bytes, self.line_bytes),
            classes: self
                .classes
                .into_iter()
                .map(|(class, count)| (class, count.round() as u64))
                .collect(),
            ..self.counters
        }
    }
}

/// Instruction classes with their own column: class, heading and [rank](Column::rank).
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

/// Formats a table of instructions and a table of memory accesses.
pub(crate) fn format_tables(kernels: &[Counters], width: Option<usize>) -> String {
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
            format_count(row.waves),
            format_count(row.instructions),
        ];
        cells.extend(CLASSES.iter().map(|class| format_count(of_class(class))));
        cells.push(format_count(others));
        cells.push(format_percent(Some(row.matrix_share)));
        cells.push(format_percent(row.active_lanes));
        instructions.row(cells);
    }
    let mut memory = Table::new([
        Column::left("kernel"),
        Column::right("requested"),
        Column::right("in lines"),
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
            format_count(row.requested_bytes),
            format_count(row.line_bytes),
            format_percent(row.coalescing),
            format_count(row.lds_bytes),
            format_count(row.lds_cycles),
            format_count(row.lds_conflict_cycles),
            format_percent(conflicts),
            format_count(row.scratch_bytes),
        ]);
    }
    format!(
        "Wave instructions, and active lanes of vector instructions\n{}\n\n\
         Bytes of global memory: requested, and in the touched 128-byte lines; cycles of the LDS banks\n{}\n",
        instructions.text(width),
        memory.text(width)
    )
}

/// Formats a fraction as a percentage. `None` gives an empty string.
pub(crate) fn format_percent(part: Option<f64>) -> String {
    part.map_or_else(String::new, |part| format!("{:.1}", 100.0 * part))
}

/// Formats a count. From 10,000 on, it has three significant digits and an SI prefix.
pub(crate) fn format_count(count: u64) -> String {
    let prefixes = ["", "k", "M", "G", "T"];
    let mut value = count as f64;
    let mut prefix = 0;
    // Values from 999.5 on would be printed as 1000.
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
        let kernels = sum_by_kernel(LINES).unwrap();
        let [add, pool] = &kernels[..] else {
            panic!("{} kernels", kernels.len())
        };
        assert_eq!((add.launches, add.blocks, add.sampled_blocks), (2, 8, 4));
        assert_eq!((add.waves, add.instructions), (16, 160));
        assert_eq!(add.classes["valu"], 80);
        assert_eq!(add.matrix_share, 0.25);
        assert_eq!(add.active_lanes, Some(0.5));
        // Per launch, the sample has 512 distinct bytes in 6 lines. Half of the blocks are sampled, so counts double.
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
        let text = format_tables(&kernels, None);
        assert!(text.contains("66.7"), "{text}");
    }

    #[test]
    fn errors_name_the_line_of_an_invalid_record() {
        let (line, reason) = sum_by_kernel(&LINES.replace("\"launch\":1,", "")).err().unwrap();
        assert_eq!((line, reason.contains("launch")), (2, true), "{reason}");
        let (line, _) = sum_by_kernel(&LINES.replace("same_as\":0", "same_as\":7"))
            .err()
            .unwrap();
        assert_eq!(line, 3);
    }

    #[test]
    fn counts_have_three_significant_digits() {
        for (count, text) in [
            (0, "0"),
            (9999, "9999"),
            (10_000, "10.0k"),
            (99_960, "100k"),
            (999_600, "1.00M"),
            (20_272_128, "20.3M"),
        ] {
            assert_eq!(format_count(count), text);
        }
    }
}
