//! Messages between the ranks of a run, beside the exchanges of the step's graph.

use hipvit::error::{Error, Result};
use hipvit::exec::Collectives;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the value of each rank. All ranks must call this at the same point.
///
/// # Errors
///
/// [`Error::Hip`] with the rank that is lost or has failed. [`Error::Argument`] if a rank sends another kind of value.
pub(crate) fn of_all_ranks<T: Serialize + DeserializeOwned>(
    collectives: &Collectives,
    own: &T,
) -> Result<Vec<T>> {
    let own = serde_json::to_vec(own).map_err(|error| Error::internal("message", error))?;
    let all = collectives.gather(own)?.into_iter().enumerate();
    let value = |(rank, bytes): (usize, Vec<u8>)| {
        serde_json::from_slice(&bytes).map_err(|error| {
            let reason = format!("rank {rank} runs another version of hipvit, or another command: {error}");
            Error::argument("ranks", reason)
        })
    };
    all.map(value).collect()
}

/// Facts that must be equal at all ranks.
///
/// # Errors
///
/// [`Error::Argument`] with the first fact that differs from rank 0's. All ranks get it. The errors of [`of_all_ranks`].
pub(crate) fn agree(collectives: &Collectives, facts: &[(String, String)]) -> Result<()> {
    let all = of_all_ranks(collectives, &facts.to_vec())?;
    for (rank, others) in all.iter().enumerate().skip(1) {
        let differs = |(first, other): (&(String, String), &(String, String))| {
            (first != other)
                .then(|| format!("{}: {} at rank 0, {} at rank {rank}", first.0, first.1, other.1))
        };
        if let Some(difference) = all[0].iter().zip(others).find_map(differs) {
            let reason = format!("differ in {difference}. Start all with the same options and files");
            return Err(Error::argument("ranks", reason));
        }
    }
    Ok(())
}
