//! The ONNX file of a session, which is loaded again for other extents of its inputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::{Session, SessionBuilder};
use crate::error::{Error, Result};
use crate::model::{self, InputKind, OpenExtents};
use crate::tensors::TensorView;

/// Maximum number of sessions for different extents. Each has its own copy of the weights on its device.
const MAX_SESSIONS: usize = 4;

/// Numbers of the extents that a file leaves open.
type Extents = BTreeMap<String, usize>;

/// The file and options of a session.
pub(super) struct OnnxFile {
    path: PathBuf,
    builder: SessionBuilder,
    open: OnceLock<Vec<OpenExtents>>,
    /// The sessions for the latest extents, the most recent last.
    sessions: Mutex<Vec<(Extents, Session)>>,
}

impl OnnxFile {
    pub(super) fn new(path: &Path, builder: &SessionBuilder) -> Self {
        Self {
            path: path.to_owned(),
            builder: builder.clone(),
            open: OnceLock::new(),
            sessions: Mutex::default(),
        }
    }

    /// Returns the session for inputs of these extents: `own`, the session of this file, or another one.
    pub(super) fn session_for(&self, own: &Session, inputs: &[(&str, TensorView<'_>)]) -> Result<Session> {
        let open = match self.open.get() {
            Some(open) => open,
            None => {
                let open = model::open_extents(&self.path)?;
                self.open.get_or_init(|| open)
            }
        };
        let shapes = inputs.iter().map(|(name, view)| (*name, view.shape()));
        let extents = extents(open, &self.builder, shapes)?;
        let is_own = |(name, number): (&String, &usize)| self.builder.load.extents.get(name) == Some(number);
        if own.info().tensors().is_some() && extents.iter().all(is_own) {
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
                self.builder.for_extents(&extents).load(&self.path)?
            }
        };
        sessions.push((extents, session.clone()));
        Ok(session)
    }
}

impl SessionBuilder {
    /// Sets the number of an extent that an ONNX file leaves open, such as `height`. Axis 2 of an input `x` without a name is `x.2`. The
    /// first extent of the inputs may stay open: it is the batch size.
    pub fn extent(mut self, name: impl Into<String>, number: usize) -> Self {
        self.load.extents.insert(name.into(), number);
        self
    }

    /// Loads an ONNX model for [tensors](Session::run_tensors), with the extents that the file leaves open from the shapes of these inputs.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load), and [`Error::Argument`] if two inputs differ in an extent of the same name.
    pub fn load_for<'a>(
        &self,
        path: impl AsRef<Path>,
        shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    ) -> Result<Session> {
        let path = path.as_ref();
        let extents = extents(&model::open_extents(path)?, self, shapes)?;
        self.for_extents(&extents).load(path)
    }

    /// Returns a builder of a session for tensors of these extents.
    fn for_extents(&self, extents: &Extents) -> Self {
        let mut builder = self.clone().input(InputKind::Tensors);
        builder.load.extents.extend(extents.clone());
        builder
    }
}

/// Returns the numbers of the open extents in the shapes of inputs, without that of the batch.
fn extents<'a>(
    open: &[OpenExtents],
    builder: &SessionBuilder,
    shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>,
) -> Result<Extents> {
    // The first open extent of an input is the batch, unless the caller has given its number.
    let first = |open: &OpenExtents| match open.extents.first() {
        Some((0, name)) if !builder.load.extents.contains_key(name) => Some(name.clone()),
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
