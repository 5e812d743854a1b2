//! Runs of a session on tensors by name.

use std::ops::Range;

use ndarray::Array4;

use super::Session;
use crate::error::{Error, Result};
use crate::exec::{FinishOptions, InputData, Inputs, RunOutput, Submission};
use crate::graph::{Graph, GraphInput, ValueId};
use crate::image::{Preprocess, RgbImage};
use crate::model::PixelInput;
use crate::non_finite::{self, NonFinite};
use crate::tensor::DType;
use crate::tensors::{
    Counted, Dim, ElementType, Elements, NamedTensors, TensorArray, TensorInfo, TensorView,
};

impl Session {
    /// Returns the model's inputs: those of an [ONNX](crate::model::InputKind::Tensors) file, otherwise those of the [graph](Self::graph).
    pub fn tensor_inputs(&self) -> Vec<TensorInfo> {
        if let Some(tensors) = self.info().tensors() {
            return tensors.inputs.clone();
        }
        let graph = self.graph();
        let info = |input: GraphInput| {
            let value = graph.value(input.value);
            TensorInfo::new(
                graph.input_name(input),
                element(value.dtype),
                dims(graph, input.value),
            )
        };
        graph.inputs().map(info).collect()
    }

    /// Returns the model's outputs: those of an ONNX file, otherwise those of the [graph](Self::graph).
    pub fn tensor_outputs(&self) -> Vec<TensorInfo> {
        if let Some(tensors) = self.info().tensors() {
            return tensors.outputs.clone();
        }
        let graph = self.graph();
        let outputs = graph.outputs().iter();
        let info =
            |&(kind, value)| TensorInfo::new(graph.output_name(kind), ElementType::F32, dims(graph, value));
        outputs.map(info).collect()
    }

    /// Runs the model on its [inputs](Self::tensor_inputs) by name, and returns its [outputs](Self::tensor_outputs) by name.
    ///
    /// The first extent of most inputs is the batch size B. Larger batches than [`batch`](Self::batch) are run in parts if the first
    /// extent of each output is B, and at once otherwise. Floating-point inputs are rounded to the session's dtype, and outputs are
    /// converted to f32. Integers are computed in 32 bits.
    ///
    /// The inputs and outputs of an ONNX model are those of its file, also if the session takes images. Extents that the file leaves open,
    /// such as height and width, may differ from run to run: the session keeps the model for the latest four.
    ///
    /// ```
    /// # fn main() -> hipvit::Result<()> {
    /// use hipvit::Session;
    /// use hipvit::ndarray::Array4;
    ///
    /// let session = Session::tinyvit32()?;
    /// let black = Array4::<u8>::zeros((1, 32, 32, 3));
    /// let outputs = session.run_tensors([("pixels", &black)])?;
    /// assert_eq!(outputs.get("logits").map(|logits| logits.shape()), Some(&[1, 10][..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] if an input is missing, unknown, or does not have the model's element type or extents.
    /// - [`Error::NonFinite`] for a [strict](crate::SessionBuilder::strict) session.
    /// - A device error.
    pub fn run_tensors<'name, 'a>(
        &self,
        inputs: impl IntoIterator<Item = (&'name str, impl Into<TensorView<'a>>)>,
    ) -> Result<NamedTensors> {
        let inputs = inputs.into_iter().map(|(name, view)| (name, view.into()));
        let inputs: Vec<(&str, TensorView<'_>)> = inputs.collect();
        match self.onnx() {
            Some(file) => {
                let own = self.info().tensors().map(|_| self);
                file.session_for(own, &inputs)?.run_views(&inputs)
            }
            None => self.run_views(&inputs),
        }
    }

    /// Runs the model on images that `rule` resizes: on their bytes, or on the normalised values of an ONNX file's `input`.
    pub(crate) fn run_images(
        &self,
        input: Option<&PixelInput>,
        rule: &Preprocess,
        images: &[&RgbImage],
    ) -> Result<NamedTensors> {
        let (height, width) = rule.output_size();
        let pixels = Array4::from_shape_vec((images.len(), height, width, 3), rule.apply_batch(images)?);
        let pixels = pixels.map_err(|e| Error::internal("pixels", e))?;
        if let Some(input) = input {
            let values = input.values(rule, &pixels)?;
            return self.run_tensors([(input.name.as_str(), &values)]);
        }
        let graph = self.graph();
        let name = graph.inputs().next().map_or("", |input| graph.input_name(input));
        self.run_tensors([(name, &pixels)])
    }

    pub(super) fn run_views(&self, inputs: &[(&str, TensorView<'_>)]) -> Result<NamedTensors> {
        if self.packing().is_some() {
            let reason = "are packed images in this session. Load the model without packing";
            return Err(Error::argument("inputs", reason));
        }
        let graph = self.graph();
        let inputs = in_order(graph, inputs)?;
        let batch = batch(graph, &inputs)?;
        // The elements borrow the caller's arrays, or have those that were converted.
        let mut elements = Vec::with_capacity(inputs.len());
        for (input, view) in inputs {
            let dtype = graph.value(input.value).dtype;
            elements.push(Elements::new(graph.input_name(input), view, dtype)?);
        }
        let most = if has_rows(graph)? { self.batch() } else { batch };
        let mut all: Option<NamedTensors> = None;
        for start in (0..batch).step_by(most) {
            let part = self.run_rows(&elements, start..batch.min(start + most))?;
            match &mut all {
                Some(all) => all.append(&part)?,
                None => all = Some(part),
            }
        }
        Ok(all.unwrap_or_default())
    }

    /// Runs the model on some rows of the inputs, which are in the order of the graph.
    fn run_rows(&self, elements: &[Elements<'_>], rows: Range<usize>) -> Result<NamedTensors> {
        let graph = self.graph();
        let mut named = Vec::with_capacity(elements.len());
        for (input, elements) in graph.inputs().zip(elements) {
            let all = elements.input()?;
            let data: InputData<'_> = if input.per_image {
                let each: usize = graph.value(input.value).shape.iter().product();
                all.slice(rows.start * each..rows.end * each).into()
            } else {
                all.into()
            };
            named.push((graph.input_name(input), data));
        }
        let plan = self.plan(rows.len())?;
        let reservation = self.reserve(&plan, None, Err)?;
        let run = reservation.submit(Inputs::new(named), Submission::default())?;
        let finished = run.finish(FinishOptions::default())?;
        let mut outputs: Vec<(String, RunOutput, &[usize])> = finished
            .outputs
            .into_iter()
            .zip(plan.outputs())
            .map(|(output, &(kind, _, id))| {
                let name = graph.output_name(kind).into_owned();
                (name, output, plan.buffer(id).shape.as_slice())
            })
            .collect();
        let infos = self.info().tensors().map(|tensors| tensors.outputs.as_slice());
        // Behind the outputs of an ONNX file, the graph has the numbers of their rows.
        let counts = infos.map_or_else(Vec::new, |infos| {
            outputs.split_off(infos.len().min(outputs.len()))
        });
        let tensor = |(index, (name, output, shape)): (usize, (String, RunOutput, &[usize]))| {
            let info = infos.and_then(|infos| infos.get(index));
            let values = output.values.into_raw_vec_and_offset().0;
            self.check_tensor(&name, &values, rows.start)?;
            let element = info.map_or(ElementType::F32, |info| info.element);
            let array = TensorArray::new(element, shape, values)?;
            match info.and_then(|info| info.counted.as_ref()) {
                Some(counted) => Ok((name, array.cut(counted.axis, rows_of(counted, &counts)?))),
                None => Ok((name, array)),
            }
        };
        let results = outputs.into_iter().enumerate().map(tensor);
        results.collect::<Result<Vec<_>>>().map(NamedTensors::from_iter)
    }

    /// Checks that an output of a strict session is finite.
    fn check_tensor(&self, name: &str, values: &[f32], first: usize) -> Result<()> {
        if !self.is_strict() {
            return Ok(());
        }
        let count = non_finite::count(values.iter().copied());
        match NonFinite::new(name, count, values.len()) {
            Some(results) => Err(Error::NonFinite {
                image: format!("row {first} and the following"),
                results,
            }),
            None => Ok(()),
        }
    }
}

/// Returns the number of rows of an output that are results.
fn rows_of(counted: &Counted, counts: &[(String, RunOutput, &[usize])]) -> Result<usize> {
    let count = counts.iter().find(|(name, ..)| *name == counted.output);
    let count = count.and_then(|(_, output, _)| output.values.first());
    count
        .map(|&count| count as usize)
        .ok_or_else(|| Error::internal("outputs", "lack a number of rows"))
}

/// Returns the given tensors in the order of the graph's inputs.
fn in_order<'b, 'a>(
    graph: &Graph,
    inputs: &'b [(&str, TensorView<'a>)],
) -> Result<Vec<(GraphInput, &'b TensorView<'a>)>> {
    let names: Vec<&str> = graph.inputs().map(|input| graph.input_name(input)).collect();
    for (index, (name, _)) in inputs.iter().enumerate() {
        let fault = if !names.contains(name) {
            "is not an input of the model"
        } else if inputs[..index].iter().any(|(before, _)| before == name) {
            "is given twice"
        } else {
            continue;
        };
        let reason = format!("`{name}` {fault}. The inputs are `{}`", names.join("`, `"));
        return Err(Error::argument("inputs", reason));
    }
    let given = |input: GraphInput| {
        let name = graph.input_name(input);
        let view = inputs.iter().find(|(given, _)| *given == name);
        let missing = || Error::argument("inputs", format!("`{name}` is missing"));
        Ok((input, &view.ok_or_else(missing)?.1))
    };
    graph.inputs().map(given).collect()
}

/// Checks the extents of the inputs, and returns the batch size.
fn batch(graph: &Graph, inputs: &[(GraphInput, &TensorView<'_>)]) -> Result<usize> {
    let mut batch: Option<(usize, &str)> = None;
    for &(input, view) in inputs {
        let name = graph.input_name(input);
        let (given, expected) = (view.shape(), graph.value(input.value).shape.as_slice());
        let (rows, fits) = match (given, expected) {
            ([rows, given @ ..], [_, expected @ ..]) if input.per_image => (Some(*rows), given == expected),
            _ => (None, given == expected),
        };
        if !fits {
            let mut extents: Vec<String> = expected.iter().map(ToString::to_string).collect();
            if let Some(first) = extents.first_mut().filter(|_| input.per_image) {
                "B".clone_into(first);
            }
            let reason = format!(
                "`{name}` has the shape {given:?}, expected [{}]",
                extents.join(", ")
            );
            return Err(Error::argument("inputs", reason));
        }
        match (rows, batch) {
            (Some(0), _) => {
                return Err(Error::argument("inputs", format!("`{name}` has no rows")));
            }
            (Some(rows), Some((known, other))) if rows != known => {
                let reason = format!("`{name}` has {rows} rows, but `{other}` has {known}");
                return Err(Error::argument("inputs", reason));
            }
            (Some(rows), _) => batch = Some((rows, name)),
            (None, _) => {}
        }
    }
    Ok(batch.map_or(1, |(rows, _)| rows))
}

/// Returns true if each output has one row per image, so that batches can be divided.
fn has_rows(graph: &Graph) -> Result<bool> {
    let double = graph.shapes(2)?;
    let is_row =
        |&(_, id): &(_, ValueId)| match (graph.value(id).shape.as_slice(), double[id.index()].as_slice()) {
            ([1, one @ ..], [2, two @ ..]) => one == two,
            _ => false,
        };
    Ok(graph.outputs().iter().all(is_row))
}

/// Returns the extents of a value of the graph.
fn dims(graph: &Graph, id: ValueId) -> Vec<Dim> {
    let one = &graph.value(id).shape;
    // The session has planned this graph, so its shapes fit.
    let double = graph.shapes(2).unwrap_or_default();
    let two = double.get(id.index()).unwrap_or(one);
    let dim = |(&one, &two): (&usize, &usize)| {
        if one == two {
            Dim::Fixed(one)
        } else {
            Dim::Batch(one)
        }
    };
    one.iter().zip(two).map(dim).collect()
}

fn element(dtype: DType) -> ElementType {
    match dtype {
        DType::U8 => ElementType::U8,
        DType::I32 => ElementType::I32,
        _ => ElementType::F32,
    }
}
