//! Where the ranks can compress gradients.

use hipvit::error::{Error, Result};
use hipvit::exec::Placement;

use crate::ranks::Ranks;

/// Checks that the ranks of a placement can compress gradients as their plan says.
///
/// # Errors
///
/// [`Error::Argument`] on a GPU.
pub(super) fn check_compression(ranks: Option<&Ranks>, placement: &Placement) -> Result<()> {
    let compresses = ranks.is_some_and(|ranks| ranks.plan.powersgd_rank.is_some());
    if compresses && !matches!(placement, Placement::Host) {
        let reason = "powersgd is computed on CPUs. Train on the CPU, or set the recipe's key `ranks.compression` to `none`";
        return Err(Error::argument("ranks.compression", reason));
    }
    Ok(())
}
