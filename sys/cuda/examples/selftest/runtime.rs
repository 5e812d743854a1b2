//! The HIP runtime, hipRTC and ROCm SMI.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use hipvit_sys::Error;
use hipvit_sys::hip::{
    hipError_t, hipFuncAttribute, hipFunction_t, hipMemcpyKind, hipMemoryType, hipModule_t,
    hipPointerAttribute_t, hipStreamCaptureMode, hipStreamNonBlocking,
};
use hipvit_sys::rocm_smi::{
    rsmi_clk_type_t, rsmi_frequencies_t, rsmi_memory_type_t, rsmi_status_t, rsmi_temperature_metric_t,
};

use crate::Outcome;
use crate::device::{Gpu, compare, numbers, ok, text};

const SOURCE: &str = r#"
template <typename T> __device__ T sum(T a, T b) { return a + b; }

extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = sum(a[i], b[i]);
}

// Reverses what a block has, through shared memory of the launch's size.
extern "C" __global__ void reverse(float* values, int n) {
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = values[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = tile[n - 1 - i];
}
"#;

pub(crate) fn properties(gpu: &Gpu) -> Outcome {
    for device in 0..gpu.device_count()? {
        let p = gpu.properties(device)?;
        println!(
            "      {device}: {} ({}), {} units of {} lanes, {:.1} GiB, bus {} bits at {} MHz, L2 {} MiB, clock {} MHz, \
             shared {} B/block ({} opt-in), {} registers/block, PCI {:04x}:{:02x}:{:02x}, map host {}",
            text(&p.name),
            text(&p.gcnArchName),
            p.multiProcessorCount,
            p.warpSize,
            p.totalGlobalMem as f64 / (1_u64 << 30) as f64,
            p.memoryBusWidth,
            p.memoryClockRate / 1000,
            p.l2CacheSize >> 20,
            p.clockRate / 1000,
            p.sharedMemPerBlock,
            p.sharedMemPerBlockOptin,
            p.regsPerBlock,
            p.pciDomainID,
            p.pciBusID,
            p.pciDeviceID,
            p.canMapHostMemory,
        );
        if p.warpSize != 32 && p.warpSize != 64 || p.multiProcessorCount < 1 || p.totalGlobalMem == 0 {
            return Err("a property that cannot be".into());
        }
    }
    Ok(format!("{} device(s)", gpu.device_count()?))
}

pub(crate) fn memory(gpu: &Gpu) -> Outcome {
    let hip = gpu.hip()?;
    let values = numbers(100_003, 1);
    let (first, second) = (gpu.upload(&values)?, gpu.upload(&vec![0.0_f32; values.len()])?);
    let bytes = size_of_val(&values[..]);
    // SAFETY: both are device memory of this many bytes.
    ok(unsafe { hip.hipMemcpy(second.at, first.at, bytes, hipMemcpyKind::hipMemcpyDefault) })?;
    if second.download::<f32>(values.len())? != values {
        return Err("a copy on the device differs".into());
    }
    // SAFETY: the device memory has this many bytes.
    ok(unsafe { hip.hipMemset(second.at, 0x5a, bytes) })?;
    if second.download::<u8>(bytes)?.iter().any(|byte| *byte != 0x5a) {
        return Err("memset left other bytes".into());
    }
    let (mut free, mut total) = (0, 0);
    // SAFETY: the call writes two sizes.
    ok(unsafe { hip.hipMemGetInfo(&mut free, &mut total) })?;
    Ok(format!(
        "{:.1} of {:.1} GiB free",
        free as f64 / 1e9 / 1.073_741_824,
        total as f64 / 1e9 / 1.073_741_824
    ))
}

pub(crate) fn pointers(gpu: &Gpu) -> Outcome {
    let hip = gpu.hip()?;
    let device = gpu.upload(&[1_u8; 64])?;
    let mut pinned: *mut c_void = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    ok(unsafe { hip.hipHostMalloc(&mut pinned, 4096, 0) })?;
    let plain = [0_u8; 64];
    let kind = |pointer: *const c_void| {
        let mut attributes = hipPointerAttribute_t::default();
        // SAFETY: the call writes one structure; it looks the pointer up and does not follow it.
        ok(unsafe { hip.hipPointerGetAttributes(&mut attributes, pointer) })?;
        Ok::<_, String>(attributes.type_)
    };
    let kinds = [kind(device.at)?, kind(pinned)?, kind(plain.as_ptr().cast())?];
    // SAFETY: the address is hipHostMalloc's, freed once.
    ok(unsafe { hip.hipHostFree(pinned) })?;
    let expected = [
        hipMemoryType::hipMemoryTypeDevice,
        hipMemoryType::hipMemoryTypeHost,
        hipMemoryType::hipMemoryTypeUnregistered,
    ];
    if kinds == expected {
        Ok("device, host, unregistered".into())
    } else {
        Err(format!("{kinds:?}"))
    }
}

pub(crate) fn out_of_memory(gpu: &Gpu) -> Outcome {
    let hip = gpu.hip()?;
    let mut at = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    let status = unsafe { hip.hipMalloc(&mut at, 1 << 46) }.map_err(|error| error.to_string())?;
    // SAFETY: takes no arguments.
    let last = unsafe { hip.hipGetLastError() }.map_err(|error| error.to_string())?;
    if (status, last) != (hipError_t::hipErrorOutOfMemory, hipError_t::hipErrorOutOfMemory) {
        return Err(format!("{status}, last error {last}"));
    }
    gpu.upload(&[1.0_f32])?;
    Ok("hipErrorOutOfMemory, and the device goes on".into())
}

pub(crate) fn timing(gpu: &Gpu) -> Outcome {
    let hip = gpu.hip()?;
    let bytes = 256 << 20;
    let memory = gpu.upload(&vec![0_u8; bytes])?;
    let (mut stream, mut start, mut stop) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let mut milliseconds = 0.0;
    // SAFETY: the handles live from their creation to their destruction here, and nothing is destroyed before the stop
    // event was waited for; the memory has this many bytes and outlives them.
    unsafe {
        ok(hip.hipStreamCreateWithFlags(&mut stream, hipStreamNonBlocking))?;
        ok(hip.hipEventCreate(&mut start))?;
        ok(hip.hipEventCreate(&mut stop))?;
        ok(hip.hipMemsetAsync(memory.at, 1, bytes, stream))?;
        ok(hip.hipEventRecord(start, stream))?;
        ok(hip.hipMemsetAsync(memory.at, 2, bytes, stream))?;
        ok(hip.hipEventRecord(stop, stream))?;
        ok(hip.hipStreamWaitEvent(ptr::null_mut(), stop, 0))?;
        ok(hip.hipEventSynchronize(stop))?;
        ok(hip.hipEventQuery(stop))?;
        ok(hip.hipEventElapsedTime(&mut milliseconds, start, stop))?;
        ok(hip.hipEventDestroy(start))?;
        ok(hip.hipEventDestroy(stop))?;
        ok(hip.hipStreamDestroy(stream))?;
    }
    if milliseconds > 0.0 && milliseconds < 1000.0 {
        Ok(format!(
            "256 MiB filled in {milliseconds:.3} ms, {:.2} TB/s",
            bytes as f32 / milliseconds / 1e9
        ))
    } else {
        Err(format!("{milliseconds} ms"))
    }
}

pub(crate) fn host_function(gpu: &Gpu) -> Outcome {
    static CALLED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn call(data: *mut c_void) {
        CALLED.store(data.addr() as u32, Ordering::SeqCst);
    }
    // SAFETY: the function follows no pointer: its data is a number.
    ok(unsafe {
        gpu.hip()?
            .hipLaunchHostFunc(ptr::null_mut(), Some(call), ptr::without_provenance_mut(77))
    })?;
    gpu.synchronize()?;
    match CALLED.load(Ordering::SeqCst) {
        77 => Ok("called with its argument".into()),
        other => Err(format!("the argument is {other}")),
    }
}

/// The kernels as machine code, for the device or, without one, for `sm_90`. An AMD processor has to be refused.
pub(crate) fn code(gpu: &Gpu) -> Result<Vec<u8>, String> {
    let rtc = gpu.provider.hiprtc().map_err(|error| error.to_string())?;
    let source = CString::new(SOURCE).map_err(|error| error.to_string())?;
    let arch = gpu.arch.as_deref().unwrap_or("sm_90");
    let compile = |option: String| {
        let option = CString::new(option).map_err(|error| error.to_string())?;
        let mut program = ptr::null_mut();
        let (mut size, mut log_size) = (0, 0);
        // SAFETY: every string ends in a zero and lives through the call; there are as many options as is said; log and
        // code are as long as the library asked for.
        unsafe {
            ok(rtc.hiprtcCreateProgram(
                &mut program,
                source.as_ptr(),
                c"selftest.hip".as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            ))?;
            let compiled =
                ok(rtc.hiprtcCompileProgram(program, 2, [option.as_ptr(), c"-O3".as_ptr()].as_ptr()));
            if let Err(status) = compiled {
                ok(rtc.hiprtcGetProgramLogSize(program, &mut log_size))?;
                let mut log = vec![0; log_size];
                ok(rtc.hiprtcGetProgramLog(program, log.as_mut_ptr()))?;
                ok(rtc.hiprtcDestroyProgram(&mut program))?;
                return Err(format!("{status}: {}", text(&log).trim()));
            }
            ok(rtc.hiprtcGetCodeSize(program, &mut size))?;
            let mut code = vec![0_u8; size];
            ok(rtc.hiprtcGetCode(program, code.as_mut_ptr().cast()))?;
            ok(rtc.hiprtcDestroyProgram(&mut program))?;
            Ok(code)
        }
    };
    if !arch.starts_with("gfx") {
        match compile("--offload-arch=gfx942".into()) {
            Err(message) if message.contains("gfx942 is an AMD processor") => {}
            other => return Err(format!("gfx942 on {arch}: {other:?}")),
        }
    }
    compile(format!("--offload-arch={arch}"))
}

pub(crate) fn compile(gpu: &Gpu) -> Outcome {
    let code = code(gpu)?;
    if code.get(..4) == Some(b"\x7fELF") {
        Ok(format!(
            "{} bytes for {}",
            code.len(),
            gpu.arch.as_deref().unwrap_or("sm_90")
        ))
    } else {
        Err(format!("{} bytes that are no ELF file", code.len()))
    }
}

fn kernel(gpu: &Gpu, name: &str) -> Result<(hipModule_t, hipFunction_t), String> {
    let hip = gpu.hip()?;
    let code = code(gpu)?;
    let name = CString::new(name).map_err(|error| error.to_string())?;
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the calls write one handle each; the code is an ELF file that hipRTC just made, the name ends in a zero.
    ok(unsafe { hip.hipModuleLoadData(&mut module, code.as_ptr().cast()) })?;
    // SAFETY: the module lives.
    ok(unsafe { hip.hipModuleGetFunction(&mut function, module, name.as_ptr()) })?;
    Ok((module, function))
}

fn added(gpu: &Gpu, with_buffer: bool) -> Outcome {
    let hip = gpu.hip()?;
    let (module, function) = kernel(gpu, "add")?;
    let count = 10_007;
    let (a, b) = (numbers(count, 2), numbers(count, 3));
    let (a_device, b_device, c_device) = (
        gpu.upload(&a)?,
        gpu.upload(&b)?,
        gpu.upload(&vec![0.0_f32; count])?,
    );
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
    let outcome = compare(&c_device.download(count)?, &expected, 0.0);
    // SAFETY: the device was waited for by the download.
    ok(unsafe { hip.hipModuleUnload(module) })?;
    outcome
}

pub(crate) fn launch(gpu: &Gpu) -> Outcome {
    added(gpu, false)
}

pub(crate) fn launch_with_buffer(gpu: &Gpu) -> Outcome {
    added(gpu, true)
}

pub(crate) fn large_shared_memory(gpu: &Gpu) -> Outcome {
    let hip = gpu.hip()?;
    let (module, function) = kernel(gpu, "reverse")?;
    let properties = gpu.properties(0)?;
    let bytes = properties
        .sharedMemPerBlockOptin
        .max(properties.sharedMemPerBlock);
    let values = numbers(bytes / 4, 4);
    let memory = gpu.upload(&values)?;
    let (mut at, mut count) = (memory.at, values.len() as i32);
    let mut arguments: [*mut c_void; 2] = [(&raw mut at).cast(), (&raw mut count).cast()];
    let attribute = hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize;
    let mut blocks = 0;
    // SAFETY: the arguments are those of the kernel `reverse`; shared memory and values have as many elements as it is
    // told.
    unsafe {
        ok(hip.hipFuncSetAttribute(function.cast(), attribute, bytes as i32))?;
        ok(hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 256, bytes))?;
        ok(hip.hipModuleLaunchKernel(
            function,
            1,
            1,
            1,
            256,
            1,
            1,
            bytes as u32,
            ptr::null_mut(),
            arguments.as_mut_ptr(),
            ptr::null_mut(),
        ))?;
    }
    let expected: Vec<_> = values.iter().rev().copied().collect();
    compare(&memory.download(values.len())?, &expected, 0.0)?;
    // SAFETY: as in `added`.
    ok(unsafe { hip.hipModuleUnload(module) })?;
    // A unit of RDNA has twice a block's limit.
    if blocks == 1 || blocks == 2 {
        Ok(format!("{bytes} bytes, {blocks} block(s) a unit"))
    } else {
        Err(format!("{blocks} blocks a unit"))
    }
}

pub(crate) fn graph(gpu: &Gpu) -> Outcome {
    let hip = gpu.hip()?;
    let (module, function) = kernel(gpu, "add")?;
    let count = 4096;
    let values = numbers(count, 5);
    let (a, sum) = (gpu.upload(&values)?, gpu.upload(&vec![0.0_f32; count])?);
    let (mut a_at, mut sum_at, mut number) = (a.at, sum.at, count as i32);
    let mut arguments: [*mut c_void; 4] = [
        (&raw mut a_at).cast(),
        (&raw mut sum_at).cast(),
        (&raw mut sum_at).cast(),
        (&raw mut number).cast(),
    ];
    let (mut stream, mut graph, mut exec, mut nodes) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: as in `added`, with the sum as an operand and the result, each element of which one thread touches; the
    // handles live until they are destroyed, after the stream was waited for.
    unsafe {
        ok(hip.hipStreamCreateWithFlags(&mut stream, hipStreamNonBlocking))?;
        ok(hip.hipStreamBeginCapture(stream, hipStreamCaptureMode::hipStreamCaptureModeThreadLocal))?;
        for _ in 0..3 {
            ok(hip.hipModuleLaunchKernel(
                function,
                16,
                1,
                1,
                256,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            ))?;
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
    // SAFETY: as in `added`.
    ok(unsafe { hip.hipModuleUnload(module) })?;
    if nodes == 3 {
        Ok("3 nodes, replayed twice".into())
    } else {
        Err(format!("{nodes} nodes instead of 3"))
    }
}

/// A figure for the report; a sensor that the device has not is no failure.
fn sensor(called: Result<rsmi_status_t, Error>, figure: impl FnOnce() -> String) -> Outcome {
    match called {
        Ok(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED) => Ok("-".into()),
        called => ok(called).map(|()| figure()),
    }
}

pub(crate) fn monitoring(gpu: &Gpu) -> Outcome {
    let smi = gpu.provider.rocm_smi().map_err(|error| error.to_string())?;
    let (mut count, mut power, mut temperature, mut used) = (0, 0, 0, 0);
    let mut clocks = rsmi_frequencies_t::default();
    let (current, system) = (
        rsmi_temperature_metric_t::RSMI_TEMP_CURRENT,
        rsmi_clk_type_t::RSMI_CLK_TYPE_SYS,
    );
    // SAFETY: initialised first, shut down last; each call between writes one value of the type that it is given.
    unsafe {
        ok(smi.rsmi_init(0))?;
        ok(smi.rsmi_num_monitor_devices(&mut count))?;
        ok(smi.rsmi_dev_memory_usage_get(0, rsmi_memory_type_t::RSMI_MEM_TYPE_VRAM, &mut used))?;
        let measured = smi.rsmi_dev_power_ave_get(0, 0, &mut power);
        let power = sensor(measured, || format!("{:.0}", power as f64 / 1e6))?;
        let measured = smi.rsmi_dev_temp_metric_get(0, 0, current, &mut temperature);
        let temperature = sensor(measured, || (temperature / 1000).to_string())?;
        let measured = smi.rsmi_dev_gpu_clk_freq_get(0, system, &mut clocks);
        let clock = sensor(measured, || (clocks.frequency[0] / 1_000_000).to_string())?;
        ok(smi.rsmi_shut_down())?;
        Ok(format!(
            "{count} device(s), {power} W, {temperature} °C, {} MiB used, {clock} MHz",
            used >> 20
        ))
    }
}

pub(crate) fn peers(gpu: &Gpu) -> Outcome {
    let hip = gpu.hip()?;
    if gpu.device_count()? < 2 {
        return Ok("skipped, there is one device".into());
    }
    let values = numbers(4096, 6);
    let bytes = size_of_val(&values[..]);
    let first = gpu.upload(&values)?;
    let (mut can, mut kind, mut hops) = (0, 0, 0);
    // SAFETY: the calls write the ints that they are given.
    unsafe {
        ok(hip.hipDeviceCanAccessPeer(&mut can, 0, 1))?;
        ok(hip.hipExtGetLinkTypeAndHopCount(0, 1, &mut kind, &mut hops))?;
        ok(hip.hipSetDevice(1))?;
    }
    let outcome = (|| {
        let second = gpu.upload(&vec![0.0_f32; values.len()])?;
        if can != 0 {
            // SAFETY: takes numbers.
            ok(unsafe { hip.hipDeviceEnablePeerAccess(0, 0) })?;
        }
        // SAFETY: each device's memory has this many bytes.
        ok(unsafe { hip.hipMemcpyPeer(second.at, 1, first.at, 0, bytes) })?;
        compare(&second.download(values.len())?, &values, 0.0)
    })();
    // SAFETY: takes a number.
    ok(unsafe { hip.hipSetDevice(0) })?;
    outcome.map(|_| format!("peer access {can}, link type {kind}, {hops} hop(s), copied"))
}
