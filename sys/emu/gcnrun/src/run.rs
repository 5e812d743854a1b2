//! Runs a launch: sets each wave's initial registers, schedules blocks and waves, and handles barriers.
//! [`interpreter`] executes the waves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::code::{Code, Stop};
use crate::fault::{Fault, FaultKind, Place};
use crate::interpreter::{self, Stopped};
use crate::launch::{Launch, Order, Statistics};
use crate::memory::Kind;
use crate::object::{Kernel, Program, Traits};
use crate::profile::{Profile, Recorder};
use crate::space::{PRIVATE_APERTURE, SCRATCH_DESCRIPTOR, SHARED_APERTURE, Space};
use crate::wave::{Mode, Wave};

/// LDS of a compute unit, in bytes: the most that a block may have.
const LDS: u32 = 65536;
const LDS_GFX950: u32 = 163_840;
/// Instructions that a wave executes before another wave of its block runs: waves may wait for each other without a barrier.
const TIME_SLICE: u64 = 1 << 20;
/// Bytes of an AQL dispatch packet, which lies before the kernel arguments.
const PACKET: u64 = 64;
/// Bytes after the arguments, because scalar loads may be wider than the arguments.
const SLACK: u64 = 64;

impl Program {
    /// Runs a kernel to its end. Blocks run on all cores.
    ///
    /// # Errors
    ///
    /// The first fault; or why the kernel cannot be launched. Memory is then as the kernel left it.
    pub fn launch(&self, launch: &Launch<'_>) -> Result<Statistics, Fault> {
        let (statistics, _) = self.start(launch, None)?;
        Ok(statistics)
    }

    /// As [`Program::launch`], and counts what it executes. Of a grid of more than `sample` blocks at most that many run,
    /// neighbours from the middle: whole rows of the grid, unless one has more blocks. The others' results are then missing.
    ///
    /// # Errors
    ///
    /// As [`Program::launch`].
    pub fn profile(&self, launch: &Launch<'_>, sample: u64) -> Result<Profile, Fault> {
        let (_, profile) = self.start(launch, Some(sample.max(1)))?;
        Ok(profile)
    }

    fn start(&self, launch: &Launch<'_>, sample: Option<u64>) -> Result<(Statistics, Profile), Fault> {
        let refused = |kind| Fault {
            kind,
            kernel: launch.kernel.to_owned(),
            place: None,
        };
        let configuration = |what: String| refused(FaultKind::Configuration { what });
        let kernel = self
            .entry(launch.kernel)
            .ok_or_else(|| configuration("the code object has no kernel of that name".to_owned()))?;
        self.check(kernel, launch).map_err(refused)?;
        let traits =
            Traits::of(self.arch()).ok_or_else(|| configuration(format!("{} is not known", self.arch())))?;
        let code = self.code().map_err(|error| configuration(error.to_string()))?;
        let segment = Segment::new(self, kernel, launch).map_err(refused)?;
        let grid = Grid {
            program: self,
            kernel,
            launch,
            traits,
            code,
            segment: segment.address,
            sample,
        };
        grid.run()
    }

    fn check(&self, kernel: &Kernel, launch: &Launch<'_>) -> Result<(), FaultKind> {
        let configuration = |what: String| Err(FaultKind::Configuration { what });
        let expected = kernel.info.arguments_size as usize;
        let given = launch.arguments.len();
        if given < expected || given > expected.next_multiple_of(8) {
            return Err(FaultKind::ArgumentSize { expected, given });
        }
        if launch.grid.contains(&0) || launch.block.contains(&0) {
            return configuration(format!(
                "a grid of {:?} blocks of {:?} work-items is empty",
                launch.grid, launch.block
            ));
        }
        let items: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
        if items > u64::from(kernel.info.max_block.min(1024)) {
            return configuration(format!(
                "a block of {items} work-items, where the kernel allows {}",
                kernel.info.max_block
            ));
        }
        let most = if self.arch() == "gfx950" { LDS_GFX950 } else { LDS };
        let lds = u64::from(kernel.info.lds) + u64::from(launch.dynamic_lds);
        if lds > u64::from(most) {
            return configuration(format!("{lds} bytes of LDS, where a block may have {most}"));
        }
        Ok(())
    }
}

/// The kernel argument segment, and before it the dispatch packet: freed when the launch is over.
struct Segment<'a> {
    program: &'a Program,
    /// Address of the dispatch packet.
    address: u64,
}

impl<'a> Segment<'a> {
    fn new(program: &'a Program, kernel: &Kernel, launch: &Launch<'_>) -> Result<Self, FaultKind> {
        let size = PACKET + u64::from(kernel.info.kernarg_size) + SLACK;
        let memory = &program.memory;
        let address = memory
            .allocate(size, Kind::Device(program.device), 256)
            .map_err(|error| FaultKind::Configuration {
                what: format!("{error} (the kernel's arguments)"),
            })?;
        let segment = Self { program, address };
        memory.write(address, &packet(kernel, launch, address + PACKET))?;
        memory.write(address + PACKET, &arguments(kernel, launch))?;
        Ok(segment)
    }
}

impl Drop for Segment<'_> {
    fn drop(&mut self) {
        self.program.memory.release(self.address);
    }
}

/// The dispatch packet, as the HSA runtime's specification lays it out.
fn packet(kernel: &Kernel, launch: &Launch<'_>, arguments: u64) -> [u8; PACKET as usize] {
    let mut packet = [0; PACKET as usize];
    let mut put = |at: usize, bytes: &[u8]| packet[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &2_u16.to_le_bytes());
    put(2, &3_u16.to_le_bytes());
    for axis in 0..3 {
        put(4 + 2 * axis, &(launch.block[axis] as u16).to_le_bytes());
        let items = launch.grid[axis].wrapping_mul(launch.block[axis]);
        put(12 + 4 * axis, &items.to_le_bytes());
    }
    put(24, &kernel.info.scratch.to_le_bytes());
    put(28, &(kernel.info.lds + launch.dynamic_lds).to_le_bytes());
    put(40, &arguments.to_le_bytes());
    packet
}

/// The given explicit arguments, and the hidden ones that LLVM's guide lists for HIP.
fn arguments(kernel: &Kernel, launch: &Launch<'_>) -> Vec<u8> {
    let mut bytes = vec![0; kernel.info.kernarg_size as usize];
    let given = launch.arguments.len().min(bytes.len());
    bytes[..given].copy_from_slice(&launch.arguments[..given]);
    for argument in &kernel.hidden {
        let axis = match argument.kind.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let value = match argument.kind.trim_start_matches("hidden_") {
            "block_count_x" | "block_count_y" | "block_count_z" => launch.grid[axis],
            "group_size_x" | "group_size_y" | "group_size_z" => launch.block[axis],
            "grid_dims" => {
                1 + (0..3)
                    .rposition(|axis| launch.grid[axis] > 1 || launch.block[axis] > 1)
                    .unwrap_or(0) as u32
            }
            "dynamic_lds_size" => launch.dynamic_lds,
            "shared_base" => SHARED_APERTURE,
            "private_base" => PRIVATE_APERTURE,
            // HIP has no remainders and no offsets. Host services (printf, malloc in kernels, …) get a null pointer, whose
            // use is an access out of bounds.
            _ => 0,
        };
        let (at, size) = (argument.offset as usize, argument.size.min(4) as usize);
        bytes[at..at + argument.size as usize].fill(0);
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    bytes
}

/// A running launch.
struct Grid<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    launch: &'a Launch<'a>,
    traits: Traits,
    code: &'a Code,
    /// Address of the dispatch packet.
    segment: u64,
    /// Of a profiled launch, how many blocks run.
    sample: Option<u64>,
}

impl Grid<'_> {
    /// The counts of a launch that is not profiled are empty.
    fn run(&self) -> Result<(Statistics, Profile), Fault> {
        let blocks: u64 = self.launch.grid.iter().map(|&n| u64::from(n)).product();
        let (first, count) = match self.sample {
            Some(sample) => sampled(self.launch.grid, sample),
            None => (0, blocks),
        };
        let end = first + count;
        let next = AtomicU64::new(first);
        let stopped = AtomicBool::new(false);
        // The fault of the earliest block, so that the report tends to be the same from run to run.
        let outcome: Mutex<(Statistics, Option<(u64, Fault)>)> = Mutex::default();
        let workers = (rayon::current_num_threads() as u64).min(count);
        let waves = self
            .launch
            .block
            .iter()
            .product::<u32>()
            .div_ceil(self.program.wave_size());
        let recorders = match self.sample {
            Some(_) => Recorder::for_threads(
                workers,
                self.code.texts(),
                waves as usize,
                self.program.wave_size(),
                self.program.arch().starts_with("gfx9"),
            ),
            None => Vec::new(),
        };
        let (recorders, recorded) = (Mutex::new(recorders), Mutex::new(Vec::new()));
        let work = || {
            let mut worker = Worker::new(self);
            worker.space.recorder = recorders
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop()
                .map(Box::new);
            let mut statistics = Statistics::default();
            while !stopped.load(Relaxed) {
                let turn = next.fetch_add(1, Relaxed);
                if turn >= end {
                    break;
                }
                if let Some(recorder) = &mut worker.space.recorder {
                    recorder.begin_block(turn);
                }
                let result = worker.run_block(self.block(turn, blocks));
                statistics.instructions += worker.instructions();
                statistics.waves += worker.waves.len() as u64;
                if let Err(fault) = result {
                    stopped.store(true, Relaxed);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    if outcome.1.as_ref().is_none_or(|(earlier, _)| turn < *earlier) {
                        outcome.1 = Some((turn, fault));
                    }
                }
            }
            recorded
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(worker.space.recorder.take());
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.0.instructions += statistics.instructions;
            outcome.0.waves += statistics.waves;
        };
        rayon::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|_| work());
            }
            work();
        });
        let (statistics, fault) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        match fault {
            Some((_, fault)) => Err(fault),
            None if self.sample.is_none() => Ok((statistics, Profile::default())),
            None => {
                let recorded = recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
                let recorded = recorded.into_iter().map(|recorder| *recorder).collect();
                let profile = Recorder::profile(recorded, self.code.texts(), blocks, u64::from(waves));
                Ok((statistics, profile))
            }
        }
    }

    /// The block that runs at this position of the order.
    fn block(&self, turn: u64, blocks: u64) -> [u32; 3] {
        let index = match self.launch.order {
            Order::Forward => turn,
            // A sample consists of neighbours, whatever the order.
            _ if self.sample.is_some() => turn,
            Order::Reversed => blocks - 1 - turn,
            Order::Shuffled(seed) => permuted(turn, blocks, seed),
        };
        let [x, y, _] = self.launch.grid.map(u64::from);
        [index % x, index / x % y, index / x / y].map(|n| n as u32)
    }
}

/// The first of the blocks that a sample takes, and how many. They are neighbours, because these share what they load, and
/// whole rows, whose blocks may differ.
fn sampled(grid: [u32; 3], most: u64) -> (u64, u64) {
    let [x, y, z] = grid.map(u64::from);
    if x * y * z <= most {
        return (0, x * y * z);
    }
    let unit = [x * y, x].into_iter().find(|&unit| unit <= most).unwrap_or(1);
    let (units, taken) = (x * y * z / unit, most / unit);
    ((units - taken) / 2 * unit, taken * unit)
}

/// Where `index` goes in a permutation of `0..count`: a Feistel network of four rounds over the next power of four,
/// walked until it is in range.
fn permuted(index: u64, count: u64, seed: u64) -> u64 {
    let bits = (u64::BITS - count.leading_zeros()).div_ceil(2);
    let mask = (1_u64 << bits) - 1;
    let mut index = index;
    loop {
        let (mut left, mut right) = (index >> bits, index & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ mix(right ^ seed.rotate_left(16 * round)) & mask);
        }
        index = left << bits | right;
        if index < count {
            return index;
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// At a barrier.
    Waits,
    Ended,
}

/// A thread's waves and memory, reused block after block.
struct Worker<'a> {
    grid: &'a Grid<'a>,
    waves: Vec<Wave>,
    states: Vec<State>,
    space: Space<'a>,
}

impl<'a> Worker<'a> {
    fn new(grid: &'a Grid<'a>) -> Self {
        let lanes = grid.program.wave_size();
        let items: u32 = grid.launch.block.iter().product();
        let waves = items.div_ceil(lanes);
        let (vgprs, agprs) = grid.kernel.allocated;
        // Code that names a register beyond the kernel's belongs to another kernel, and must not make this one panic.
        let [code_vgprs, code_agprs] = grid.code.registers();
        let vgprs = code_vgprs.max(vgprs as usize);
        let agprs = if code_agprs > 0 {
            code_agprs.max(agprs as usize)
        } else {
            0
        };
        let info = &grid.kernel.info;
        Self {
            waves: vec![Wave::new(lanes, vgprs, agprs); waves as usize],
            states: vec![State::Runs; waves as usize],
            space: Space::new(
                &grid.program.memory,
                grid.program.device,
                grid.launch.options,
                grid.program.image,
                info.lds + grid.launch.dynamic_lds,
                (waves, lanes, info.scratch),
            ),
            grid,
        }
    }

    fn instructions(&self) -> u64 {
        self.waves.iter().map(|wave| wave.executed).sum()
    }

    fn run_block(&mut self, block: [u32; 3]) -> Result<(), Fault> {
        self.space.begin_block();
        self.states.fill(State::Runs);
        for index in 0..self.waves.len() {
            self.begin_wave(index, block);
        }
        let mut order: Vec<_> = (0..self.waves.len()).collect();
        let mut phase = 0;
        while self.states.contains(&State::Runs) {
            self.order_waves(&mut order, block, phase);
            phase += 1;
            for &index in &order {
                if self.states[index] == State::Runs {
                    self.run_wave(index)
                        .map_err(|stopped| self.fault(block, index, stopped))?;
                }
            }
            if !self.states.contains(&State::Runs) {
                self.pass_barrier()
                    .map_err(|(index, stopped)| self.fault(block, index, stopped))?;
            }
        }
        Ok(())
    }

    /// The order of the waves in the next phase between barriers.
    fn order_waves(&self, order: &mut [usize], block: [u32; 3], phase: u64) {
        match self.grid.launch.order {
            Order::Forward => {}
            Order::Reversed if phase == 0 => order.reverse(),
            Order::Reversed => {}
            Order::Shuffled(seed) => {
                let count = order.len() as u64;
                let seed = block
                    .iter()
                    .fold(mix(seed ^ mix(phase)), |seed, &axis| mix(seed ^ u64::from(axis)));
                for (turn, wave) in order.iter_mut().enumerate() {
                    *wave = permuted(turn as u64, count, seed) as usize;
                }
            }
        }
    }

    /// Runs a wave until it ends, waits at a barrier or has used its time slice.
    fn run_wave(&mut self, index: usize) -> Result<(), Stopped> {
        let wave = &mut self.waves[index];
        self.space.enter(index as u32);
        let most = self.grid.launch.options.budget;
        wave.budget = TIME_SLICE.min(most - wave.executed.min(most));
        match interpreter::run(wave, self.grid.code, &mut self.space) {
            Ok(Stop::Barrier) => self.states[index] = State::Waits,
            Ok(Stop::End) => self.states[index] = State::Ended,
            // The end of its time slice.
            Err(stopped) if matches!(stopped.kind, FaultKind::Timeout { .. }) && wave.executed < most => {}
            Err(stopped) => return Err(stopped),
        }
        Ok(())
    }

    /// Every wave has ended or waits: releases those that wait, if they wait at the same barrier.
    fn pass_barrier(&mut self) -> Result<(), (usize, Stopped)> {
        let mut place = None;
        for (index, state) in self.states.iter_mut().enumerate() {
            if *state != State::Waits {
                continue;
            }
            let pc = self.waves[index].pc;
            match place {
                Some(other_pc) if other_pc != pc => {
                    let kind = FaultKind::BarrierDivergence { other_pc };
                    return Err((index, Stopped { kind, pc, lane: None }));
                }
                _ => place = Some(pc),
            }
            *state = State::Runs;
        }
        self.space.pass_barrier();
        Ok(())
    }

    fn fault(&self, block: [u32; 3], wave: usize, stopped: Stopped) -> Fault {
        Fault {
            kind: stopped.kind,
            kernel: self.grid.launch.kernel.to_owned(),
            place: Some(Place {
                pc: stopped.pc,
                instruction: self.grid.code.text_at(stopped.pc).to_owned(),
                block,
                wave: wave as u32,
                lane: stopped.lane,
            }),
        }
    }

    /// Registers as the hardware sets them before the first instruction: LLVM's guide, "Initial Kernel Execution State".
    fn begin_wave(&mut self, index: usize, block: [u32; 3]) {
        let grid = self.grid;
        let descriptor = &grid.kernel.descriptor;
        let wave = &mut self.waves[index];
        wave.reset();
        wave.index = index as u32;
        wave.pc = descriptor.entry;
        let (denormals_f32, denormals_f16_f64) = descriptor.denormals();
        wave.mode = Mode {
            denormals_f32,
            denormals_f16_f64,
        };

        let mut registers = Vec::with_capacity(32);
        let pair = |value: u64| [value as u32, (value >> 32) as u32];
        for (property, values) in [
            (0, &SCRATCH_DESCRIPTOR[..]),
            (1, &pair(grid.segment)),
            (2, &pair(0)),
            (3, &pair(grid.segment + PACKET)),
            (4, &pair(0)),
            (5, &pair(0)),
            (6, &[grid.kernel.info.scratch]),
        ] {
            if descriptor.has(property) {
                registers.extend_from_slice(values);
            }
        }
        // Registers of preloaded arguments: without preloading, kernels load the arguments themselves.
        registers.resize(descriptor.user_sgprs().max(registers.len()), 0);
        for (axis, index) in block.into_iter().enumerate() {
            if descriptor.block_index(axis) {
                registers.push(index);
            }
        }
        if descriptor.block_info() {
            registers.push(0);
        }
        if descriptor.uses_scratch() && !grid.traits.architected_flat_scratch {
            // The wave's offset in scratch memory.
            registers.push(0);
        }
        for (register, value) in registers.into_iter().enumerate() {
            wave.set_sgpr(register, value);
        }

        let [x, y, _] = grid.launch.block;
        let items: u32 = grid.launch.block.iter().product();
        let first = index as u32 * wave.lanes;
        let active = wave.lanes.min(items - first);
        for lane in 0..active {
            let item = first + lane;
            let indices = [item % x, item / x % y, item / x / y];
            let indices = &indices[..descriptor.item_indices().min(3)];
            if grid.traits.packed_items {
                let packed = indices
                    .iter()
                    .enumerate()
                    .fold(0, |packed, (axis, index)| packed | index << (10 * axis));
                wave.set_vgpr(0, lane, packed);
            } else {
                for (register, &index) in indices.iter().enumerate() {
                    wave.set_vgpr(register, lane, index);
                }
            }
        }
        wave.set_exec(u64::MAX >> (64 - active));
    }
}

#[cfg(test)]
mod tests {
    use super::{permuted, sampled};

    #[test]
    fn samples_are_whole_rows_from_the_middle() {
        assert_eq!(sampled([10, 1, 1], 10), (0, 10));
        assert_eq!(sampled([100, 1, 1], 10), (45, 10));
        assert_eq!(sampled([4, 100, 1], 10), (196, 8));
        assert_eq!(sampled([4, 2, 9], 16), (24, 16));
        assert_eq!(sampled([4, 2, 9], 1), (35, 1));
    }

    #[test]
    fn every_index_comes_once() {
        for count in [1, 2, 3, 4, 5, 63, 64, 65, 1000] {
            for seed in 0..8 {
                let mut order: Vec<_> = (0..count).map(|turn| permuted(turn, count, seed)).collect();
                let shuffled = order.clone();
                order.sort_unstable();
                assert!(order.iter().copied().eq(0..count), "{count} {seed}");
                assert!(count < 63 || shuffled != order);
            }
        }
    }
}
