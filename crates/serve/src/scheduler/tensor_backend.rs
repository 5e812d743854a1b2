//! The backend of models that take tensors by name.

use hipvit::error::{Error, ErrorKind, Result};
use hipvit::hip;
use hipvit::ndarray::{ArrayD, IxDyn};
use hipvit::session::{Device, Session};
use hipvit::tensor::DType;
use hipvit::tensors::{ElementType, TensorArray, TensorInfo};

use super::backend::{Backend, Preparation, PrepareTimes, gpus_of};
use super::request::{BatchResults, Content, Prepared};
use crate::failure::{Failure, Kind};
use crate::statistics::RunTimes;

/// A session whose requests are run one by one, since each may have another batch size.
pub(crate) struct TensorBackend(pub(crate) Session);

impl TensorBackend {
    /// Runs a request, and returns the failure that is its own fault.
    fn run_one(&self, inputs: &[(String, TensorArray)]) -> Result<Result<hipvit::NamedTensors, Failure>> {
        let views = inputs.iter().map(|(name, array)| (name.as_str(), array.view()));
        match self.0.run_tensors(views) {
            Ok(outputs) => Ok(Ok(outputs)),
            Err(error @ Error::NonFinite { .. }) => Ok(Err(Failure::new(Kind::Internal, error.to_string()))),
            Err(error) if error.kind() == ErrorKind::Usage => Ok(Err(Failure::invalid(error.to_string()))),
            Err(error) => Err(error),
        }
    }
}

/// Returns zeros for an input, at batch 1.
fn zeros(info: &TensorInfo) -> TensorArray {
    let shape: Vec<usize> = info.dims.iter().map(|dim| dim.at_one()).collect();
    let shape = IxDyn(&shape);
    match (info.element, info.element.input_dtype()) {
        // Bytes are also taken where a graph computes with integers.
        (ElementType::U8, _) => TensorArray::U8(ArrayD::zeros(shape)),
        (_, DType::I32) => TensorArray::I32(ArrayD::zeros(shape)),
        _ => TensorArray::F32(ArrayD::zeros(shape)),
    }
}

impl Backend for TensorBackend {
    fn prepare(&self, _: &str, _: Content, _: Preparation<'_>, _: &mut PrepareTimes) -> Result<Prepared> {
        Err(Error::internal("content", "is not tensors"))
    }

    fn run(&self, batch: &[Prepared], _: u32) -> Result<(BatchResults, Option<RunTimes>)> {
        let run = |prepared: &Prepared| match prepared {
            Prepared::Tensors(inputs) => self.run_one(inputs),
            _ => Err(Error::internal("batch", "has images for tensors")),
        };
        let results = batch.iter().map(run).collect::<Result<_>>()?;
        Ok((BatchResults::Tensors(results), None))
    }

    fn check(&self) -> Result<()> {
        let infos = self.0.tensor_inputs();
        let zeros: Vec<TensorArray> = infos.iter().map(zeros).collect();
        let views = infos
            .iter()
            .zip(&zeros)
            .map(|(info, array)| (info.name.as_str(), array.view()));
        match self.0.run_tensors(views) {
            // Zeros may be no valid input, such as indices of a model that divides by them.
            Ok(_) | Err(Error::NonFinite { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn device(&self) -> String {
        self.0.devices().to_string()
    }

    fn concurrency(&self) -> usize {
        match self.0.device() {
            Device::Hip(_) => self.0.batches_in_flight(),
            _ => 1,
        }
    }

    fn gpus(&self) -> Vec<hip::Device> {
        gpus_of(&self.0)
    }
}
