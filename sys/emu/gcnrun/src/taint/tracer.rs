//! Looks at what each instruction wrote while the blocks of a thread run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::operands::{self, Written};
use super::{Carrier, Step, Taint};
use crate::wave::Wave;

/// Findings of one thread; [`Tracer::taint`] sums up those of all threads.
pub(crate) struct Tracer {
    /// Destination of each instruction of the code.
    written: Arc<[Option<(Step, Written)>]>,
    /// The position of the running block in the order of the blocks, and its index.
    turn: u64,
    block: [u32; 3],
    /// Lanes of the block's waves that carry marked bytes.
    lanes: Vec<u64>,
    /// The accesses of the instruction that runs: each lane's address, and the lanes whose address is global.
    accessed: Option<([u64; 64], u64)>,
    found: Taint,
    /// The blocks of the first and the last carrier, and of the first of each step.
    first: Option<Placed>,
    last: Option<Placed>,
    steps: BTreeMap<Step, Placed>,
}

/// A carrier, with the position of its block.
type Placed = (u64, Found);

/// A carrier before its text is looked up.
#[derive(Clone, Copy)]
struct Found {
    instruction: u32,
    block: [u32; 3],
    wave: u32,
    lanes: u64,
    address: Option<u64>,
}

impl Tracer {
    /// One for each of `threads` threads, for blocks of `waves` waves that execute the instructions of `code`, as the
    /// disassembler writes them.
    pub(crate) fn for_threads<'t>(
        threads: u64,
        code: impl Iterator<Item = &'t str>,
        waves: usize,
    ) -> Vec<Self> {
        let written: Arc<[_]> = code.map(operands::of).collect();
        let one = |_| Self {
            written: Arc::clone(&written),
            turn: 0,
            block: [0; 3],
            lanes: vec![0; waves],
            accessed: None,
            found: Taint::default(),
            first: None,
            last: None,
            steps: Default::default(),
        };
        (0..threads).map(one).collect()
    }

    pub(crate) fn begin_block(&mut self, turn: u64, block: [u32; 3]) {
        self.end_block();
        (self.turn, self.block) = (turn, block);
    }

    fn end_block(&mut self) {
        let carrying = self.lanes.iter().filter(|lanes| **lanes != 0).count() as u64;
        self.found.blocks += u64::from(carrying > 0);
        self.found.waves += carrying;
        self.found.lanes += self
            .lanes
            .iter()
            .map(|lanes| u64::from(lanes.count_ones()))
            .sum::<u64>();
        self.lanes.fill(0);
    }

    /// The instruction that runs accesses memory: at these addresses, global ones in the lanes of `global`.
    pub(crate) fn access(&mut self, addresses: &[u64; 64], global: u64) {
        self.accessed = Some((*addresses, global));
    }

    /// The wave has executed the instruction.
    pub(crate) fn look(&mut self, instruction: u32, wave: &Wave) {
        let accessed = self.accessed.take();
        let Some((step, written)) = &self.written[instruction as usize] else {
            return;
        };
        let rows = |[first, count]: [usize; 2]| {
            wave.vgpr_known[first..first + count]
                .iter()
                .fold(0, |tainted, [low, high]| tainted | !(low & high))
        };
        let active = match step {
            Step::Matrix => wave.all_lanes(),
            _ => wave.exec(),
        };
        let lanes = match written {
            Written::Vector(registers) => {
                registers.iter().fold(0, |lanes, range| lanes | rows(*range)) & active
            }
            Written::Memory {
                registers,
                bytes: 4..,
                ..
            } => rows(*registers) & active,
            Written::Memory { registers, high, .. } => {
                !wave.vgpr_known[registers[0]][usize::from(*high)] & active
            }
            Written::Scalar { first, count, mask } => {
                let known = |n: usize| u64::from(wave.sgpr_known[first + n]);
                let high = if *count > 1 && wave.lanes == 64 {
                    known(1)
                } else {
                    0xffff_ffff
                };
                let unknown = if *mask {
                    !(known(0) | high << 32) & wave.all_lanes()
                } else {
                    u64::from((0..*count).any(|n| known(n) != 0xffff_ffff))
                };
                if unknown == 0 {
                    return;
                }
                if *mask { unknown } else { 0 }
            }
        };
        if lanes == 0 && !matches!(written, Written::Scalar { .. }) {
            return;
        }
        let lane = lanes.trailing_zeros();
        let found = Found {
            instruction,
            block: self.block,
            wave: wave.index,
            lanes,
            address: accessed
                .filter(|_| lane < 64)
                .map(|(addresses, _)| addresses[lane as usize]),
        };
        self.found.instructions += 1;
        self.lanes[wave.index as usize] |= lanes;
        let turn = self.turn;
        let later = |known: &Option<Placed>| known.is_none_or(|(known, _)| turn < known);
        if later(&self.first) {
            self.first = Some((turn, found));
        }
        if self.last.is_none_or(|(known, _)| turn >= known) {
            self.last = Some((turn, found));
        }
        let carriers = self.found.steps.entry(*step).or_default();
        carriers.instructions += 1;
        carriers.lanes += u64::from(lanes.count_ones());
        self.steps
            .entry(*step)
            .and_modify(|known| {
                if turn < known.0 {
                    *known = (turn, found);
                }
            })
            .or_insert((turn, found));
        if let (
            Written::Memory {
                registers,
                bytes,
                high,
            },
            Some((addresses, global)),
        ) = (written, accessed)
        {
            for lane in (0..64).filter(|lane| lanes & global & 1 << lane != 0) {
                let halves = (2 * registers[1]).min((*bytes as usize).div_ceil(2));
                for half in 0..halves {
                    let known = wave.vgpr_known[registers[0] + half / 2];
                    let side = if *bytes < 4 { usize::from(*high) } else { half % 2 };
                    if known[side] >> lane & 1 == 0 {
                        let length = u64::from(*bytes).min(2);
                        self.found
                            .stored
                            .push([addresses[lane] + 2 * half as u64, length]);
                    }
                }
            }
            // So that a large launch does not list each of its stores.
            if self.found.stored.len() > 1 << 16 {
                merge(&mut self.found.stored);
            }
        }
    }

    /// Sums up the findings of all threads. `code` are the instructions, with their addresses.
    pub(crate) fn taint<'t>(threads: Vec<Self>, code: impl Fn(u32) -> (u64, &'t str)) -> Taint {
        let mut sum = Taint::default();
        let (mut first, mut last): (Option<Placed>, Option<Placed>) = (None, None);
        let mut steps = BTreeMap::<Step, Placed>::new();
        for mut thread in threads {
            thread.end_block();
            let found = thread.found;
            sum.instructions += found.instructions;
            sum.blocks += found.blocks;
            sum.waves += found.waves;
            sum.lanes += found.lanes;
            sum.stored.extend(found.stored);
            for (step, carriers) in found.steps {
                let all = sum.steps.entry(step).or_default();
                all.instructions += carriers.instructions;
                all.lanes += carriers.lanes;
            }
            // Threads have blocks of their own.
            first = first
                .into_iter()
                .chain(thread.first)
                .min_by_key(|(turn, _)| *turn);
            last = last.into_iter().chain(thread.last).max_by_key(|(turn, _)| *turn);
            for (step, found) in thread.steps {
                let known = steps.entry(step).or_insert(found);
                if found.0 < known.0 {
                    *known = found;
                }
            }
        }
        let carrier = |(_, found): Placed| {
            let (pc, text) = code(found.instruction);
            Carrier {
                pc,
                instruction: text.to_owned(),
                block: found.block,
                wave: found.wave,
                lanes: found.lanes.count_ones(),
                lane: (found.lanes != 0).then(|| found.lanes.trailing_zeros()),
                address: found.address,
            }
        };
        sum.first = first.map(carrier);
        sum.last = last.map(carrier);
        for (step, found) in steps {
            sum.steps.entry(step).or_default().first = Some(carrier(found));
        }
        merge(&mut sum.stored);
        sum
    }
}

/// Sorts ranges of address and length, and joins those that touch.
fn merge(ranges: &mut Vec<[u64; 2]>) {
    ranges.sort_unstable();
    let mut merged: Vec<[u64; 2]> = Vec::new();
    for &[begin, length] in &*ranges {
        match merged.last_mut() {
            Some([first, all]) if begin <= *first + *all => *all = (*all).max(begin + length - *first),
            _ => merged.push([begin, length]),
        }
    }
    *ranges = merged;
}
