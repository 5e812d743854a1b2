//! Modules: launches, globals, attributes, occupancy, graphs.

use std::ffi::{CStr, c_void};
use std::ptr;

use hipvit_sys::Hip;
use hipvit_sys::hip::{
    hipError_t, hipFuncAttribute, hipFunction_attribute, hipFunction_t, hipMemcpyKind, hipModule_t,
    hipStream_t, hipStreamCaptureMode, hipStreamNonBlocking,
};

use crate::Outcome;
use crate::device::{Gpu, compare, is, numbers, ok};
use crate::hiprtc::compile;

const SOURCE: &CStr = c"
template <typename T> __device__ T sum(T a, T b) { return a + b; }

extern \"C\" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = sum(a[i], b[i]);
}

// Reverses what a block has, through shared memory of the launch's size.
extern \"C\" __global__ void reverse(float* values, int n) {
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = values[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = tile[n - 1 - i];
}

extern \"C\" {
__device__ float bias[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__constant__ float factor = 10;
__global__ void __launch_bounds__(64) affine(float* values) {
    __shared__ float kept[64];
    kept[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = kept[63 - threadIdx.x] * factor + bias[threadIdx.x % 8];
}
}
";

/// A module of the source above, unloaded with this.
struct Module {
    hip: &'static Hip,
    module: hipModule_t,
}

impl Module {
    fn load(gpu: &Gpu) -> Result<Self, String> {
        let hip = gpu.hip()?;
        let compiled = compile(gpu, SOURCE, &[], &[])?;
        let mut module = ptr::null_mut();
        // SAFETY: the call writes one handle; the code is an ELF file that hipRTC just made.
        ok(unsafe { hip.hipModuleLoadData(&mut module, compiled.code.as_ptr().cast()) })?;
        Ok(Self { hip, module })
    }

    fn function(&self, name: &CStr) -> Result<hipFunction_t, String> {
        let mut function = ptr::null_mut();
        // SAFETY: the call writes one handle; the module lives.
        ok(unsafe {
            self.hip
                .hipModuleGetFunction(&mut function, self.module, name.as_ptr())
        })?;
        Ok(function)
    }

    /// A global's address and size.
    fn global(&self, name: &CStr) -> Result<(*mut c_void, usize), String> {
        let (mut at, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the call writes a pointer and a size; the module lives.
        ok(unsafe {
            self.hip
                .hipModuleGetGlobal(&mut at, &mut bytes, self.module, name.as_ptr())
        })?;
        Ok((at, bytes))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: takes no arguments; then the module, loaded once, which nothing uses any more.
        let _ = unsafe { self.hip.hipDeviceSynchronize() };
        // SAFETY: as above.
        let _ = unsafe { self.hip.hipModuleUnload(self.module) };
    }
}

/// Launches in one dimension.
///
/// # Safety
/// The arguments are those of the kernel, and hold what it reads and writes.
unsafe fn launch(
    gpu: &Gpu,
    function: hipFunction_t,
    (blocks, threads, shared): (u32, u32, u32),
    stream: hipStream_t,
    arguments: &mut [*mut c_void],
) -> Outcome {
    // SAFETY: as the caller says.
    ok(unsafe {
        gpu.hip()?.hipModuleLaunchKernel(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared,
            stream,
            arguments.as_mut_ptr(),
            ptr::null_mut(),
        )
    })
}

fn added(gpu: &Gpu, with_buffer: bool) -> Outcome {
    let hip = gpu.hip()?;
    let module = Module::load(gpu)?;
    let function = module.function(c"add")?;
    let count = 10_007;
    let (a, b) = (numbers(count, 2), numbers(count, 3));
    let (a_device, b_device, c_device) = (gpu.upload(&a)?, gpu.upload(&b)?, gpu.zeros(count)?);
    #[repr(C)]
    struct Arguments(*mut c_void, *mut c_void, *mut c_void, i32);
    let mut arguments = Arguments(a_device.at, b_device.at, c_device.at, count as i32);
    let blocks = count.div_ceil(256) as u32;
    let (mut pointers, mut extra) = (
        [
            (&raw mut arguments.0).cast::<c_void>(),
            (&raw mut arguments.1).cast(),
            (&raw mut arguments.2).cast(),
            (&raw mut arguments.3).cast(),
        ],
        [ptr::null_mut(); 5],
    );
    // CUDA takes a buffer of just the arguments' size, without the padding at the structure's end.
    let mut size = std::mem::offset_of!(Arguments, 3) + size_of::<i32>();
    // HIP_LAUNCH_PARAM_BUFFER_POINTER, _SIZE and _END.
    extra[0] = ptr::without_provenance_mut(1);
    extra[1] = (&raw mut arguments).cast();
    extra[2] = ptr::without_provenance_mut(2);
    extra[3] = (&raw mut size).cast();
    extra[4] = ptr::without_provenance_mut(3);
    let (pointers, extra) = if with_buffer {
        (ptr::null_mut(), extra.as_mut_ptr())
    } else {
        (pointers.as_mut_ptr(), ptr::null_mut())
    };
    // SAFETY: the arguments are those of the kernel `add`, which the source above has, over `count` elements that all
    // three hold; they live until the device was waited for.
    ok(unsafe {
        hip.hipModuleLaunchKernel(
            function,
            blocks,
            1,
            1,
            256,
            1,
            1,
            0,
            ptr::null_mut(),
            pointers,
            extra,
        )
    })?;
    let expected: Vec<_> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    compare(&c_device.download(count)?, &expected, 0.0)
}

#[test]
fn launch_with_pointers_to_arguments() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    added(&gpu, false)
}

#[test]
fn launch_with_an_argument_buffer() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    added(&gpu, true)
}

#[test]
fn dynamic_shared_memory_beyond_the_default() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let module = Module::load(&gpu)?;
    let function = module.function(c"reverse")?;
    let properties = gpu.properties(0)?;
    let bytes = properties
        .sharedMemPerBlockOptin
        .max(properties.sharedMemPerBlock);
    let values = numbers(bytes / 4, 4);
    let memory = gpu.upload(&values)?;
    let (mut at, mut count) = (memory.at, values.len() as i32);
    let mut arguments = [(&raw mut at).cast(), (&raw mut count).cast()];
    let attribute = hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize;
    let mut blocks = 0;
    // SAFETY: the arguments are those of the kernel `reverse`; shared memory and values have `count` elements.
    unsafe {
        ok(hip.hipFuncSetAttribute(function.cast(), attribute, bytes as i32))?;
        ok(hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 256, bytes))?;
        launch(
            &gpu,
            function,
            (1, 256, bytes as u32),
            ptr::null_mut(),
            &mut arguments,
        )?;
    }
    let expected: Vec<_> = values.iter().rev().copied().collect();
    compare(&memory.download(values.len())?, &expected, 0.0)?;
    println!("{bytes} bytes, {blocks} blocks per compute unit");
    // A workgroup processor of RDNA has twice a block's limit.
    if blocks == 1 || blocks == 2 {
        Ok(())
    } else {
        Err(format!("{blocks} blocks per compute unit"))
    }
}

#[test]
fn globals_are_read_and_written() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let module = Module::load(&gpu)?;
    let values = numbers(64, 7);
    let memory = gpu.upload(&values)?;
    let mut at = memory.at;
    let (bias, bias_bytes) = module.global(c"bias")?;
    let (factor, factor_bytes) = module.global(c"factor")?;
    if (bias_bytes, factor_bytes) != (32, 4) {
        return Err(format!("globals of {bias_bytes} and {factor_bytes} bytes"));
    }
    let mut initial = [0.0_f32; 8];
    let (new_factor, to_host, to_device) = (
        4.0_f32,
        hipMemcpyKind::hipMemcpyDeviceToHost,
        hipMemcpyKind::hipMemcpyHostToDevice,
    );
    // SAFETY: the globals have these many bytes; the kernel takes one pointer, to as many floats as it has threads.
    unsafe {
        ok(hip.hipMemcpy(initial.as_mut_ptr().cast(), bias, 32, to_host))?;
        ok(hip.hipMemcpy(factor, (&raw const new_factor).cast(), 4, to_device))?;
        let function = module.function(c"affine")?;
        launch(
            &gpu,
            function,
            (1, 64, 0),
            ptr::null_mut(),
            &mut [(&raw mut at).cast()],
        )?;
    }
    if initial != [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] {
        return Err(format!("the initial values are {initial:?}"));
    }
    let expected: Vec<f32> = (0..64)
        .map(|index| values[63 - index] * new_factor + initial[index % 8])
        .collect();
    // One multiplication and one addition of numbers below 16.
    compare(&memory.download(64)?, &expected, 16.0 * f32::EPSILON)?;
    let (mut nowhere, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the call writes a pointer and a size; the module lives.
    let found = unsafe {
        hip.hipModuleGetGlobal(
            &mut nowhere,
            &mut bytes,
            module.module,
            c"no_such_global".as_ptr(),
        )
    };
    is(found, hipError_t::hipErrorNotFound)
}

#[test]
fn function_attributes_and_occupancy() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let module = Module::load(&gpu)?;
    let function = module.function(c"affine")?;
    let attribute = |attribute: hipFunction_attribute| {
        let mut value = -1;
        // SAFETY: the call writes one int; the function's module lives.
        ok(unsafe { hip.hipFuncGetAttribute(&mut value, attribute, function) })?;
        Ok::<_, String>(value)
    };
    let threads = attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    let shared = attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
    let registers = attribute(hipFunction_attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS)?;
    let (mut blocks, mut flagged, mut grid, mut block) = (0, 0, 0, 0);
    // SAFETY: the calls write the ints that they are given; the function's module lives.
    unsafe {
        ok(hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 64, 0))?;
        ok(hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &mut flagged,
            function,
            64,
            0,
            0,
        ))?;
        ok(hip.hipModuleOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, 0, 0))?;
    }
    println!(
        "{threads} threads, {shared} bytes of shared memory, {registers} registers; {blocks} blocks per compute unit, \
         {grid} blocks of {block} threads fill the device"
    );
    let fits = threads == 64 && shared == 256 && registers > 0;
    if !fits || blocks < 1 || flagged != blocks || grid < 1 || !(1..=64).contains(&block) {
        return Err("an attribute or an occupancy that cannot be".into());
    }
    Ok(())
}

#[test]
fn graph_capture_and_replay() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let module = Module::load(&gpu)?;
    let function = module.function(c"add")?;
    let count = 4096;
    let values = numbers(count, 5);
    let (a, sum) = (gpu.upload(&values)?, gpu.zeros(count)?);
    let (mut a_at, mut sum_at, mut number) = (a.at, sum.at, count as i32);
    let mut arguments = [
        (&raw mut a_at).cast(),
        (&raw mut sum_at).cast(),
        (&raw mut sum_at).cast(),
        (&raw mut number).cast(),
    ];
    let (mut stream, mut graph, mut exec, mut nodes) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: the arrays are those of `added`, with the sum as an operand and the result. One thread reads and writes each
    // element. The handles live until they are destroyed, after the stream was waited for.
    unsafe {
        ok(hip.hipStreamCreateWithFlags(&mut stream, hipStreamNonBlocking))?;
        ok(hip.hipStreamBeginCapture(stream, hipStreamCaptureMode::hipStreamCaptureModeThreadLocal))?;
        for _ in 0..3 {
            launch(&gpu, function, (16, 256, 0), stream, &mut arguments)?;
        }
        ok(hip.hipStreamEndCapture(stream, &mut graph))?;
        ok(hip.hipGraphGetNodes(graph, ptr::null_mut(), &mut nodes))?;
        ok(hip.hipGraphInstantiate(&mut exec, graph, ptr::null_mut(), ptr::null_mut(), 0))?;
        for _ in 0..2 {
            ok(hip.hipGraphLaunch(exec, stream))?;
        }
        ok(hip.hipStreamSynchronize(stream))?;
        ok(hip.hipGraphExecDestroy(exec))?;
        ok(hip.hipGraphDestroy(graph))?;
        ok(hip.hipStreamDestroy(stream))?;
    }
    let expected: Vec<_> = values
        .iter()
        .map(|value| (0..6).fold(0.0, |sum, _| value + sum))
        .collect();
    compare(&sum.download(count)?, &expected, 0.0)?;
    if nodes == 3 {
        Ok(())
    } else {
        Err(format!("{nodes} nodes instead of 3"))
    }
}
