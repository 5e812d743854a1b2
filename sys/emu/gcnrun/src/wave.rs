//! The registers of one wave, and which of their bits are initialised.
//!
//! A bit is *known* if it was computed from initialised bits. Registers begin unknown, with a poison value that is a NaN in every
//! float type. [`isa`](crate::isa) propagates which bits are known, and [`run`](crate::run) sets what the hardware sets before
//! the first instruction.

/// The value of unknown registers: a quiet NaN as `f32`, and as either half of an `f16` or `bf16` pair.
pub(crate) const POISON: u32 = 0x7fff_7fff;

/// Index of `vcc_lo` among the scalar registers.
pub(crate) const VCC: usize = 106;
/// Index of `ttmp0` among the scalar registers.
pub(crate) const TTMP: usize = 108;
/// Index of `m0` among the scalar registers, on every architecture.
pub(crate) const M0: usize = 125;
/// Index of `exec_lo` among the scalar registers.
pub(crate) const EXEC: usize = 126;
/// Index of the first accumulation register among the vector registers.
pub(crate) const AGPR: usize = 256;

/// The bits of MODE that affect arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Two bits: whether denormal `f32` inputs (1) and results (2) are kept. 3 keeps both, 0 flushes both.
    pub denormals_f32: u8,
    /// Treatment of `f16` and `f64` denormals, with the same bits.
    pub denormals_f16_f64: u8,
}

impl Default for Mode {
    fn default() -> Self {
        Self {
            denormals_f32: 3,
            denormals_f16_f64: 3,
        }
    }
}

/// One value per lane.
pub(crate) type Row = [u32; 64];

/// One wave of 32 or 64 lanes.
#[derive(Clone, Debug)]
pub(crate) struct Wave {
    /// 32 or 64.
    pub lanes: u32,
    /// Index of this wave in its block.
    pub index: u32,
    /// Address of the next instruction.
    pub pc: u64,
    /// The scalar condition code.
    pub scc: bool,
    /// True if [`scc`](Self::scc) is known.
    pub scc_known: bool,
    /// Scalar registers: 0 to 105, `vcc` at [`VCC`], `ttmp0` at 108, `m0` at [`M0`], `exec` at [`EXEC`].
    pub sgpr: [u32; 128],
    /// Known bits of the scalar registers.
    pub sgpr_known: [u32; 128],
    /// Vector registers; the accumulation registers begin at [`AGPR`]. The last row is the interpreter's own.
    pub vgpr: Vec<Row>,
    /// The lanes whose low and whose high 16 bits are known, for each vector register.
    pub vgpr_known: Vec<[u64; 2]>,
    /// Treatment of denormals by arithmetic.
    pub mode: Mode,
    /// Instructions executed.
    pub executed: u64,
    /// Four times the number of clock reads, so that clocks advance, and the time that its block has slept.
    pub(crate) clock: u64,
    /// Instructions that it may still execute before it is reported as hung.
    pub budget: u64,
}

impl Wave {
    /// A wave whose registers are all unknown and whose lanes are all inactive.
    pub(crate) fn new(lanes: u32, vgprs: usize, agprs: usize) -> Self {
        let rows = if agprs > 0 { AGPR + agprs } else { vgprs } + 1;
        let mut wave = Self {
            lanes,
            index: 0,
            pc: 0,
            scc: false,
            scc_known: false,
            sgpr: [POISON; 128],
            sgpr_known: [0; 128],
            vgpr: vec![[POISON; 64]; rows],
            vgpr_known: vec![[0; 2]; rows],
            mode: Mode::default(),
            executed: 0,
            clock: 0,
            budget: u64::MAX,
        };
        wave.reset();
        wave
    }

    /// Resets it, so that its memory is reused for the next block.
    pub(crate) fn reset(&mut self) {
        self.pc = 0;
        self.scc = false;
        self.scc_known = false;
        self.sgpr = [POISON; 128];
        self.sgpr_known = [0; 128];
        self.vgpr.fill([POISON; 64]);
        self.vgpr_known.fill([0; 2]);
        self.mode = Mode::default();
        self.executed = 0;
        self.clock = 0;
        self.set_exec(0);
    }

    /// Makes every register known, whatever it holds.
    pub(crate) fn know_all(&mut self) {
        self.sgpr_known = [u32::MAX; 128];
        self.scc_known = true;
        self.vgpr_known.fill([u64::MAX; 2]);
    }

    /// The active lanes.
    #[inline]
    pub(crate) fn exec(&self) -> u64 {
        self.mask(EXEC)
    }

    /// Makes these lanes active.
    #[inline]
    pub(crate) fn set_exec(&mut self, lanes: u64) {
        self.set_sgpr(EXEC, lanes as u32);
        self.set_sgpr(EXEC + 1, if self.lanes == 64 { (lanes >> 32) as u32 } else { 0 });
    }

    /// A lane mask held in one scalar register (32 lanes) or two (64 lanes).
    #[inline]
    pub(crate) fn mask(&self, register: usize) -> u64 {
        let low = u64::from(self.sgpr[register]);
        if self.lanes == 64 {
            low | u64::from(self.sgpr[register + 1]) << 32
        } else {
            low
        }
    }

    /// All lanes that the wave has.
    #[inline]
    pub(crate) fn all_lanes(&self) -> u64 {
        u64::MAX >> (64 - self.lanes)
    }

    /// Writes a scalar register: it is known from now on.
    #[inline]
    pub(crate) fn set_sgpr(&mut self, register: usize, value: u32) {
        self.sgpr[register] = value;
        self.sgpr_known[register] = u32::MAX;
    }

    /// Writes one lane of a vector register: it is known from now on.
    #[inline]
    pub(crate) fn set_vgpr(&mut self, register: usize, lane: u32, value: u32) {
        self.vgpr[register][lane as usize] = value;
        self.vgpr_known[register][0] |= 1 << lane;
        self.vgpr_known[register][1] |= 1 << lane;
    }
}
