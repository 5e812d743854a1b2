//! The part of a run that concerns several ranks.

use hipvit_data::{Batch, Broken, Share};

use super::broken::{BrokenText, broken_elsewhere, broken_texts};
use super::evaluation::ImageResult;
use super::{Callbacks, Fit, FitError};
use crate::ranks::messages::of_all_ranks;

impl Fit {
    /// Counts and reports broken images.
    pub(super) fn report_broken(&mut self, broken: &[Broken], callbacks: &mut dyn Callbacks) {
        for broken in broken {
            self.progress.skipped += 1;
            callbacks.on_broken(broken);
        }
    }

    /// Returns this rank's share of the images.
    pub(super) fn share(&self) -> Option<Share> {
        let ranks = self.ranks.as_ref()?;
        Some(Share {
            number: ranks.plan.rank,
            count: ranks.plan.ranks,
        })
    }

    /// Reports the broken images of a batch of all ranks. Returns true if a rank must stop after this step, and `None` without ranks.
    pub(super) fn begin_step(
        &mut self,
        batch: &Batch,
        callbacks: &mut dyn Callbacks,
    ) -> Result<Option<bool>, FitError> {
        let Some(ranks) = &self.ranks else {
            self.report_broken(&batch.broken, callbacks);
            return Ok(None);
        };
        let own = (callbacks.must_stop(), broken_texts(&batch.broken));
        let all = of_all_ranks(&ranks.collectives, &own)?;
        let stops = all.iter().any(|(stops, _)| *stops);
        let broken = all.into_iter().flat_map(|(_, broken)| broken);
        self.report_broken(&broken.map(broken_elsewhere).collect::<Vec<_>>(), callbacks);
        Ok(Some(stops))
    }

    /// Returns the results and the broken images of an evaluation by all ranks, in the order of a single process.
    pub(super) fn of_all_ranks(
        &self,
        results: Vec<ImageResult>,
        broken: Vec<BrokenText>,
    ) -> Result<(Vec<ImageResult>, Vec<BrokenText>), FitError> {
        let Some(ranks) = &self.ranks else {
            return Ok((results, broken));
        };
        let all = of_all_ranks(&ranks.collectives, &(results, broken))?;
        let (results, broken): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let mut results = results.concat();
        results.sort_by_key(|result: &ImageResult| result.index);
        Ok((results, broken.concat()))
    }
}
