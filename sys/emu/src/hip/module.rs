//! Modules and their kernels.

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use gcnrun::{KernelInfo, LoadError, Program};
use hip_provider::Handles;
use hip_provider::hip::put;
use hipvit_files::regular_file;
use hipvit_sys::hip::{
    hipDeviceptr_t, hipError_t, hipFuncAttribute, hipFuncCache_t, hipFunction_attribute, hipFunction_t,
    hipJitOption, hipModule_t,
};

use super::image::{code_object, fits};
use super::machine::{Device, current, machine};
use super::{capture_mode, hip, queue};
use crate::faults::{Failure, report};
use crate::parts::Part;

static MODULES: Handles<Module> = Handles::new();
static FUNCTIONS: Handles<Function> = Handles::new();

#[derive(Debug)]
pub(super) struct Module {
    pub(super) program: Program,
    pub(super) device: &'static Device,
    functions: Mutex<Vec<usize>>,
}

#[derive(Debug)]
pub(super) struct Function {
    pub(super) module: Arc<Module>,
    pub(super) info: KernelInfo,
}

impl Function {
    pub(super) fn part(&self) -> &'static Part {
        self.module.device.part
    }

    /// Maximum dynamic LDS of a block.
    pub(super) fn dynamic_lds(&self) -> u32 {
        self.part().lds_per_block().saturating_sub(self.info.lds)
    }
}

pub(super) fn find_function<H>(function: *const H) -> Result<Arc<Function>, hipError_t> {
    FUNCTIONS.get(function)
}

/// Loads the code object for the thread's device from an image.
///
/// # Safety
/// `image` points to a whole ELF file or bundle.
unsafe fn load(to: *mut hipModule_t, image: *const c_void) -> Result<(), hipError_t> {
    if to.is_null() || image.is_null() {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    let device = current()?;
    let refused = |status, reason: String| {
        report(device.ordinal, "loading a module", &Failure::new(status, reason));
        status
    };
    // SAFETY: as the caller says.
    let elf = unsafe { code_object(image.cast(), device.part) };
    let elf = elf.map_err(|(status, reason)| refused(status, reason))?;
    let program = Program::load(&machine()?.memory, device.ordinal, elf).map_err(|error| {
        let status = match error {
            LoadError::UnknownArch { .. } => hipError_t::hipErrorNoBinaryForGpu,
            LoadError::Memory(_) => hipError_t::hipErrorOutOfMemory,
            _ => hipError_t::hipErrorInvalidImage,
        };
        refused(status, error.to_string())
    })?;
    if !fits(program.arch(), device.part) {
        let reason = format!(
            "the code object is for {}, not for {}",
            program.arch(),
            device.part.target
        );
        return Err(refused(hipError_t::hipErrorNoBinaryForGpu, reason));
    }
    let module = Module {
        program,
        device,
        functions: Mutex::default(),
    };
    // SAFETY: not null.
    unsafe { put(to, MODULES.insert(Arc::new(module))) }
}

/// # Safety
/// `name` is null or a C string.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, hipError_t> {
    if name.is_null() {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| hipError_t::hipErrorNotFound)
}

hip! {
    fn hipModuleLoad(module: *mut hipModule_t, file: *const c_char) {
        let image = regular_file::read(text(file)?).map_err(|_| hipError_t::hipErrorFileNotFound)?;
        // The image's own header gives its length, which a short file may not have.
        if image.len() < 64 {
            return Err(hipError_t::hipErrorInvalidImage);
        }
        load(module, image.as_ptr().cast())
    }

    fn hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) {
        load(module, image)
    }

    /// Options are ignored: nothing is compiled.
    fn hipModuleLoadDataEx(
        module: *mut hipModule_t, image: *const c_void, _count: u32, _options: *mut hipJitOption,
        _values: *mut *mut c_void,
    ) {
        load(module, image)
    }

    /// Waits for the device, whose work may still use the code.
    fn hipModuleUnload(module: hipModule_t) {
        capture_mode::forbid_waiting()?;
        let module = MODULES.remove(module)?;
        queue::wait(&queue::ends(module.device.ordinal));
        let functions = module.functions.lock().unwrap_or_else(PoisonError::into_inner);
        for &function in functions.iter() {
            let _ = FUNCTIONS.remove(std::ptr::without_provenance::<c_void>(function));
        }
        Ok(())
    }

    fn hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char) {
        let name = text(name)?;
        let module = MODULES.get(module)?;
        let info = module.program.kernel(name).ok_or(hipError_t::hipErrorNotFound)?.clone();
        let handle: hipFunction_t = FUNCTIONS.insert(Arc::new(Function { module: module.clone(), info }));
        module.functions.lock().unwrap_or_else(PoisonError::into_inner).push(handle.addr());
        put(function, handle)
    }

    fn hipModuleGetFunctionCount(count: *mut u32, module: hipModule_t) {
        put(count, MODULES.get(module)?.program.kernels().count() as u32)
    }

    fn hipModuleGetGlobal(at: *mut hipDeviceptr_t, bytes: *mut usize, module: hipModule_t, name: *const c_char) {
        let name = text(name)?;
        let module = MODULES.get(module)?;
        let found = module.program.variables().find(|variable| variable.name == name);
        let found = found.ok_or(hipError_t::hipErrorNotFound)?;
        if !at.is_null() {
            at.write(std::ptr::with_exposed_provenance_mut(found.address as usize));
        }
        if !bytes.is_null() {
            bytes.write(found.size as usize);
        }
        Ok(())
    }

    fn hipFuncGetAttribute(value: *mut i32, attribute: hipFunction_attribute, function: hipFunction_t) {
        let function = find_function(function)?;
        let (info, part) = (&function.info, function.part());
        let number = match attribute {
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => info.max_block,
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => info.lds,
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => 0,
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => info.scratch,
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS => info.vgprs + info.agprs,
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_PTX_VERSION
            | hipFunction_attribute::HIP_FUNC_ATTRIBUTE_BINARY_VERSION => {
                (part.capability.0 * 10 + part.capability.1).cast_unsigned()
            }
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.dynamic_lds(),
            hipFunction_attribute::HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => 0,
            _ => return Err(hipError_t::hipErrorInvalidValue),
        };
        put(value, number.cast_signed())
    }

    /// `function` is a `hipFunction_t`. Has no effect: every launch may use the maximum of dynamic LDS.
    fn hipFuncSetAttribute(function: *const c_void, attribute: hipFuncAttribute, value: i32) {
        let function = find_function(function)?;
        match attribute {
            hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize
                if !(0..=function.dynamic_lds().cast_signed()).contains(&value) =>
            {
                Err(hipError_t::hipErrorInvalidValue)
            }
            hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize
            | hipFuncAttribute::hipFuncAttributePreferredSharedMemoryCarveout => Ok(()),
            _ => Err(hipError_t::hipErrorInvalidValue),
        }
    }

    /// No operation, as in AMD's runtime.
    fn hipFuncSetCacheConfig(function: *const c_void, _config: hipFuncCache_t) {
        find_function(function).map(drop)
    }
}
