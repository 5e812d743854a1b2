//! Decodes JPEG bit-exactly like libjpeg-turbo with its defaults.
//!
//! Supports sequential and progressive Huffman coding of 8-bit samples, with sampling factors that divide each other,
//! in grey, YCbCr, RGB, and Adobe's CMYK and YCCK.
//!
//! First, [`scan`] decodes coefficients. Then [`planes`] and [`idct`] transform them to samples, one row of MCUs at a
//! time. Finally, [`rows`] converts the samples to pixels while they are in the cache. If a file has several scans, all
//! coefficients are collected first.
//!
//! For a device that computes the pixels, [`coefficients`] packs the coefficients instead.
//!
//! Data for which libjpeg prints a warning and makes up pixels is an error, except between restart markers
//! ([`scan::Reader`]).

mod bits;
mod coefficients;
mod frame;
mod huffman;
mod idct;
mod markers;
mod planes;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::Cell;

use super::cancellation::Cancellation;
use super::failure::Failure;
use super::memory::Claim;
use super::metadata::Metadata;
use crate::error::ImageErrorKind;
use crate::rgb_image::RgbImage;
pub use coefficients::{JpegCoefficients, JpegColor, JpegGeometry, JpegPlane, JpegUpsampling};
use coefficients::{Packer, pack, push};
use frame::Frame;
use markers::{Markers, Scan, ZIGZAG};
use planes::Plane;
pub(super) use rows::Coding;
use rows::Rows;
use scan::{Coefficients, End, Reader};

/// Number of coefficients, in file order, that libjpeg estimates from neighbouring blocks if they are missing.
const ESTIMATED: usize = 10;

/// Maximum number of scans. Encoders write about ten.
const MAX_SCANS: usize = 500;

/// Maximum number of times that the scans may visit each block. A scan can be a few bytes; libjpeg's scripts visit a
/// block at most six times.
const MAX_VISITS: u64 = 10;

/// Number of block visits that the scans of any file may make: [`MAX_SCANS`] scans of one megapixel.
pub(super) const FREE_VISITS: u64 = MAX_SCANS as u64 * (1 << 20) / 64;

pub(super) fn decode(bytes: &[u8], claim: &mut Claim<'_>, pixels: Vec<u8>) -> Result<RgbImage, Failure> {
    Jpeg::read(bytes)?.decode(claim, pixels)
}

/// A JPEG's coefficients, or its pixels if a device cannot compute them.
pub(super) enum Decoded {
    Coefficients(JpegCoefficients),
    Pixels(RgbImage),
}

/// Decodes a JPEG to coefficients, of which a device computes the pixels, if it can and memory suffices.
pub(super) fn decode_for_device(
    bytes: &[u8],
    claim: &mut Claim<'_>,
    (words, pixels): (&mut Vec<u32>, &mut Vec<u8>),
) -> Result<Decoded, Failure> {
    let jpeg = Jpeg::read(bytes)?;
    let coding = coding(&jpeg.frame, &jpeg.markers);
    let fits = |geometry: &JpegGeometry| {
        jpeg.packing(geometry).saturating_add(bytes.len() as u64) <= claim.limits.max_memory
    };
    let geometry = JpegGeometry::new(&jpeg.frame, coding).filter(fits);
    let Some(geometry) = geometry else {
        return jpeg.decode(claim, std::mem::take(pixels)).map(Decoded::Pixels);
    };
    claim.check(jpeg.frame.width as u64, jpeg.frame.height as u64)?;
    // As much as the pixels, to accept the same images as the host.
    let memory = jpeg.memory(coding)?;
    claim.reserve(memory.max(jpeg.packing(&geometry)))?;
    let packer = Packer::new(geometry, std::mem::take(words), bytes.len());
    let free = Cell::new(FREE_VISITS);
    let coefficients = jpeg.coefficients(packer, &free, claim.cancellation())?;
    Ok(Decoded::Coefficients(coefficients))
}

/// Returns the EXIF data and XMP that precede the first scan. Joins several segments of EXIF data, as Pillow does.
pub(super) fn metadata<'a>(bytes: &'a [u8], claim: &mut Claim<'_>) -> Result<Metadata<'a>, Failure> {
    let Ok(mut markers) = Markers::new(bytes) else {
        return Ok(Metadata::default());
    };
    // Damage after the metadata does not matter here.
    let _ = markers.next_scan();
    let exif = match &markers.exif[..] {
        [] => None,
        [only] => Some(Cow::Borrowed(*only)),
        segments => {
            claim.reserve(segments.iter().map(|segment| segment.len() as u64).sum())?;
            Some(Cow::Owned(segments.concat()))
        }
    };
    let xmp = markers.xmp.map(Cow::Borrowed);
    Ok(Metadata { exif, xmp })
}

/// A JPEG that has been read up to its first scan.
pub(super) struct Jpeg<'a> {
    markers: Markers<'a>,
    scan: Scan,
    frame: Frame,
    /// True if the components are in several scans.
    several: bool,
}

impl<'a> Jpeg<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Failure> {
        Self::from_markers(Markers::new(bytes)?)
    }

    /// Reads a JPEG in a TIFF, whose EOI may be missing, as in libtiff.
    ///
    /// `tables` is the shared stream of tables of an abbreviated JPEG. They apply before its own tables.
    #[cfg(feature = "tiff")]
    pub(super) fn in_tiff(bytes: &'a [u8], tables: Option<&'a [u8]>) -> Result<Self, Failure> {
        let mut markers = match tables {
            Some(tables) => Markers::with_tables(bytes, tables)?,
            None => Markers::new(bytes)?,
        };
        markers.imply_end();
        Self::from_markers(markers)
    }

    fn from_markers(mut markers: Markers<'a>) -> Result<Self, Failure> {
        let scan = markers.next_scan()?.ok_or(NO_IMAGE)?;
        markers.default_tables()?;
        let frame = markers.frame.clone().ok_or(NO_IMAGE)?;
        Ok(Self {
            several: frame.progressive || scan.components.len() < frame.components.len(),
            markers,
            scan,
            frame,
        })
    }

    /// Returns width, height and number of components.
    #[cfg(feature = "tiff")]
    pub(super) fn size(&self) -> [usize; 3] {
        [self.frame.width, self.frame.height, self.frame.components.len()]
    }

    /// Returns the number of bytes that decoding needs, without the file. They are pixels, samples of a row of MCUs,
    /// and the coefficients if there are several scans.
    pub(super) fn memory(&self, coding: Coding) -> Result<u64, Failure> {
        let frame = &self.frame;
        // Each block takes at least one bit, or two for both of its codes. This detects a false size before memory is
        // allocated.
        let bits = frame.blocks(&indices(&self.scan)) * if frame.progressive { 1 } else { 2 };
        if bits / 8 > (self.markers.bytes().len() - self.scan.data) as u64 {
            return Err(markers::cut());
        }
        let pixels = frame.width as u64 * frame.height as u64 * coding.pixel_bytes(frame) as u64;
        Ok(pixels + Plane::bytes(frame) + self.collected())
    }

    /// Returns the number of bytes that packing the coefficients needs, without the file.
    fn packing(&self, geometry: &JpegGeometry) -> u64 {
        let components = self.frame.components.iter();
        let row = components
            .map(|component| component.padded_wide * component.v)
            .sum();
        coefficients::memory(geometry, row, self.markers.bytes().len()) + self.collected()
    }

    /// Returns the number of bytes of the coefficients that are collected if there are several scans.
    fn collected(&self) -> u64 {
        if self.several {
            Coefficients::bytes(&self.frame)
        } else {
            0
        }
    }

    fn decode(self, claim: &mut Claim<'_>, pixels: Vec<u8>) -> Result<RgbImage, Failure> {
        let (width, height) = claim.check(self.frame.width as u64, self.frame.height as u64)?;
        let coding = coding(&self.frame, &self.markers);
        claim.reserve(self.memory(coding)?)?;
        let free = Cell::new(FREE_VISITS);
        let data = self.pixels(coding, pixels, &free, claim.cancellation())?;
        Ok(RgbImage { width, height, data })
    }

    /// Decodes the pixels into the given vector. `free` is the rest of [`FREE_VISITS`] for all JPEGs of the file.
    pub(super) fn pixels(
        mut self,
        coding: Coding,
        mut pixels: Vec<u8>,
        free: &Cell<u64>,
        cancellation: Cancellation<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let frame = &self.frame;
        let mut output = Output {
            rows: Rows::new(frame, coding),
            planes: frame.components.iter().map(Plane::new).collect(),
            row: 0,
            pixels: {
                pixels.clear();
                pixels.reserve_exact(frame.width * frame.height * coding.pixel_bytes(frame));
                pixels
            },
        };
        if !self.several {
            let end = stream(frame, &self.markers, &self.scan, &mut output, cancellation)?;
            finish_stream(&mut self.markers, &end)?;
        } else {
            let coefficients = collect(frame, &mut self.markers, self.scan, free, cancellation)?;
            output.transform(frame, &coefficients, cancellation)?;
        }
        Ok(output.pixels)
    }

    /// Decodes the coefficients. `free` is the rest of [`FREE_VISITS`].
    fn coefficients(
        mut self,
        mut packer: Packer,
        free: &Cell<u64>,
        cancellation: Cancellation<'_>,
    ) -> Result<JpegCoefficients, Failure> {
        let frame = &self.frame;
        if !self.several {
            let end = stream_coefficients(frame, &self.markers, &self.scan, &mut packer, cancellation)?;
            finish_stream(&mut self.markers, &end)?;
            return Ok(packer.finish());
        }
        let coefficients = collect(frame, &mut self.markers, self.scan, free, cancellation)?;
        for (index, component) in frame.components.iter().enumerate() {
            packer.set_steps(index, &coefficients.steps[index].unwrap_or([0; 64]));
            let rows = coefficients.blocks[index].chunks_exact(component.padded_wide);
            let filled = coefficients.filled[index].chunks_exact(component.padded_wide);
            for (y, (row, filled)) in rows.zip(filled).enumerate() {
                cancellation.check()?;
                packer.reserve(row.len());
                let first = packer.block(index, 0, y);
                let mut writer = packer.writer();
                for ((block, &filled), at) in row.iter().zip(filled).zip(first..) {
                    writer.block(at, |entries| pack(block, filled, entries));
                }
            }
        }
        Ok(packer.finish())
    }
}

/// Reads what follows the only scan of an image.
fn finish_stream(markers: &mut Markers<'_>, end: &End) -> Result<(), Failure> {
    markers.resume(end.position);
    match markers.next_scan() {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err("damaged JPEG: a scan follows the one that has all components".into()),
        Err(failure) if failure.kind == ImageErrorKind::Truncated && end.suffices => Ok(()),
        Err(failure) => Err(failure),
    }
}

const NO_IMAGE: &str = "damaged JPEG: it has no image";

/// Guesses how colours are stored, as libjpeg does. Pillow follows libjpeg.
fn coding(frame: &Frame, markers: &Markers<'_>) -> Coding {
    let ids: Vec<u8> = frame.components.iter().map(|component| component.id).collect();
    match (&ids[..], markers.jfif, markers.adobe) {
        ([_], ..) => Coding::Grey,
        ([_, _, _], true, _) => Coding::YCbCr,
        ([_, _, _], false, Some(0)) => Coding::Rgb,
        ([b'R', b'G', b'B'], false, None) => Coding::Rgb,
        ([_, _, _], ..) => Coding::YCbCr,
        (_, _, None | Some(0)) => Coding::Cmyk,
        _ => Coding::Ycck,
    }
}

fn indices(scan: &Scan) -> Vec<usize> {
    scan.components.iter().map(|component| component.index).collect()
}

/// State of the image while it is written.
struct Output {
    rows: Rows,
    planes: Vec<Plane>,
    /// Number of rows written so far.
    row: usize,
    pixels: Vec<u8>,
}

impl Output {
    /// Writes the rows for which the samples of `mcu_row` suffice, then advances the planes.
    fn flush(&mut self, frame: &Frame, mcu_row: usize) {
        // The last rows need the rows below them.
        let end = if mcu_row + 1 == frame.mcus_high {
            frame.height
        } else {
            ((mcu_row + 1) * 8 - 1) * frame.v_max
        };
        let row_bytes = self.rows.row_bytes();
        let from = self.row * row_bytes;
        self.pixels.resize(end * row_bytes, 0);
        self.rows.write(&self.planes, self.row, &mut self.pixels[from..]);
        self.row = end;
        self.planes.iter_mut().for_each(Plane::advance);
    }

    fn transform(
        &mut self,
        frame: &Frame,
        coefficients: &Coefficients,
        cancellation: Cancellation<'_>,
    ) -> Result<(), Failure> {
        for mcu_row in 0..frame.mcus_high {
            cancellation.check()?;
            for (index, component) in frame.components.iter().enumerate() {
                let blocks = &coefficients.blocks[index];
                let steps = &coefficients.steps[index].unwrap_or([0; 64]);
                let rows = blocks.chunks_exact(component.padded_wide);
                for (y, row) in rows.skip(mcu_row * component.v).take(component.v).enumerate() {
                    for (x, block) in row.iter().enumerate() {
                        self.planes[index].put_scaled(x, y, block, steps);
                    }
                }
            }
            self.flush(frame, mcu_row);
        }
        Ok(())
    }
}

/// Decodes the only scan of an image.
fn stream(
    frame: &Frame,
    markers: &Markers<'_>,
    scan: &Scan,
    output: &mut Output,
    cancellation: Cancellation<'_>,
) -> Result<End, Failure> {
    let mut parts = Vec::new();
    for part in &scan.components {
        let component = &frame.components[part.index];
        parts.push((
            part.index,
            component.h,
            component.v,
            markers.dc(part.dc)?,
            markers.ac(part.ac)?,
            markers.steps(component.table)?,
        ));
    }
    let mut reader = Reader::new(markers, scan);
    for mcu_row in 0..frame.mcus_high {
        cancellation.check()?;
        for mcu in 0..frame.mcus_wide {
            let has_data = reader.start_mcu()?;
            for &(index, h, v, dc, ac, ref steps) in &parts {
                let plane = &mut output.planes[index];
                for y in 0..v {
                    for x in 0..h {
                        let mut block = [0; 64];
                        let mut last = 0;
                        if has_data {
                            let first = reader.sequential(index, dc, ac, |next, value| {
                                last = next;
                                let at = usize::from(ZIGZAG[next & 127]) & 63;
                                block[at] = value.wrapping_mul(steps[at]);
                            });
                            block[0] = first.wrapping_mul(steps[0]);
                        }
                        plane.put(mcu * h + x, y, &block, last);
                    }
                }
            }
        }
        reader.check()?;
        output.flush(frame, mcu_row);
    }
    Ok(reader.end())
}

/// Decodes the only scan of an image to packed coefficients.
fn stream_coefficients(
    frame: &Frame,
    markers: &Markers<'_>,
    scan: &Scan,
    packer: &mut Packer,
    cancellation: Cancellation<'_>,
) -> Result<End, Failure> {
    let mut parts = Vec::new();
    for part in &scan.components {
        let component = &frame.components[part.index];
        packer.set_steps(part.index, &markers.steps(component.table)?);
        parts.push((
            part.index,
            component.h,
            component.v,
            markers.dc(part.dc)?,
            markers.ac(part.ac)?,
        ));
    }
    let blocks = parts.iter().map(|(_, h, v, ..)| h * v).sum::<usize>();
    let mut reader = Reader::new(markers, scan);
    for mcu_row in 0..frame.mcus_high {
        cancellation.check()?;
        packer.reserve(frame.mcus_wide * blocks);
        let rows: Vec<usize> = parts
            .iter()
            .map(|&(index, _, v, ..)| packer.block(index, 0, mcu_row * v))
            .collect();
        let mut writer = packer.writer();
        for mcu in 0..frame.mcus_wide {
            let has_data = reader.start_mcu()?;
            for (&(index, h, v, dc, ac), &row) in parts.iter().zip(&rows) {
                let first = row + mcu * h;
                for at in (0..v).flat_map(|y| (0..h).map(move |x| first + y * frame.mcus_wide * h + x)) {
                    writer.block(at, |entries| {
                        let mut count = 1;
                        entries[0] = 0;
                        if has_data {
                            let first = reader.sequential(index, dc, ac, |next, value| {
                                count = push(entries, count, next, value);
                            });
                            entries[0] = first as u16;
                        }
                        count
                    });
                }
            }
        }
        reader.check()?;
    }
    Ok(reader.end())
}

/// Collects the coefficients of all scans.
fn collect(
    frame: &Frame,
    markers: &mut Markers<'_>,
    scan: Scan,
    free: &Cell<u64>,
    cancellation: Cancellation<'_>,
) -> Result<Coefficients, Failure> {
    let mut coefficients = Coefficients::new(frame);
    let mut next = Some(scan);
    let mut visits = Visits::new(frame, free);
    while let Some(scan) = next {
        visits.add(frame.blocks(&indices(&scan)))?;
        let end = coefficients.add(frame, markers, &scan, cancellation)?;
        markers.resume(end);
        next = markers.next_scan()?;
    }
    let complete = |missing: &[Option<u32>; 64]| missing[..ESTIMATED].iter().all(|bits| *bits == Some(0));
    if !coefficients.missing.iter().all(complete) {
        return Err(Failure::truncated("truncated JPEG: its last scans are missing"));
    }
    Ok(coefficients)
}

/// Limits the work on the scans of an image by its size.
struct Visits<'a> {
    scans: usize,
    /// Number of block visits of all scans so far.
    blocks: u64,
    limit: u64,
    /// Rest of [`FREE_VISITS`].
    free: &'a Cell<u64>,
}

impl<'a> Visits<'a> {
    fn new(frame: &Frame, free: &'a Cell<u64>) -> Self {
        let all: Vec<usize> = (0..frame.components.len()).collect();
        Self {
            scans: 0,
            blocks: 0,
            limit: free.get().max(MAX_VISITS * frame.blocks(&all)),
            free,
        }
    }

    /// Adds a scan that visits `blocks` blocks.
    fn add(&mut self, blocks: u64) -> Result<(), Failure> {
        self.scans += 1;
        self.blocks += blocks;
        self.free.set(self.free.get().saturating_sub(blocks));
        if self.scans > MAX_SCANS {
            return Err(format!("damaged JPEG: it has more than {MAX_SCANS} scans").into());
        }
        if self.blocks > self.limit {
            return Err(Failure::too_large(format!(
                "the scans pass over its pixels more than {MAX_VISITS} times (a decompression bomb?). Save it with fewer scans"
            )));
        }
        Ok(())
    }
}
