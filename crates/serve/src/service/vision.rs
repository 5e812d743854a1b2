//! Inference of models that find objects, masks or depths.

use std::time::Instant;

use super::record::Record;
use super::{Call, Service, refuse_templates, response};
use crate::blocking::at_length;
use crate::failure::{Failure, Kind};
use crate::protocol::parameters::GENERATION;
use crate::protocol::tensors::{Images, decoded_size};
use crate::protocol::vision::{Asked, Found, VisionProtocol};
use crate::protocol::{InferRequest, InferResponse};
use crate::repository::Model;
use crate::scheduler::{Content, ImageResult, VisionRequest};
use crate::statistics::Parts;

impl Service {
    /// Finds objects, masks or depths in the images of a request.
    pub(super) async fn infer_vision(
        &self,
        call: Call,
        request: InferRequest,
        (model, protocol): (&Model, &VisionProtocol),
        deadline: Instant,
        record: &mut Record,
    ) -> Result<InferResponse, Failure> {
        let parameters = &request.parameters;
        let selected = protocol.select(&request.outputs)?;
        refuse_templates(parameters)?;
        parameters.only_for(&GENERATION, "models that make texts of images")?;
        let size = decoded_size(&request.inputs);
        call.memory.grow(size)?;
        let asked = at_length(size, || protocol.read(request.inputs, &model.inputs, parameters))?;
        let Asked {
            images: Images { tensor, contents },
            queries,
        } = asked;
        let count = contents.len();
        call.note.images(count);
        record.trace.describe("hipvit.images", count as i64);
        call.answer.grow(protocol.results_size(&queries))?;
        let queries = queries.into_iter().enumerate();
        let contents = contents
            .into_iter()
            .zip(queries)
            .map(|(content, (index, query))| {
                let request = VisionRequest { query, index };
                (tensor, Content::ToFind(Box::new(content), request))
            });
        let terms = call.terms(deadline, record);
        let pending = model.engine(false).submit(contents.collect(), terms)?;
        let results = pending.wait().await?;
        let begin = Instant::now();
        let parts = results.iter().map(|result| result.parts);
        record.parts = parts.fold(Parts::default(), Parts::longest);
        let found: Option<Vec<_>> = results.iter().map(ImageResult::found).collect();
        let found = found.ok_or_else(|| Failure::new(Kind::Internal, "an image has no result"))?;
        let found = Found::new(&selected, found, parameters)?;
        let size = found.size();
        call.answer.grow(size.saturating_mul(call.copies.max(1)))?;
        // Interpolation takes longer than writing.
        let outputs = at_length(usize::MAX, || found.write())?;
        record.parts.output += begin.elapsed();
        Ok(response(model, outputs, request.id))
    }
}
