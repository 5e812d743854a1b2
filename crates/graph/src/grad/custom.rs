//! Derivatives of ops that other crates define.

use std::sync::Arc;

use super::differentiable::Differentiable;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::{Custom, Definition};
use crate::value::ValueId;

/// The derivative, as a [`Custom`] has it.
type Derivative = Arc<dyn Differentiable>;

impl Differentiable for Custom {
    fn vjp(
        &self,
        graph: &mut Graph,
        node: &Node,
        gradients: &[Option<ValueId>],
    ) -> Result<Vec<Option<ValueId>>> {
        match self.get::<Derivative>() {
            Some(op) => op.vjp(graph, node, gradients),
            None => Err(Error::graph(
                &node.name,
                format!("{} has no derivative", self.op_name()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{CustomOp, MulScalar, OpError, Shape};
    use crate::reference::Array;
    use crate::tensor::Input;
    use crate::{OutputKind, Role, grad, interpret};

    /// `(x) → 3·x`.
    #[derive(Debug)]
    struct Triple;

    impl CustomOp for Triple {
        fn name(&self) -> &'static str {
            "triple"
        }

        fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
            Ok(vec![operands[0].to_vec()])
        }

        fn reference(&self, operands: &[&Array], results: &mut [Array]) {
            for (y, x) in results[0].values_mut().iter_mut().zip(operands[0].values()) {
                *y = 3.0 * x;
            }
        }
    }

    impl Differentiable for Triple {
        fn vjp(
            &self,
            graph: &mut Graph,
            node: &Node,
            gradients: &[Option<ValueId>],
        ) -> Result<Vec<Option<ValueId>>> {
            let gradient = super::super::backward::only(node, gradients)?;
            Ok(vec![Some(graph.push_backward(
                node,
                MulScalar(3.0),
                [gradient],
            )?)])
        }
    }

    #[test]
    fn the_derivative_that_was_added_is_used() {
        let mut graph = Graph::of_tokens("test", [1, 2]);
        let input = graph.input();
        let triple = Custom::new(Arc::new(Triple)).with::<Derivative>(Arc::new(Triple));
        let y = graph.push(Role::Other, "triple", triple, [input]).unwrap();
        graph.set_output(OutputKind::Tokens, y);
        let graph = grad(&graph, y, &[input]).unwrap();
        let results = interpret(&graph, 1, Input::Values(&[1.0, -2.0])).unwrap();
        let gradient = results.iter().find(|(kind, _)| *kind == OutputKind::Gradient(0));
        assert_eq!(gradient.unwrap().1.as_slice().unwrap(), [3.0, 3.0]);
    }
}
