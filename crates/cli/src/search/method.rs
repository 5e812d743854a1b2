//! How `hipvit search` compares queries with rows: exactly on the CPU or a GPU, or by an approximate graph.

use anyhow::Result;
use hipvit::Device;
use hipvit::hip::Runtime;
use hipvit::run_config::parsers::positive;
use hipvit_search::{GpuIndex, Hit, Index, Metric};

use crate::outcome::Usage;

/// Options of the search. The default is an exact search on the CPU.
#[derive(Debug, clap::Args)]
pub(super) struct Method {
    /// Search on the GPU of --device too, with rows in f16
    #[arg(long, help_heading = "Device", hide_short_help = true)]
    search_on_gpu: bool,
    /// Build the graph for --approximate: INDEX.hnsw
    #[arg(
        long,
        conflicts_with = "search_on_gpu",
        help_heading = "Advanced",
        hide_short_help = true
    )]
    build_graph: bool,
    /// Search the graph of --build-graph, which may miss rows
    #[arg(
        long,
        conflicts_with = "search_on_gpu",
        help_heading = "Advanced",
        hide_short_help = true
    )]
    approximate: bool,
    /// Rows kept during an approximate search; more find more
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = positive, help_heading = "Advanced", hide_short_help = true)]
    effort: usize,
}

impl Method {
    /// Returns true if the command builds a graph, which needs no query.
    pub(super) fn builds(&self) -> bool {
        self.build_graph
    }

    /// Returns the `k` nearest rows of each query, for a session on `device`.
    pub(super) fn search(
        &self,
        index: &Index,
        queries: &[f32],
        k: usize,
        metric: Metric,
        device: Device,
    ) -> Result<Vec<Vec<Hit>>> {
        if self.approximate {
            return self.search_graph(index, queries, k, metric);
        }
        if !self.search_on_gpu {
            return Ok(index.search(queries, k, metric)?);
        }
        let Device::Hip(number) = device else {
            return Err(Usage("--search-on-gpu needs a GPU: add --device hip, or leave it out").into());
        };
        let open = || Runtime::open()?.device(number);
        let gpu = open().map_err(hipvit::Error::from)?;
        Ok(GpuIndex::new(index, &gpu, metric)?.search(queries, k)?)
    }
}

#[cfg(feature = "approximate")]
mod graph {
    use std::path::PathBuf;

    use hipvit_search::{Approximate, GraphOptions};

    use super::{Hit, Index, Method, Metric, Result};

    /// Returns the path of an index's graph.
    fn path(index: &Index) -> PathBuf {
        if index.path().is_dir() {
            index.path().join("index.hnsw")
        } else {
            index.path().with_extension("hnsw")
        }
    }

    impl Method {
        /// Builds the graph of an index, and writes it.
        pub(in crate::search) fn build(&self, index: &Index, metric: Metric) -> Result<()> {
            let path = path(index);
            Approximate::build(index, metric, GraphOptions::default())?.save(&path)?;
            crate::output::wrote(&path, &format!("graph of {} rows", index.len()));
            Ok(())
        }

        pub(super) fn search_graph(
            &self,
            index: &Index,
            queries: &[f32],
            k: usize,
            metric: Metric,
        ) -> Result<Vec<Vec<Hit>>> {
            let graph = Approximate::open(index, metric, path(index))?;
            Ok(graph.search(queries, k, self.effort)?)
        }
    }
}

#[cfg(not(feature = "approximate"))]
mod graph {
    use super::{Hit, Index, Method, Metric, Result, Usage};

    fn absent() -> anyhow::Error {
        Usage(
            "this hipvit was built without the feature `approximate`. Install it with: cargo install --locked --path crates/cli \
             --features approximate. Or search exactly: leave out --approximate and --build-graph",
        )
        .into()
    }

    impl Method {
        pub(in crate::search) fn build(&self, _: &Index, _: Metric) -> Result<()> {
            Err(absent())
        }

        pub(super) fn search_graph(
            &self,
            _: &Index,
            _: &[f32],
            _: usize,
            _: Metric,
        ) -> Result<Vec<Vec<Hit>>> {
            debug_assert!(self.effort > 0);
            Err(absent())
        }
    }
}
