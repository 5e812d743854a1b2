//! Where the first value is that is NaN or infinite.

use hipvit::error::Result;
use hipvit::exec::{ExecutorOptions, Inputs, RunOutput};
use hipvit::graph::{Node, OutputKind, Passes, optimize};
use hipvit::model::LoadOptions;

use super::{StepImages, Trainer, Weights, computed_dtype, load_options, placement};

impl Trainer {
    /// Returns the first part of the model whose output for these images is NaN or infinite with the present weights: `the embedding`,
    /// `block 3` or `the classifier`. `None` if all outputs are finite.
    ///
    /// # Errors
    ///
    /// The errors of [`hipvit::model::load`] and of the device.
    pub fn first_non_finite<'a>(
        &self,
        images: impl Into<StepImages<'a>>,
        batch: usize,
    ) -> Result<Option<String>> {
        let nodes = self.executor()?.info().graph.nodes();
        let blocks = nodes.iter().filter_map(Node::block).max();
        let load = LoadOptions {
            embedded_tokens: true,
            hidden_layers: (0..blocks.map_or(0, |last| last + 1)).collect(),
            ..load_options(&self.options)
        };
        let model = self.checkpoint.model_with(&self.values(Weights::Last)?, &load)?;
        let (graph, _) = optimize(model.graph, &Passes::default())?;
        let placement = placement(&self.options)?;
        let options = ExecutorOptions {
            threads: self.options.threads,
            ..ExecutorOptions::new(computed_dtype(&placement, &self.options))
        };
        let executor = placement.executor(&graph, &options)?;
        let plan = executor.plan(batch)?;
        let named = [(plan.graph().first_input_name(), images.into().into())];
        let outputs = executor.run_inputs(&plan, Inputs::new(named))?;
        let is_finite = |output: &&RunOutput| output.values.iter().all(|value| value.is_finite());
        let broken = outputs.iter().filter(|output| !is_finite(output));
        Ok(broken.map(|output| output.kind).min_by_key(depth).map(name))
    }
}

/// Position of an output in the model.
fn depth(kind: &OutputKind) -> (usize, usize) {
    match kind {
        OutputKind::EmbeddedTokens => (0, 0),
        OutputKind::HiddenLayer(block) => (1, *block),
        _ => (2, 0),
    }
}

fn name(kind: OutputKind) -> String {
    match kind {
        OutputKind::EmbeddedTokens => "the embedding".into(),
        OutputKind::HiddenLayer(block) => format!("block {block}"),
        OutputKind::Tokens => "the encoder".into(),
        _ => "the classifier".into(),
    }
}
