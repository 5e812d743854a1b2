//! Decodes the blocks of a scan: Huffman-coded, sequential or progressive.

use super::bits::{Bits, extend};
use super::frame::{Component, Frame};
use super::huffman::Huffman;
use super::idct::Block;
use super::markers::{Markers, Scan, ScanComponent, Steps, ZIGZAG, next_marker};
use crate::decode::cancellation::Cancellation;
use crate::decode::failure::Failure;
use crate::error::ImageErrorKind;

/// End of a scan's data.
pub(super) struct End {
    /// Position at which to look for the next marker.
    pub(super) position: usize,
    /// True if libjpeg decodes the scan whatever follows: up to a marker, or as many bytes as it looks ahead.
    pub(super) suffices: bool,
}

/// Number of bytes that libjpeg looks ahead.
const LOOKAHEAD: usize = 7;

/// Reads the blocks of a scan.
///
/// Damage in a scan without restart markers is an error, because all blocks after it are lost.
///
/// With restart markers, decoding continues as in libjpeg: blocks up to the next marker are zero. A marker with an
/// unexpected number is accepted, skipped or kept for later. A scan whose data ends early is an error, unless damage
/// came before.
pub(super) struct Reader<'a> {
    bits: Bits<'a>,
    bytes: &'a [u8],
    restart_interval: usize,
    /// Number of MCUs until the next restart marker.
    left: usize,
    /// Low bits of the next restart marker.
    restart: u8,
    /// Previous DC coefficient of each component of the frame.
    before: [i32; 4],
    /// Number of blocks without further coefficients in a progressive scan.
    ended: u32,
    /// True if the interval has no more data.
    exhausted: bool,
    /// True if this scan or an earlier one contained damage that was skipped.
    resynchronised: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(markers: &Markers<'a>, scan: &Scan) -> Self {
        Self {
            bits: Bits::new(markers.bytes(), scan.data),
            bytes: markers.bytes(),
            restart_interval: markers.restart_interval,
            left: markers.restart_interval,
            restart: 0,
            before: [0; 4],
            ended: 0,
            exhausted: false,
            resynchronised: false,
        }
    }

    /// Passes a restart marker if one is due. Call it before each MCU.
    ///
    /// Returns false if the MCU has no data, so that its coefficients are 0.
    #[inline(always)]
    pub(super) fn start_mcu(&mut self) -> Result<bool, Failure> {
        if self.restart_interval == 0 {
            return Ok(true);
        }
        self.start_mcu_in_interval()
    }

    fn start_mcu_in_interval(&mut self) -> Result<bool, Failure> {
        self.check_interval()?;
        if self.left == 0 {
            self.pass_restart()?;
        }
        self.left -= 1;
        Ok(!self.exhausted)
    }

    /// Checks whether the last MCU took more data than the interval has.
    fn check_interval(&mut self) -> Result<(), Failure> {
        if !self.exhausted && self.bits.is_overrun() {
            let (marker, _) = next_marker(self.bytes, self.bits.position())?;
            self.pass_damage(marker, false)?;
            self.exhausted = true;
        }
        Ok(())
    }

    /// Records damage that ends at `marker`. `skipped` is true if data up to the marker was skipped.
    fn pass_damage(&mut self, marker: u8, skipped: bool) -> Result<(), Failure> {
        self.resynchronised |= skipped || is_restart(marker);
        if self.resynchronised {
            Ok(())
        } else {
            Err(ended_early(marker))
        }
    }

    /// Handles the next marker as libjpeg's `jpeg_resync_to_restart` does.
    #[cold]
    fn pass_restart(&mut self) -> Result<(), Failure> {
        let from = self.bits.position();
        let (mut marker, mut at) = next_marker(self.bytes, from)?;
        let between = self.bytes.get(from..at - 2).unwrap_or_default();
        let mut skipped = self.bits.whole_bytes() > 0 || between.iter().any(|&byte| byte != 0xFF);
        let passed = loop {
            match Resync::new(marker, self.restart) {
                Resync::Pass => break true,
                Resync::Wait => break false,
                Resync::Skip => {
                    skipped = true;
                    (marker, at) = next_marker(self.bytes, at)?;
                }
            }
        };
        if skipped || marker != 0xD0 | self.restart {
            self.pass_damage(marker, skipped)?;
        }
        if passed {
            self.bits = Bits::new(self.bytes, at);
            self.exhausted = false;
        } else {
            // Keep the marker, so that it is found again.
            self.bits = Bits::new(self.bytes, at - 2);
        }
        self.left = self.restart_interval;
        self.restart = (self.restart + 1) % 8;
        self.before = [0; 4];
        self.ended = 0;
        Ok(())
    }

    /// Returns an error if blocks so far were damaged or missing. Call it from time to time, and at the end.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        if self.restart_interval > 0 {
            return self.check_interval();
        }
        if self.bits.is_overrun() {
            let (marker, _) = next_marker(self.bytes, self.bits.position())?;
            return Err(ended_early(marker));
        }
        if self.bits.is_damaged() {
            return Err("damaged JPEG: its data has codes or coefficients that do not exist".into());
        }
        Ok(())
    }

    /// Returns the end of the data. Call it after the last MCU.
    pub(super) fn end(&self) -> End {
        let position = self.position();
        let unread = self.bytes.len().saturating_sub(position) + self.bits.whole_bytes();
        End {
            position,
            suffices: unread >= LOOKAHEAD || next_marker(self.bytes, position).is_ok(),
        }
    }

    /// Returns the position at which to look for the marker after the data.
    pub(super) fn position(&self) -> usize {
        self.bits.position()
    }

    /// Reads a block of a sequential scan. Passes the other coefficients to `put`, with their positions in file order, and
    /// returns the DC coefficient.
    ///
    /// Positions beyond 63, which damaged files reach, are those of the last coefficient.
    #[inline(always)]
    pub(super) fn sequential(
        &mut self,
        component: usize,
        dc: &Huffman,
        ac: &Huffman,
        mut put: impl FnMut(usize, i16),
    ) -> i16 {
        let mut bits = self.bits;
        let before = &mut self.before[component & 3];
        *before = before.wrapping_add(dc.difference(&mut bits));
        let first = *before as i16;
        let mut next = 1;
        while next < 64 {
            bits.refill();
            let entry = ac.entry(&mut bits);
            let run = usize::from(entry.symbol() >> 4);
            let value = if let Some(value) = entry.value() {
                value
            } else {
                let size = u32::from(entry.symbol() & 15);
                if size == 0 {
                    if run != 15 {
                        break;
                    }
                    next += 16;
                    continue;
                }
                extend(bits.take(size), size) as i16
            };
            next += run;
            put(next, value);
            next += 1;
        }
        if next > 64 {
            bits.mark_damaged();
        }
        self.bits = bits;
        first
    }

    fn first_dc(&mut self, component: usize, dc: &Huffman, low: u32, block: &mut Block) {
        let before = &mut self.before[component & 3];
        *before = before.wrapping_add(dc.difference(&mut self.bits));
        block[0] = (*before << low) as i16;
    }

    fn first_ac(&mut self, ac: &Huffman, scan: &Scan, block: &mut Block, filled: &mut u64) {
        if self.ended > 0 {
            self.ended -= 1;
            return;
        }
        let mut bits = self.bits;
        let mut next = scan.first;
        while next <= scan.last {
            bits.refill();
            let entry = ac.entry(&mut bits);
            let (run, size) = (u32::from(entry.symbol() >> 4), u32::from(entry.symbol() & 15));
            let value = if let Some(value) = entry.value() {
                value
            } else if size > 0 {
                extend(bits.take(size), size) as i16
            } else if run == 15 {
                next += 16;
                continue;
            } else {
                self.ended = (1 << run) + bits.take(run) - 1;
                break;
            };
            next += run as usize;
            set(block, filled, next, value << scan.low);
            next += 1;
        }
        if next > 64 {
            bits.mark_damaged();
        }
        self.bits = bits;
    }

    /// Reads one more bit of each non-zero coefficient, and the new coefficients.
    fn refine_ac(&mut self, ac: &Huffman, scan: &Scan, block: &mut Block, filled: &mut u64) {
        let bit = 1_i16 << scan.low;
        let mut bits = self.bits;
        let mut next = scan.first;
        if self.ended == 0 {
            while next <= scan.last {
                let symbol = ac.symbol(&mut bits);
                let mut run = usize::from(symbol >> 4);
                let new = match symbol & 15 {
                    0 if run < 15 => {
                        self.ended = (1 << run) + bits.take(run as u32);
                        break;
                    }
                    0 => 0,
                    _ => match bits.take(1) {
                        1 => bit,
                        _ => -bit,
                    },
                };
                // Pass `run` zeros, and stop at the next one.
                while next <= scan.last {
                    let ahead = within(*filled, next, scan.last);
                    let nonzero = if ahead == 0 {
                        scan.last + 1
                    } else {
                        ahead.trailing_zeros() as usize
                    };
                    if run < nonzero - next {
                        next += run;
                        break;
                    }
                    run -= nonzero - next;
                    next = nonzero;
                    if ahead != 0 {
                        refine(&mut bits, &mut block[usize::from(ZIGZAG[next & 127]) & 63], bit);
                        next += 1;
                    }
                }
                if new != 0 {
                    // As in libjpeg, this may be one position after the scan's last coefficient.
                    set(block, filled, next, new);
                    if next > scan.last {
                        bits.mark_damaged();
                    }
                }
                next += 1;
            }
        }
        if self.ended > 0 {
            let mut rest = within(*filled, next, scan.last);
            while rest != 0 {
                let at = usize::from(ZIGZAG[rest.trailing_zeros() as usize & 127]) & 63;
                refine(&mut bits, &mut block[at], bit);
                rest &= rest - 1;
            }
            self.ended -= 1;
        }
        self.bits = bits;
    }
}

/// Sets a coefficient by its position in file order, and its bit in `filled`.
#[inline(always)]
fn set(block: &mut Block, filled: &mut u64, position: usize, value: i16) {
    block[usize::from(ZIGZAG[position & 127]) & 63] = value;
    let bit = 1 << position.min(63);
    if value != 0 {
        *filled |= bit;
    } else {
        *filled &= !bit;
    }
}

/// Returns the bits of `filled` from position `first` to position `last`.
#[inline(always)]
fn within(filled: u64, first: usize, last: usize) -> u64 {
    if first > last.min(63) {
        return 0;
    }
    filled & (u64::MAX << first) & (u64::MAX >> (63 - last.min(63)))
}

/// Actions of libjpeg at a position where a restart marker is due.
enum Resync {
    /// Accept the marker as the expected one.
    Pass,
    /// Keep the marker for later, and treat the interval as empty.
    Wait,
    /// Continue with the next marker.
    Skip,
}

impl Resync {
    /// Chooses the action. `expected` are the low bits of the expected marker.
    fn new(marker: u8, expected: u8) -> Self {
        match marker {
            ..0xC0 => Self::Skip,
            0xD0..=0xD7 => match marker.wrapping_sub(expected) % 8 {
                // One of the next two markers.
                1 | 2 => Self::Wait,
                // One of the two previous markers.
                6 | 7 => Self::Skip,
                _ => Self::Pass,
            },
            _ => Self::Wait,
        }
    }
}

fn is_restart(marker: u8) -> bool {
    matches!(marker, 0xD0..=0xD7)
}

/// Reads one more bit of a non-zero coefficient.
#[inline(always)]
fn refine(bits: &mut Bits<'_>, coefficient: &mut i16, bit: i16) {
    if bits.take(1) == 1 && *coefficient & bit == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { bit } else { -bit });
    }
}

/// A component in a scan, with the tables that it needs.
#[derive(Clone, Copy)]
struct Part<'a> {
    index: usize,
    dc: Option<&'a Huffman>,
    ac: Option<&'a Huffman>,
}

/// Coefficients of an image with several scans: block after block, row by row.
pub(super) struct Coefficients {
    /// Blocks of each component, including those that complete MCUs.
    pub(super) blocks: Vec<Vec<Block>>,
    /// For each block, bits of the coefficients that are not 0, by their positions in file order. The bit of the DC
    /// coefficient has no meaning.
    pub(super) filled: Vec<Vec<u64>>,
    /// Quantisation steps of each component, as defined before its first scan.
    pub(super) steps: Vec<Option<Steps>>,
    /// Missing bits of precision of each component's coefficients, in file order. `None` before the first scan.
    pub(super) missing: Vec<[Option<u32>; 64]>,
    /// True if damage was skipped.
    resynchronised: bool,
}

impl Coefficients {
    pub(super) fn new(frame: &Frame) -> Self {
        let blocks = |component: &Component| {
            // Zeroed memory costs nothing until it is written.
            bytemuck::zeroed_vec(component.padded_wide * component.padded_high)
        };
        Self {
            blocks: frame.components.iter().map(blocks).collect(),
            filled: frame
                .components
                .iter()
                .map(|component| vec![0; component.padded_wide * component.padded_high])
                .collect(),
            steps: vec![None; frame.components.len()],
            missing: vec![[None; 64]; frame.components.len()],
            resynchronised: false,
        }
    }

    /// Returns the number of bytes of a frame's coefficients.
    pub(super) fn bytes(frame: &Frame) -> u64 {
        let blocks = |component: &Component| component.padded_wide * component.padded_high;
        let blocks = frame.components.iter().map(|component| blocks(component) as u64);
        blocks.sum::<u64>() * (size_of::<Block>() + size_of::<u64>()) as u64
    }

    /// Adds the coefficients of a scan. Returns the end of its data.
    pub(super) fn add(
        &mut self,
        frame: &Frame,
        markers: &Markers<'_>,
        scan: &Scan,
        cancellation: Cancellation<'_>,
    ) -> Result<usize, Failure> {
        let mut reader = Reader::new(markers, scan);
        reader.resynchronised = self.resynchronised;
        for &ScanComponent { index, .. } in &scan.components {
            if self.steps[index].is_none() {
                self.steps[index] = Some(markers.steps(frame.components[index].table)?);
            }
            let seen = if frame.progressive {
                scan.first..scan.last + 1
            } else {
                0..64
            };
            self.missing[index][seen].fill(Some(if frame.progressive { scan.low } else { 0 }));
        }
        // The kind of scan decides which tables are required.
        let refines = frame.progressive && scan.high > 0;
        let dc_scan = !frame.progressive || scan.first == 0;
        let ac_scan = !frame.progressive || scan.first > 0;
        let mut parts = Vec::new();
        for component in &scan.components {
            let dc = (dc_scan && !refines).then(|| markers.dc(component.dc));
            let ac = ac_scan.then(|| markers.ac(component.ac));
            parts.push(Part {
                index: component.index,
                dc: dc.transpose()?,
                ac: ac.transpose()?,
            });
        }
        let decode = |reader: &mut Reader<'_>, part: Part<'_>, block: &mut Block, filled: &mut u64| match (
            part.dc, part.ac,
        ) {
            (Some(dc), Some(ac)) => {
                block[0] = reader.sequential(part.index, dc, ac, |next, value| {
                    set(block, filled, next, value);
                });
            }
            (Some(dc), None) => reader.first_dc(part.index, dc, scan.low, block),
            (None, Some(ac)) if refines => reader.refine_ac(ac, scan, block, filled),
            (None, Some(ac)) => reader.first_ac(ac, scan, block, filled),
            (None, None) => block[0] |= (reader.bits.take(1) << scan.low) as i16,
        };
        if let [part] = parts[..] {
            let component = &frame.components[part.index];
            let rows = self.blocks[part.index].chunks_mut(component.padded_wide);
            let filled = self.filled[part.index].chunks_mut(component.padded_wide);
            for (row, filled) in rows.zip(filled).take(component.blocks_high) {
                cancellation.check()?;
                for (block, filled) in row.iter_mut().zip(filled).take(component.blocks_wide) {
                    if reader.start_mcu()? {
                        decode(&mut reader, part, block, filled);
                    }
                }
                reader.check()?;
            }
        } else {
            for mcu_y in 0..frame.mcus_high {
                cancellation.check()?;
                for mcu_x in 0..frame.mcus_wide {
                    if !reader.start_mcu()? {
                        continue;
                    }
                    for &part in &parts {
                        let component = &frame.components[part.index];
                        for y in 0..component.v {
                            let first =
                                (mcu_y * component.v + y) * component.padded_wide + mcu_x * component.h;
                            let blocks = &mut self.blocks[part.index][first..first + component.h];
                            let filled = &mut self.filled[part.index][first..first + component.h];
                            for (block, filled) in blocks.iter_mut().zip(filled) {
                                decode(&mut reader, part, block, filled);
                            }
                        }
                    }
                }
                reader.check()?;
            }
        }
        reader.check()?;
        self.resynchronised = reader.resynchronised;
        Ok(reader.position())
    }
}

/// Returns the error for a marker in place of data.
fn ended_early(marker: u8) -> Failure {
    match marker {
        0xD0..=0xD7 => "damaged JPEG: a restart marker is not where it should be".into(),
        _ => Failure {
            kind: ImageErrorKind::Truncated,
            reason: "truncated JPEG: a scan ends before its last pixels".into(),
        },
    }
}
