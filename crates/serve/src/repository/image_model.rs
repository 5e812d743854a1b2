//! What models of images have in common that take no texts and have a protocol of their own.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Model, Repository, facts, log_loaded};
use crate::metrics::Runs;
use crate::scheduler::Backend;
use crate::statistics::Statistics;
use hipvit::error::Result;
use hipvit::session::Session;

impl Repository {
    /// Returns a model whose images `backends` compute, without its protocol. `no_texts` says why it takes no texts.
    pub(super) fn image_model(
        &self,
        (name, version): (&str, u64),
        session: &Session,
        (backends, runs): (Vec<Arc<dyn Backend>>, Runs),
        no_texts: &str,
    ) -> Result<Model> {
        let statistics: Arc<Statistics> = Arc::default();
        let images = self.batched(name, backends, runs, &statistics)?;
        let (platform, mut inputs, outputs) = facts(session, &self.options, Some(no_texts.into()))?;
        inputs.values = false;
        log_loaded(name, version, session, &images);
        Ok(Model {
            name: name.to_owned(),
            version,
            platform,
            inputs,
            outputs,
            named: None,
            vision: None,
            generation: None,
            loaded: SystemTime::now(),
            statistics,
            images,
            values: None,
            explanations: None,
            texts: None,
        })
    }
}
