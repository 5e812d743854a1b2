//! Approximate search by a graph of neighbours (HNSW, of the crate usearch). It reads a small part of the rows, and may miss some of the nearest.

use std::fmt;
use std::path::{Path, PathBuf};

use hipvit_files::{regular_file, temporary};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use usearch::{IndexOptions, MetricKind, ScalarKind};

use crate::error::{Error, Result};
use crate::index::Index;
use crate::metric::{Hit, Metric};

/// Rows of a task of the checksum and of the construction.
const BLOCK_ROWS: usize = 1024;

/// Maximum bytes of a description.
const LONGEST: u64 = 1 << 16;

/// Options of the construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphOptions {
    /// Neighbours of a row. More are slower to find, and find more of the nearest rows.
    pub neighbours: usize,
    /// Rows that are considered as neighbours of a new row.
    pub effort: usize,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self {
            neighbours: 16,
            effort: 128,
        }
    }
}

/// A graph of the neighbours of an index's rows. Its construction runs in parallel, so two graphs of one index differ.
pub struct Approximate<'a> {
    index: &'a Index,
    graph: usearch::Index,
    description: Description,
}

/// What a graph was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Description {
    metric: String,
    rows: usize,
    width: usize,
    /// Checksum of all rows.
    checksum: u32,
    neighbours: usize,
}

impl<'a> Approximate<'a> {
    /// Builds the graph of an index, on the threads of the current Rayon pool. It holds a copy of the rows in f32.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for [`Metric::InnerProduct`], which is no distance. [`Error::Graph`] if the memory does not suffice.
    pub fn build(index: &'a Index, metric: Metric, options: GraphOptions) -> Result<Self> {
        let description = Description {
            metric: name(metric)?.to_owned(),
            rows: index.len(),
            width: index.width(),
            checksum: checksum(index),
            neighbours: options.neighbours,
        };
        let graph = empty(&description, metric, options.effort)?;
        let failed = |error| Error::graph(index.path(), error);
        let threads = rayon::current_num_threads();
        graph
            .reserve_capacity_and_threads(index.len(), threads)
            .map_err(failed)?;
        let add = |(widened, unit): &mut (Vec<f32>, Vec<f32>), block: &crate::index::Block<'_>| {
            let values = block.shard.values(block.rows.clone(), widened);
            for (row, values) in values.chunks_exact(index.width()).enumerate() {
                scale(values, metric, unit);
                graph.add((block.first + row) as u64, unit.as_slice())?;
            }
            Ok(())
        };
        let blocks = index.blocks(BLOCK_ROWS);
        let blocks = blocks.par_iter();
        blocks.try_for_each_init(Default::default, add).map_err(failed)?;
        Ok(Self {
            index,
            graph,
            description,
        })
    }

    /// Writes the graph to `path`, and its description to `path` with `.json` appended. Both appear when they are complete.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Graph`] if a file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let (file, _listed) = temporary::file_in(folder, ".hnsw").map_err(Error::io(path))?;
        let written = file
            .path()
            .to_str()
            .ok_or_else(|| Error::graph(path, "the path is not UTF-8"))?;
        self.graph
            .save(written)
            .map_err(|error| Error::graph(path, error))?;
        let describing = describing(path);
        let (mut text, _text_listed) = temporary::file_in(folder, ".json").map_err(Error::io(&describing))?;
        serde_json::to_writer(&mut text, &self.description)
            .map_err(|error| Error::io(&describing)(error.into()))?;
        file.persist(path).map_err(|error| Error::io(path)(error.error))?;
        text.persist(&describing)
            .map_err(|error| Error::io(&describing)(error.error))?;
        Ok(())
    }

    /// Reads the graph of an index.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a file cannot be read. [`Error::Graph`] if it is damaged, or was made from other rows or for another metric.
    pub fn open(index: &'a Index, metric: Metric, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let describing = describing(path);
        let text = regular_file::read_within(&describing, LONGEST).map_err(Error::io(&describing))?;
        let description: Description =
            serde_json::from_slice(&text).map_err(|error| Error::graph(&describing, error))?;
        if description.metric != name(metric)? {
            let reason = format!("was made for the metric {}. Build it again", description.metric);
            return Err(Error::graph(path, reason));
        }
        let is_of_index = description.rows == index.len()
            && description.width == index.width()
            && description.checksum == checksum(index);
        if !is_of_index {
            let reason = format!(
                "is stale: {} has other rows. Build it again",
                index.path().display()
            );
            return Err(Error::graph(path, reason));
        }
        regular_file::check(path).map_err(Error::io(path))?;
        let graph = empty(&description, metric, GraphOptions::default().effort)?;
        let name = path
            .to_str()
            .ok_or_else(|| Error::graph(path, "the path is not UTF-8"))?;
        graph
            .load(name)
            .map_err(|error| Error::graph(path, format!("{error}. Build it again")))?;
        if graph.size() != index.len() || graph.dimensions() != index.width() {
            return Err(Error::graph(path, "is damaged. Build it again"));
        }
        Ok(Self {
            index,
            graph,
            description,
        })
    }

    /// Returns `k` rows near each of `queries` `[queries, width]`, the nearest first. Scores are those of an exact search.
    ///
    /// `effort` is the number of rows that are kept during the search of the graph. More find more of the nearest rows, and take longer.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] as [`Index::search`] does, and [`Error::Graph`] if the library fails.
    pub fn search(&self, queries: &[f32], k: usize, effort: usize) -> Result<Vec<Vec<Hit>>> {
        if k == 0 {
            return Err(Error::argument("k", "must be at least 1"));
        }
        self.index.check_queries(queries)?;
        let metric = metric(&self.description.metric)?;
        self.graph.change_expansion_search(effort.max(k));
        let search = |unit: &mut Vec<f32>, query: &[f32]| {
            scale(query, metric, unit);
            let found = self
                .graph
                .search(unit.as_slice(), k)
                .map_err(|error| Error::graph(self.index.path(), error))?;
            let rows = found.keys.into_iter().map(|key| key as u32);
            Ok(self.index.rank(query, rows, k, metric))
        };
        let queries = queries.par_chunks_exact(self.index.width());
        queries.map_init(Vec::new, search).collect()
    }
}

impl fmt::Debug for Approximate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approximate")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

/// Returns the path of the description of the graph at `path`.
fn describing(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".json");
    path.into()
}

/// Returns the name of a metric.
fn name(metric: Metric) -> Result<&'static str> {
    match metric {
        Metric::Cosine => Ok("cosine"),
        Metric::L2 => Ok("l2"),
        Metric::InnerProduct => Err(Error::argument(
            "metric",
            "an approximate search needs a distance, which the inner product is not. Use cosine or l2",
        )),
    }
}

/// Returns the metric with a name.
fn metric(name: &str) -> Result<Metric> {
    match name {
        "cosine" => Ok(Metric::Cosine),
        "l2" => Ok(Metric::L2),
        other => Err(Error::argument("metric", format!("`{other}` is unknown"))),
    }
}

/// Creates a graph without rows.
fn empty(description: &Description, metric: Metric, effort: usize) -> Result<usearch::Index> {
    let options = IndexOptions {
        dimensions: description.width,
        metric: match metric {
            Metric::L2 => MetricKind::L2sq,
            Metric::Cosine | Metric::InnerProduct => MetricKind::IP,
        },
        quantization: ScalarKind::F32,
        connectivity: description.neighbours,
        expansion_add: effort,
        expansion_search: effort,
        multi: false,
    };
    usearch::Index::new(&options).map_err(|error| Error::graph(Path::new("usearch"), error))
}

/// Writes a row to `to`, scaled to unit length if the metric is the cosine.
fn scale(row: &[f32], metric: Metric, to: &mut Vec<f32>) {
    to.clear();
    to.extend_from_slice(row);
    if metric == Metric::Cosine {
        hipvit::outputs::normalize(to);
    }
}

/// Returns the checksum of all rows.
fn checksum(index: &Index) -> u32 {
    let blocks = index.blocks(BLOCK_ROWS);
    let sums = blocks
        .par_iter()
        .map(|block| crc32fast::hash(block.shard.bytes(block.rows.clone())));
    let sums: Vec<u8> = sums
        .collect::<Vec<u32>>()
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    crc32fast::hash(&sums)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::npy;

    const WIDTH: usize = 16;

    /// Writes rows around random centres.
    fn clustered(path: &Path, rows: usize, clusters: usize) -> Vec<f32> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let centres: Vec<f32> = (0..clusters * WIDTH).map(|_| next()).collect();
        let value = |at: usize| centres[at / WIDTH % clusters * WIDTH + at % WIDTH] + 0.3 * next();
        let values: Vec<f32> = (0..rows * WIDTH).map(value).collect();
        fs::write(path, npy::bytes([rows, WIDTH], &values)).unwrap();
        values
    }

    #[test]
    fn most_of_the_nearest_rows_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (rows, graph) = (folder.path().join("rows.npy"), folder.path().join("rows.hnsw"));
        let values = clustered(&rows, 200_000, 500);
        let index = Index::open(&rows).unwrap();
        let options = GraphOptions {
            neighbours: 12,
            effort: 48,
        };
        Approximate::build(&index, Metric::Cosine, options)
            .unwrap()
            .save(&graph)
            .unwrap();
        let opened = Approximate::open(&index, Metric::Cosine, &graph).unwrap();
        let queries: Vec<f32> = values
            .chunks(WIDTH)
            .step_by(997)
            .flatten()
            .map(|value| value + 0.05)
            .collect();
        let exact = index.search(&queries, 10, Metric::Cosine).unwrap();
        let found = opened.search(&queries, 10, 64).unwrap();
        let mut common = 0;
        for (exact, found) in exact.iter().zip(&found) {
            assert_eq!(found.len(), 10);
            common += exact.iter().filter(|hit| found.contains(hit)).count();
        }
        let recall = common as f64 / (10 * exact.len()) as f64;
        assert!(recall >= 0.95, "recall@10 is {recall}");
    }

    #[test]
    fn stale_and_damaged_graphs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (rows, graph) = (folder.path().join("rows.npy"), folder.path().join("rows.hnsw"));
        let mut values = clustered(&rows, 500, 10);
        let index = Index::open(&rows).unwrap();
        Approximate::build(&index, Metric::L2, GraphOptions::default())
            .unwrap()
            .save(&graph)
            .unwrap();
        let refusal =
            |index: &Index, metric| Approximate::open(index, metric, &graph).unwrap_err().to_string();
        assert!(refusal(&index, Metric::Cosine).contains("was made for the metric l2"));
        assert!(refusal(&index, Metric::InnerProduct).contains("needs a distance"));
        let opened = Approximate::open(&index, Metric::L2, &graph).unwrap();
        let found = opened.search(&values[..WIDTH], 3, 64).unwrap();
        assert_eq!(found, index.search(&values[..WIDTH], 3, Metric::L2).unwrap());

        let bytes = fs::read(&graph).unwrap();
        fs::write(&graph, &bytes[..bytes.len() / 2]).unwrap();
        assert!(refusal(&index, Metric::L2).contains("Build it again"));
        fs::write(&graph, &bytes).unwrap();
        drop(opened);
        values[499 * WIDTH] += 1.0;
        let other = folder.path().join("other.npy");
        fs::write(&other, npy::bytes([500, WIDTH], &values)).unwrap();
        assert!(refusal(&Index::open(&other).unwrap(), Metric::L2).contains("is stale"));
    }
}
