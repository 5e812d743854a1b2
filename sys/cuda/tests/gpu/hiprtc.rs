//! hipRTC: compilation, options, name expressions.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use hipvit_sys::Hiprtc;
use hipvit_sys::hiprtc::{hiprtcProgram, hiprtcResult};

use crate::Outcome;
use crate::device::{Gpu, is, ok, text};

/// The kernel `scale`, whose element type and factor come from options.
const CONFIGURED: &CStr = c"
extern \"C\" __global__ void scale(ELEMENT* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= FACTOR;
}
";

/// A template, which has code only for the instances that are named.
const TEMPLATE: &CStr = c"
namespace nn {
template <typename T, int STEP> __global__ void count(T* values) { values[threadIdx.x] = STEP * threadIdx.x; }
}
__device__ int limits[4];
";

/// Result of compiling a program.
pub(crate) struct Compiled {
    /// The machine code.
    pub(crate) code: Vec<u8>,
    /// The names in it of the expressions that were asked for.
    pub(crate) names: Vec<CString>,
}

/// Compiles for the device, or says why not, with the log.
pub(crate) fn compile(
    gpu: &Gpu,
    source: &CStr,
    options: &[&CStr],
    expressions: &[&CStr],
) -> Result<Compiled, String> {
    let arch = CString::new(format!("--offload-arch={}", gpu.arch)).map_err(|error| error.to_string())?;
    let options: Vec<&CStr> = [arch.as_c_str(), c"-O3"]
        .into_iter()
        .chain(options.iter().copied())
        .collect();
    compile_with(gpu, source, &options, expressions)
}

fn compile_with(
    gpu: &Gpu,
    source: &CStr,
    options: &[&CStr],
    expressions: &[&CStr],
) -> Result<Compiled, String> {
    let rtc = gpu.provider.hiprtc().map_err(|error| error.to_string())?;
    let mut program = ptr::null_mut();
    let name = c"test.hip".as_ptr();
    // SAFETY: one handle is written; the strings end in zeros and live through the call; there are no headers.
    ok(unsafe { rtc.hiprtcCreateProgram(&mut program, source.as_ptr(), name, 0, ptr::null(), ptr::null()) })?;
    // SAFETY: the program lives.
    let compiled = unsafe { compile_program(rtc, program, options, expressions) };
    // SAFETY: made above, destroyed once.
    ok(unsafe { rtc.hiprtcDestroyProgram(&mut program) })?;
    compiled
}

/// # Safety
/// The program lives.
unsafe fn compile_program(
    rtc: &Hiprtc,
    program: hiprtcProgram,
    options: &[&CStr],
    expressions: &[&CStr],
) -> Result<Compiled, String> {
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let (mut size, mut log_size) = (0, 0);
    // SAFETY: the strings end in zeros and live through the calls; there are as many options as is said; log and code are
    // as long as the library asked for; a name lives as long as the program, and is copied.
    unsafe {
        for expression in expressions {
            ok(rtc.hiprtcAddNameExpression(program, expression.as_ptr()))?;
        }
        if let Err(status) = ok(rtc.hiprtcCompileProgram(program, options.len() as i32, options.as_ptr())) {
            ok(rtc.hiprtcGetProgramLogSize(program, &mut log_size))?;
            let mut log = vec![0; log_size];
            ok(rtc.hiprtcGetProgramLog(program, log.as_mut_ptr()))?;
            return Err(format!("{status}: {}", text(&log).trim()));
        }
        ok(rtc.hiprtcGetCodeSize(program, &mut size))?;
        let mut code = vec![0_u8; size];
        ok(rtc.hiprtcGetCode(program, code.as_mut_ptr().cast()))?;
        let lowered = expressions.iter().map(|expression| {
            let mut name = ptr::null();
            ok(rtc.hiprtcGetLoweredName(program, expression.as_ptr(), &mut name))?;
            Ok(CStr::from_ptr(name).to_owned())
        });
        let names = lowered.collect::<Result<_, String>>()?;
        Ok(Compiled { code, names })
    }
}

fn is_elf(compiled: &Compiled) -> Outcome {
    if compiled.code.get(..4) == Some(b"\x7fELF") {
        Ok(())
    } else {
        Err(format!("{} bytes that are no ELF file", compiled.code.len()))
    }
}

#[test]
fn code_is_an_elf_file() -> Outcome {
    let Some(gpu) = Gpu::for_compiling()? else {
        return Ok(());
    };
    let compiled = compile(&gpu, CONFIGURED, &[c"-DELEMENT=float", c"-DFACTOR=2"], &[])?;
    println!("{} bytes for {}", compiled.code.len(), gpu.arch);
    is_elf(&compiled)
}

#[test]
fn an_amd_arch_is_refused_on_nvidia() -> Outcome {
    let Some(gpu) = Gpu::for_compiling()? else {
        return Ok(());
    };
    if !gpu.is_nvidia() {
        println!("skipped: not an NVIDIA device");
        return Ok(());
    }
    match compile_with(&gpu, CONFIGURED, &[c"--offload-arch=gfx942"], &[]) {
        Err(message) if message.contains("gfx942 is an AMD architecture") => Ok(()),
        Err(message) => Err(message),
        Ok(_) => Err("it was compiled".into()),
    }
}

/// Definitions like those of hipvit's kernels: `-DHIPVIT_DTYPE=f16`, `-DHIPVIT_HEAD_DIM=64`.
#[test]
fn definitions_reach_the_compiler() -> Outcome {
    let Some(gpu) = Gpu::for_compiling()? else {
        return Ok(());
    };
    for options in [
        &[c"-DELEMENT=float", c"-DFACTOR=0.5f"][..],
        &[c"-D", c"ELEMENT=int", c"-D", c"FACTOR=3"],
        &[c"-DELEMENT=unsigned char", c"-DFACTOR=(1 + 1)", c"-UUNDEFINED"],
    ] {
        compile(&gpu, CONFIGURED, options, &[]).and_then(|compiled| is_elf(&compiled))?;
    }
    match compile(&gpu, CONFIGURED, &[c"-DELEMENT=float"], &[]) {
        Err(message)
            if message.starts_with(&hiprtcResult::HIPRTC_ERROR_COMPILATION.to_string())
                && message.contains("FACTOR") =>
        {
            Ok(())
        }
        Err(message) => Err(message),
        Ok(_) => Err("compiled without a definition of FACTOR".into()),
    }
}

#[test]
fn name_expressions_have_lowered_names() -> Outcome {
    let Some(gpu) = Gpu::for_compiling()? else {
        return Ok(());
    };
    let expressions = [c"nn::count<float, 2>", c"nn::count<int, 3>", c"&limits"];
    let compiled = compile(&gpu, TEMPLATE, &[], &expressions)?;
    is_elf(&compiled)?;
    println!("{:?}", compiled.names);
    let mut names = compiled.names.clone();
    names.sort();
    names.dedup();
    if names.len() != expressions.len() {
        return Err(format!("{:?} for {expressions:?}", compiled.names));
    }
    // In the code's table of symbols.
    for name in names {
        let name = name.as_bytes_with_nul();
        if !compiled.code.windows(name.len()).any(|bytes| bytes == name) {
            return Err(format!("{name:?} is not in the code"));
        }
    }
    Ok(())
}

#[test]
fn the_lowered_name_of_an_unknown_expression_is_an_error() -> Outcome {
    let Some(gpu) = Gpu::for_compiling()? else {
        return Ok(());
    };
    let rtc = gpu.provider.hiprtc().map_err(|error| error.to_string())?;
    let (mut program, mut name) = (ptr::null_mut(), ptr::null());
    // SAFETY: the strings end in zeros; the program lives until it is destroyed here.
    unsafe {
        ok(rtc.hiprtcCreateProgram(
            &mut program,
            TEMPLATE.as_ptr(),
            c"test.hip".as_ptr(),
            0,
            ptr::null(),
            ptr::null(),
        ))?;
        let early = rtc.hiprtcGetLoweredName(program, c"nn::count<float, 2>".as_ptr(), &mut name);
        ok(rtc.hiprtcDestroyProgram(&mut program))?;
        is(
            early,
            hiprtcResult::HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION,
        )
    }
}

#[test]
fn template_instances_are_launched_by_their_lowered_names() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let compiled = compile(&gpu, TEMPLATE, &[], &[c"nn::count<float, 2>", c"&limits"])?;
    let [kernel, global] = &compiled.names[..] else {
        return Err("names are missing".into());
    };
    let memory = gpu.zeros(64)?;
    let mut at = memory.at;
    let mut arguments = [(&raw mut at).cast()];
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    let (mut limits, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the code is an ELF file that hipRTC just made, and the names end in zeros; the kernel takes one pointer, to
    // as many floats as it has threads; the module is unloaded after the device was waited for.
    unsafe {
        ok(hip.hipModuleLoadData(&mut module, compiled.code.as_ptr().cast()))?;
        ok(hip.hipModuleGetFunction(&mut function, module, kernel.as_ptr()))?;
        ok(hip.hipModuleGetGlobal(&mut limits, &mut bytes, module, global.as_ptr()))?;
        ok(hip.hipModuleLaunchKernel(
            function,
            1,
            1,
            1,
            64,
            1,
            1,
            0,
            ptr::null_mut(),
            arguments.as_mut_ptr(),
            ptr::null_mut(),
        ))?;
        gpu.synchronize()?;
        ok(hip.hipModuleUnload(module))?;
    }
    let expected: Vec<f32> = (0..64).map(|index| (2 * index) as f32).collect();
    if memory.download::<f32>(64)? != expected || bytes != 16 {
        return Err(format!("other values, or a global of {bytes} bytes"));
    }
    Ok(())
}
