//! An op that another crate defines.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::operands::count;
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape};
use crate::array::{Array, Real};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// The definition of an op outside this crate, by the struct of its attributes.
///
/// [`Definition`] documents each method for all ops. Two ops are equal if their names and their [`Debug`](fmt::Debug) texts are.
pub trait CustomOp: Any + fmt::Debug + Send + Sync {
    /// Name, as reports and errors print it.
    fn name(&self) -> &'static str;

    /// Attributes, as reports print them behind the name.
    fn attributes(&self) -> String {
        String::new()
    }

    /// Shapes of the results. An op has at least one result.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the op does not accept operands of these shapes.
    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError>;

    /// Floating-point operations. By default one for each element of the results.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        results.iter().map(|shape| count(shape)).sum()
    }

    /// Operand whose memory the first result may take over: see [`Definition::may_alias`].
    fn may_alias(&self) -> Option<usize> {
        None
    }

    /// Part of the operands that a part of result `index` depends on. By default everything depends on everything.
    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    /// Operands whose tokens are computed one by one: see [`Definition::tokenwise`].
    fn tokenwise(&self) -> Option<Vec<usize>> {
        None
    }

    /// Computes the results into `results`, which are zeros of the right shapes. Executors are checked against it.
    fn reference(&self, operands: &[&Array], results: &mut [Array]);

    /// Tolerance of result `index`: see [`Definition::tolerance`]. By default that of one rounding and of one operation in f32.
    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }

    /// Appends the nodes that compute the gradients of a node's operands: see [`Definition::vjp`]. By default the op has no derivative.
    ///
    /// # Errors
    ///
    /// [`OpError::Derivative`] if the op has no derivative.
    fn vjp(
        &self,
        _builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        _gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        Err(OpError::derivative(format!("{} has no derivative", self.name())))
    }
}

/// A [`CustomOp`], shared, with what other layers add to it: the kernels of executors.
#[derive(Clone)]
pub struct Custom {
    definition: Arc<dyn CustomOp>,
    /// At most one value of each type, which the layer that added it knows.
    extensions: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Custom {
    /// An op that only the reference interpreter computes.
    pub fn new(definition: Arc<dyn CustomOp>) -> Self {
        Self {
            definition,
            extensions: Vec::new(),
        }
    }

    /// Adds a value, such as the kernel of an executor.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, extension: T) -> Self {
        self.extensions.push(Arc::new(extension));
        self
    }

    /// Returns the value of type `T` that was added. `None` if there is none.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.extensions
            .iter()
            .find_map(|extension| extension.downcast_ref())
    }

    /// Returns the definition.
    pub fn definition(&self) -> &Arc<dyn CustomOp> {
        &self.definition
    }

    /// Adds the op's name to an error.
    pub fn error(&self, source: OpError) -> OpError {
        OpError::Custom {
            op: self.definition.name(),
            source: Box::new(source),
        }
    }
}

impl Definition for Custom {
    const NAME: &'static str = "custom";

    fn op_name(&self) -> &'static str {
        self.definition.name()
    }

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.definition.attributes().as_str() {
            "" => Ok(()),
            attributes => write!(f, " {attributes}"),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let shapes = self.definition.shapes(operands);
        let shapes = shapes.map_err(|source| self.error(source))?;
        if shapes.is_empty() {
            return Err(self.error("has no result".into()));
        }
        Ok(shapes)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        self.definition.flops(operands, results)
    }

    fn may_alias(&self) -> Option<usize> {
        self.definition.may_alias()
    }

    fn locality(&self, index: usize) -> Locality {
        self.definition.locality(index)
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        self.definition.tokenwise()
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let operands: Vec<Array> = operands.iter().map(|operand| to_f64(operand)).collect();
        let operands: Vec<&Array> = operands.iter().collect();
        let mut computed: Vec<Array> = results
            .iter()
            .map(|result| Array::zeros(result.shape().to_vec()))
            .collect();
        self.definition.reference(&operands, &mut computed);
        for (result, computed) in results.iter_mut().zip(&computed) {
            for (to, &from) in result.values_mut().iter_mut().zip(computed.values()) {
                *to = T::from_f64(from);
            }
        }
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        self.definition.tolerance(index, operands, dtype)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        self.definition.vjp(builder, node, gradients)
    }
}

fn to_f64<T: Real>(array: &Array<T>) -> Array {
    let mut wide = Array::zeros(array.shape().to_vec());
    for (to, from) in wide.values_mut().iter_mut().zip(array.values()) {
        *to = from.to_f64();
    }
    wide
}

/// Writes the definition.
impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.definition.name())
            .field(&self.definition)
            .finish()
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.definition, &other.definition) || format!("{self:?}") == format!("{other:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::operands::{exactly, expect, one};
    use crate::op::{MulScalar, Op, only_gradient};
    use crate::tensor::Input;
    use crate::{Graph, OutputKind, Role, grad, interpret, optimize};

    /// `(x, y) → max(x, y) · factor`.
    #[derive(Debug)]
    struct ScaledMaximum {
        factor: f64,
    }

    impl CustomOp for ScaledMaximum {
        fn name(&self) -> &'static str {
            "scaled_maximum"
        }

        fn attributes(&self) -> String {
            format!("×{}", self.factor)
        }

        fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
            let [x, y] = exactly(operands)?;
            expect("y", y, x)?;
            one(x)
        }

        fn reference(&self, operands: &[&Array], results: &mut [Array]) {
            let [x, y] = [0, 1].map(|index| operands[index].values());
            for (i, result) in results[0].values_mut().iter_mut().enumerate() {
                *result = x[i].max(y[i]) * self.factor;
            }
        }
    }

    /// Has no result.
    #[derive(Debug)]
    struct Nothing;

    impl CustomOp for Nothing {
        fn name(&self) -> &'static str {
            "nothing"
        }

        fn shapes(&self, _operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
            Ok(Vec::new())
        }

        fn reference(&self, _operands: &[&Array], _results: &mut [Array]) {}
    }

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

        fn vjp(
            &self,
            builder: &mut dyn GraphBuilder,
            _node: NodeValues<'_>,
            gradients: &[Option<ValueId>],
        ) -> Result<Gradients, OpError> {
            let gradient = only_gradient(gradients)?;
            Ok(vec![Some(builder.push(MulScalar(3.0), [gradient])?)])
        }
    }

    fn maximum(factor: f64) -> Op {
        Custom::new(Arc::new(ScaledMaximum { factor })).into()
    }

    fn graph() -> Graph {
        let mut graph = Graph::of_tokens("test", [2, 2]);
        let input = graph.input();
        let y = graph
            .push(Role::Other, "negative", MulScalar(-1.0), [input])
            .unwrap();
        let result = graph
            .push(Role::Other, "maximum", maximum(2.0), [input, y])
            .unwrap();
        graph.set_output(OutputKind::Tokens, result);
        graph
    }

    #[test]
    fn the_interpreter_computes_it_in_an_optimised_graph_too() {
        let graph = graph();
        let (optimized, _) = optimize(graph.clone(), &crate::Passes::default()).unwrap();
        for graph in [&graph, &optimized] {
            let input = [1.0, -2.0, 0.5, -0.25];
            let results = interpret(graph, 1, Input::Values(&input)).unwrap();
            let values: Vec<f64> = results[0].1.iter().copied().collect();
            assert_eq!(values, [2.0, 4.0, 1.0, 0.5]);
        }
        assert_eq!(graph.nodes()[1].op.to_string(), "scaled_maximum ×2");
    }

    #[test]
    fn errors_name_the_node_and_the_op() {
        let mut graph = graph();
        let input = graph.input();
        let error = graph.push(Role::Other, "one", maximum(1.0), [input]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node `one`: scaled_maximum: takes 2 operands, got 1"
        );
        let nothing = Custom::new(Arc::new(Nothing));
        let error = graph.push(Role::Other, "none", nothing, [input]).unwrap_err();
        assert_eq!(error.to_string(), "node `none`: nothing: has no result");
        let output = graph.outputs()[0].1;
        let error = grad(&graph, output, &[input]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node `maximum`: scaled_maximum has no derivative"
        );
    }

    #[test]
    fn its_derivative_is_used() {
        let mut graph = Graph::of_tokens("test", [1, 2]);
        let input = graph.input();
        let triple = Custom::new(Arc::new(Triple));
        let y = graph.push(Role::Other, "triple", triple, [input]).unwrap();
        graph.set_output(OutputKind::Tokens, y);
        let graph = grad(&graph, y, &[input]).unwrap();
        let results = interpret(&graph, 1, Input::Values(&[1.0, -2.0])).unwrap();
        let gradient = results.iter().find(|(kind, _)| *kind == OutputKind::Gradient(0));
        assert_eq!(gradient.unwrap().1.as_slice().unwrap(), [3.0, 3.0]);
    }

    #[test]
    fn ops_of_the_same_attributes_are_equal() {
        assert_eq!(maximum(2.0), maximum(2.0));
        assert_ne!(maximum(2.0), maximum(3.0));
        assert_ne!(maximum(2.0), Custom::new(Arc::new(Nothing)).into());
    }

    #[test]
    fn it_has_kernels_of_the_type_that_it_was_given() {
        let op = Custom::new(Arc::new(Nothing)).with(7u32);
        assert_eq!((op.get::<u32>(), op.get::<u64>()), (Some(&7), None));
    }
}
