//! Selects the outputs of models whose outputs have no parameters.

use super::RequestedOutput;
use crate::failure::Failure;

/// Parameters of the outputs of classifiers.
const OF_CLASSIFIERS: [&str; 4] = ["classification", "k", "class", "method"];

/// Returns the names of the requested outputs among `known`, or all if none is requested. `model` is the subject of errors.
pub(super) fn select<S: AsRef<str> + Clone>(
    requested: &[RequestedOutput],
    known: &[S],
    model: &str,
) -> Result<Vec<S>, Failure> {
    if requested.is_empty() {
        return Ok(known.to_vec());
    }
    let select = |(index, output): (usize, &RequestedOutput)| {
        let name = output.name.as_str();
        if requested[..index].iter().any(|before| before.name == name) {
            let reason = "is named more than once. Name each output once";
            return Err(Failure::output(name, reason));
        }
        let checked = output.parameters.check_tensor();
        let checked = checked.and_then(|()| output.parameters.only_for(&OF_CLASSIFIERS, "other models"));
        checked.map_err(|failure| {
            Failure::new(failure.kind(), format!("output `{name}`: {}", failure.message()))
        })?;
        let found = known.iter().find(|known| known.as_ref() == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<String> = known.iter().map(|name| format!("`{}`", name.as_ref())).collect();
            let reason = format!("{model} has no such output; it has {}", names.join(", "));
            Failure::output(name, reason)
        })
    };
    requested.iter().enumerate().map(select).collect()
}
