//! Exact search on a GPU, with all rows in its memory in f16.

use std::borrow::Cow;
use std::fmt;

use half::f16;
use half::slice::HalfFloatSliceExt;
use hipvit::DType;
use hipvit::hip::{self, Blas, Device, DeviceAddress, DeviceBuffer, Gemm, PinnedRing, Stream};
use hipvit::kernels::{
    KernelCall, KernelError, Kernels, SEARCH_KEPT, SEARCH_PART, SEARCH_PARTS, SEARCH_QUERIES, SearchBestArgs,
    SearchMergeArgs, SearchScoresArgs, Unit,
};

use crate::error::{Error, Result};
use crate::exact::SPARE;
use crate::index::Index;
use crate::metric::{Hit, Metric};

/// Maximum `k` of a search on a GPU.
pub const MAX_K: usize = SEARCH_KEPT as usize - SPARE;

/// Maximum number of queries that are multiplied at once.
const MAX_QUERIES: usize = 256;

/// Rows of the first chunk. Each part of it has candidates, so it is small.
const FIRST_ROWS: usize = 32 * SEARCH_PART as usize;

/// Bytes of the scores of a chunk, which fit into the L2 cache of an H100 (50 MB).
const SCORE_BYTES: usize = 32 << 20;

/// Values of a pinned buffer for uploads.
const UPLOAD: usize = 4 << 20;

/// Values of a row on the device are a multiple of this: 16 bytes.
const ALIGNMENT: usize = 8;

/// An index whose rows are in the memory of a GPU, in f16, for one metric.
///
/// Candidates are found by the values in f16. The score of each candidate is then computed in f64 from the values of the index. If the
/// index is in f32, rows whose scores differ by less than the rounding to f16 may be missed.
pub struct GpuIndex<'a> {
    index: &'a Index,
    metric: Metric,
    rows: GpuRows,
}

impl<'a> GpuIndex<'a> {
    /// Copies the rows of an index to a GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the GPU has too little memory or fails. [`Error::Index`] if a value is beyond the range of f16.
    pub fn new(index: &'a Index, device: &Device, metric: Metric) -> Result<Self> {
        let has_offsets = metric == Metric::L2;
        let mut rows = GpuRows::new(device, [index.len(), index.width()], has_offsets)?;
        let (mut widened, mut halves) = (Vec::new(), Vec::new());
        for block in index.blocks(UPLOAD.div_ceil(index.width())) {
            let values = block.shard.values(block.rows.clone(), &mut widened);
            halves.clear();
            for row in values.chunks_exact(index.width()) {
                push_halves(row, metric == Metric::Cosine, &mut halves);
            }
            if halves
                .iter()
                .zip(values)
                .any(|(half, value)| half.is_infinite() && value.is_finite())
            {
                let reason = "has values beyond the range of f16 (65504). Search it on the CPU";
                return Err(Error::index(&block.shard.path, reason));
            }
            rows.write(block.first, &halves)?;
        }
        Ok(Self { index, metric, rows })
    }

    /// Returns the `k` rows that are nearest to each of `queries` `[queries, width]`, the nearest first.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] if `k` is 0 or above [`MAX_K`], or if the queries are not finite rows of [`width`](Index::width) values.
    /// - [`Error::Device`] if the GPU fails.
    pub fn search(&mut self, queries: &[f32], k: usize) -> Result<Vec<Vec<Hit>>> {
        if k == 0 || k > MAX_K {
            return Err(Error::argument(
                "k",
                format!("must be between 1 and {MAX_K} on a GPU"),
            ));
        }
        self.index.check_queries(queries)?;
        // A factor of the query does not change the order by inner product, and unit length fits the range of f16.
        let is_scaled = self.metric != Metric::L2;
        let width = self.index.width();
        let mut halves = Vec::with_capacity(queries.len());
        for query in queries.chunks_exact(width) {
            push_halves(query, is_scaled, &mut halves);
        }
        if halves.iter().any(|half| !half.is_finite()) {
            return Err(Error::argument(
                "queries",
                "have values beyond the range of f16 (65504)",
            ));
        }
        let found = self.rows.nearest(&halves, k + SPARE)?;
        let ranked = queries.chunks_exact(width).zip(found);
        Ok(ranked
            .map(|(query, rows)| self.index.rank(query, rows.into_iter(), k, self.metric))
            .collect())
    }
}

/// Appends a row in f16, scaled to unit length if `is_scaled`.
fn push_halves(row: &[f32], is_scaled: bool, halves: &mut Vec<f16>) {
    let length = row
        .iter()
        .map(|&value| f64::from(value).powi(2))
        .sum::<f64>()
        .sqrt();
    let factor = if is_scaled && length > 0.0 {
        length.recip()
    } else {
        1.0
    };
    halves.extend(row.iter().map(|&value| f16::from_f64(f64::from(value) * factor)));
}

/// Returns rows of `width` values with zeros up to `padded` values each.
fn padded(rows: &[f16], width: usize, padded: usize) -> Cow<'_, [f16]> {
    if width == padded {
        return Cow::Borrowed(rows);
    }
    let mut all = vec![f16::ZERO; rows.len() / width * padded];
    for (row, to) in rows.chunks_exact(width).zip(all.chunks_exact_mut(padded)) {
        to[..width].copy_from_slice(row);
    }
    Cow::Owned(all)
}

/// Rows in the memory of a GPU, in f16, and the search for those with the largest inner products.
pub struct GpuRows {
    stream: Stream,
    kernels: Kernels,
    blas: Blas,
    ring: PinnedRing<f16>,
    /// `[rows, padded]`.
    values: DeviceBuffer<f16>,
    /// `−|row|² / 2`, added to the inner products.
    offsets: Option<DeviceBuffer<f32>>,
    rows: usize,
    width: usize,
    /// Values of a row on the device. The values beyond `width` are 0.
    padded: usize,
}

impl GpuRows {
    /// Allocates rows of zeros. With `has_offsets`, the search is by Euclidean distance instead of inner product.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the GPU has too little memory or fails.
    pub fn new(device: &Device, [rows, width]: [usize; 2], has_offsets: bool) -> Result<Self> {
        let stream = device.stream().map_err(hipvit::Error::from)?;
        let kernels = Kernels::load(device, DType::F16, [Unit::of("search")])?;
        let padded = width.next_multiple_of(ALIGNMENT);
        let allocate = || -> hip::Result<_> {
            let offsets = has_offsets.then(|| stream.zeroed(rows.max(1))).transpose()?;
            Ok((
                Blas::new(&stream)?,
                device.pinned_ring(2, UPLOAD.next_multiple_of(padded))?,
                stream.zeroed((rows * padded).max(1))?,
                offsets,
            ))
        };
        let (blas, ring, values, offsets) = allocate().map_err(hipvit::Error::from)?;
        Ok(Self {
            stream,
            kernels,
            blas,
            ring,
            values,
            offsets,
            rows,
            width,
            padded,
        })
    }

    /// Copies `values` `[n, width]` to the rows from number `first` on.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the values are not whole rows or exceed the rows. [`Error::Device`] if the GPU fails.
    pub fn write(&mut self, first: usize, values: &[f16]) -> Result<()> {
        let count = values.len() / self.width;
        if !values.len().is_multiple_of(self.width) || first + count > self.rows {
            return Err(Error::argument(
                "values",
                "are not whole rows, or exceed the rows",
            ));
        }
        let padded = padded(values, self.width, self.padded);
        let (at, ring) = (first * self.padded, &mut self.ring);
        let mut copy = || -> hip::Result<()> {
            self.values.write_through(at, &padded, ring)?;
            if let Some(offsets) = &mut self.offsets {
                let mut row = vec![0.0; self.width];
                let offset = |values: &[f16]| {
                    values.convert_to_f32_slice(&mut row);
                    -0.5 * row.iter().map(|value| value * value).sum::<f32>()
                };
                let of_rows: Vec<f32> = values.chunks_exact(self.width).map(offset).collect();
                let mut ring = self.stream.device().pinned_ring(1, count.max(1))?;
                offsets.write_through(first, &of_rows, &mut ring)?;
                ring.wait()?;
            }
            Ok(())
        };
        Ok(copy().map_err(hipvit::Error::from)?)
    }

    /// Returns for each of `queries` `[queries, width]` the `kept` rows with the largest scores, the largest first. Equal scores are
    /// ordered by row. Rows with NaN are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `kept` is 0 or above 1024. [`Error::Device`] if the GPU fails.
    pub fn nearest(&mut self, queries: &[f16], kept: usize) -> Result<Vec<Vec<u32>>> {
        if kept == 0 || kept > SEARCH_KEPT as usize {
            return Err(Error::argument(
                "kept",
                format!("must be between 1 and {SEARCH_KEPT}"),
            ));
        }
        let mut found = Vec::new();
        for queries in queries.chunks(MAX_QUERIES * self.width) {
            let count = queries.len() / self.width;
            let keys = self.best_keys(queries, kept)?;
            debug_assert_eq!(keys.len(), count * kept);
            found.extend(keys.chunks_exact(kept).map(|keys| {
                let is_row = |key: &&u64| **key != 0;
                keys.iter().take_while(is_row).map(|&key| !(key as u32)).collect()
            }));
        }
        Ok(found)
    }

    /// Returns the `kept` best keys of each query, in descending order.
    fn best_keys(&mut self, queries: &[f16], kept: usize) -> Result<Vec<u64>, hipvit::Error> {
        let count = queries.len() / self.width;
        let query = self.stream.upload(&padded(queries, self.width, self.padded))?;
        let mut best = self.stream.zeroed::<u64>(count * kept)?;
        let part = SEARCH_PART as usize;
        let most =
            (SCORE_BYTES / size_of::<f32>() / count / part * part).clamp(part, SEARCH_PARTS as usize * part);
        let most = most.min(self.rows.next_multiple_of(part)).max(part);
        let parts = most / part;
        let mut scores = self.stream.allocate::<f32>(count * most)?;
        let mut found = self.stream.allocate::<u64>(count * parts * kept)?;
        let mut counts = self.stream.allocate::<u32>(count * parts)?;
        let mut first = 0;
        while first < self.rows {
            // Chunks double, so that each has about as many candidates as the chunks before it.
            let rows = first.max(FIRST_ROWS).min(most).min(self.rows - first);
            self.multiply([first, rows], &query, &mut scores)?;
            self.select(
                [first, rows],
                [count, kept],
                &scores,
                &mut best,
                &mut found,
                &mut counts,
            )?;
            first += rows;
        }
        Ok(best.read()?)
    }

    /// Computes the inner products of rows with the queries.
    fn multiply(
        &mut self,
        [first, rows]: [usize; 2],
        query: &DeviceBuffer<f16>,
        scores: &mut DeviceBuffer<f32>,
    ) -> Result<(), hipvit::Error> {
        let count = query.len() / self.padded;
        let bytes = self.padded * size_of::<f16>();
        let x = self
            .values
            .reading()
            .part(first * bytes..(first + rows) * bytes)?;
        if count > SEARCH_QUERIES as usize {
            let gemm = Gemm {
                output: hip::DType::F32,
                ..Gemm::linear(count, rows, self.padded, hip::DType::F16)
            };
            return Ok(self.blas.gemm(&gemm, query.reading(), x, scores.writing())?);
        }
        let addresses = [x.address(), query.address(), scores.address()];
        let arguments = SearchScoresArgs::new(addresses, [rows, self.padded], count).map_err(refused)?;
        let operands = [x, query.reading(), scores.writing()];
        KernelCall::from(arguments).launch(&self.kernels, &self.stream, &operands)
    }

    /// Merges the best of a chunk's scores into `best`.
    fn select(
        &self,
        [first, rows]: [usize; 2],
        kept: [usize; 2],
        scores: &DeviceBuffer<f32>,
        best: &mut DeviceBuffer<u64>,
        found: &mut DeviceBuffer<u64>,
        counts: &mut DeviceBuffer<u32>,
    ) -> Result<(), hipvit::Error> {
        let offsets = match &self.offsets {
            Some(offsets) => {
                let size = size_of::<f32>();
                Some(offsets.reading().part(first * size..(first + rows) * size)?)
            }
            None => None,
        };
        let offset = offsets.map_or(DeviceAddress::NULL, |offsets| offsets.address());
        let addresses = [
            scores.address(),
            offset,
            best.address(),
            found.address(),
            counts.address(),
        ];
        let arguments = SearchBestArgs::new(addresses, [first, rows], kept).map_err(refused)?;
        let mut operands = vec![
            scores.reading(),
            best.reading(),
            found.writing(),
            counts.writing(),
        ];
        operands.extend(offsets);
        KernelCall::from(arguments).launch(&self.kernels, &self.stream, &operands)?;
        drop(operands);
        let addresses = [best.address(), found.address(), counts.address()];
        let arguments =
            SearchMergeArgs::new(addresses, SearchBestArgs::parts(rows), kept).map_err(refused)?;
        let operands = [best.writing(), found.reading(), counts.reading()];
        KernelCall::from(arguments).launch(&self.kernels, &self.stream, &operands)
    }
}

impl fmt::Debug for GpuIndex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuIndex")
            .field("metric", &self.metric)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GpuRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuRows")
            .field("rows", &self.rows)
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}

fn refused(source: KernelError) -> hipvit::Error {
    hipvit::Error::Kernel {
        call: "search",
        source,
    }
}
