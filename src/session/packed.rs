//! Runs of sessions that pack images: preprocessed images become sequences.

use super::Session;
use super::packed_run::PackedRun;
use super::run::Submitted;
use crate::error::{Error, Result};
use crate::exec::{InputData, Inputs, Submission};
use crate::model::Packing;
use crate::tensor::Input;

impl Session {
    /// Returns what packs the images. `None` if images are not [packed](crate::SessionBuilder::packed).
    pub fn packing(&self) -> Option<&Packing> {
        self.loaded.model.packing.as_deref()
    }

    /// Packs `images` preprocessed images, and submits a run on their sequences.
    pub(super) fn submit_packed(
        &self,
        packing: &Packing,
        input: InputData<'_>,
        images: usize,
        submission: Submission,
        wait_for_memory: impl FnMut(Error) -> Result<()>,
    ) -> Result<Submitted> {
        let pixels: &[u8] = match &input {
            InputData::Staged(staging) => staging,
            InputData::Host(Input::Pixels(pixels)) | InputData::Bytes(pixels) => pixels,
            _ => return Err(Error::argument("input", "packed images come from the host")),
        };
        let expected = images * packing.image_bytes();
        if images == 0 || pixels.len() != expected {
            let reason = format!(
                "has {} bytes, expected {expected}, at least one image",
                pixels.len()
            );
            return Err(Error::argument("input", reason));
        }
        let placement = packing.place(pixels);
        let executor = &self.loaded.executor;
        let plan = executor.plan(placement.sequences)?;
        let most = packing.most_sequences(self.batch()).max(placement.sequences);
        let [bytes, capacity] = [placement.sequences, most].map(|count| count * packing.sequence_bytes());
        let mut sequences = executor.stage(bytes, capacity)?;
        let threads = sequences.threads().clone();
        let packed = threads.install(|| packing.fill(&placement, pixels, &mut sequences));
        let reservation = self.reserve(&plan, Some(&sequences), wait_for_memory)?;
        let inputs = Inputs::new([
            (plan.graph().first_input_name(), InputData::Staged(sequences)),
            (Packing::POSITIONS, Input::Values(&packed.positions).into()),
            (Packing::DOCUMENTS, Input::Integers(&packed.documents).into()),
        ]);
        let run = reservation.submit(inputs, submission)?;
        let staging = match input {
            InputData::Staged(staging) => Some(staging),
            _ => None,
        };
        Ok(Submitted {
            run,
            images,
            packed: Some(PackedRun {
                rows: placement.rows,
                staging,
            }),
        })
    }
}
