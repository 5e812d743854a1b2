//! Runs the graphs of a decoder on the device of its encoder.

use std::sync::Arc;

use hipvit::Session;
use hipvit::error::{Error, Result};
use hipvit::exec::{Executor, ExecutorOptions, InputData, Inputs, Placement};
use hipvit::graph::{OutputKind, Passes, optimize};
use hipvit::model::Checkpoint;
use hipvit::tensor::Input;
use ndarray::{Array2, ArrayView3, s};

use crate::graph::{self, CacheSize, Part, cross_state, inputs};
use crate::pages::place;
use crate::spec::DecoderSpec;

/// A decoder with its weights and its cache on a device.
#[derive(Debug)]
pub(crate) struct Decoder {
    spec: DecoderSpec,
    cache: CacheSize,
    step: Arc<dyn Executor>,
    cross: Arc<dyn Executor>,
}

/// A token of a sequence, which a step computes.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) token: u32,
    /// Index of the token in its sequence.
    pub(crate) position: usize,
    /// Pages of the sequence, with room for the token.
    pub(crate) pages: &'a [u32],
    /// Number of the sequence's image in the cache.
    pub(crate) image: usize,
}

impl Decoder {
    /// Puts the decoder on the device of `session`, which runs the encoder.
    pub(crate) fn new(
        spec: DecoderSpec,
        weights: &Checkpoint,
        session: &Session,
        cache: CacheSize,
    ) -> Result<Self> {
        let dtype = session.dtype();
        let gpu = session.executor().gpu();
        let passes = Passes {
            optimizations: session.graph().optimizations(),
            ..Passes::default()
        };
        let executor = |graph| -> Result<Arc<dyn Executor>> {
            let (graph, _) = optimize(graph, &passes)?;
            let options = ExecutorOptions {
                threads: Some(session.threads()),
                graphs: session.executor().info().graphs.get(),
                select: session.select_options(),
                ..ExecutorOptions::new(dtype)
            };
            gpu.map_or(Placement::Host, Placement::gpu)
                .executor(&graph, &options)
        };
        Ok(Self {
            step: executor(graph::step(&spec, weights, cache)?)?,
            cross: executor(graph::cross(&spec, weights, cache.tokens)?)?,
            spec,
            cache,
        })
    }

    /// Writes the keys and values of cross-attention of images to the cache. `tokens` are the encoder's, and `images` the images' numbers.
    pub(crate) fn write_images(&self, tokens: ArrayView3<'_, f32>, images: &[usize]) -> Result<()> {
        let tokens = tokens.as_standard_layout();
        let values = tokens
            .as_slice()
            .ok_or_else(|| Error::internal("tokens", "of the encoder are not contiguous"))?;
        let plan = self.cross.plan(images.len())?;
        let outputs = self.cross.run(&plan, Input::Values(values), None)?;
        let parts = (0..self.spec.layers).flat_map(|layer| Part::BOTH.map(|part| (layer, part)));
        for ((layer, part), output) in parts.zip(outputs.iter()) {
            let name = cross_state(layer, part);
            for (index, &image) in images.iter().enumerate() {
                let rows = index * self.cache.tokens..(index + 1) * self.cache.tokens;
                let rows = output.values.slice(s![rows, ..]);
                let rows = rows
                    .as_slice()
                    .ok_or_else(|| Error::internal("cache", "rows of an image are not contiguous"))?;
                self.step.write_state(&name, image * rows.len(), rows)?;
            }
        }
        Ok(())
    }

    /// Computes the logits after each row, `[rows, vocabulary]`.
    pub(crate) fn step(&self, rows: &[Row<'_>]) -> Result<Array2<f32>> {
        // Few sizes of batches have few plans and captured graphs. Rows that fill a batch write nothing and attend to nothing.
        let batch = rows.len().next_power_of_two();
        let of_rows = |of: &dyn Fn(&Row<'_>) -> i32, filling: i32| {
            let mut values: Vec<i32> = rows.iter().map(of).collect();
            values.resize(batch, filling);
            values
        };
        let tokens = of_rows(&|row| row.token as i32, 0);
        let positions = of_rows(&|row| self.spec.position(row.token, row.position) as i32, 0);
        let places = of_rows(&|row| place(row.pages, row.position), -1);
        let lengths = of_rows(&|row| row.position as i32 + 1, 0);
        let images = of_rows(&|row| row.image as i32, 0);
        let image_lengths = of_rows(&|_| self.cache.tokens as i32, 0);
        let mut pages = vec![0; batch * self.cache.sequence];
        for (table, row) in pages.chunks_exact_mut(self.cache.sequence).zip(rows) {
            table
                .iter_mut()
                .zip(row.pages)
                .for_each(|(to, &page)| *to = page as i32);
        }
        let named = [
            (inputs::TOKENS, &tokens),
            (inputs::POSITIONS, &positions),
            (inputs::PLACES, &places),
            (inputs::PAGES, &pages),
            (inputs::LENGTHS, &lengths),
            (inputs::IMAGES, &images),
            (inputs::IMAGE_LENGTHS, &image_lengths),
        ];
        let named = named.map(|(name, values)| (name, InputData::Host(Input::Integers(values))));
        let plan = self.step.plan(batch)?;
        let outputs = self.step.run_inputs(&plan, Inputs::new(named))?;
        let logits = outputs
            .into_iter()
            .find(|output| output.kind == OutputKind::Logits);
        let logits = logits.ok_or_else(|| Error::internal("decoder", "has no logits"))?;
        Ok(logits.values.slice_move(s![..rows.len(), ..]))
    }

    pub(crate) fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    pub(crate) fn cache(&self) -> CacheSize {
        self.cache
    }

    /// Returns the bytes of the cache on its device.
    pub(crate) fn cache_bytes(&self) -> Result<usize> {
        let plan = self.step.plan(1)?;
        let graph = plan.graph();
        let bytes = |id| {
            let elements: usize = graph.value(id).shape.iter().product();
            elements * plan.state_dtype(id).size()
        };
        Ok(graph.states().map(bytes).sum())
    }
}
