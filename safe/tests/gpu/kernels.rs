//! Kernels with several parameters, templates, globals, attributes.

use hip_safe::{
    Device, Error, Function, Global, In, KernelCache, Launch, LaunchBuilder, Module, Out, Rtc, Stream,
    TypedFunction,
};

use super::{Check, ensure, numbers};

const SOURCE: &str = r#"
extern "C" __global__ void saxpy(unsigned n, float a, const float* x, float* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

template <class T, int FACTOR> __global__ void multiply(unsigned n, const T* from, T* to) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = FACTOR * from[i];
}

extern "C" __global__ void mixed(char a, double b, short c, unsigned char d, double* to, double* none) {
    if (none) *none = 0;
    to[0] = a; to[1] = b; to[2] = c; to[3] = d;
}

namespace nn {
__device__ int offset = 7;
__constant__ float table[4];
__global__ void look_up(float* to) { to[threadIdx.x] = table[threadIdx.x] + offset; }
}

extern "C" __global__ __launch_bounds__(128) void tile(unsigned* to) {
    __shared__ unsigned rows[1024];
    rows[threadIdx.x] = to[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = rows[127 - threadIdx.x];
}
"#;

const EXPRESSIONS: [&str; 4] = [
    "multiply<float, 3>",
    "multiply<int, -2>",
    "nn::look_up",
    "&nn::offset",
];

fn module(device: &Device, rtc: &Rtc) -> hip_safe::Result<Module> {
    let mut program = rtc.program("kernels.hip", SOURCE).name("&nn::table");
    for expression in EXPRESSIONS {
        program = program.name(expression);
    }
    Module::load(device, program.compile()?)
}

fn loaded(device: &Device) -> hip_safe::Result<Module> {
    module(device, &Rtc::new(device)?)
}

const N: u32 = 1003;

fn inputs() -> (Vec<f32>, Vec<f32>) {
    (numbers(N as usize, 31), numbers(N as usize, 32))
}

fn is_saxpy(result: &[f32], (x, y): &(Vec<f32>, Vec<f32>), a: f32) -> bool {
    // One rounding or two, as the compiler likes.
    let expected = x
        .iter()
        .zip(y)
        .map(|(&x, &y)| f64::from(a) * f64::from(x) + f64::from(y));
    result.len() == x.len()
        && result
            .iter()
            .zip(expected)
            .all(|(&r, e)| (f64::from(r) - e).abs() < 1e-6)
}

pub(crate) fn saxpy(device: &Device) -> Check {
    let module = loaded(device)?;
    let (saxpy, stream) = (module.function("saxpy")?, device.stream()?);
    let values = inputs();
    let (x, mut y) = (stream.upload(&values.0)?, stream.upload(&values.1)?);
    let launch = saxpy
        .launch(&stream, Launch::for_elements(N))
        .value(N)
        .value(2.0f32);
    // SAFETY: the source above accesses n elements of both, which have as many.
    unsafe { launch.buffer(&x).buffer(&mut y).submit() }?;
    ensure(is_saxpy(&y.read()?, &values, 2.0), || "wrong values".into())?;

    let mixed = module.function("mixed")?;
    let mut to = stream.zeroed::<f64>(4)?;
    let launch = mixed
        .launch(&stream, Launch::new(1, 1))
        .value(-3i8)
        .value(0.1f64)
        .value(-300i16);
    // SAFETY: the source above writes four elements, and knows a null pointer.
    unsafe { launch.value(200u8).buffer(&mut to).null().submit() }?;
    let got = to.read()?;
    ensure(got == [-3.0, 0.1, -300.0, 200.0], || format!("{got:?}"))?;
    Ok("four parameters, and six of mixed sizes".into())
}

type Saxpy = (u32, f32, In<f32>, Out<f32>);

fn typed_saxpy(module: &Module) -> hip_safe::Result<TypedFunction<Saxpy>> {
    let saxpy = module.function("saxpy")?;
    // SAFETY: the source above has these parameters, and accesses n elements of both buffers.
    unsafe { saxpy.typed::<Saxpy, 2>(|(n, ..)| [n as usize; 2]) }
}

pub(crate) fn typed(device: &Device) -> Check {
    let saxpy = typed_saxpy(&loaded(device)?)?;
    let (stream, launch) = (device.stream()?, Launch::for_elements(N));
    let values = inputs();
    let (x, mut y) = (stream.upload(&values.0)?, stream.upload(&values.1)?);
    saxpy.launch(&stream, launch, (N, 2.0, &x, &mut y))?;
    ensure(is_saxpy(&y.read()?, &values, 2.0), || "wrong values".into())?;
    y.write(&values.1)?;
    let x = x.freeze()?;
    saxpy
        .clone()
        .launch(&stream, launch, (N, -1.5, &x, y.writing()))?;
    ensure(is_saxpy(&y.read()?, &values, -1.5), || {
        "wrong values of a frozen buffer".into()
    })?;

    let parts = (
        x.reading().part(4..4 * N as usize)?,
        y.writing().part(0..4 * (N as usize - 1))?,
    );
    saxpy.launch(&stream, launch, (N - 1, 1.0, parts.0, parts.1))?;
    let wrong = [
        saxpy.launch(&stream, launch, (N, 1.0, parts.0, y.writing())),
        saxpy.launch(&stream, launch, (N, 1.0, x.reading(), x.reading())),
        saxpy.launch(&stream, launch, (8, 1.0, x.reading().part(2..100)?, y.writing())),
        saxpy.launch(&device.stream()?, launch, (N, 1.0, x.reading(), &mut y)),
    ];
    let texts = [
        "kernel `saxpy`: parameter 2: the kernel would access 1003 elements of a buffer of 1002",
        "operand: is read-only and would be written",
        "operand: begins at ",
        "operand: belongs to another stream",
    ];
    for (result, text) in wrong.into_iter().zip(texts) {
        let error = result.err().map(|error| error.to_string()).unwrap_or_default();
        ensure(error.starts_with(text), || {
            format!("{error:?} instead of {text:?}")
        })?;
    }
    Ok("checked against its statement".into())
}

/// Arguments are checked against the parameters that the code object declares before the driver sees them.
pub(crate) fn parameters(device: &Device) -> Check {
    let module = loaded(device)?;
    let stream = device.stream()?;
    let (x, mut y) = (stream.zeroed::<f32>(8)?, stream.zeroed::<f32>(8)?);
    let saxpy = module.function("saxpy")?;
    fn launch<'a>(function: &'a Function, stream: &'a Stream) -> LaunchBuilder<'a> {
        function.launch(stream, Launch::new(1, 8)).value(8u32)
    }
    // SAFETY: each of these is refused; were one not, it accesses eight elements at most.
    let results = unsafe {
        [
            launch(&saxpy, &stream).value(1.0f32).buffer(&x).submit(),
            launch(&saxpy, &stream)
                .value(1.0f64)
                .buffer(&x)
                .buffer(&mut y)
                .submit(),
            saxpy
                .clone()
                .typed::<(u32, f64, In<f32>, Out<f32>), 2>(|_| [0, 0])
                .map(drop),
            saxpy.clone().typed::<(u32,), 0>(|_| []).map(drop),
        ]
    };
    let four_bytes = "kernel `saxpy`: parameter 1: has 4 bytes, and an argument of 8 was given";
    let texts = [
        "kernel `saxpy`: takes 4 parameters, but 3 were given",
        four_bytes,
        four_bytes,
        "kernel `saxpy`: takes 4 parameters, but 1 were given",
    ];
    for (result, text) in results.into_iter().zip(texts) {
        match result {
            Err(error @ Error::Parameter { .. }) if error.to_string() == text => {}
            other => return Err(format!("{other:?} instead of {text:?}").into()),
        }
    }
    if device.properties().arch().starts_with("gfx") {
        // A cubin does not state what is a pointer.
        // SAFETY: as above.
        let results = unsafe {
            [
                launch(&saxpy, &stream)
                    .value(1.0f32)
                    .value(0u64)
                    .buffer(&mut y)
                    .submit(),
                launch(&module.function("mixed")?, &stream).submit(),
                saxpy
                    .clone()
                    .launch(&stream, Launch::new(1, 8))
                    .buffer(&x)
                    .value(1.0f32)
                    .buffer(&x)
                    .buffer(&mut y)
                    .submit(),
            ]
        };
        let texts = [
            "kernel `saxpy`: parameter 2: is a pointer to device memory, and a value was given",
            "kernel `mixed`: takes 6 parameters, but 1 were given",
            "kernel `saxpy`: parameter 0: is a value of 4 bytes, and a buffer was given",
        ];
        for (result, text) in results.into_iter().zip(texts) {
            let error = result.err().map(|error| error.to_string()).unwrap_or_default();
            ensure(error == text, || format!("{error:?} instead of {text:?}"))?;
        }
    }
    let error = module.function("saxpi").map_err(|error| error.to_string());
    ensure(
        error
            .as_ref()
            .is_err_and(|text| text.ends_with("the module has no kernel `saxpi`")),
        || format!("{error:?}"),
    )?;
    Ok("number, size and kind".into())
}

fn multiply(module: &Module, device: &Device) -> Result<(), Box<dyn std::error::Error>> {
    let stream = device.stream()?;
    let launch = Launch::for_elements(N);
    let floats = numbers(N as usize, 33);
    let (from, mut to) = (stream.upload(&floats)?, stream.zeroed::<f32>(N as usize)?);
    let function = module.function("multiply<float, 3>")?;
    // SAFETY: the source above has these parameters, and accesses n elements of both buffers.
    let triple = unsafe { function.typed::<(u32, In<f32>, Out<f32>), 2>(|(n, ..)| [n as usize; 2]) }?;
    triple.launch(&stream, launch, (N, &from, &mut to))?;
    ensure(to.read()?.iter().zip(&floats).all(|(a, b)| *a == 3.0 * b), || {
        "floats".into()
    })?;

    let integers: Vec<i32> = (0..N as i32).collect();
    let (from, mut to) = (stream.upload(&integers)?, stream.zeroed::<i32>(N as usize)?);
    let function = module.function("multiply<int, -2>")?;
    // SAFETY: as above.
    let double = unsafe { function.typed::<(u32, In<i32>, Out<i32>), 2>(|(n, ..)| [n as usize; 2]) }?;
    double.launch(&stream, launch, (N, &from, &mut to))?;
    Ok(ensure(
        to.read()?.iter().zip(&integers).all(|(a, b)| *a == -2 * b),
        || "integers".into(),
    )?)
}

pub(crate) fn templates(device: &Device) -> Check {
    let module = loaded(device)?;
    multiply(&module, device)?;
    let rtc = Rtc::new(device)?;
    let program = rtc.program("kernels.hip", SOURCE).name("multiply<flaot, 3>");
    match program.compile() {
        Err(Error::Compile { log, .. }) if log.contains("flaot") => {}
        other => return Err(format!("{other:?}").into()),
    }
    Ok(module.function(EXPRESSIONS[0])?.name().to_owned())
}

/// The lowered names are kept with the code.
pub(crate) fn cached(device: &Device) -> Check {
    let folder = tempfile::tempdir()?;
    let cache = KernelCache::at(folder.path());
    let rtc = Rtc::new(device)?.with_cache(Some(cache.clone()));
    for _ in 0..2 {
        multiply(&module(device, &rtc)?, device)?;
    }
    let (files, bytes) = cache.usage()?;
    ensure(files == 1, || format!("{files} files"))?;
    Ok(format!("{bytes} bytes"))
}

pub(crate) fn globals(device: &Device) -> Check {
    let module = loaded(device)?;
    let stream = device.stream()?;
    let offset: Global<i32> = module.global("&nn::offset")?;
    let table: Global<f32> = module.global("&nn::table")?;
    ensure((offset.len(), table.len()) == (1, 4), || {
        format!("{offset:?} {table:?}")
    })?;
    ensure(offset.read(&stream)? == [7], || "the initial value".into())?;
    ensure(module.read_global::<i32>("&nn::offset")? == 7, || {
        "the constant".into()
    })?;
    table.write(&stream, &[1.0, 2.0, 3.0, 4.0])?;
    offset.copy_from(&stream, stream.upload(&[-40])?.reading())?;
    let mut to = stream.zeroed::<f32>(4)?;
    let launch = module.function("nn::look_up")?;
    let launch = launch.launch(&stream, Launch::new(1, 4));
    // SAFETY: the source above writes an element for each thread.
    unsafe { launch.buffer(&mut to).submit() }?;
    let got = to.read()?;
    ensure(got == [-39.0, -38.0, -37.0, -36.0], || format!("{got:?}"))?;
    table.copy_to(&stream, to.writing())?;
    ensure(to.read()? == [1.0, 2.0, 3.0, 4.0], || "a copy".into())?;

    let errors = [
        table.write(&stream, &[0.0; 3]).err(),
        module.global::<[f32; 3]>("&nn::table").err(),
        module.global::<f32>("nothing").err(),
        table.copy_to(&stream, stream.zeroed::<f32>(4)?.reading()).err(),
    ];
    let texts = [
        "has 16 bytes, and 12 were given",
        "not aligned elements of 12",
        "the module has no global variable `nothing`",
        "is read-only",
    ];
    for (error, text) in errors.into_iter().zip(texts) {
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        ensure(error.contains(text), || format!("{error:?} instead of {text:?}"))?;
    }
    Ok(format!("{offset:?}"))
}

pub(crate) fn attributes(device: &Device) -> Check {
    let tile = loaded(device)?.function("tile")?;
    let attributes = tile.attributes()?;
    ensure(attributes.lds_bytes == 4096, || format!("{attributes:?}"))?;
    ensure(attributes.max_threads_per_block == 128, || {
        format!("{attributes:?}")
    })?;
    ensure(attributes.registers > 0 && attributes.scratch_bytes == 0, || {
        format!("{attributes:?}")
    })?;
    let blocks = tile.max_active_blocks(128, 0)?;
    let fewer = tile.max_active_blocks(128, 16384)?;
    ensure(blocks > fewer && fewer > 0, || format!("{blocks}, {fewer}"))?;
    let suggested = tile.suggested_block(0, 0)?;
    ensure(
        suggested.block > 0 && suggested.block <= 128 && suggested.grid > 0,
        || format!("{suggested:?}"),
    )?;
    Ok(format!("{attributes:?}, {blocks} blocks, {suggested:?}"))
}
