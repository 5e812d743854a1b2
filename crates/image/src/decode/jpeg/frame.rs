//! Parses frame headers: size, components and sampling factors.

use crate::decode::failure::Failure;

/// Maximum number of blocks of an interleaved MCU (the standard's limit).
const MAX_BLOCKS_IN_MCU: usize = 10;

/// A frame header.
#[derive(Clone)]
pub(super) struct Frame {
    pub(super) progressive: bool,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) components: Vec<Component>,
    /// Largest sampling factors, which are the width and height of an MCU in blocks.
    pub(super) h_max: usize,
    pub(super) v_max: usize,
    pub(super) mcus_wide: usize,
    pub(super) mcus_high: usize,
}

/// A colour component.
#[derive(Clone)]
pub(super) struct Component {
    pub(super) id: u8,
    /// Sampling factors: number of blocks of an MCU, horizontally and vertically.
    pub(super) h: usize,
    pub(super) v: usize,
    /// Index of the quantisation table.
    pub(super) table: usize,
    /// Size in samples.
    pub(super) width: usize,
    pub(super) height: usize,
    /// Size in blocks, without blocks that only complete MCUs.
    pub(super) blocks_wide: usize,
    pub(super) blocks_high: usize,
    /// Size in blocks, including blocks that complete MCUs.
    pub(super) padded_wide: usize,
    pub(super) padded_high: usize,
}

impl Frame {
    /// Parses the segment of a marker SOF0, SOF1 or SOF2.
    pub(super) fn parse(segment: &[u8], progressive: bool) -> Result<Self, Failure> {
        let (header, listed) = segment
            .split_first_chunk::<6>()
            .ok_or("damaged JPEG: its frame header is too short")?;
        let [precision, h1, h0, w1, w0, count] = *header;
        if precision != 8 {
            return Err(Failure::unsupported(format!(
                "a JPEG with {precision} bits per sample"
            )));
        }
        let height = usize::from(u16::from_be_bytes([h1, h0]));
        let width = usize::from(u16::from_be_bytes([w1, w0]));
        let (listed, rest) = listed.as_chunks::<3>();
        if listed.len() != usize::from(count) || !rest.is_empty() {
            return Err("damaged JPEG: its frame header has the wrong length".into());
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(Failure::unsupported(format!(
                "a JPEG with {count} colour components"
            )));
        }
        if width == 0 || height == 0 {
            return Err(format!("the image is empty ({width}×{height} pixels)").into());
        }

        let mut factors: Vec<(usize, usize)> = listed
            .iter()
            .map(|&[_, sampling, _]| (usize::from(sampling >> 4), usize::from(sampling & 15)))
            .collect();
        let valid = |&(h, v): &(usize, usize)| (1..=4).contains(&h) && (1..=4).contains(&v);
        if !factors.iter().all(valid) {
            return Err("damaged JPEG: its sampling factors are not from 1 to 4".into());
        }
        // A single component is never interleaved: its blocks come one by one, whatever its sampling factors.
        if let [only] = &mut factors[..] {
            *only = (1, 1);
        }
        let h_max = factors.iter().map(|factor| factor.0).max().unwrap_or(1);
        let v_max = factors.iter().map(|factor| factor.1).max().unwrap_or(1);
        if factors.iter().any(|(h, v)| h_max % h != 0 || v_max % v != 0) {
            return Err(Failure::unsupported("a JPEG with fractional sampling factors"));
        }
        let (mcus_wide, mcus_high) = (width.div_ceil(8 * h_max), height.div_ceil(8 * v_max));
        let components = listed
            .iter()
            .zip(factors)
            .map(|(&[id, _, table], (h, v))| {
                let (width, height) = ((width * h).div_ceil(h_max), (height * v).div_ceil(v_max));
                Component {
                    id,
                    h,
                    v,
                    table: table.into(),
                    width,
                    height,
                    blocks_wide: width.div_ceil(8),
                    blocks_high: height.div_ceil(8),
                    padded_wide: mcus_wide * h,
                    padded_high: mcus_high * v,
                }
            })
            .collect();
        Ok(Self {
            progressive,
            width,
            height,
            components,
            h_max,
            v_max,
            mcus_wide,
            mcus_high,
        })
    }

    /// Returns the indices of the components that a scan names by their ids.
    pub(super) fn scanned(&self, ids: impl Iterator<Item = u8>) -> Result<Vec<usize>, Failure> {
        let mut scanned = Vec::new();
        for id in ids {
            let free = |&index: &usize| self.components[index].id == id && !scanned.contains(&index);
            let index = (0..self.components.len()).find(free);
            scanned.push(index.ok_or("damaged JPEG: a scan names a component that is not in the frame")?);
        }
        let blocks = scanned
            .iter()
            .map(|&index| self.components[index].h * self.components[index].v);
        if scanned.len() > 1 && blocks.sum::<usize>() > MAX_BLOCKS_IN_MCU {
            return Err("damaged JPEG: a scan interleaves more than 10 blocks".into());
        }
        Ok(scanned)
    }

    /// Returns the number of blocks in a scan of the given components.
    pub(super) fn blocks(&self, scanned: &[usize]) -> u64 {
        let blocks = |component: &Component| match scanned.len() {
            1 => component.blocks_wide * component.blocks_high,
            _ => component.padded_wide * component.padded_high,
        };
        scanned
            .iter()
            .map(|&index| blocks(&self.components[index]) as u64)
            .sum()
    }
}
