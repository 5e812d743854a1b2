//! Modules as a layer above HIP uses them: templates by name expressions, variables, parameters of several kinds,
//! attributes and occupancy.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use hipvit_sys::hip::{
    hipDeviceptr_t, hipError_t, hipFuncAttribute, hipFunction_attribute, hipFunction_t, hipMemcpyKind,
    hipModule_t,
};
use hipvit_sys::hiprtc::{hiprtcProgram, hiprtcResult};

use crate::kernels::{address, code, function, launch, load};
use crate::{Buffer, Stream, hip, is, ok, provider, turn};

const SOURCE: &str = r#"
template <class T> __global__ void axpy(int n, T a, const T* x, T* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
namespace nn {
__device__ unsigned offset = 7;
__constant__ float table[4];
template <class T, int N> __global__ void fill(T* to) { to[threadIdx.x] = N + offset; }
__global__ void look_up(float* to) { to[threadIdx.x] = table[threadIdx.x]; }
}
struct Pair { char tag; double value; };
extern "C" __global__ void mixed(char a, double b, short c, Pair d, unsigned char e, double* to) {
    to[0] = a; to[1] = b; to[2] = c; to[3] = d.tag; to[4] = d.value; to[5] = e;
}
extern "C" __global__ __launch_bounds__(128) void tile(unsigned* to) {
    __shared__ unsigned rows[1024];
    rows[threadIdx.x] = to[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = rows[127 - threadIdx.x];
}
extern "C" __global__ void scratch(unsigned* to) {
    volatile unsigned local[64];
    for (int i = 0; i < 64; ++i) local[i] = to[i];
    to[threadIdx.x] = local[63 - threadIdx.x];
}
"#;

#[track_caller]
fn rtc_is(status: Result<hiprtcResult, hipvit_sys::Error>, wanted: hiprtcResult) {
    assert_eq!(status.expect("exported"), wanted);
}

#[track_caller]
fn rtc_ok(status: Result<hiprtcResult, hipvit_sys::Error>) {
    rtc_is(status, hiprtcResult::HIPRTC_SUCCESS);
}

/// A program of [`SOURCE`] with these name expressions, compiled for the thread's device.
struct Compiled(hiprtcProgram);

impl Compiled {
    fn new(expressions: &[&CStr]) -> Result<Self, String> {
        let rtc = provider().hiprtc().expect("hipRTC");
        let source = CString::new(SOURCE).expect("no zeros");
        let (mut program, none) = (ptr::null_mut(), ptr::null());
        unsafe {
            let name = c"modules.hip".as_ptr();
            rtc_ok(rtc.hiprtcCreateProgram(&mut program, source.as_ptr(), name, 0, none, none));
            for expression in expressions {
                rtc_ok(rtc.hiprtcAddNameExpression(program, expression.as_ptr()));
            }
            let mut early = ptr::null();
            rtc_is(
                rtc.hiprtcGetLoweredName(program, c"mixed".as_ptr(), &mut early),
                hiprtcResult::HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION,
            );
            let status = rtc
                .hiprtcCompileProgram(program, 0, ptr::null_mut())
                .expect("exported");
            let compiled = Self(program);
            if status == hiprtcResult::HIPRTC_SUCCESS {
                return Ok(compiled);
            }
            let mut size = 0;
            rtc_ok(rtc.hiprtcGetProgramLogSize(program, &mut size));
            let mut log = vec![0_u8; size];
            rtc_ok(rtc.hiprtcGetProgramLog(program, log.as_mut_ptr().cast()));
            Err(String::from_utf8_lossy(&log).into_owned())
        }
    }

    fn code(&self) -> Vec<u8> {
        let rtc = provider().hiprtc().expect("hipRTC");
        let mut size = 0;
        unsafe {
            rtc_ok(rtc.hiprtcGetCodeSize(self.0, &mut size));
            let mut code = vec![0_u8; size];
            rtc_ok(rtc.hiprtcGetCode(self.0, code.as_mut_ptr().cast()));
            code
        }
    }

    fn lowered(&self, expression: &CStr) -> String {
        let rtc = provider().hiprtc().expect("hipRTC");
        let mut name = ptr::null();
        unsafe {
            rtc_ok(rtc.hiprtcGetLoweredName(self.0, expression.as_ptr(), &mut name));
            CStr::from_ptr(name).to_str().expect("UTF-8").to_owned()
        }
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let rtc = provider().hiprtc().expect("hipRTC");
        rtc_ok(unsafe { rtc.hiprtcDestroyProgram(&mut self.0) });
    }
}

fn global(module: hipModule_t, name: &str) -> (hipDeviceptr_t, usize) {
    let (mut at, mut size) = (ptr::null_mut(), 0);
    let name = CString::new(name).expect("no zeros");
    ok(unsafe { hip().hipModuleGetGlobal(&mut at, &mut size, module, name.as_ptr()) });
    (at, size)
}

fn floats(buffer: &Buffer, len: usize) -> Vec<f32> {
    buffer.peek(len).into_iter().map(f32::from_bits).collect()
}

#[test]
fn name_expressions_instantiate_templates_and_name_variables() {
    if code(None).is_none() {
        return;
    }
    let _turn = turn();
    let expressions = [
        c"axpy<float>",
        c"nn::fill<unsigned, 3>",
        c"& nn::look_up",
        c"&nn::offset",
        c"nn::table",
        c"mixed",
    ];
    let program = Compiled::new(&expressions).unwrap();
    assert_eq!(program.lowered(c"axpy<float>"), "_Z4axpyIfEviT_PKS0_PS0_");
    assert_eq!(program.lowered(c"& nn::look_up"), "_ZN2nn7look_upEPf");
    assert_eq!(program.lowered(c"mixed"), "mixed");
    let rtc = provider().hiprtc().expect("hipRTC");
    let mut name = ptr::null();
    unsafe {
        rtc_is(
            rtc.hiprtcGetLoweredName(program.0, c"axpy<double>".as_ptr(), &mut name),
            hiprtcResult::HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID,
        );
        rtc_is(
            rtc.hiprtcAddNameExpression(program.0, c"axpy<double>".as_ptr()),
            hiprtcResult::HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION,
        );
    }

    let (module, stream) = (load(&program.code()), Stream::new());
    let axpy = function(module, &program.lowered(c"axpy<float>"));
    let x = Buffer::of(&[1.0_f32, 2.0, 3.0].map(f32::to_bits));
    let y = Buffer::of(&[10.0_f32, 20.0, 30.0].map(f32::to_bits));
    let (mut n, mut a, mut px, mut py) = (3_i32, 0.5_f32, x.0, y.0);
    ok(launch(
        axpy,
        64,
        &mut [
            address(&mut n),
            address(&mut a),
            address(&mut px),
            address(&mut py),
        ],
        &stream,
    ));
    let fill = function(module, &program.lowered(c"nn::fill<unsigned, 3>"));
    let filled = Buffer::new(4);
    let mut to = filled.0;
    ok(launch(fill, 4, &mut [address(&mut to)], &stream));
    stream.wait();
    assert_eq!(floats(&y, 3), [10.5, 21.0, 31.5]);
    assert_eq!(filled.peek(4), [10; 4]);

    let (offset, size) = global(module, &program.lowered(c"&nn::offset"));
    let other = 40_u32;
    let up = hipMemcpyKind::hipMemcpyHostToDevice;
    assert_eq!(size, 4);
    ok(unsafe { hip().hipMemcpy(offset, ptr::from_ref(&other).cast(), 4, up) });
    ok(launch(fill, 4, &mut [address(&mut to)], &stream));
    stream.wait();
    assert_eq!(filled.peek(4), [43; 4]);
    ok(unsafe { hip().hipModuleUnload(module) });
}

#[test]
fn a_wrong_name_expression_is_told_by_the_compiler() {
    if code(None).is_none() {
        return;
    }
    let log = Compiled::new(&[c"mixed", c"axpy<flaot>"])
        .err()
        .expect("no such type");
    assert!(log.starts_with("name_expressions:2:"), "{log}");
    assert!(log.contains("flaot"), "{log}");
}

#[test]
fn variables_and_constants_are_copied_to_and_from() {
    if code(None).is_none() {
        return;
    }
    let _turn = turn();
    let program = Compiled::new(&[c"nn::table", c"nn::offset", c"nn::look_up"]).unwrap();
    let (module, stream) = (load(&program.code()), Stream::new());
    let (table, size) = global(module, &program.lowered(c"nn::table"));
    assert_eq!(size, 16);
    let values = [0.25_f32, -1.0, 3.5, 8.0];
    let (up, down) = (
        hipMemcpyKind::hipMemcpyHostToDevice,
        hipMemcpyKind::hipMemcpyDeviceToHost,
    );
    let to = Buffer::new(4);
    let mut at = to.0;
    let mut back = [0.0_f32; 4];
    let mut offset = 0_u32;
    unsafe {
        ok(hip().hipMemcpyAsync(table, values.as_ptr().cast(), 16, up, stream.0));
        let look_up = function(module, &program.lowered(c"nn::look_up"));
        ok(launch(look_up, 4, &mut [address(&mut at)], &stream));
        ok(hip().hipMemcpyAsync(back.as_mut_ptr().cast(), table, 16, down, stream.0));
        stream.wait();
        assert_eq!((floats(&to, 4), back), (values.to_vec(), values));

        // Beyond the variable is not the variable's memory.
        let (place, size) = global(module, &program.lowered(c"nn::offset"));
        ok(hip().hipMemcpy(ptr::from_mut(&mut offset).cast(), place, size, down));
        assert_eq!(offset, 7, "its initial value");
        let (mut none, mut bytes) = (ptr::null_mut(), 0);
        is(
            hip().hipModuleGetGlobal(&mut none, &mut bytes, module, c"nothing".as_ptr()),
            hipError_t::hipErrorNotFound,
        );
        ok(hip().hipModuleGetGlobal(&mut none, ptr::null_mut(), module, c"_ZN2nn5tableE".as_ptr()));
        assert_eq!(none, table);
        ok(hip().hipModuleUnload(module));
    }
}

#[test]
fn each_parameter_goes_to_its_offset() {
    #[repr(C)]
    struct Pair {
        tag: i8,
        value: f64,
    }
    if code(None).is_none() {
        return;
    }
    let _turn = turn();
    let (module, stream) = (load(&Compiled::new(&[]).unwrap().code()), Stream::new());
    let to = Buffer::new(12);
    let (mut a, mut b, mut c, mut e, mut at) = (-3_i8, 0.125_f64, -300_i16, 200_u8, to.0);
    let mut d = Pair { tag: 5, value: -2.5 };
    let mut parameters = [
        address(&mut a),
        address(&mut b),
        address(&mut c),
        address(&mut d),
        address(&mut e),
        address(&mut at),
    ];
    ok(launch(function(module, "mixed"), 1, &mut parameters, &stream));
    stream.wait();
    let words = to.peek(12);
    let values: Vec<f64> = words
        .chunks(2)
        .map(|pair| f64::from_bits(u64::from(pair[0]) | u64::from(pair[1]) << 32))
        .collect();
    assert_eq!(values, [-3.0, 0.125, -300.0, 5.0, -2.5, 200.0]);
    assert_eq!((d.tag, d.value), (5, -2.5));
    ok(unsafe { hip().hipModuleUnload(module) });
}

fn attribute(function: hipFunction_t, attribute: hipFunction_attribute) -> i32 {
    let mut value = -1;
    ok(unsafe { hip().hipFuncGetAttribute(&mut value, attribute, function) });
    value
}

#[test]
fn attributes_tell_what_a_kernel_takes() {
    if code(None).is_none() {
        return;
    }
    let module = load(&Compiled::new(&[]).unwrap().code());
    let [tile, scratch] = ["tile", "scratch"].map(|name| function(module, name));
    let most = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    let lds = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
    let dynamic = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let private = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
    let registers = hipFunction_attribute::HIP_FUNC_ATTRIBUTE_NUM_REGS;
    assert_eq!(
        [most, lds, private].map(|asked| attribute(tile, asked)),
        [128, 4096, 0]
    );
    assert_eq!([most, lds].map(|asked| attribute(scratch, asked)), [1024, 0]);
    assert!(
        attribute(scratch, private) >= 256,
        "{}",
        attribute(scratch, private)
    );
    assert!((1..=128).contains(&attribute(tile, registers)));
    assert_eq!(attribute(tile, dynamic), 65536 - 4096);
    unsafe {
        let size = hipFuncAttribute::hipFuncAttributeMaxDynamicSharedMemorySize;
        let tile: *const c_void = tile.cast_const().cast();
        ok(hip().hipFuncSetAttribute(tile, size, 32768));
        is(
            hip().hipFuncSetAttribute(tile, size, 65536),
            hipError_t::hipErrorInvalidValue,
        );
        ok(hip().hipModuleUnload(module));
    }
}

#[test]
fn occupancy_is_limited_by_blocks_threads_and_lds() {
    if code(None).is_none() {
        return;
    }
    let module = load(&Compiled::new(&[c"axpy<float>"]).unwrap().code());
    let tile = function(module, "tile");
    let axpy = function(module, "_Z4axpyIfEviT_PKS0_PS0_");
    let (mut blocks, mut grid, mut block) = (0, 0, 0);
    unsafe {
        // 64 KiB of LDS: 4 KiB of the kernel's own, 12 KiB beside them.
        ok(hip().hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, tile, 128, 12 << 10));
        assert_eq!(blocks, 4);
        ok(hip().hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, tile, 256, 0));
        assert_eq!(blocks, 0, "it was compiled for blocks of 128");
        is(
            hip().hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, tile, 0, 0),
            hipError_t::hipErrorInvalidValue,
        );
        ok(hip().hipModuleOccupancyMaxPotentialBlockSize(&mut grid, &mut block, tile, 0, 0));
        assert_eq!((grid, block), (304 * 16, 128));
        ok(hip().hipModuleOccupancyMaxPotentialBlockSize(&mut grid, &mut block, axpy, 0, 0));
        assert_eq!((grid, block), (304 * 2, 1024));
        ok(hip().hipModuleOccupancyMaxPotentialBlockSize(&mut grid, &mut block, axpy, 0, 256));
        assert_eq!((grid, block), (304 * 8, 256));
        ok(hip().hipModuleUnload(module));
    }
}
