//! Invariants of a graph, checked after building and after every pass.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::graph::{Graph, OutputKind};
use crate::value::{ValueId, ValueKind};

impl Graph {
    /// Checks the invariants of the graph:
    ///
    /// - Names are unique.
    /// - Every value is computed once, before it is used.
    /// - The shapes are those that the ops give.
    /// - Every output but gradients and named outputs has one row per image, unless all inputs have a fixed shape.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the node or value at fault.
    pub fn verify(&self) -> Result<()> {
        unique(self.values.iter().map(|value| value.name.as_str()))?;
        unique(self.nodes.iter().map(|node| node.name.as_str()))?;
        self.verify_order()?;
        self.verify_shapes()
    }

    fn verify_order(&self) -> Result<()> {
        let mut known: Vec<bool> = self
            .values
            .iter()
            .map(|value| value.kind != ValueKind::Result)
            .collect();
        known[self.input.index()] = true;
        for node in &self.nodes {
            if let Some(&id) = node.inputs.iter().find(|id| !known[id.index()]) {
                let operand = &self.value(id).name;
                let reason = format!("reads `{operand}` before it is computed");
                return Err(Error::graph(&node.name, reason));
            }
            for id in &node.outputs {
                if std::mem::replace(&mut known[id.index()], true) {
                    return Err(Error::graph(&node.name, "computes a value that is already known"));
                }
            }
        }
        if let Some((to, _)) = self.updates.iter().find(|(_, result)| !known[result.index()]) {
            return Err(Error::graph(
                &self.value(*to).name,
                "is written, but no node computes what",
            ));
        }
        let unknown = |&&(_, id): &&(_, ValueId)| !known[id.index()];
        match self.outputs.iter().find(unknown) {
            Some(&(_, id)) => Err(Error::graph(
                &self.value(id).name,
                "is an output, but no node computes it",
            )),
            None => Ok(()),
        }
    }

    fn verify_shapes(&self) -> Result<()> {
        let single = self.shapes(1)?;
        let results = self
            .nodes
            .iter()
            .flat_map(|node| node.outputs.iter().map(move |id| (node, id)));
        for (node, id) in results {
            let (declared, inferred) = (&self.value(*id).shape, &single[id.index()]);
            if declared != inferred {
                let reason = format!("declares shape {declared:?}, but its op gives {inferred:?}");
                return Err(Error::graph(&node.name, reason));
            }
        }
        // Batch 2 reveals accidental broadcasts of batch 1.
        let double = self.shapes(2)?;
        // The gradient of a parameter is a sum over the images. Named outputs have any shape.
        let is_other = |kind| {
            matches!(
                kind,
                OutputKind::Gradient(_) | OutputKind::GradientNorm | OutputKind::Named(_)
            )
        };
        let has_rows = self.inputs().any(|input| input.per_image);
        let outputs = self
            .outputs
            .iter()
            .filter(|&&(kind, _)| has_rows && !is_other(kind));
        for &(_, id) in outputs {
            if double[id.index()].first() != Some(&2) {
                return Err(Error::graph(
                    &self.value(id).name,
                    "is an output, but does not depend on the image",
                ));
            }
        }
        Ok(())
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::graph(name, "is a name that occurs twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::op::{Activation, Add, Op, Pool};
    use crate::tensor::{DType, Tensor};
    use crate::{Graph, OutputKind, Role};

    fn graph() -> Graph {
        let mut g = Graph::new("test", [1, 3, 4, 4], DType::F32);
        let weight = g.constant("w", Tensor::from_f32([5, 3, 2, 2], vec![0.0; 60]).unwrap());
        let conv = Op::PatchConv(crate::op::PatchConv {
            patch: [2, 2],
            bias: false,
        });
        let x = g.push(Role::Patch, "conv", conv, [g.input(), weight]).unwrap();
        let pooled = g
            .push(Role::Other, "pool", Op::Pool(Pool::Token(0)), [x])
            .unwrap();
        g.set_output(OutputKind::Embedding, pooled);
        g
    }

    fn reason(g: &Graph) -> String {
        g.verify().unwrap_err().to_string()
    }

    #[test]
    fn a_built_graph_is_sound() {
        graph().verify().unwrap();
    }

    #[test]
    fn faults_are_named() {
        let mut g = graph();
        g.constant("w", Tensor::from_f32([1], vec![0.0]).unwrap());
        assert_eq!(reason(&g), "node `w`: is a name that occurs twice");

        let mut g = graph();
        g.nodes.swap(0, 1);
        assert_eq!(reason(&g), "node `pool`: reads `conv` before it is computed");

        let mut g = graph();
        g.values[2].shape = vec![1, 3, 5];
        assert_eq!(
            reason(&g),
            "node `conv`: declares shape [1, 3, 5], but its op gives [1, 4, 5]"
        );

        let mut g = graph();
        let constant = g.constant("c", Tensor::from_f32([1, 5], vec![0.0; 5]).unwrap());
        let relu = g
            .push(Role::Other, "relu", Op::Activation(Activation::Relu), [constant])
            .unwrap();
        g.set_output(OutputKind::Logits, relu);
        assert_eq!(
            reason(&g),
            "node `relu`: is an output, but does not depend on the image"
        );
    }

    #[test]
    fn adding_a_batch_to_a_constant_fails_at_batch_2() {
        let mut g = graph();
        let constant = g.constant("c", Tensor::from_f32([1, 5], vec![0.0; 5]).unwrap());
        let pooled = g.outputs()[0].1;
        g.push(Role::Other, "sum", Op::Add(Add), [constant, pooled])
            .unwrap();
        assert_eq!(reason(&g), "node `sum`: cannot add [2, 5] to [1, 5]");
    }
}
