//! Launches: arguments are packed and checked when the launch is submitted.

use std::ffi::c_void;
use std::sync::Arc;
use std::{ptr, slice};

use gcnrun::Checks;
use hipvit_sys::hip::{hipError_t, hipFunction_t};

use super::machine::machine;
use super::module::{Function, Module, find_function};
use super::queue;
use super::records::RecordedLaunch;
use crate::faults::{Failure, report};
use crate::parts::THREADS_PER_BLOCK;

#[derive(Debug)]
pub(super) struct Launch {
    pub(super) function: Arc<Function>,
    /// The function's handle.
    pub(super) handle: usize,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) lds: u32,
    /// The explicit arguments, laid out as the kernel reads them.
    arguments: Vec<u8>,
    /// The addresses of the arguments in there, for queries of a graph node.
    pointers: Vec<usize>,
}

impl Launch {
    /// # Safety
    /// `parameters` and `extra` are null or what HIP says of a launch of this function.
    pub(super) unsafe fn new(
        handle: hipFunction_t,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<Arc<Self>, hipError_t> {
        let function = find_function(handle).map_err(|_| hipError_t::hipErrorInvalidHandle)?;
        check(&function, grid, block, lds)?;
        // SAFETY: as the caller says.
        let arguments = unsafe {
            match (parameters.is_null(), extra.is_null()) {
                (false, false) => return Err(hipError_t::hipErrorInvalidValue),
                (false, true) => packed(&function, parameters)?,
                (true, false) => from_buffer(extra)?,
                (true, true) if function.info.arguments.is_empty() => Vec::new(),
                (true, true) => return Err(hipError_t::hipErrorInvalidValue),
            }
        };
        let base = arguments.as_ptr().expose_provenance();
        let pointers = function
            .info
            .arguments
            .iter()
            .map(|argument| base + argument.offset as usize);
        Ok(Arc::new(Self {
            pointers: pointers.collect(),
            handle: handle.addr(),
            grid,
            block,
            lds,
            arguments,
            function,
        }))
    }

    pub(super) fn name(&self) -> &str {
        &self.function.info.name
    }

    /// The arguments as `kernelParams`, which live as long as this.
    pub(super) fn parameters(&self) -> *mut *mut c_void {
        self.pointers.as_ptr().cast_mut().cast()
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let machine = machine()?;
        let settings = &machine.settings;
        let defaults = Checks::default();
        let launch = gcnrun::Launch {
            kernel: self.name(),
            grid: self.grid,
            block: self.block,
            dynamic_lds: self.lds,
            arguments: &self.arguments,
            order: settings.order,
            options: Checks {
                alignment: settings.alignment,
                budget: settings.budget.unwrap_or(defaults.budget),
                ..defaults
            },
        };
        let Module { program, device, .. } = &*self.function.module;
        let recorded = RecordedLaunch {
            call: &launch,
            program,
            info: &self.function.info,
            device: device.ordinal,
            part: device.part,
        };
        match (&machine.profiler, &machine.follower) {
            (Some(profiler), _) => profiler.run(&recorded, &machine.memory)?,
            (None, Some(follower)) => follower.run(&recorded, &machine.memory)?,
            (None, None) => {
                if program.may_wait() {
                    program.launch_waiting(&launch, &queue::pause)?
                } else {
                    program.launch(&launch)?
                };
            }
        }
        Ok(())
    }
}

/// Checks a launch's configuration.
fn check(function: &Function, grid: [u32; 3], block: [u32; 3], lds: u32) -> Result<(), hipError_t> {
    let threads = block
        .iter()
        .try_fold(1_u32, |product, &n| product.checked_mul(n))
        .unwrap_or(u32::MAX);
    let refused = |status, reason: String| {
        let what = &function.info.name;
        report(
            function.module.device.ordinal,
            what,
            &Failure::new(status, reason),
        );
        Err(status)
    };
    if threads == 0 || grid.contains(&0) {
        let reason = format!("a grid of {grid:?} blocks of {block:?} work-items is empty");
        return refused(hipError_t::hipErrorInvalidConfiguration, reason);
    }
    if threads > THREADS_PER_BLOCK {
        let reason = format!("{threads} work-items in a block, more than the maximum of {THREADS_PER_BLOCK}");
        return refused(hipError_t::hipErrorInvalidConfiguration, reason);
    }
    // AMD's queues count a grid's work-items in 32 bits along each axis.
    if grid.iter().zip(block).any(|(&n, m)| n.checked_mul(m).is_none()) {
        let reason =
            format!("{grid:?} blocks of {block:?} work-items: more than 2^32 work-items along an axis");
        return refused(hipError_t::hipErrorInvalidConfiguration, reason);
    }
    if threads > function.info.max_block {
        let reason = format!(
            "{threads} work-items in a block, but the kernel was compiled for at most {}",
            function.info.max_block
        );
        return refused(hipError_t::hipErrorLaunchFailure, reason);
    }
    if lds > function.dynamic_lds() {
        let reason = format!(
            "{lds} bytes of dynamic LDS and {} of static LDS, more than the maximum of 65536",
            function.info.lds
        );
        return refused(hipError_t::hipErrorLaunchOutOfResources, reason);
    }
    Ok(())
}

/// The arguments that `parameters` points to, laid out as the kernel reads them.
///
/// # Safety
/// There is a pointer for each argument of the kernel, to as many bytes as it has.
unsafe fn packed(function: &Function, parameters: *mut *mut c_void) -> Result<Vec<u8>, hipError_t> {
    let mut bytes = vec![0; function.info.arguments_size as usize];
    for (index, argument) in function.info.arguments.iter().enumerate() {
        // SAFETY: as the caller says.
        let from = unsafe { *parameters.add(index) };
        if from.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let (start, size) = (argument.offset as usize, argument.size as usize);
        // SAFETY: as the caller says.
        let from = unsafe { slice::from_raw_parts(from.cast::<u8>(), size) };
        let to = bytes
            .get_mut(start..start + size)
            .ok_or(hipError_t::hipErrorInvalidImage)?;
        to.copy_from_slice(from);
    }
    Ok(bytes)
}

/// The arguments in the buffer that launch options name.
///
/// # Safety
/// `extra` is an array of options that ends with `HIP_LAUNCH_PARAM_END`.
unsafe fn from_buffer(extra: *mut *mut c_void) -> Result<Vec<u8>, hipError_t> {
    const BUFFER: usize = 1;
    const SIZE: usize = 2;
    const END: usize = 3;
    let (mut buffer, mut size) = (ptr::null(), None);
    // At most a buffer and its size.
    for pair in 0..3 {
        // SAFETY: the end was not reached, so there is an option, and its value after it.
        let option = unsafe { *extra.add(2 * pair) }.addr();
        if option == END {
            break;
        }
        // SAFETY: as above.
        let value = unsafe { *extra.add(2 * pair + 1) };
        match option {
            BUFFER => buffer = value.cast::<u8>().cast_const(),
            // SAFETY: the option's value is the address of a size.
            SIZE if !value.is_null() => size = Some(unsafe { value.cast::<usize>().read() }),
            _ => return Err(hipError_t::hipErrorInvalidValue),
        }
    }
    match size {
        Some(0) => Ok(Vec::new()),
        Some(size) if !buffer.is_null() => {
            // SAFETY: the caller's buffer, of the size that he gives.
            Ok(unsafe { slice::from_raw_parts(buffer, size) }.to_vec())
        }
        _ => Err(hipError_t::hipErrorInvalidValue),
    }
}
