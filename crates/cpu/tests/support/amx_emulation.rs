//! AMX for unit tests on processors without it: a handler of SIGILL executes the instructions.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Returns true if AMX is emulated.
pub(super) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Emulates AMX in this process, unless the processor has it.
pub(super) fn install() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        if super::amx::has_int8() && super::amx::has_bf16() {
            return;
        }
        // SAFETY: a structure of integers and of a set of signals, for which zeros are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the type that SA_SIGINFO asks for, and only works on the thread's registers and memory.
        let result = unsafe { libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()) };
        assert_eq!(result, 0, "cannot handle SIGILL");
        INSTALLED.store(true, Ordering::Release);
    });
}

/// The tile registers of a thread, and the rows and bytes of each; all zero until they are configured.
struct Registers {
    configured: bool,
    rows: [usize; 8],
    bytes: [usize; 8],
    data: [[[u8; 64]; 16]; 8],
}

const INITIAL: Registers = Registers {
    configured: false,
    rows: [0; 8],
    bytes: [0; 8],
    data: [[[0; 64]; 16]; 8],
};

thread_local!(static REGISTERS: UnsafeCell<Registers> = const { UnsafeCell::new(INITIAL) });

extern "C" fn handle(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the context of this thread, which waits for the handler.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize];
    // SAFETY: the processor has fetched an instruction there; those of AMX have at least five bytes, others at least two, and
    // code is followed by more of the program's.
    let code = unsafe { std::slice::from_raw_parts(at as *const u8, 10) };
    // SAFETY: the handler does not raise this signal itself, so that nothing else refers to the thread's registers.
    let length = REGISTERS.with(|tiles| unsafe { execute(&mut *tiles.get(), registers, code) });
    match length {
        Some(length) => registers[libc::REG_RIP as usize] = at + length,
        // It fails again, now as if nothing had handled it.
        // SAFETY: the default action of the signal.
        None => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

/// Returns a general register by its number in instructions.
fn general(registers: &[i64; 23], number: u8) -> i64 {
    const NAMES: [libc::c_int; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];
    registers[NAMES[usize::from(number)] as usize]
}

/// Executes an AMX instruction. Returns its length, or `None` for any other or an invalid instruction.
///
/// # Safety
///
/// The memory operands of the instruction must be accessible.
unsafe fn execute(tiles: &mut Registers, registers: &[i64; 23], code: &[u8]) -> Option<i64> {
    // VEX.128.0F38.W0 in three bytes: the inverted high bits of the registers, then vvvv, inverted, and the prefix.
    let &[0xc4, second, third, opcode, modrm, ..] = code else {
        return None;
    };
    if second & 0x1f != 2 || third & 0x84 != 0 {
        return None;
    }
    let (prefix, vvvv) = (third & 3, usize::from(!third >> 3 & 15));
    let (mode, reg, rm) = (modrm >> 6, usize::from(modrm >> 3 & 7), modrm & 7);
    // The address with the register of an index, which is the stride in bytes.
    let (base_high, index_high) = (!second >> 5 & 1, !second >> 6 & 1);
    let mut length = 5;
    let (mut address, mut stride) = (0, 0);
    if mode != 3 {
        let mut base = rm;
        if rm == 4 {
            let sib = code[5];
            length += 1;
            base = sib & 7;
            let index = sib >> 3 & 7 | index_high << 3;
            if index != 4 {
                stride = general(registers, index) << (sib >> 6);
            }
        }
        let displacement = match mode {
            0 if base == 5 => return None,
            0 => 0,
            1 => i64::from(code[length].cast_signed()),
            _ => i64::from(i32::from_le_bytes(
                code[length..length + 4].try_into().unwrap_or_default(),
            )),
        };
        length += [0, 1, 4][usize::from(mode)];
        address = general(registers, base | base_high << 3) + displacement;
    }
    const NONE: u8 = 0;
    const P66: u8 = 1;
    const PF3: u8 = 2;
    const PF2: u8 = 3;
    let row = |r: usize| (address + stride * r as i64) as *mut u8;
    match (opcode, prefix, mode) {
        // TILERELEASE
        (0x49, NONE, 3) if modrm == 0xc0 => *tiles = INITIAL,
        // LDTILECFG
        (0x49, NONE, 0..=2) if reg == 0 => {
            // SAFETY: the caller's, of 64 bytes.
            let configuration = unsafe { (address as *const [u8; 64]).read_unaligned() };
            let (head, rest) = configuration.split_at(16);
            let (bytes, rows) = rest.split_at(32);
            if head[0] != 1 || head[1..].iter().any(|&b| b != 0) {
                return None;
            }
            *tiles = INITIAL;
            tiles.configured = true;
            for tile in 0..8 {
                tiles.bytes[tile] = usize::from(u16::from_le_bytes([bytes[2 * tile], bytes[2 * tile + 1]]));
                tiles.rows[tile] = rows[tile].into();
                if tiles.bytes[tile] > 64 || tiles.rows[tile] > 16 {
                    return None;
                }
            }
        }
        _ if !tiles.configured => return None,
        // TILEZERO
        (0x49, PF2, 3) if rm == 0 => tiles.data[reg] = [[0; 64]; 16],
        // TILELOADD
        (0x4b, PF2, 0..=2) if rm == 4 => {
            tiles.data[reg] = [[0; 64]; 16];
            for (r, data) in tiles.data[reg].iter_mut().enumerate().take(tiles.rows[reg]) {
                // SAFETY: the caller's.
                unsafe { row(r).copy_to_nonoverlapping(data.as_mut_ptr(), tiles.bytes[reg]) };
            }
        }
        // TILESTORED
        (0x4b, PF3, 0..=2) if rm == 4 => {
            for (r, data) in tiles.data[reg].iter().enumerate().take(tiles.rows[reg]) {
                // SAFETY: the caller's.
                unsafe { row(r).copy_from_nonoverlapping(data.as_ptr(), tiles.bytes[reg]) };
            }
        }
        // TDPBUSD: the tile of `reg` gets the products of that of `rm`, unsigned, and that of `vvvv`, signed.
        (0x5e, P66, 3) => {
            let (a, b) = (&tiles.data[usize::from(rm)], &tiles.data[vvvv]);
            let mut sums = tiles.data[reg];
            for (sums, a) in sums.iter_mut().zip(a) {
                for (a, b) in a.as_chunks::<4>().0.iter().zip(b) {
                    for (sum, b) in sums.as_chunks_mut::<4>().0.iter_mut().zip(b.as_chunks::<4>().0) {
                        let products = a
                            .iter()
                            .zip(b)
                            .map(|(&a, &b)| i32::from(a) * i32::from(b.cast_signed()));
                        *sum = i32::from_le_bytes(*sum)
                            .wrapping_add(products.sum())
                            .to_le_bytes();
                    }
                }
            }
            tiles.data[reg] = sums;
        }
        // TDPBF16PS: likewise of bf16. The products with the even channels have a sum of their own, as have the odd ones.
        (0x5c, PF3, 3) => {
            let (a, b) = (&tiles.data[usize::from(rm)], &tiles.data[vvvv]);
            let mut sums = tiles.data[reg];
            for (sums, a) in sums.iter_mut().zip(a) {
                let mut parts = [[0f32; 2]; 16];
                for (a, b) in a.as_chunks::<4>().0.iter().zip(b) {
                    for (parts, b) in parts.iter_mut().zip(b.as_chunks::<4>().0) {
                        let pairs = a.as_chunks::<2>().0.iter().zip(b.as_chunks::<2>().0);
                        for (part, (a, b)) in parts.iter_mut().zip(pairs) {
                            *part = flushed(bf16(*a).mul_add(bf16(*b), *part));
                        }
                    }
                }
                for (sum, [even, odd]) in sums.as_chunks_mut::<4>().0.iter_mut().zip(parts) {
                    *sum = flushed(f32::from_le_bytes(*sum) + flushed(even + odd)).to_le_bytes();
                }
            }
            tiles.data[reg] = sums;
        }
        _ => return None,
    }
    Some(length as i64)
}

/// Returns a bf16 number of a tile.
fn bf16(bytes: [u8; 2]) -> f32 {
    flushed(half::bf16::from_le_bytes(bytes).to_f32())
}

/// Replaces a subnormal number by zero.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}
