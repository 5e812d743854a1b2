//! Computing a convolution.

use std::ffi::c_void;
use std::sync::mpsc;
use std::time::Instant;

use gcnrun::{FaultKind, Memory};
use hip_provider::miopen::BAD_PARAMETER as BAD;
use hipvit_sys::miopen::{miopenConvFwdAlgorithm_t as Algorithm, miopenHandle_t, miopenStatus_t};
use ndarray::ArrayView2;
use rayon::prelude::*;

use super::super::tensor::{DeviceMemory as _, DeviceTensor};
use super::super::{stream, submitted, translate};
use super::Problem;
use crate::compute::{Element, Real, multiply, read, write};
use crate::hip;

/// A convolution to run.
#[derive(Clone)]
pub(super) struct Work {
    problem: Problem,
    x: DeviceTensor,
    w: DeviceTensor,
    y: DeviceTensor,
    pub(super) alpha: f64,
    pub(super) beta: f64,
    algorithm: Algorithm,
    workspace: u64,
}

impl Work {
    pub(super) fn new(
        problem: Problem,
        [x, w]: [*const c_void; 2],
        y: *mut c_void,
        algorithm: Algorithm,
        (workspace, size): (*mut c_void, usize),
    ) -> Result<Self, miopenStatus_t> {
        let needed = problem.workspace(algorithm)?;
        if needed > 0 && (workspace.is_null() || size < needed) {
            return Err(BAD);
        }
        Ok(Self {
            x: problem.x.clone().at(x)?,
            w: problem.w.clone().at(w)?,
            y: problem.y.clone().at(y)?,
            problem,
            alpha: 1.0,
            beta: 0.0,
            algorithm,
            workspace: workspace.expose_provenance() as u64,
        })
    }

    /// In f32; in f64 for f64 and integers.
    pub(super) fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        match self.x.element {
            Element::F64 | Element::I8 => self.run_in::<f64>(memory),
            _ => self.run_in::<f32>(memory),
        }
    }

    fn run_in<T: Real>(&self, memory: &Memory) -> Result<(), FaultKind> {
        let (x, w) = (self.x.load::<T>(memory)?, self.w.load::<T>(memory)?);
        let groups = self.problem.convolution.groups;
        let [features, taps, places] = self.problem.sizes();
        let met = self.problem.patches();
        let image = x.len() / (self.problem.x.lengths[0] * groups);
        let one = |(index, image): (usize, &[T])| {
            let patches: Vec<T> = met
                .iter()
                .map(|at| at.map_or(T::zero(), |at| image[at]))
                .collect();
            let patches = self.through_workspace(memory, patches)?;
            let filters = &w[index % groups * features * taps..][..features * taps];
            // Column-major, so transposed: places by features.
            let result = ArrayView2::from_shape((taps, places), &patches)
                .ok()
                .zip(ArrayView2::from_shape((features, taps), filters).ok())
                .and_then(|(patches, filters)| multiply(&patches.t(), &filters.t(), places, features));
            result.ok_or_else(|| FaultKind::Configuration {
                what: "a convolution whose shapes do not match".into(),
            })
        };
        let images = x.par_chunks(image).enumerate();
        let results: Result<Vec<Vec<T>>, FaultKind> = match self.algorithm {
            // The images share one workspace, one after another.
            Algorithm::miopenConvolutionFwdAlgoGEMM => x.chunks(image).enumerate().map(one).collect(),
            _ => images.map(one).collect(),
        };
        self.y.blend(memory, self.alpha, results?.concat(), self.beta)
    }

    /// Writes the patches to the workspace and reads them back, if the algorithm uses it.
    fn through_workspace<T: Real>(&self, memory: &Memory, patches: Vec<T>) -> Result<Vec<T>, FaultKind> {
        if self.algorithm != Algorithm::miopenConvolutionFwdAlgoGEMM {
            return Ok(patches);
        }
        let bytes = T::encode(self.x.element, &patches);
        write(memory, self.workspace, &bytes)?;
        Ok(T::decode(
            self.x.element,
            &read(memory, self.workspace, bytes.len())?,
        ))
    }

    /// Runs it and waits; the time in milliseconds.
    pub(super) fn timed(self, of: miopenHandle_t) -> Result<f32, miopenStatus_t> {
        let (sender, receiver) = mpsc::channel();
        submitted(of, "miopenFindConvolutionForwardAlgorithm", move |memory| {
            let start = Instant::now();
            self.run(memory)?;
            // The receiver may be gone.
            let _ = sender.send(start.elapsed().as_secs_f32() * 1e3);
            Ok(())
        })?;
        hip::synchronize(stream(of)?).map_err(translate)?;
        receiver
            .recv()
            .map_err(|_| miopenStatus_t::miopenStatusInternalError)
    }
}
