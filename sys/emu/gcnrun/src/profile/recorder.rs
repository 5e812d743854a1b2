//! Counts while the blocks of a thread run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::class::{Class, Event, Unit};
use super::{Latencies, LdsTraffic, Profile, Traffic, lds};

/// Bytes of a line.
const LINE: u64 = 128;
/// Groups of blocks in `Traffic::lines_of_8`.
const GROUPS: u64 = 8;
/// A line that this fraction of the blocks accesses is common to all.
const COMMON: u64 = 8;

/// The kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    /// Loads and stores.
    Atomic,
}

/// Counts of one thread; [`Recorder::profile`] sums up those of all.
pub(crate) struct Recorder {
    /// Class and event of each instruction of the code.
    kinds: Arc<[(Class, Event)]>,
    /// Number of executions of each instruction, and the sum of its active lanes.
    executed: Vec<[u64; 2]>,
    lanes: u32,
    block: u64,
    blocks: u64,
    outstanding: Vec<Outstanding>,
    wave: usize,
    lds: LdsTraffic,
    loads: Traffic,
    stores: Traffic,
    scratch_bytes: u64,
    latencies: Latencies,
    /// The lines that were loaded, and those that were stored.
    lines: [HashMap<u64, Line>; 2],
    /// Scratch space.
    segments: Vec<u64>,
    sorted: Vec<u64>,
}

/// Who accessed a line.
#[derive(Clone, Copy, Default)]
struct Line {
    /// The last block, plus one.
    block: u64,
    /// Number of blocks.
    blocks: u64,
    /// The groups of blocks.
    groups: u8,
}

/// A wave's outstanding accesses by counter, the oldest first: with the number of waits for its unit that were counted when each was
/// issued.
#[derive(Default)]
struct Outstanding {
    counters: [VecDeque<(Unit, u64)>; 3],
    counted: [u64; 3],
}

impl Recorder {
    /// One for each of `threads` threads, for blocks of `waves` waves that execute the instructions of `code`, as the
    /// disassembler writes them.
    pub(crate) fn for_threads<'t>(
        threads: u64,
        code: impl Iterator<Item = &'t str>,
        waves: usize,
        lanes: u32,
        arch: &str,
    ) -> Vec<Self> {
        let kinds: Arc<[_]> = code
            .map(|text| {
                let class = Class::of(mnemonic(text));
                (class, Event::of(class, text, arch))
            })
            .collect();
        let one = |_| Self {
            executed: vec![[0; 2]; kinds.len()],
            kinds: Arc::clone(&kinds),
            lanes,
            block: 0,
            blocks: 0,
            outstanding: (0..waves).map(|_| Outstanding::default()).collect(),
            wave: 0,
            lds: LdsTraffic::default(),
            loads: Traffic::default(),
            stores: Traffic::default(),
            scratch_bytes: 0,
            latencies: Latencies::default(),
            lines: Default::default(),
            segments: Vec::new(),
            sorted: Vec::new(),
        };
        (0..threads).map(one).collect()
    }

    /// The block with this index in the grid begins.
    pub(crate) fn begin_block(&mut self, block: u64) {
        self.block = block;
        self.blocks += 1;
        self.outstanding.fill_with(Outstanding::default);
    }

    pub(crate) fn enter(&mut self, wave: u32) {
        self.wave = wave as usize;
    }

    /// The running wave executes the instruction, with these lanes active.
    pub(crate) fn count(&mut self, instruction: u32, exec: u64) {
        let instruction = instruction as usize;
        let [times, lanes] = &mut self.executed[instruction];
        *times += 1;
        *lanes += u64::from(exec.count_ones());
        let wave = &mut self.outstanding[self.wave];
        match self.kinds[instruction].1 {
            Event::None => {}
            Event::Access(unit, counter) => {
                wave.counters[counter].push_back((unit, wave.counted[unit as usize]));
            }
            Event::Wait(most) => {
                for (queue, most) in wave.counters.iter_mut().zip(most) {
                    while most.is_some_and(|most| queue.len() > most as usize) {
                        let Some((unit, issued)) = queue.pop_front() else {
                            break;
                        };
                        if issued != wave.counted[unit as usize] {
                            continue;
                        }
                        wave.counted[unit as usize] += 1;
                        match unit {
                            Unit::Vector => self.latencies.memory += 1,
                            Unit::Lds => self.latencies.lds += 1,
                            Unit::Scalar => self.latencies.scalar += 1,
                        }
                    }
                }
            }
        }
    }

    /// Lanes access `bytes` bytes of global memory each.
    pub(crate) fn global(&mut self, access: Access, addresses: &[u64; 64], exec: u64, bytes: u32) {
        if access != Access::Store {
            self.traffic(false, addresses, exec, bytes);
        }
        if access != Access::Load {
            self.traffic(true, addresses, exec, bytes);
        }
    }

    fn traffic(&mut self, store: bool, addresses: &[u64; 64], exec: u64, bytes: u32) {
        if exec == 0 {
            return;
        }
        let (segments, sorted) = (&mut self.segments, &mut self.sorted);
        sorted.clear();
        let active = |&(lane, _): &(usize, &u64)| exec >> lane & 1 == 1;
        sorted.extend(addresses.iter().enumerate().filter(active).map(|(_, at)| at));
        sorted.sort_unstable();
        let traffic = if store { &mut self.stores } else { &mut self.loads };
        segments.clear();
        let mut covered = 0;
        for &address in &*sorted {
            let end = address.saturating_add(u64::from(bytes));
            traffic.distinct_bytes += end - address.max(covered);
            covered = end;
            segments.extend(address / 64..=(end - 1) / 64);
        }
        segments.dedup();
        traffic.instructions += 1;
        traffic.bytes += u64::from(exec.count_ones() * bytes);
        traffic.segments_64 += segments.len() as u64;
        segments.iter_mut().for_each(|segment| *segment /= LINE / 64);
        segments.dedup();
        traffic.segments_128 += segments.len() as u64;
        for &line in &*segments {
            let line = self.lines[usize::from(store)].entry(line).or_default();
            if line.block != self.block + 1 {
                line.block = self.block + 1;
                line.blocks += 1;
                line.groups |= 1 << (self.block % GROUPS);
                traffic.block_lines += 1;
            }
        }
    }

    /// Lanes access `bytes` bytes of LDS each.
    pub(crate) fn lds(&mut self, access: Access, offsets: &[u64; 64], exec: u64, bytes: u32) {
        let moved = u64::from(exec.count_ones() * bytes);
        if access != Access::Store {
            self.lds.load_bytes += moved;
        }
        if access != Access::Load {
            self.lds.store_bytes += moved;
        }
        let (cycles, conflicts) = lds::cycles(offsets, exec, self.lanes, bytes, access == Access::Load);
        self.lds.cycles += cycles;
        self.lds.conflict_cycles += conflicts;
    }

    /// Lanes exchange a dword through the LDS hardware.
    pub(crate) fn permutation(&mut self) {
        self.lds.cycles += u64::from(self.lanes / 32);
    }

    pub(crate) fn scratch(&mut self, exec: u64, bytes: u32) {
        self.scratch_bytes += u64::from(exec.count_ones() * bytes);
    }

    /// The sum of all threads' counts, of a grid of `blocks` blocks with `waves` waves each.
    pub(crate) fn profile<'t>(
        threads: Vec<Self>,
        code: impl Iterator<Item = &'t str>,
        blocks: u64,
        waves: u64,
    ) -> Profile {
        let mut profile = Profile {
            blocks,
            ..Profile::default()
        };
        let mut executed = vec![[0_u64; 2]; threads.first().map_or(0, |thread| thread.executed.len())];
        let mut lines: [HashMap<u64, Line>; 2] = Default::default();
        for thread in threads {
            profile.sampled_blocks += thread.blocks;
            for (sum, counts) in executed.iter_mut().zip(&thread.executed) {
                sum[0] += counts[0];
                sum[1] += counts[1];
            }
            let (sum, lds) = (&mut profile.lds, thread.lds);
            sum.load_bytes += lds.load_bytes;
            sum.store_bytes += lds.store_bytes;
            sum.cycles += lds.cycles;
            sum.conflict_cycles += lds.conflict_cycles;
            for (sum, traffic) in [
                (&mut profile.loads, thread.loads),
                (&mut profile.stores, thread.stores),
            ] {
                sum.instructions += traffic.instructions;
                sum.bytes += traffic.bytes;
                sum.distinct_bytes += traffic.distinct_bytes;
                sum.segments_64 += traffic.segments_64;
                sum.segments_128 += traffic.segments_128;
                sum.block_lines += traffic.block_lines;
            }
            profile.scratch_bytes += thread.scratch_bytes;
            profile.latencies.memory += thread.latencies.memory;
            profile.latencies.lds += thread.latencies.lds;
            profile.latencies.scalar += thread.latencies.scalar;
            for (all, own) in lines.iter_mut().zip(thread.lines) {
                for (address, line) in own {
                    let sum = all.entry(address).or_default();
                    sum.blocks += line.blocks;
                    sum.groups |= line.groups;
                }
            }
        }
        profile.waves = profile.sampled_blocks * waves;
        let every_block = profile.sampled_blocks == blocks;
        for (lines, sum) in lines.iter().zip([&mut profile.loads, &mut profile.stores]) {
            for line in lines.values() {
                let groups = u64::from(line.groups.count_ones());
                if !every_block && line.blocks * COMMON >= profile.sampled_blocks {
                    sum.common_lines += 1;
                    sum.common_lines_of_8 += groups;
                } else {
                    sum.lines += 1;
                    sum.lines_of_8 += groups;
                }
            }
        }
        for (text, [count, lanes]) in code.zip(executed).filter(|(_, [count, _])| *count > 0) {
            let class = Class::of(mnemonic(text));
            profile.instructions += count;
            *profile.classes.entry(class).or_default() += count;
            if class.heeds_exec() {
                *profile.active_lanes.entry(class).or_default() += lanes;
            }
            *profile.opcodes.entry(opcode(text)).or_default() += count;
        }
        profile
    }
}

fn mnemonic(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// The mnemonic without the suffix of the encoding, or those of both halves.
fn opcode(text: &str) -> String {
    let halves = text.split(" :: ").map(|half| {
        let mut name = mnemonic(half);
        for suffix in ["_dpp8", "_dpp", "_sdwa", "_e32", "_e64"] {
            name = name.strip_suffix(suffix).unwrap_or(name);
        }
        name
    });
    halves.collect::<Vec<_>>().join("::")
}
