//! Extents that an ONNX file leaves open.

use std::path::Path;

use super::SessionBuilder;
use crate::error::Result;
use crate::model::{self, InputKind};
use crate::session::Session;
use crate::session::onnx_file::{Extents, extents};

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
    /// The errors of [`load`](Self::load), and [`Error::Argument`](crate::Error::Argument) if two inputs differ in an extent of the same name.
    pub fn load_for<'a>(
        &self,
        path: impl AsRef<Path>,
        shapes: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    ) -> Result<Session> {
        let path = path.as_ref();
        let extents = extents(&model::open_extents(path)?, &self.load.extents, shapes)?;
        self.for_extents(&extents).load(path)
    }

    /// Returns a builder of a session for tensors of these extents.
    pub(super) fn for_extents(&self, extents: &Extents) -> Self {
        let mut builder = self.clone().input(InputKind::Tensors);
        builder.load.extents.extend(extents.clone());
        builder
    }
}
