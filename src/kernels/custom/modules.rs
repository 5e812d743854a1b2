//! The custom ops of a graph on a device: compiled, loaded and launched.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hipvit_graph::op::{Custom, Definition as _};
use parking_lot::Mutex;

use super::call::{CustomCall, Passed};
use super::{Value, kernel};
use crate::error::{Error, Result};
use crate::hip::{self, Device, DeviceAddress, Function, Module, Rtc, Stream};
use crate::kernels::{device_code, kernel_cache};
use crate::tensor::DType;

/// The custom ops of a graph, compiled and loaded on a device.
#[derive(Default)]
pub(in crate::kernels) struct CustomModules {
    /// By the address of the definition, which the entry keeps alive.
    modules: HashMap<usize, (Custom, Module)>,
    sources: HashMap<String, Module>,
    functions: Mutex<HashMap<(usize, Cow<'static, str>), Function>>,
}

fn key(op: &Custom) -> usize {
    Arc::as_ptr(op.definition()).addr()
}

impl CustomModules {
    pub(in crate::kernels) fn load(
        &mut self,
        node: &str,
        op: &Custom,
        device: &Device,
        dtype: DType,
    ) -> Result<()> {
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

    /// Submits a launch, see [`Kernels::launch_custom`](crate::kernels::Kernels::launch_custom).
    pub(in crate::kernels) fn launch<'a>(
        &self,
        stream: &Stream,
        call: &CustomCall,
        memory: impl Fn(DeviceAddress) -> Result<hip::Operand<'a>>,
    ) -> Result<()> {
        let function = self.function(call)?;
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
