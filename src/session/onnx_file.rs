//! The ONNX file of a session, which is loaded again for other extents of its inputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::model::{self, OpenExtents};
use crate::tensors::TensorView;

/// Maximum number of sessions for different extents. Each has its own copy of the weights on its device.
const MAX_SESSIONS: usize = 4;

/// Numbers of the extents that a file leaves open.
pub(super) type Extents = BTreeMap<String, usize>;

/// A file, and the sessions `S` that have loaded it for other extents than the first one.
pub(super) struct OnnxFile<S> {
    path: PathBuf,
    /// Extents of the first session.
    given: Extents,
    load: Box<Load<S>>,
    open: OnceLock<Vec<OpenExtents>>,
    /// The sessions for the latest extents, the most recent last.
    sessions: Mutex<Vec<(Extents, S)>>,
}

/// Loads a file for these extents.
type Load<S> = dyn Fn(&Path, &Extents) -> Result<S> + Send + Sync;

impl<S: Clone> OnnxFile<S> {
    pub(super) fn new(
        path: &Path,
        given: &Extents,
        load: impl Fn(&Path, &Extents) -> Result<S> + Send + Sync + 'static,
    ) -> Self {
        Self {
            path: path.to_owned(),
            given: given.clone(),
            load: Box::new(load),
            open: OnceLock::new(),
            sessions: Mutex::default(),
        }
    }

    /// Returns the session for inputs of these extents: `own`, the first session, or another one. `own` is `None` if it takes no tensors.
    pub(super) fn session_for(&self, own: Option<&S>, inputs: &[(&str, TensorView<'_>)]) -> Result<S> {
        let open = match self.open.get() {
            Some(open) => open,
            None => {
                let open = model::open_extents(&self.path)?;
                self.open.get_or_init(|| open)
            }
        };
        let shapes = inputs.iter().map(|(name, view)| (*name, view.shape()));
        let extents = extents(open, &self.given, shapes)?;
        let is_own = |(name, number): (&String, &usize)| self.given.get(name) == Some(number);
        if let Some(own) = own
            && extents.iter().all(is_own)
        {
            return Ok(own.clone());
        }
        let mut sessions = self.sessions.lock();
        let known = sessions.iter().position(|(known, _)| *known == extents);
        let session = match known {
            Some(index) => sessions.remove(index).1,
            None => {
                // Free the memory of the oldest before the new one needs it.
                let excess = (sessions.len() + 1).saturating_sub(MAX_SESSIONS);
                sessions.drain(..excess);
                (self.load)(&self.path, &extents)?
            }
        };
        sessions.push((extents, session.clone()));
        Ok(session)
    }
}

/// Returns the numbers of the open extents in the shapes of inputs, without that of the batch.
pub(super) fn extents<'a>(
    open: &[OpenExtents],
    given: &Extents,
    shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>,
) -> Result<Extents> {
    // The first open extent of an input is the batch, unless the caller has given its number.
    let first = |open: &OpenExtents| match open.extents.first() {
        Some((0, name)) if !given.contains_key(name) => Some(name.clone()),
        _ => None,
    };
    let batch = open.iter().find_map(first);
    let shapes: BTreeMap<&str, &[usize]> = shapes.into_iter().collect();
    let mut extents = Extents::new();
    for OpenExtents { input, extents: axes } in open {
        let Some(shape) = shapes.get(input.as_str()) else {
            continue;
        };
        for (axis, name) in axes {
            let (false, Some(&number)) = (Some(name) == batch.as_ref(), shape.get(*axis)) else {
                continue;
            };
            let known = *extents.entry(name.clone()).or_insert(number);
            if known != number {
                let reason =
                    format!("`{input}` has the extent `{name}` = {number}, but another input has {known}");
                return Err(Error::argument("inputs", reason));
            }
        }
    }
    Ok(extents)
}
