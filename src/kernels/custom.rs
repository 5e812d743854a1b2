//! Ops that other crates define: their HIP source, compiled at run time, and its launches.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hipvit_graph::op::{Custom, CustomOp, Definition as _, OpError};
use parking_lot::Mutex;

use super::lower::{Call, Lower, Lowering};
use super::{KernelError, Kernels, device_code, kernel_cache};
use crate::error::{Error, Result};
use crate::graph::plan::Operand;
use crate::hip::{self, Device, DeviceAddress, Function, Launch, Module, Rtc, Stream};
use crate::tensor::DType;

/// A custom op that a GPU computes.
///
/// # Safety
///
/// For every step whose shapes [`CustomOp::shapes`] accepts, each launch of [`launches`](Self::launches) names a kernel of
/// [`source`](Self::source). The kernel's parameters have the types of the launch's arguments, in their order. The kernel accesses
/// LDS, its own scratch, its module's globals, and the elements of the operands and results among its arguments. It writes only
/// results. If [`CustomOp::may_alias`] names an operand, that operand and the first result may be the same memory.
pub unsafe trait HipKernel: CustomOp {
    /// HIP C++ source, compiled for each dtype on first use.
    ///
    /// The macro `HIPVIT_DTYPE` is `f32`, `f16` or `bf16`: with `#include "device.hpp"` it is the type of the elements in the
    /// namespace `hipvit`, which `to_float` and `from_float` convert. Kernels are `extern "C"`, as `HIPVIT_KERNEL(threads)` declares them.
    fn source(&self) -> Cow<'static, str>;

    /// Launches that compute a step, in order.
    ///
    /// # Errors
    ///
    /// [`OpError`] for what the kernels do not compute.
    fn launches(&self, step: &HipStep<'_>) -> Result<Vec<HipLaunch>, OpError>;
}

/// Shapes and dtype of a step that a [`HipKernel`] computes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HipStep<'a> {
    /// Extents of the operands.
    pub operands: Vec<&'a [usize]>,
    /// Extents of the results.
    pub results: Vec<&'a [usize]>,
    /// Dtype of their elements.
    pub dtype: DType,
}

/// A launch of a kernel: its name, grid, block, and arguments in the order of its parameters.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a step returns its launches"]
pub struct HipLaunch {
    kernel: Cow<'static, str>,
    geometry: Launch,
    arguments: Vec<Argument>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Argument {
    Operand(usize),
    Result(usize),
    Value(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    U32(u32),
    I32(i32),
    F32(f32),
    U64(u64),
}

impl HipLaunch {
    /// Launches `kernel`, which has no arguments yet.
    pub fn new(kernel: impl Into<Cow<'static, str>>, geometry: Launch) -> Self {
        Self {
            kernel: kernel.into(),
            geometry,
            arguments: Vec::new(),
        }
    }

    /// Adds an argument: a pointer to the elements of operand `index`.
    pub fn operand(self, index: usize) -> Self {
        self.with(Argument::Operand(index))
    }

    /// Adds an argument: a pointer to the elements of result `index`.
    pub fn result(self, index: usize) -> Self {
        self.with(Argument::Result(index))
    }

    /// Adds an argument: an `unsigned`.
    pub fn u32(self, value: u32) -> Self {
        self.with(Argument::Value(Value::U32(value)))
    }

    /// Adds an argument: an `int`.
    pub fn i32(self, value: i32) -> Self {
        self.with(Argument::Value(Value::I32(value)))
    }

    /// Adds an argument: a `float`.
    pub fn f32(self, value: f32) -> Self {
        self.with(Argument::Value(Value::F32(value)))
    }

    /// Adds an argument: an `unsigned long long`.
    pub fn u64(self, value: u64) -> Self {
        self.with(Argument::Value(Value::U64(value)))
    }

    fn with(mut self, argument: Argument) -> Self {
        self.arguments.push(argument);
        self
    }
}

/// A launch whose arguments have addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CustomCall {
    op: Custom,
    kernel: Cow<'static, str>,
    geometry: Launch,
    arguments: Vec<Passed>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Passed {
    Memory { address: DeviceAddress, bytes: usize },
    Value(Value),
}

impl CustomCall {
    /// The kernel's name.
    pub(crate) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// The grid and block.
    pub(crate) fn geometry(&self) -> Launch {
        self.geometry
    }
}

fn kernel(op: &Custom) -> Result<&Arc<dyn HipKernel>, OpError> {
    op.get().ok_or_else(|| {
        let name = op.op_name();
        format!("{name} has no kernel for GPUs. Add one with `OpBuilder::hip`, or use the CPU").into()
    })
}

impl Lower for Custom {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let kernel = kernel(self)?;
        calls(self, kernel.as_ref(), step).map_err(|error| match error {
            KernelError::Op(source) => self.error(source).into(),
            error => error,
        })
    }
}

/// Returns the calls of a step.
fn calls(op: &Custom, kernel: &dyn HipKernel, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
    let (plan, dtype) = (step.plan, step.plan.dtype());
    let count = step.step.inputs.len();
    let shapes = (0..count)
        .map(|index| step.shape_of(index))
        .collect::<Result<_, _>>()?;
    let results = step.step.outputs.iter();
    let launches = kernel.launches(&HipStep {
        operands: shapes,
        results: results.map(|&id| plan.buffer(id).shape.as_slice()).collect(),
        dtype,
    })?;
    let operand = |index: usize| {
        let elements: usize = step.shape_of(index)?.iter().product();
        match step.operand(index)? {
            Operand::Buffer(id) if plan.buffer(id).dtype != dtype => {
                let found = plan.buffer(id).dtype;
                Err(format!("its operand {index} is {found}, and its kernels take {dtype}").into())
            }
            _ => Ok(Passed::Memory {
                address: step.address(index)?,
                bytes: elements * dtype.size(),
            }),
        }
    };
    let result = |index: usize| {
        let id = step.step.outputs.get(index);
        let id = id.ok_or_else(|| KernelError::from(format!("has no result {index}")))?;
        Ok(Passed::Memory {
            address: step.result(index)?,
            bytes: plan.buffer(*id).bytes,
        })
    };
    let call = |launch: HipLaunch| {
        let arguments = launch.arguments.iter().map(|&argument| match argument {
            Argument::Operand(index) => operand(index),
            Argument::Result(index) => result(index),
            Argument::Value(value) => Ok(Passed::Value(value)),
        });
        Ok(Call::Custom(Box::new(CustomCall {
            op: op.clone(),
            arguments: arguments.collect::<Result<_, KernelError>>()?,
            kernel: launch.kernel,
            geometry: launch.geometry,
        })))
    };
    launches.into_iter().map(call).collect()
}

/// The custom ops of a graph, compiled and loaded on a device.
#[derive(Default)]
pub(super) struct CustomModules {
    /// By the address of the definition, which the entry keeps alive.
    modules: HashMap<usize, (Custom, Module)>,
    sources: HashMap<String, Module>,
    functions: Mutex<HashMap<(usize, Cow<'static, str>), Function>>,
}

fn key(op: &Custom) -> usize {
    Arc::as_ptr(op.definition()).addr()
}

impl CustomModules {
    fn load(&mut self, node: &str, op: &Custom, device: &Device, dtype: DType) -> Result<()> {
        let name = op.op_name();
        let kernel = kernel(op).map_err(|error| Error::graph(node, error))?;
        let source = kernel.source().into_owned();
        let module = match self.sources.get(&source) {
            Some(module) => module.clone(),
            None => {
                let module = compile(&format!("{name}.hip"), &source, device, dtype);
                let module = module.map_err(|error| Error::graph(node, format!("{name}: {error}")))?;
                self.sources.insert(source, module.clone());
                module
            }
        };
        self.modules.insert(key(op), (op.clone(), module));
        Ok(())
    }

    /// Returns the kernel of a call.
    fn function(&self, call: &CustomCall) -> Result<Function> {
        let refused = |reason: String| Error::kernel(call.op.op_name(), reason.into());
        let mut functions = self.functions.lock();
        let key = (key(&call.op), call.kernel.clone());
        if let Some(function) = functions.get(&key) {
            return Ok(function.clone());
        }
        let module = self.modules.get(&key.0);
        let (_, module) = module
            .ok_or_else(|| Error::internal("custom op", "the plan is of another graph than the executor"))?;
        let function = module
            .function(call.kernel())
            .map_err(|error| refused(error.to_string()))?;
        functions.insert(key, function.clone());
        Ok(function)
    }
}

fn compile(program: &str, source: &str, device: &Device, dtype: DType) -> hip::Result<Module> {
    let rtc = Rtc::new(device)?.with_cache(kernel_cache());
    let dtype = format!("-DHIPVIT_DTYPE={dtype}");
    let options: Vec<&str> = device_code::OPTIONS
        .iter()
        .copied()
        .chain([dtype.as_str()])
        .collect();
    let code = rtc.compile(program, source, device_code::headers(), &options)?;
    Module::load(device, code)
}

impl Kernels {
    /// Compiles and loads the source of the custom op of the node `node`.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the op has no kernel for GPUs, or if its source does not compile.
    pub(crate) fn load_custom(&mut self, node: &str, op: &Custom) -> Result<()> {
        self.custom.load(node, op, &self.device, self.dtype)
    }

    /// Submits a launch of a custom op's kernel. `memory` returns the memory from an address to the end of its region.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the source has no such kernel, or if the kernel does not take the arguments. Errors of the driver.
    pub(crate) fn launch_custom<'a>(
        &self,
        stream: &Stream,
        call: &CustomCall,
        memory: impl Fn(DeviceAddress) -> Result<hip::Operand<'a>>,
    ) -> Result<()> {
        let function = self.custom.function(call)?;
        let mut launch = function.launch(stream, call.geometry());
        for &argument in &call.arguments {
            launch = match argument {
                Passed::Memory { address, bytes } => launch.buffer(memory(address)?.part(0..bytes)?),
                Passed::Value(Value::U32(value)) => launch.value(value),
                Passed::Value(Value::I32(value)) => launch.value(value),
                Passed::Value(Value::F32(value)) => launch.value(value),
                Passed::Value(Value::U64(value)) => launch.value(value),
            };
        }
        // SAFETY: `HipKernel` promises that the kernel takes these arguments, and accesses only the buffers among them.
        let submitted = unsafe { launch.submit() };
        submitted.map_err(|error| match error {
            hip::Error::Parameter { .. } | hip::Error::Argument { .. } => {
                Error::kernel(call.op.op_name(), error.to_string().into())
            }
            error => error.into(),
        })
    }
}
