//! Runs a launch: sets each wave's initial registers, schedules blocks and waves, and handles barriers.
//! [`interpreter`] executes the waves.

mod segment;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::code::{Code, Stop};
use crate::fault::{Fault, FaultKind, Place};
use crate::interpreter::{self, Stopped};
use crate::launch::{Checks, Launch, Order, Statistics};
use crate::object::{Kernel, Program, Traits};
use crate::observer::Observer;
use crate::order::{mix, permuted, sampled};
use crate::profile::{Profile, Recorder};
use crate::space::{SCRATCH_DESCRIPTOR, Space};
use crate::taint::{Taint, Tracer};
use crate::wave::{Mode, TTMP, Wave};
use segment::{PACKET, Segment};

/// LDS of a compute unit, in bytes: the most that a block may have.
const LDS: u32 = 65536;
const LDS_GFX950: u32 = 163_840;
/// Instructions that a wave executes before another wave of its block runs: waves may wait for each other without a barrier.
const TIME_SLICE: u64 = 1 << 20;
impl Program {
    /// Runs a kernel to its end. Blocks run on all cores.
    ///
    /// # Errors
    ///
    /// The first fault; or why the kernel cannot be launched. Memory is then as the kernel left it.
    pub fn launch(&self, launch: &Launch<'_>) -> Result<Statistics, Fault> {
        let (statistics, _) = self.start(launch, Watch::Nothing, None)?;
        Ok(statistics)
    }

    /// Launches a kernel that may wait for others, of other devices. It runs on the calling thread, a block after the other.
    /// `pause` is called when all waves of a block that can run have executed `s_sleep`. Kernels that wait for each other need
    /// the same order of blocks, because a block runs to its end before the next one begins. See [`Program::launch`].
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the launch does not fit the kernel, or the kernel does something wrong.
    pub fn launch_waiting(
        &self,
        launch: &Launch<'_>,
        pause: &(dyn Fn() + Sync),
    ) -> Result<Statistics, Fault> {
        let (statistics, _) = self.start(launch, Watch::Nothing, Some(pause))?;
        Ok(statistics)
    }

    /// True if a kernel of the program may wait for others: there is an `s_sleep`.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.code().is_ok_and(Code::sleeps)
    }

    /// Launches a kernel and counts what it executes. If the grid has more than `sample` blocks, at most `sample` blocks run. They are
    /// neighbours from the middle, in whole rows unless one row has more blocks. The results of all other blocks are missing. See
    /// [`Program::launch`].
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the launch does not fit the kernel, or the kernel does something wrong.
    pub fn profile(&self, launch: &Launch<'_>, sample: u64) -> Result<Profile, Fault> {
        let (_, watched) = self.start(launch, Watch::Count(sample.max(1)), None)?;
        match watched {
            Watched::Profile(profile) => Ok(*profile),
            _ => Ok(Profile::default()),
        }
    }

    /// Launches a kernel and follows the bytes that [`Memory::taint`](crate::Memory::taint) marked. Nothing else counts as
    /// uninitialised then. See [`Program::launch`].
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the launch does not fit the kernel, or the kernel does something wrong.
    pub fn taint(&self, launch: &Launch<'_>) -> Result<Taint, Fault> {
        let launch = Launch {
            options: Checks {
                uninitialised: false,
                ..launch.options
            },
            ..*launch
        };
        let (_, watched) = self.start(&launch, Watch::Follow, None)?;
        match watched {
            Watched::Taint(taint) => Ok(*taint),
            _ => Ok(Taint::default()),
        }
    }

    fn start(
        &self,
        launch: &Launch<'_>,
        watch: Watch,
        pause: Option<&(dyn Fn() + Sync)>,
    ) -> Result<(Statistics, Watched), Fault> {
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
            watch,
            pause,
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

/// Observation of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Nothing,
    /// Counts everything, in at most this number of blocks.
    Count(u64),
    /// Marked bytes are followed.
    Follow,
}

/// Result of the observation.
enum Watched {
    Nothing,
    Profile(Box<Profile>),
    Taint(Box<Taint>),
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
    watch: Watch,
    /// Lets other kernels run, of a launch that may wait for them.
    pause: Option<&'a (dyn Fn() + Sync)>,
}

impl Grid<'_> {
    fn run(&self) -> Result<(Statistics, Watched), Fault> {
        let blocks: u64 = self.launch.grid.iter().map(|&n| u64::from(n)).product();
        let (first, count) = match self.watch {
            Watch::Count(sample) => sampled(self.launch.grid, sample),
            Watch::Nothing | Watch::Follow => (0, blocks),
        };
        let end = first + count;
        let next = AtomicU64::new(first);
        let stopped = AtomicBool::new(false);
        // The fault of the earliest block, so that the report tends to be the same from run to run.
        let outcome: Mutex<(Statistics, Option<(u64, Fault)>)> = Mutex::default();
        let workers = match self.pause {
            Some(_) => 1,
            None => (rayon::current_num_threads() as u64).min(count),
        };
        let waves = self
            .launch
            .block
            .iter()
            .product::<u32>()
            .div_ceil(self.program.wave_size());
        let observers: Vec<Observer> = match self.watch {
            Watch::Count(_) => Recorder::for_threads(
                workers,
                self.code.texts(),
                waves as usize,
                self.program.wave_size(),
                self.program.arch(),
            )
            .into_iter()
            .map(|recorder| Observer::Recorder(Box::new(recorder)))
            .collect(),
            Watch::Follow => Tracer::for_threads(workers, self.code.texts(), waves as usize)
                .into_iter()
                .map(|tracer| Observer::Tracer(Box::new(tracer)))
                .collect(),
            Watch::Nothing => Vec::new(),
        };
        let (observers, observed) = (Mutex::new(observers), Mutex::new(Vec::new()));
        let work = || {
            let mut worker = Worker::new(self);
            worker.space.observer = observers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if self.watch == Watch::Follow {
                worker.space.know_all();
            }
            let mut statistics = Statistics::default();
            while !stopped.load(Relaxed) {
                let turn = next.fetch_add(1, Relaxed);
                if turn >= end {
                    break;
                }
                let block = self.block(turn, blocks);
                if let Some(observer) = &mut worker.space.observer {
                    observer.begin_block(turn, block);
                }
                let result = worker.run_block(block);
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
            observed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(worker.space.observer.take());
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.0.instructions += statistics.instructions;
            outcome.0.waves += statistics.waves;
        };
        match self.pause {
            // While it waits, Rayon's threads are others'.
            Some(_) => work(),
            None => rayon::scope(|scope| {
                for _ in 1..workers {
                    scope.spawn(|_| work());
                }
                work();
            }),
        }
        let (statistics, fault) = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        match fault {
            Some((_, fault)) => Err(fault),
            None => {
                let observed = observed.into_inner().unwrap_or_else(PoisonError::into_inner);
                let (mut recorders, mut tracers) = (Vec::new(), Vec::new());
                for observer in observed {
                    match observer {
                        Observer::Recorder(recorder) => recorders.push(*recorder),
                        Observer::Tracer(tracer) => tracers.push(*tracer),
                    }
                }
                let watched = match self.watch {
                    Watch::Nothing => Watched::Nothing,
                    Watch::Count(_) => {
                        let code = self.code.texts();
                        let profile = Recorder::profile(recorders, code, blocks, u64::from(waves));
                        Watched::Profile(Box::new(profile))
                    }
                    Watch::Follow => {
                        let code = |index| (self.code.address_of(index), self.code.text_of(index as usize));
                        Watched::Taint(Box::new(Tracer::taint(tracers, code)))
                    }
                };
                Ok((statistics, watched))
            }
        }
    }

    /// The block that runs at this position of the order.
    fn block(&self, turn: u64, blocks: u64) -> [u32; 3] {
        let index = match self.launch.order {
            Order::Forward => turn,
            // A sample consists of neighbours, whatever the order.
            _ if matches!(self.watch, Watch::Count(_)) => turn,
            Order::Reversed => blocks - 1 - turn,
            Order::Shuffled(seed) => permuted(turn, blocks, seed),
        };
        let [x, y, _] = self.launch.grid.map(u64::from);
        [index % x, index / x % y, index / x / y].map(|n| n as u32)
    }
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
            let mut asleep = true;
            for &index in &order {
                if self.states[index] == State::Runs {
                    asleep &= self
                        .run_wave(index)
                        .map_err(|stopped| self.fault(block, index, stopped))?;
                }
            }
            if asleep {
                self.pause();
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

    /// Lets others run that the block waits for. Waves' clocks go on by the time that it takes, at 100 MHz.
    fn pause(&mut self) {
        let begun = Instant::now();
        match self.grid.pause {
            Some(pause) => pause(),
            None => std::thread::yield_now(),
        }
        let ticks = begun.elapsed().as_nanos() as u64 / 10;
        self.waves.iter_mut().for_each(|wave| wave.clock += ticks);
    }

    /// Runs a wave until it ends, waits at a barrier, sleeps or has used its time slice; whether it sleeps.
    fn run_wave(&mut self, index: usize) -> Result<bool, Stopped> {
        let wave = &mut self.waves[index];
        self.space.enter(index as u32);
        let most = self.grid.launch.options.budget;
        wave.budget = TIME_SLICE.min(most - wave.executed.min(most));
        match interpreter::run(wave, self.grid.code, &mut self.space) {
            Ok(Stop::Barrier) => self.states[index] = State::Waits,
            Ok(Stop::End) => self.states[index] = State::Ended,
            Ok(Stop::Sleep) => return Ok(true),
            // The end of its time slice.
            Err(stopped) if matches!(stopped.kind, FaultKind::Timeout { .. }) && wave.executed < most => {}
            Err(stopped) => return Err(stopped),
        }
        Ok(false)
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
        if grid.watch == Watch::Follow {
            wave.know_all();
        }
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
            if descriptor.block_index(axis) && !grid.traits.block_in_ttmp {
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
        if grid.traits.block_in_ttmp {
            wave.set_sgpr(TTMP + 9, block[0]);
            wave.set_sgpr(TTMP + 7, block[1] & 0xffff | block[2] << 16);
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
