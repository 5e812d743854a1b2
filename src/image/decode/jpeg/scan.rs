//! The blocks of a scan: Huffman-coded, sequential or progressive.

use super::bits::{Bits, extend};
use super::frame::{Component, Frame};
use super::huffman::Huffman;
use super::idct::Block;
use super::markers::{Markers, Scan, ScanComponent, Steps, ZIGZAG, next_marker};
use crate::error::ImageErrorKind;
use crate::image::decode::Failure;

/// Where a scan's data stands.
pub(super) struct Reader<'a> {
    bits: Bits<'a>,
    bytes: &'a [u8],
    restart_interval: usize,
    /// MCUs up to the next restart marker.
    left: usize,
    /// The low bits of the next restart marker.
    restart: u8,
    /// The DC coefficient before, by the frame's components.
    before: [i32; 4],
    /// Blocks that have no more coefficients in a progressive scan.
    ended: u32,
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
        }
    }

    /// To be called before each MCU: passes a restart marker if one is due.
    #[inline(always)]
    pub(super) fn start_mcu(&mut self) -> Result<(), Failure> {
        if self.restart_interval > 0 {
            if self.left == 0 {
                self.pass_restart()?;
            }
            self.left -= 1;
        }
        Ok(())
    }

    #[cold]
    fn pass_restart(&mut self) -> Result<(), Failure> {
        self.check()?;
        let (marker, at) = next_marker(self.bytes, self.bits.position())?;
        if marker != 0xD0 | self.restart {
            return Err(ended_early(marker));
        }
        self.bits = Bits::new(self.bytes, at);
        self.left = self.restart_interval;
        self.restart = (self.restart + 1) % 8;
        self.before = [0; 4];
        self.ended = 0;
        Ok(())
    }

    /// Whether all blocks until now were there. To be called now and then, and at the end.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if !self.bits.overrun() {
            return Ok(());
        }
        let (marker, _) = next_marker(self.bytes, self.bits.position())?;
        Err(ended_early(marker))
    }

    /// Where to look for the marker behind the data.
    pub(super) fn position(&self) -> usize {
        self.bits.position()
    }

    /// Reads a block of a sequential scan and multiplies it with its quantisation steps. Returns the place in the order of
    /// the file of the last coefficient that may differ from 0.
    #[inline(always)]
    pub(super) fn sequential(
        &mut self,
        component: usize,
        dc: &Huffman,
        ac: &Huffman,
        steps: &Steps,
        block: &mut Block,
    ) -> Result<usize, Failure> {
        let mut bits = self.bits;
        let before = &mut self.before[component & 3];
        *before = before.wrapping_add(dc.difference(&mut bits)?);
        block[0] = (*before as i16).wrapping_mul(steps[0]);
        let (mut next, mut last) = (1, 0);
        while next < 64 {
            bits.refill();
            let entry = ac.entry(&mut bits)?;
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
            last = next;
            let at = usize::from(ZIGZAG[next & 127]) & 63;
            block[at] = value.wrapping_mul(steps[at]);
            next += 1;
        }
        if next > 64 {
            return Err(too_many());
        }
        self.bits = bits;
        Ok(last)
    }

    fn first_dc(
        &mut self,
        component: usize,
        dc: &Huffman,
        low: u32,
        block: &mut Block,
    ) -> Result<(), Failure> {
        let before = &mut self.before[component & 3];
        *before = before.wrapping_add(dc.difference(&mut self.bits)?);
        block[0] = (*before << low) as i16;
        Ok(())
    }

    fn first_ac(&mut self, ac: &Huffman, scan: &Scan, block: &mut Block) -> Result<(), Failure> {
        if self.ended > 0 {
            self.ended -= 1;
            return Ok(());
        }
        let mut bits = self.bits;
        let mut next = scan.first;
        while next <= scan.last {
            bits.refill();
            let entry = ac.entry(&mut bits)?;
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
            block[usize::from(ZIGZAG[next & 127]) & 63] = value << scan.low;
            next += 1;
        }
        if next > 64 {
            return Err(too_many());
        }
        self.bits = bits;
        Ok(())
    }

    /// One more bit of each coefficient that is not 0, and those that are new.
    fn refine_ac(&mut self, ac: &Huffman, scan: &Scan, block: &mut Block) -> Result<(), Failure> {
        let bit = 1_i16 << scan.low;
        let mut bits = self.bits;
        let mut next = scan.first;
        if self.ended == 0 {
            while next <= scan.last {
                let symbol = ac.symbol(&mut bits)?;
                let mut run = u32::from(symbol >> 4);
                let new = match symbol & 15 {
                    0 if run < 15 => {
                        self.ended = (1 << run) + bits.take(run);
                        break;
                    }
                    0 => 0,
                    _ => match bits.take(1) {
                        1 => bit,
                        _ => -bit,
                    },
                };
                while next <= scan.last {
                    let coefficient = &mut block[usize::from(ZIGZAG[next & 127]) & 63];
                    if *coefficient != 0 {
                        refine(&mut bits, coefficient, bit);
                    } else if run == 0 {
                        *coefficient = new;
                        break;
                    } else {
                        run -= 1;
                    }
                    next += 1;
                }
                if next > scan.last && new != 0 {
                    return Err(too_many());
                }
                next += 1;
            }
        }
        if self.ended > 0 {
            for place in next..=scan.last {
                let coefficient = &mut block[usize::from(ZIGZAG[place & 127]) & 63];
                if *coefficient != 0 {
                    refine(&mut bits, coefficient, bit);
                }
            }
            self.ended -= 1;
        }
        self.bits = bits;
        Ok(())
    }
}

/// One more bit of a coefficient that is not 0.
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

/// The coefficients of an image whose scans have parts of it: a block after the other, row by row.
pub(super) struct Coefficients {
    /// By component, of whole MCUs.
    pub(super) blocks: Vec<Vec<Block>>,
    /// As the first scan of each component found them.
    pub(super) steps: Vec<Option<Steps>>,
    /// For each component's coefficients, in the order of the file, the bits of precision that are missing; `None` before
    /// its first scan.
    pub(super) missing: Vec<[Option<u32>; 64]>,
}

impl Coefficients {
    pub(super) fn new(frame: &Frame) -> Self {
        let blocks = |component: &Component| {
            // Memory that is not written costs nothing.
            bytemuck::zeroed_vec(component.padded_wide * component.padded_high)
        };
        Self {
            blocks: frame.components.iter().map(blocks).collect(),
            steps: vec![None; frame.components.len()],
            missing: vec![[None; 64]; frame.components.len()],
        }
    }

    /// The bytes of a frame's coefficients.
    pub(super) fn bytes(frame: &Frame) -> u64 {
        let blocks = |component: &Component| component.padded_wide * component.padded_high;
        let blocks = frame.components.iter().map(|component| blocks(component) as u64);
        blocks.sum::<u64>() * size_of::<Block>() as u64
    }

    /// Adds what a scan has. Returns where it ends.
    pub(super) fn add(
        &mut self,
        frame: &Frame,
        markers: &Markers<'_>,
        scan: &Scan,
    ) -> Result<usize, Failure> {
        let unit: Steps = [1; 64];
        let mut reader = Reader::new(markers, scan);
        for &ScanComponent { index, .. } in &scan.components {
            if self.steps[index].is_none() {
                self.steps[index] = Some(markers.steps(frame.components[index].table)?);
            }
            let seen = match frame.progressive {
                true => scan.first..scan.last + 1,
                false => 0..64,
            };
            self.missing[index][seen].fill(Some(if frame.progressive { scan.low } else { 0 }));
        }
        // Which tables there must be depends on the kind of scan.
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
        let decode = |reader: &mut Reader<'_>, part: Part<'_>, block: &mut Block| match (part.dc, part.ac) {
            (Some(dc), Some(ac)) => reader.sequential(part.index, dc, ac, &unit, block).map(|_| ()),
            (Some(dc), None) => reader.first_dc(part.index, dc, scan.low, block),
            (None, Some(ac)) if refines => reader.refine_ac(ac, scan, block),
            (None, Some(ac)) => reader.first_ac(ac, scan, block),
            (None, None) => {
                block[0] |= (reader.bits.take(1) << scan.low) as i16;
                Ok(())
            }
        };
        if let [part] = parts[..] {
            let component = &frame.components[part.index];
            let rows = self.blocks[part.index].chunks_mut(component.padded_wide);
            for row in rows.take(component.blocks_high) {
                for block in row.iter_mut().take(component.blocks_wide) {
                    reader.start_mcu()?;
                    decode(&mut reader, part, block)?;
                }
                reader.check()?;
            }
        } else {
            for mcu_y in 0..frame.mcus_high {
                for mcu_x in 0..frame.mcus_wide {
                    reader.start_mcu()?;
                    for &part in &parts {
                        let component = &frame.components[part.index];
                        for y in 0..component.v {
                            let first =
                                (mcu_y * component.v + y) * component.padded_wide + mcu_x * component.h;
                            for block in &mut self.blocks[part.index][first..first + component.h] {
                                decode(&mut reader, part, block)?;
                            }
                        }
                    }
                }
                reader.check()?;
            }
        }
        reader.check()?;
        Ok(reader.position())
    }
}

/// A marker in place of data.
fn ended_early(marker: u8) -> Failure {
    match marker {
        0xD0..=0xD7 => "damaged JPEG: a restart marker is not where it should be".into(),
        _ => Failure {
            kind: ImageErrorKind::Truncated,
            reason: "truncated JPEG: a scan ends before its last pixels".into(),
        },
    }
}

fn too_many() -> Failure {
    "damaged JPEG: a block has more than 64 coefficients".into()
}
