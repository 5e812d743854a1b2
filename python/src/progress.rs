//! Python callbacks for the progress of a call.

use std::ops::ControlFlow;

use pyo3::prelude::*;

/// A function `progress(done, total)`, and an exception that it raised.
pub struct Progress {
    function: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Progress {
    pub fn new(function: Option<Py<PyAny>>) -> Self {
        Self {
            function,
            raised: None,
        }
    }

    /// Calls the function, and breaks if it raises an exception. Also handles Python's signals, so that Ctrl-C interrupts a long call.
    pub fn report(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        if self.raised.is_none() {
            self.raised = Python::attach(|py| {
                py.check_signals()?;
                match &self.function {
                    Some(function) => function.call1(py, (done, total)).map(drop),
                    None => Ok(()),
                }
            })
            .err();
        }
        if self.raised.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Returns the raised exception as an error.
    pub fn finish(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }
}
