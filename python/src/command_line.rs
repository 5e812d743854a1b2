//! Functions of the package besides models: the command line, the hub and the devices.

use std::ffi::OsString;

use hipvit::hip::Runtime;
use hipvit::model;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

use crate::error::{convert, module};
use crate::progress::Progress;

/// Runs the command line and returns its exit code. The first argument is the name of the program.
#[pyfunction]
pub fn command_line(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| hipvit_cli::run(arguments))
}

/// Downloads a model from the Hugging Face hub and returns its directory.
#[pyfunction]
#[pyo3(signature = (model, *, progress = None))]
pub fn pull(py: Python<'_>, model: &str, progress: Option<Py<PyAny>>) -> PyResult<std::path::PathBuf> {
    let mut progress = Progress::new(progress);
    let pulled = py.detach(|| model::pull(model, |state| progress.report(state.done, state.total)));
    progress.finish()?;
    Ok(pulled.map_err(|error| convert(py, &error, None))?.path)
}

/// Returns the devices of this machine: the CPU, then each GPU.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    static PACKAGE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let class = module(py, &PACKAGE, "hipvit._results")?.getattr("DeviceInfo")?;
    let (cpu, gpus) = py.detach(|| {
        // Without ROCm or a GPU, there is only the CPU.
        let gpus = Runtime::open()
            .and_then(|runtime| runtime.devices())
            .unwrap_or_default();
        (hipvit_diagnostics::peaks::cpu_name(), gpus)
    });
    let mut devices = vec![class.call1(("cpu", cpu, None::<&str>, None::<u64>))?];
    for gpu in &gpus {
        let properties = gpu.properties();
        let name = format!("hip:{}", gpu.ordinal());
        devices.push(class.call1((name, &properties.name, &properties.target, properties.memory))?);
    }
    Ok(devices)
}
