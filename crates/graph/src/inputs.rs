//! The inputs of a graph.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::Input;
use crate::value::{FirstInput, GraphInput, Value, ValueId, ValueKind};

/// Names of a graph's first input without its own name: pixels in u8, values in f32, activations of an earlier stage.
const FIRST_INPUT: [&str; 3] = ["pixels", "values", "activations"];

impl Graph {
    /// Creates a graph whose first input has its own name and any rank, and no nodes. `shape` is `[1, …]`: runs of `B` images have `B` rows.
    ///
    /// Plans in 16 bits round the elements of an f32 input, unless ops only read it in f32.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the input, if the first extent is not 1, or the dtype is none of u8, i32 and f32.
    pub fn of_values(
        model: impl Into<String>,
        input: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        dtype: DType,
    ) -> Result<Self> {
        Self::of_input(model.into(), input.into(), shape.into(), dtype, true)
    }

    /// Creates a graph whose first input has its own name and the same shape for any batch size, and no nodes.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the input, if the dtype is none of u8, i32 and f32.
    pub fn of_fixed_values(
        model: impl Into<String>,
        input: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        dtype: DType,
    ) -> Result<Self> {
        Self::of_input(model.into(), input.into(), shape.into(), dtype, false)
    }

    fn of_input(
        model: String,
        input: String,
        shape: Vec<usize>,
        dtype: DType,
        per_image: bool,
    ) -> Result<Self> {
        check_input_dtype(&input, dtype)?;
        if per_image {
            check_rows(&input, &shape)?;
        }
        let mut graph = Self::new(model, [1; 4], dtype);
        graph.values[0].name = input;
        graph.values[0].shape = shape;
        graph.first_input = FirstInput::Named { per_image };
        Ok(graph)
    }

    /// Adds an input with a row per image, such as labels. `shape` is `[1, …]`. Runs provide it by its name.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the input, if the first extent is not 1, the dtype is none of u8, i32 and f32, or the name is one of the
    /// [first input](Self::first_input_name).
    pub fn add_input(
        &mut self,
        name: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        dtype: DType,
    ) -> Result<ValueId> {
        let (name, shape) = (name.into(), shape.into());
        check_rows(&name, &shape)?;
        self.push_input(name, shape, dtype, true)
    }

    /// Adds an input whose shape is the same for any batch size, such as a learning rate. Runs provide it by its name.
    ///
    /// Plans in 16 bits round the elements of an f32 input, unless ops only read it in f32.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the input, if the dtype is none of u8, i32 and f32, or the name is one of the [first input](Self::first_input_name).
    pub fn add_fixed_input(
        &mut self,
        name: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        dtype: DType,
    ) -> Result<ValueId> {
        self.push_input(name.into(), shape.into(), dtype, false)
    }

    fn push_input(
        &mut self,
        name: String,
        shape: Vec<usize>,
        dtype: DType,
        per_image: bool,
    ) -> Result<ValueId> {
        let is_first = match self.first_input {
            FirstInput::Named { .. } => self.value(self.input).name == name,
            FirstInput::Images { .. } | FirstInput::Activations => FIRST_INPUT.contains(&name.as_str()),
        };
        if is_first {
            let reason = "is the name under which runs provide the first input. Choose another name";
            return Err(Error::graph(name, reason));
        }
        check_input_dtype(&name, dtype)?;
        let value = self.push_value(Value {
            name,
            dtype,
            shape,
            rounding: None,
            kind: ValueKind::Input,
            provenance: None,
            constant: None,
            initial: None,
        });
        self.more_inputs.push(GraphInput { value, per_image });
        Ok(value)
    }

    /// Returns all inputs: the [first](Self::input), then the others in the order in which they were added.
    pub fn inputs(&self) -> impl Iterator<Item = GraphInput> + '_ {
        std::iter::once(self.first_input()).chain(self.more_inputs.iter().copied())
    }

    /// Returns true if the first input is pixels in u8 or pixel values in f32, which ops read in their own dtype.
    pub fn takes_images(&self) -> bool {
        matches!(self.first_input, FirstInput::Images { .. })
    }

    /// Returns true if the first input is the activations of an earlier [stage](crate::stages()), in a plan's dtype.
    pub fn takes_activations(&self) -> bool {
        self.first_input == FirstInput::Activations
    }

    /// Returns the name under which runs provide the first input: [its own](Self::of_values), `pixels` (u8), `values` (f32) or
    /// `activations`.
    pub fn first_input_name(&self) -> &str {
        let [pixels, values, activations] = FIRST_INPUT;
        let value = self.value(self.input);
        match self.first_input {
            FirstInput::Named { .. } => &value.name,
            FirstInput::Activations => activations,
            FirstInput::Images { .. } if value.dtype == DType::U8 => pixels,
            FirstInput::Images { .. } => values,
        }
    }

    /// Returns the name under which runs provide an input: the [name of the first](Self::first_input_name), or the name of its value.
    pub fn input_name(&self, input: GraphInput) -> &str {
        if input.value == self.input {
            self.first_input_name()
        } else {
            &self.value(input.value).name
        }
    }

    /// Checks that `input` fits the graph's first input for `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the dtype or the number of elements differs.
    pub fn check_input(&self, input: Input<'_>, batch: usize) -> Result<()> {
        let checked = self.check(self.first_input(), input, batch);
        checked.map_err(|reason| match self.first_input {
            FirstInput::Named { .. } => {
                Error::argument("inputs", format!("`{}` {reason}", self.first_input_name()))
            }
            FirstInput::Images { .. } | FirstInput::Activations => Error::argument("input", reason),
        })
    }

    /// Checks that `input` fits the input `of_graph` for `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the input, if the dtype or the number of elements differs.
    pub fn check_one_of_inputs(&self, of_graph: GraphInput, input: Input<'_>, batch: usize) -> Result<()> {
        if of_graph.value == self.input {
            return self.check_input(input, batch);
        }
        self.check(of_graph, input, batch).map_err(|reason| {
            let name = self.input_name(of_graph);
            Error::argument("inputs", format!("`{name}` {reason}"))
        })
    }

    /// Checks that `inputs` are one for each of the graph's [inputs](Self::inputs), in the same order, for `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the input, if one is missing or has another dtype or number of elements.
    pub fn check_inputs(&self, inputs: &[Input<'_>], batch: usize) -> Result<()> {
        let expected = 1 + self.more_inputs.len();
        if inputs.len() != expected {
            let reason = format!("{} were given, but the graph has {expected}", inputs.len());
            return Err(Error::argument("inputs", reason));
        }
        let mut pairs = self.inputs().zip(inputs);
        pairs.try_for_each(|(of_graph, &input)| self.check_one_of_inputs(of_graph, input, batch))
    }

    fn check(&self, of_graph: GraphInput, input: Input<'_>, batch: usize) -> Result<(), String> {
        let Value { dtype, shape, .. } = self.value(of_graph.value);
        if input.dtype() != *dtype {
            return Err(format!("is {}, expected {dtype}", input.dtype()));
        }
        let given = input.len();
        if of_graph.per_image {
            let image: usize = shape.iter().skip(1).product();
            if batch == 0 || batch.checked_mul(image) != Some(given) {
                return Err(format!(
                    "has {given} elements, expected {batch} × {image}, at least one image"
                ));
            }
        } else if given != shape.iter().product::<usize>() {
            return Err(format!("has {given} elements, expected {shape:?}"));
        }
        Ok(())
    }

    /// Returns the first input.
    pub(crate) fn first_input(&self) -> GraphInput {
        let per_image = match self.first_input {
            FirstInput::Images { per_image } | FirstInput::Named { per_image } => per_image,
            FirstInput::Activations => true,
        };
        GraphInput {
            value: self.input,
            per_image,
        }
    }

    /// Returns the shape of an input for `batch` images.
    pub(crate) fn input_shape(
        &self,
        GraphInput { value, per_image }: GraphInput,
        batch: usize,
    ) -> Vec<usize> {
        let mut shape = self.value(value).shape.clone();
        if let Some(outermost) = shape.first_mut().filter(|_| per_image) {
            *outermost = batch;
        }
        shape
    }
}

/// Checks the shape of an input with a row per image.
fn check_rows(name: &str, shape: &[usize]) -> Result<()> {
    if shape.first() == Some(&1) {
        return Ok(());
    }
    let reason = format!("has shape {shape:?}, but an input with a row per image starts with 1");
    Err(Error::graph(name, reason))
}

fn check_input_dtype(name: &str, dtype: DType) -> Result<()> {
    if matches!(dtype, DType::U8 | DType::I32 | DType::F32) {
        return Ok(());
    }
    let reason = format!("is {dtype}, but inputs are u8, i32 or f32");
    Err(Error::graph(name, reason))
}
