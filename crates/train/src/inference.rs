//! Runs a session on the images of a dataset.

use std::sync::Arc;

use hipvit::image::Preprocess;
use hipvit::{Error, Outputs, RunInput, RunOptions, Session};
use hipvit_data::{Batch, Dataset, Loader, LoaderOptions, OnBroken, Position, Sampler, Share};

/// Runs a session on all images of a dataset, in order, or on one of several shares of them. Calls `each` with every batch and its outputs. With `skip_broken`, broken images are
/// left out, so a batch may be empty.
pub(crate) fn run_dataset<E: From<Error> + From<hipvit_data::Error>>(
    session: &Session,
    dataset: Arc<dyn Dataset>,
    skip_broken: bool,
    share: Option<Share>,
    mut each: impl FnMut(&Batch, &Outputs) -> Result<(), E>,
) -> Result<(), E> {
    // Large enough that no device idles between the session's batches.
    let images = session.batch() * session.batches_in_flight();
    let mut sampler = Sampler::sequential(dataset.len(), images)?;
    if let Some(Share { number, count }) = share {
        sampler = sampler.rank(number, count)?;
    }
    let prepare: Arc<Preprocess> = Arc::new(session.preprocess().clone());
    let options = LoaderOptions {
        on_broken: if skip_broken {
            OnBroken::Omit
        } else {
            OnBroken::Fail
        },
        end: Some(1),
        ..LoaderOptions::default()
    };
    for batch in Loader::new(dataset, sampler, prepare, options, Position::default())? {
        let batch = batch?;
        let outputs = session.run_with(RunInput::Pixels(&batch.pixels), RunOptions::new())?;
        each(&batch, &outputs)?;
    }
    Ok(())
}
