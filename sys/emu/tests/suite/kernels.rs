//! Kernels: compiled by hipRTC, launched, and checked.
//!
//! These tests need a clang that targets AMD GPUs and LLVM's disassembler. Without them they are skipped with a message; with
//! `HIPVIT_REQUIRE_AMD_CLANG=1`, as in CI, they fail.

use std::ffi::{CString, c_void};
use std::io::Write;
use std::ptr;
use std::sync::Once;

use gcnrun::{LoadError, Memory, Program};
use hipvit_sys::hip::{hipError_t, hipFunction_attribute, hipFunction_t, hipKernelNodeParams, hipModule_t};
use hipvit_sys::hiprtc::hiprtcResult;

use crate::faults::last_fault;
use crate::{Buffer, Stream, has, hip, is, ok, provider, turn};

const SOURCE: &str = r#"
extern "C" __global__ __launch_bounds__(256) void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void set(unsigned* to, unsigned value) { to[threadIdx.x] = value; }
extern "C" __global__ void reverse(unsigned* values) {
    __shared__ unsigned tile[64];
    tile[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = tile[63 - threadIdx.x];
}
__device__ unsigned counter = 5;
extern "C" __global__ void count(unsigned* to) { to[threadIdx.x] = atomicAdd(&counter, 1u); }
"#;

/// Compiles for `arch`, or for the thread's device; the log if it fails.
fn compile(source: &str, arch: Option<&str>) -> Result<Vec<u8>, String> {
    let rtc = provider().hiprtc().expect("hipRTC");
    let source = CString::new(source).expect("no zeros");
    let option = arch.map(|arch| CString::new(format!("--offload-arch={arch}")).expect("no zeros"));
    let options: Vec<_> = option.iter().map(|option| option.as_ptr()).collect();
    let mut program = ptr::null_mut();
    let (mut size, mut log) = (0, 0);
    let done = |status: Result<hiprtcResult, _>| {
        let status: Result<hiprtcResult, hipvit_sys::Error> = status;
        assert_eq!(status.expect("exported"), hiprtcResult::HIPRTC_SUCCESS);
    };
    unsafe {
        done(rtc.hiprtcCreateProgram(
            &mut program,
            source.as_ptr(),
            c"kernels.hip".as_ptr(),
            0,
            ptr::null(),
            ptr::null(),
        ));
        let compiled = rtc.hiprtcCompileProgram(program, options.len() as i32, options.as_ptr());
        let result = if compiled.expect("exported") == hiprtcResult::HIPRTC_SUCCESS {
            done(rtc.hiprtcGetCodeSize(program, &mut size));
            let mut code = vec![0_u8; size];
            done(rtc.hiprtcGetCode(program, code.as_mut_ptr().cast()));
            Ok(code)
        } else {
            done(rtc.hiprtcGetProgramLogSize(program, &mut log));
            let mut text = vec![0_u8; log];
            done(rtc.hiprtcGetProgramLog(program, text.as_mut_ptr().cast()));
            Err(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
        };
        done(rtc.hiprtcDestroyProgram(&mut program));
        result
    }
}

/// The code of [`SOURCE`]; `None`, after a message, if it cannot be compiled or disassembled.
pub(crate) fn code(arch: Option<&str>) -> Option<Vec<u8>> {
    let missing = match compile(SOURCE, arch) {
        Ok(code) => match Program::load(&Memory::new(), 0, &code).and_then(|program| program.decode()) {
            Err(error @ LoadError::Disassembly { .. }) => error.to_string(),
            _ => return Some(code),
        },
        Err(log) if log.contains("no clang") => log.trim().to_owned(),
        Err(log) => panic!("{log}"),
    };
    let required = std::env::var_os("HIPVIT_REQUIRE_AMD_CLANG").is_some_and(|value| value == "1");
    assert!(!required, "{missing}");
    static SAID: Once = Once::new();
    // Not through the test harness, which hides the output of tests that pass.
    SAID.call_once(|| _ = writeln!(std::io::stderr(), "skipped: hip-emu's kernel tests: {missing}"));
    None
}

pub(crate) fn load(code: &[u8]) -> hipModule_t {
    let mut module = ptr::null_mut();
    ok(unsafe { hip().hipModuleLoadData(&mut module, code.as_ptr().cast()) });
    module
}

pub(crate) fn function(module: hipModule_t, name: &str) -> hipFunction_t {
    let (mut function, name) = (ptr::null_mut(), CString::new(name).expect("no zeros"));
    ok(unsafe { hip().hipModuleGetFunction(&mut function, module, name.as_ptr()) });
    function
}

/// A block of `threads` work-items, with these arguments.
pub(crate) fn launch(
    function: hipFunction_t,
    threads: u32,
    arguments: &mut [*mut c_void],
    stream: &Stream,
) -> Result<hipError_t, hipvit_sys::Error> {
    let none = ptr::null_mut();
    unsafe {
        hip().hipModuleLaunchKernel(
            function,
            1,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream.0,
            arguments.as_mut_ptr(),
            none,
        )
    }
}

pub(crate) fn address<T>(value: &mut T) -> *mut c_void {
    ptr::from_mut(value).cast()
}

#[test]
fn a_kernel_takes_its_arguments_by_pointers_or_in_a_buffer() {
    let Some(code) = code(None) else { return };
    let _turn = turn();
    let (module, stream) = (load(&code), Stream::new());
    let add = function(module, "add");
    let n = 197_i32;
    let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    let (a, b, c) = (Buffer::of(&bits), Buffer::of(&bits), Buffer::of(&[7; 197]));
    let wanted: Vec<u32> = values.iter().map(|value| (value + value).to_bits()).collect();

    let (mut pa, mut pb, mut pc, mut pn) = (a.0, b.0, c.0, n);
    ok(launch(
        add,
        256,
        &mut [
            address(&mut pa),
            address(&mut pb),
            address(&mut pc),
            address(&mut pn),
        ],
        &stream,
    ));
    // The arguments were copied at the launch.
    pn = 0;
    pa = ptr::null_mut();
    assert_eq!(c.peek(197), [7; 197], "it has not run");
    stream.wait();
    assert_eq!((c.peek(197), pn, pa.is_null()), (wanted.clone(), 0, true));

    let mut arguments = Vec::new();
    for pointer in [a.0, b.0, c.0] {
        arguments.extend((pointer.expose_provenance() as u64).to_ne_bytes());
    }
    arguments.extend(n.to_ne_bytes());
    c.fill(197, 7, &stream);
    let mut size = arguments.len();
    let mark = |n| ptr::without_provenance_mut::<c_void>(n);
    let mut extra = [
        mark(1),
        arguments.as_mut_ptr().cast(),
        mark(2),
        address(&mut size),
        mark(3),
    ];
    ok(unsafe {
        hip().hipModuleLaunchKernel(
            add,
            1,
            1,
            1,
            256,
            1,
            1,
            0,
            stream.0,
            ptr::null_mut(),
            extra.as_mut_ptr(),
        )
    });
    stream.wait();
    assert_eq!(c.peek(197), wanted);
    ok(unsafe { hip().hipModuleUnload(module) });
    is(
        launch(add, 1, &mut [], &stream),
        hipError_t::hipErrorInvalidHandle,
    );
}

#[test]
fn invalid_launches_are_refused() {
    let Some(code) = code(None) else { return };
    let _turn = turn();
    let (module, stream, buffer) = (load(&code), Stream::new(), Buffer::new(64));
    let set = function(module, "set");
    let add = function(module, "add");
    let (mut at, mut value) = (buffer.0, 1_u32);
    let mut arguments = [
        address(&mut at),
        address(&mut value),
        ptr::null_mut(),
        ptr::null_mut(),
    ];
    for (function, threads, status) in [
        (set, 0, hipError_t::hipErrorInvalidConfiguration),
        (set, 1025, hipError_t::hipErrorInvalidConfiguration),
        (add, 257, hipError_t::hipErrorLaunchFailure),
    ] {
        is(launch(function, threads, &mut arguments, &stream), status);
    }
    let (mut threads, mut blocks) = (0, 0);
    let most = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    unsafe {
        ok(hip().hipFuncGetAttribute(&mut threads, most, add));
        ok(hip().hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 256, 32768));
        let mut none = ptr::null_mut();
        is(
            hip().hipModuleGetFunction(&mut none, module, c"subtract".as_ptr()),
            hipError_t::hipErrorNotFound,
        );
        ok(hip().hipModuleUnload(module));
    }
    assert_eq!((threads, blocks), (256, 2), "the LDS is enough for two");
    stream.wait();
}

#[test]
fn code_for_another_processor_is_refused() {
    let Some(code) = code(Some("gfx1100")) else { return };
    // Another test's fault would take the place of this one's.
    if !has(&[], "kernels::code_for_another_processor_is_refused") {
        return;
    }
    let mut module = ptr::null_mut();
    is(
        unsafe { hip().hipModuleLoadData(&mut module, code.as_ptr().cast()) },
        hipError_t::hipErrorNoBinaryForGpu,
    );
    assert!(last_fault().contains("gfx1100"), "{}", last_fault());
}

#[test]
fn generic_code_runs_on_its_family() {
    if code(Some("gfx11-generic")).is_none() {
        return;
    }
    if !has(
        &[("HIP_EMU_ARCH", "gfx1151")],
        "kernels::generic_code_runs_on_its_family",
    ) {
        return;
    }
    let _turn = turn();
    let code = code(Some("gfx11-generic")).expect("compiled before");
    let values: Vec<u32> = (0..64).collect();
    let (module, stream, buffer) = (load(&code), Stream::new(), Buffer::of(&values));
    let mut at = buffer.0;
    ok(launch(
        function(module, "reverse"),
        64,
        &mut [address(&mut at)],
        &stream,
    ));
    stream.wait();
    assert_eq!(buffer.peek(64), (0..64).rev().collect::<Vec<u32>>());
    ok(unsafe { hip().hipModuleUnload(module) });

    let other = self::code(Some("gfx12-generic")).expect("clang and lld are there");
    let mut module = ptr::null_mut();
    is(
        unsafe { hip().hipModuleLoadData(&mut module, other.as_ptr().cast()) },
        hipError_t::hipErrorNoBinaryForGpu,
    );
    assert!(last_fault().contains("gfx12-generic"), "{}", last_fault());
}

#[test]
fn compiler_errors_are_in_the_log() {
    if code(None).is_none() {
        return;
    }
    let log = compile("extern \"C\" __global__ void f() { nonsense; }", None).unwrap_err();
    assert!(log.starts_with("kernels.hip:1:"), "{log}");
    assert!(log.contains("nonsense"), "{log}");
}

#[test]
fn globals_have_addresses_and_waves_share_lds() {
    let Some(code) = code(None) else { return };
    let _turn = turn();
    let (module, stream) = (load(&code), Stream::new());
    let values: Vec<u32> = (0..64).collect();
    let buffer = Buffer::of(&values);
    let mut at = buffer.0;
    ok(launch(
        function(module, "reverse"),
        64,
        &mut [address(&mut at)],
        &stream,
    ));
    stream.wait();
    let reversed: Vec<u32> = (0..64).rev().collect();
    assert_eq!(buffer.peek(64), reversed);

    let (mut counter, mut size) = (ptr::null_mut(), 0);
    ok(unsafe { hip().hipModuleGetGlobal(&mut counter, &mut size, module, c"counter".as_ptr()) });
    assert_eq!(size, 4);
    ok(launch(
        function(module, "count"),
        64,
        &mut [address(&mut at)],
        &stream,
    ));
    stream.wait();
    let mut seen = buffer.peek(64);
    seen.sort_unstable();
    assert_eq!(seen, (5..69).collect::<Vec<u32>>());
    ok(unsafe { hip().hipModuleUnload(module) });
}

#[test]
fn arguments_of_a_kernel_node_are_read_and_replaced() {
    let Some(code) = code(None) else { return };
    let _turn = turn();
    let (module, stream, buffer) = (load(&code), Stream::new(), Buffer::of(&[0; 4]));
    let (mut at, mut value) = (buffer.0, 3_u32);
    let mut arguments = [address(&mut at), address(&mut value)];
    let one = |x| hipvit_sys::hip::dim3 { x, y: 1, z: 1 };
    let mut parameters = hipKernelNodeParams {
        blockDim: one(4),
        extra: ptr::null_mut(),
        func: function(module, "set").cast(),
        gridDim: one(1),
        kernelParams: arguments.as_mut_ptr(),
        sharedMemBytes: 0,
    };
    let (mut graph, mut node, mut exec) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    unsafe {
        ok(hip().hipGraphCreate(&mut graph, 0));
        ok(hip().hipGraphAddKernelNode(&mut node, graph, ptr::null(), 0, &parameters));
        let mut found = parameters;
        ok(hip().hipGraphKernelNodeGetParams(node, &mut found));
        assert_eq!((found.blockDim.x, found.func), (4, parameters.func));
        assert_eq!(*(*found.kernelParams.add(1)).cast::<u32>(), 3);
        ok(hip().hipGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok(hip().hipGraphLaunch(exec, stream.0));
        stream.wait();
        assert_eq!(buffer.peek(4), [3; 4]);
        value = 8;
        parameters.blockDim = one(2);
        ok(hip().hipGraphExecKernelNodeSetParams(exec, node, &parameters));
        ok(hip().hipGraphLaunch(exec, stream.0));
        stream.wait();
        assert_eq!((buffer.peek(4), value), (vec![8, 8, 3, 3], 8));
        ok(hip().hipGraphExecDestroy(exec));
        ok(hip().hipGraphDestroy(graph));
        ok(hip().hipModuleUnload(module));
    }
}

#[test]
fn an_out_of_bounds_access_is_reported_and_the_device_is_lost() {
    let Some(code) = code(None) else { return };
    if !has(
        &[],
        "kernels::an_out_of_bounds_access_is_reported_and_the_device_is_lost",
    ) {
        return;
    }
    let (module, stream, buffer) = (load(&code), Stream::new(), Buffer::new(63));
    let (mut at, mut value) = (buffer.0, 1_u32);
    let mut arguments = [address(&mut at), address(&mut value)];
    ok(launch(function(module, "set"), 64, &mut arguments, &stream));
    let illegal = hipError_t::hipErrorIllegalAddress;
    unsafe {
        is(hip().hipStreamSynchronize(stream.0), illegal);
        is(hip().hipStreamSynchronize(stream.0), illegal);
    }
    is(
        launch(function(module, "set"), 1, &mut arguments, &stream),
        illegal,
    );
    let report = last_fault();
    for part in [
        "device 0: set: ",
        "outside every allocation",
        "252 bytes",
        "block (0, 0, 0), wave 0, lane 63",
    ] {
        assert!(report.contains(part), "{part} is not in: {report}");
    }
    ok(unsafe { hip().hipDeviceReset() });
}

#[test]
fn another_devices_memory_needs_peer_access() {
    let Some(code) = code(None) else { return };
    if !has(&[], "kernels::another_devices_memory_needs_peer_access") {
        return;
    }
    let here = Buffer::of(&[0; 4]);
    unsafe {
        ok(hip().hipSetDevice(1));
        let (module, stream) = (load(&code), Stream::new());
        let (mut at, mut value) = (here.0, 6_u32);
        let mut arguments = [address(&mut at), address(&mut value)];
        ok(hip().hipDeviceEnablePeerAccess(0, 0));
        ok(launch(function(module, "set"), 4, &mut arguments, &stream));
        stream.wait();
        assert_eq!(here.peek(4), [6; 4]);
        ok(hip().hipDeviceDisablePeerAccess(0));
        ok(launch(function(module, "set"), 4, &mut arguments, &stream));
        is(
            hip().hipStreamSynchronize(stream.0),
            hipError_t::hipErrorIllegalAddress,
        );
        assert!(last_fault().contains("memory of device 0"), "{}", last_fault());
        ok(hip().hipDeviceReset());
        ok(hip().hipSetDevice(0));
    }
}

#[test]
fn the_nth_launch_fails_and_the_next_does_not() {
    let Some(code) = code(None) else { return };
    let settings = [("HIP_EMU_FAIL_LAUNCH", "2")];
    if !has(&settings, "kernels::the_nth_launch_fails_and_the_next_does_not") {
        return;
    }
    let (module, stream, buffer) = (load(&code), Stream::new(), Buffer::of(&[0; 4]));
    let set = function(module, "set");
    for (round, wanted) in [
        (1, hipError_t::hipSuccess),
        (2, hipError_t::hipErrorLaunchFailure),
        (3, hipError_t::hipSuccess),
    ] {
        let (mut at, mut value) = (buffer.0, round as u32);
        is(
            launch(set, 4, &mut [address(&mut at), address(&mut value)], &stream),
            wanted,
        );
    }
    stream.wait();
    assert_eq!(buffer.peek(4), [3; 4]);
}
