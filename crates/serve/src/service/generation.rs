//! Inference of models that make texts of images.

use std::pin::Pin;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::record::Record;
use super::{Call, Service, refuse_templates, response};
use crate::blocking::at_length;
use crate::failure::{Failure, Kind};
use crate::protocol::generation::TextProtocol;
use crate::protocol::parameters::{Parameters, VISION};
use crate::protocol::tensors::{IMAGE, Images, PIXEL_VALUES, decoded_size};
use crate::protocol::{InferRequest, InferResponse};
use crate::repository::Model;
use crate::scheduler::{Content, ImageResult, Pending, Reply, ToText};
use crate::statistics::Parts;
use hipvit_generate::{GenerateOptions, Message, TextStream};

/// Name of the image of a chat in errors.
const CHAT_IMAGE: &str = "messages";

/// What a chat asks.
pub(crate) struct ChatContent {
    pub(crate) image: Content,
    pub(crate) messages: Vec<Message>,
    /// True if the tokens are read as they come.
    pub(crate) streams: bool,
}

/// A text in progress that answers a chat. Dropping it cancels the text.
pub(crate) struct Chat {
    /// Tokens as they come, if they were asked for. The channel ends with the text.
    pub(crate) tokens: UnboundedReceiver<u32>,
    /// Result of the text.
    pub(crate) reply: Pin<Box<dyn Future<Output = Reply> + Send>>,
    pub(crate) stream: TextStream,
    /// Must be [ended](Record::end).
    pub(crate) record: Record,
}

impl Service {
    /// Makes the texts of a request's images.
    pub(super) async fn infer_texts(
        &self,
        call: Call,
        request: InferRequest,
        (model, protocol): (&Model, &TextProtocol),
        deadline: Instant,
        record: &mut Record,
    ) -> Result<InferResponse, Failure> {
        let selected = TextProtocol::select(&request.outputs)?;
        refuse_templates(&request.parameters)?;
        request
            .parameters
            .only_for(&VISION, "models that find objects or masks")?;
        // A prompt may have many tokens.
        let options = at_length(usize::MAX, || protocol.options(&request.parameters, None))?;
        if request.inputs.iter().any(|input| input.name == PIXEL_VALUES) {
            let reason =
                format!("the model makes texts of images, and takes no values. Send them as `{IMAGE}`");
            return Err(Failure::input(PIXEL_VALUES, reason));
        }
        let size = decoded_size(&request.inputs);
        call.memory.grow(size)?;
        let sent = at_length(size, || model.inputs.read(request.inputs))?;
        let no_images = || Failure::invalid(format!("the request has no image. Send one as `{IMAGE}`"));
        let Images { tensor, contents } = sent.images.ok_or_else(no_images)?;
        let count = contents.len();
        call.note.images(count);
        record.trace.describe("hipvit.images", count as i64);
        let size = TextProtocol::answer_size(count, &options);
        call.answer.grow(size.saturating_mul(call.copies.max(1)))?;
        let contents = contents.into_iter().enumerate().map(|(index, content)| {
            let options = GenerateOptions {
                first_index: index,
                ..options.clone()
            };
            let tokens = None;
            let to_text = ToText { options, tokens };
            (tensor, Content::ToText(Box::new(content), to_text))
        });
        let terms = call.terms(deadline, record);
        let pending = model.engine(false).submit(contents.collect(), terms)?;
        let results = pending.wait().await?;
        record.parts = results
            .iter()
            .fold(Parts::default(), |parts, result| parts.longest(result.parts));
        let texts: Option<Vec<_>> = results.iter().map(ImageResult::generated).collect();
        let texts = texts.ok_or_else(|| Failure::new(Kind::Internal, "an image has no text"))?;
        Ok(InferResponse {
            text_tokens: texts.iter().map(|text| text.tokens.len()).sum(),
            ..response(model, TextProtocol::write(&selected, &texts), request.id)
        })
    }

    /// Begins the text of an image that answers a chat.
    pub(crate) fn chat(
        &self,
        call: &Call,
        name: &str,
        asked: ChatContent,
        parameters: &Parameters,
    ) -> Result<Chat, Failure> {
        let mut record = self.record(call);
        match self.begin_chat(call, name, asked, parameters, &mut record) {
            Ok((tokens, pending, stream)) => Ok(Chat {
                tokens,
                reply: Box::pin(pending.wait()),
                stream,
                record,
            }),
            Err(failure) => {
                record.end(Some(&failure));
                Err(failure)
            }
        }
    }

    fn begin_chat(
        &self,
        call: &Call,
        name: &str,
        asked: ChatContent,
        parameters: &Parameters,
        record: &mut Record,
    ) -> Result<(UnboundedReceiver<u32>, Pending, TextStream), Failure> {
        let (model, deadline) = self.begin(call, name, "", parameters, record)?;
        let Some(protocol) = &model.generation else {
            let name = &model.name;
            let reason = format!(
                "model `{name}` makes no texts. Send the image to /v2/models/{name}/infer or /v1/embeddings"
            );
            return Err(Failure::invalid(reason));
        };
        let ChatContent {
            image,
            messages,
            streams,
        } = asked;
        let options = at_length(usize::MAX, || protocol.options(parameters, Some(&messages)))?;
        call.note.images(1);
        record.trace.describe("hipvit.images", 1);
        let size = TextProtocol::answer_size(1, &options);
        call.answer.grow(size.saturating_mul(call.copies.max(1)))?;
        let (sender, tokens) = unbounded_channel();
        let to_text = ToText {
            options,
            tokens: streams.then_some(sender),
        };
        let terms = call.terms(deadline, record);
        let content = Content::ToText(Box::new(image), to_text);
        let pending = model.engine(false).submit(vec![(CHAT_IMAGE, content)], terms)?;
        Ok((tokens, pending, TextStream::new(protocol.detokenizer.clone())))
    }
}
