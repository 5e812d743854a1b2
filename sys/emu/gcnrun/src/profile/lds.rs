//! Cycles of LDS accesses: 32 banks of a dword each. A wave's access is executed in groups of lanes, each of 128 bytes. Within a
//! group, different dwords of one bank take a cycle each, and the same dword is broadcast.

/// Groups of eight lanes in which 16 bytes per lane are loaded, for the first 32 lanes of a wave of 64. The other lanes repeat
/// them. AMD documents them in Composable Kernel's "Understanding AMD GPU LDS and Bank Conflicts".
const LOADS_OF_16: [[usize; 8]; 4] = [
    [0, 1, 2, 3, 20, 21, 22, 23],
    [4, 5, 6, 7, 16, 17, 18, 19],
    [8, 9, 10, 11, 28, 29, 30, 31],
    [12, 13, 14, 15, 24, 25, 26, 27],
];

/// Cycles of an access of `bytes` bytes at each active lane's offset, and how many of them are due to bank conflicts.
pub(super) fn cycles(offsets: &[u64; 64], exec: u64, lanes: u32, bytes: u32, load: bool) -> (u64, u64) {
    let dwords = bytes.div_ceil(4);
    // Lanes of a group: as many as load 128 bytes, a power of two.
    let size = (32 / dwords.next_power_of_two()).max(1) as usize;
    let mut total = (0, 0);
    for group in 0..lanes as usize / size {
        let member = |i: usize| match (load, size, lanes) {
            (true, 8, 64) => 32 * (group / 4) + LOADS_OF_16[group % 4][i],
            _ => group * size + i,
        };
        let mut banks: [Vec<u64>; 32] = Default::default();
        for lane in (0..size).map(member).filter(|lane| exec >> lane & 1 == 1) {
            for dword in 0..u64::from(dwords) {
                let dword = (offsets[lane] & 0xffff_ffff) / 4 + dword;
                let bank = &mut banks[dword as usize % 32];
                if !bank.contains(&dword) {
                    bank.push(dword);
                }
            }
        }
        let busiest = banks.iter().map(Vec::len).max().unwrap_or(0) as u64;
        total.0 += busiest;
        total.1 += busiest.saturating_sub(1);
    }
    total
}
