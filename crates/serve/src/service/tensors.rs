//! Inference of models that take tensors by name.

use std::time::Instant;

use super::record::Record;
use super::{Call, Service, response};
use crate::blocking::at_length;
use crate::failure::{Failure, Kind};
use crate::protocol::named::NamedProtocol;
use crate::protocol::tensors::decoded_size;
use crate::protocol::{InferRequest, InferResponse};
use crate::repository::Model;
use crate::scheduler::Content;

impl Service {
    /// Runs a request of named tensors, which is one item of the queue.
    pub(super) async fn infer_tensors(
        &self,
        call: Call,
        request: InferRequest,
        (model, protocol): (&Model, &NamedProtocol),
        deadline: Instant,
        record: &mut Record,
    ) -> Result<InferResponse, Failure> {
        let selected = protocol.select(&request.outputs)?;
        let size = decoded_size(&request.inputs);
        call.memory.grow(size)?;
        let inputs = at_length(size, || protocol.read(request.inputs))?;
        let size = protocol.output_size(&inputs);
        call.answer.grow(size.saturating_mul(call.copies.max(1)))?;
        let terms = call.terms(deadline, record);
        let pending = model
            .engine(false)
            .submit(vec![("inputs", Content::Tensors(inputs))], terms)?;
        let results = pending.wait().await?;
        let result = results.first().and_then(|result| result.tensors());
        let missing = || Failure::new(Kind::Internal, "the model gave no tensors");
        let outputs = result.ok_or_else(missing)?.as_ref().map_err(Clone::clone)?;
        let begin = Instant::now();
        record.parts = results[0].parts;
        let outputs = at_length(size, || Ok::<_, Failure>(protocol.write(&selected, outputs)))?;
        record.parts.output += begin.elapsed();
        Ok(response(model, outputs, request.id))
    }
}
